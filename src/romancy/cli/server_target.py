"""A server as the target of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from romancy.api.workflow import Workflow
from romancy.cli.endings import has_undone, leading_to_end
from romancy.cli.errors import Refused
from romancy.cli.target import Sent, Standing, undone
from romancy.client import Client, RemoteHandle
from romancy.core.clock import SystemClock
from romancy.core.filters import Filter
from romancy.core.ids import check_id, new_id
from romancy.core.model import Event, to_us
from romancy.core.versions import bare_name
from romancy.explain.near_misses import Case, reasons
from romancy.question_verbs import QuestionRecord
from romancy.records import BulkResult, InstanceFilter, Wait
from romancy.searches import to_json
from romancy.storage.protocol import Storage
from romancy.storage.records import Snapshot


class ServerTarget:
    """Uses the HTTP API. Details that a server does not expose are left out."""

    def __init__(self, client: Client) -> None:
        self.verbs = self._client = client

    async def start(
        self,
        wf: Workflow[..., Any] | str,
        instance_id: str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        place: Mapping[str, Any],
    ) -> RemoteHandle[Any]:
        if not isinstance(wf, str):
            return await self._client.start_workflow(wf.options(instance_id=instance_id, **place), *args, **kwargs)
        if not place:
            return await self._client.start_workflow(wf, *args, instance_id=instance_id, **kwargs)
        id = new_id(SystemClock().now()) if instance_id is None else check_id(instance_id)
        created = await self._client.store_start(wf, {"args": list(args), "kwargs": dict(kwargs), **place}, id)
        return RemoteHandle(self._client, id, None, created)

    async def has_run(self, name: str) -> bool:
        """Whether the server has the workflow, or one of its newest instances is past `running`."""
        known = await self._client.list_workflows()
        if name in known or name in map(bare_name, known):
            return True
        newest = await self._client.list_instances(workflow=name)
        return any(instance.status != "running" for instance in newest.items)

    async def has_begun(self, id: str) -> bool:
        return (await self._client.get_instance(id)).status != "running"

    async def send(self, event: Event) -> Sent:
        return Sent(await self._client.send(event))

    async def answer_as_operator(self, instance_id: str, person: str, data: object, ask_id: str | None) -> None:
        await self._client.answer_as_operator(instance_id, person, data, ask_id=ask_id)

    def in_parts(
        self, verb: str, which: InstanceFilter, limit: int | None, reason: str | None, *, dry_run: bool = False
    ) -> AsyncIterator[BulkResult]:
        more = {"dry_run": dry_run} | ({} if reason is None else {"reason": reason})
        return self._client.act_in_parts(verb, limit, {**to_json(which), **more})

    async def standing(self, id: str) -> Standing:
        instance = await self._client.get_instance(id)
        _, *facts = await self._client.get_history(id)
        waits = [(wait, _filter(wait)) for wait in instance.waits]
        case = Case(id, to_us(instance.started_at), SystemClock().now(), is_blocked=instance.status == "blocked")
        found = await reasons(self._client, case, waits)
        return Standing(
            instance,
            facts[-1] if facts else None,
            found,
            None,
            undone(facts),
            leading_to_end(facts, None),
            has_undone(facts),
            await self._questions(id, sum(wait.kind == "answer" for wait in instance.waits)),
        )

    async def _questions(self, id: str, wanted: int) -> Sequence[QuestionRecord]:
        """Return the open questions of an instance, as far as they are among the first ones of the server."""
        found: list[QuestionRecord] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            if len(found) >= wanted:
                break
            page = await self._client.list_questions(limit=_PAGE, cursor=cursor)
            found += [question for question in page.items if question.instance_id == id]
            cursor = page.cursor
            if cursor is None:
                break
        return found

    async def delete_declared(self, name: str) -> None:
        raise Refused("--declared needs the database; give it with -d")

    async def stored(self, id: str) -> Snapshot:
        raise Refused(_NEEDS_DATABASE)

    def storage(self) -> Storage:
        raise Refused(_NEEDS_DATABASE)


_PAGE, _MOST_PAGES = 200, 5
_NEEDS_DATABASE = "replay needs the stored history, which a server does not expose; give the database with -d"


def _filter(wait: Wait) -> Filter:
    return Filter.build(wait.subject, wait.source, {_path(path): wanted for path, wanted in wait.where.items()})


def _path(written: str) -> tuple[str | int, ...]:
    """Split a dotted path from a server. A number in it is most likely an array index."""
    return tuple(int(step) if step.isdecimal() else step for step in written.split("."))
