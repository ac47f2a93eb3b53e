"""Verbs for operators: the workers, and attempts that are not to wait any longer. Part of the service."""

from __future__ import annotations

from romancy.core.actor import current_actor
from romancy.core.ids import check_lookup
from romancy.desk import OperatorsDesk, WorkerRecord
from romancy.errors import InstanceNotFound, NotRetryable
from romancy.runtime import Runtime
from romancy.storage.batch import FIRST_FINAL, STATUS_CODES, RequestAnswer


class DeskVerbs:
    """The verbs for operators: part of the service."""

    _runtime: Runtime

    async def list_workers(self) -> list[WorkerRecord]:
        """Return the workers of this database, the longest-running first.

        A worker that died is listed until another one takes over.
        """
        engine = self._runtime.engine
        return await OperatorsDesk(engine.storage, engine.clock).workers()

    async def retry_now(self, instance_id: str) -> bool:
        """Begin the next attempts of an instance's activities now, if they wait because earlier ones failed.

        Return False, and do nothing, if no activity of the instance waits for its next attempt. It works from every
        process, whichever worker runs the instance. Raise `NotRetryable` if the instance has ended or is blocked.
        """
        check_lookup(instance_id)
        engine = self._runtime.writer

        async def ask() -> RequestAnswer:
            answer = await engine.retry_now(instance_id, current_actor())
            if answer.status is None:
                raise InstanceNotFound(instance_id=instance_id)
            return answer

        answer = await engine.found(ask)
        assert answer.status is not None
        if not answer.took and (answer.status == "blocked" or STATUS_CODES[answer.status] >= FIRST_FINAL):
            raise NotRetryable(_refusal(instance_id, answer.status), instance_id=instance_id, status=answer.status)
        return answer.took


def _refusal(instance_id: str, status: str) -> str:
    if status == "blocked":
        return f"no activity of instance {instance_id!r} can be tried now: it is blocked; fix its code, then resume it"
    advice = "; retry it to let it go on" if status in ("failed", "cancelled") else ""
    return f"no activity of instance {instance_id!r} can be tried now: the instance has ended ({status}){advice}"
