"""A database as the target of a command, used without a worker."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from romancy.api.workflow import Workflow
from romancy.app import App
from romancy.bulk import cancelling, parts, resuming, retrying
from romancy.cli.endings import has_undone, leading_to_end
from romancy.cli.errors import Refused
from romancy.cli.target import Inside, Sent, Standing, undone
from romancy.core.failure import Failure
from romancy.core.model import Event
from romancy.core.operations import MODELS
from romancy.errors import InstanceNotFound
from romancy.explain.near_misses import Case, Reason, filter_of, reasons
from romancy.explain.ownership import has_worker, owner_of
from romancy.handle import WorkflowHandle
from romancy.obstacles import queue_wait, with_cuts
from romancy.question_verbs import to_question
from romancy.records import BulkResult, InstanceFilter, to_histories, to_instance, to_wait
from romancy.searches import to_search
from romancy.sending import to_receipt
from romancy.service import runtime_of
from romancy.standings import open_of, operator_for
from romancy.storage.batch import CANCEL, Matched
from romancy.storage.catalog import Search
from romancy.storage.protocol import Storage
from romancy.storage.records import Snapshot


class DatabaseTarget:
    """Reads and writes the database directly."""

    def __init__(self, app: App) -> None:
        self.verbs = self._app = app
        self._runtime = runtime_of(app)

    async def start(
        self,
        wf: Workflow[..., Any] | str,
        instance_id: str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        place: Mapping[str, Any],
    ) -> WorkflowHandle[Any]:
        if isinstance(wf, str):
            if place:
                raise Refused("--key and --priority need the code of the workflow: pass --module, or --url of a server")
            return await self._app.start_workflow(wf, *args, instance_id=instance_id, **kwargs)
        return await self._app.start_workflow(wf.options(instance_id=instance_id, **place), *args, **kwargs)

    async def has_run(self, name: str) -> bool:
        """Whether a worker ever claimed one of the newest instances of this workflow."""
        rows = await self._runtime.engine.storage.catalog.instances(Search(workflow=name))
        return any(row.owner is not None or row.status != "running" for row in rows)

    async def delete_declared(self, name: str) -> None:
        await self._runtime.engine.timetable.delete(name, even_declared=True)

    async def has_begun(self, id: str) -> bool:
        row = await self._runtime.engine.storage.catalog.instance(id)
        return row is not None and (row.owner is not None or row.status != "running")

    async def send(self, event: Event) -> Sent:
        accepted = await self._runtime.engine.accept(event)
        return Sent(to_receipt(accepted), _unjudged(accepted.answer.matched, event.type))

    async def answer_as_operator(self, instance_id: str, person: str, data: object, ask_id: str | None) -> None:
        await self._app.answer_question(instance_id, person, data, ask_id=ask_id, by=operator_for(person))

    async def in_parts(
        self, verb: str, which: InstanceFilter, limit: int | None, reason: str | None, *, dry_run: bool = False
    ) -> AsyncGenerator[BulkResult]:
        engine = self._runtime.engine
        verbs = {"cancel": cancelling(engine, reason), "resume": resuming(engine), "retry": retrying(engine)}
        async for part in parts(engine.storage.catalog, to_search(which), verbs[verb], limit, dry_run=dry_run):
            yield part.result

    async def standing(self, id: str) -> Standing:
        storage, snapshot = self._runtime.engine.storage, await self._snapshot(id)
        if snapshot.problem is not None:  # some values can't be opened here; the catalog says which
            row = await storage.catalog.instance(id) or snapshot.row
            snapshot = replace(snapshot, row=row, history=await storage.catalog.history(id))
        row = snapshot.row
        stored = await storage.catalog.all_waits(id, 1000)
        misfits = {(event, op): error for event, op, error in await storage.catalog.misfits(id)}
        is_blocked = row.status == "blocked"
        case = Case(row.id, row.created_at, self._runtime.clock.now(), misfits, snapshot.deliveries, is_blocked)
        history = to_histories(snapshot.history)
        waits = await with_cuts(storage.catalog, row.created_at, list(map(to_wait, stored)))
        found = await reasons(self._app, case, [*zip(waits, map(filter_of, stored), strict=True)])
        asking = [row for row, wait in zip(stored, waits, strict=True) if wait.kind == "answer"]
        if row.status == "queued":
            found = [Reason(await queue_wait(storage, self._runtime.registry, row, case.now)), *found]
        return Standing(
            to_instance(row, [reason.wait for reason in found]),
            history[-1] if history else None,
            found,
            await self._inside(snapshot),
            undone(history),
            leading_to_end(history, Failure.decode(row.error).culprits if row.error else None),
            has_undone(history),
            list(map(to_question, await open_of(self._runtime, asking))),
        )

    async def _inside(self, snapshot: Snapshot) -> Inside:
        storage, owner = self._runtime.engine.storage, snapshot.row.owner
        worker = await owner_of(storage, owner)
        is_cancelling = any(request.kind == CANCEL for request in snapshot.requests)
        # The attempts of a call whose result is stored are kept until the code has received it; it runs no more.
        ended = None if snapshot.unfed is None else snapshot.unfed.op
        attempts = [attempt for attempt in snapshot.attempts if attempt.op != ended]
        row = snapshot.row
        others = await has_worker(storage, self._runtime.clock.now(), None if row.status == "queued" else row.workflow)
        return Inside(owner, worker, attempts, is_cancelling, len(snapshot.deliveries), others)

    async def stored(self, id: str) -> Snapshot:
        snapshot = await self._snapshot(id)
        if snapshot.problem is not None:
            raise snapshot.problem
        return snapshot

    async def _snapshot(self, id: str) -> Snapshot:
        engine = self._runtime.engine

        async def read() -> Snapshot:
            snapshot = await engine.storage.load(id)
            if snapshot is None:
                raise InstanceNotFound(instance_id=id)
            return snapshot

        return await engine.found(read)

    def storage(self) -> Storage:
        return self._runtime.engine.storage


def _unjudged(matched: Sequence[Matched], type: str) -> int:
    """Count instances whose wait has a model not known here, so that only their worker can check the data."""
    known: set[str] = set()
    for wait in matched:
        keys = wait.model.split(",")
        types: list[str] = json.loads(wait.spec)["types"]
        key = keys[0] if len(keys) == 1 else keys[types.index(type)]
        if not key or key in MODELS:
            known.add(wait.instance)
    return len({wait.instance for wait in matched} - known)
