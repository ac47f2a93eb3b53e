"""The verbs of a client for what lies outside instances: the inbox, held events, questions, sinks, workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from romancy.client import responses
from romancy.client.requests import answer_content, looked_up, quoted
from romancy.client.wire import Reply
from romancy.core.model import SECOND, Duration, duration_us
from romancy.cursors import check_limit
from romancy.desk import WorkerRecord
from romancy.errors import InvalidInput
from romancy.inventory import OLD
from romancy.question_verbs import QuestionRecord
from romancy.records import HeldEvents, InboxRecord, Page
from romancy.sink_records import DeadLetter, SinkRecord

T = TypeVar("T")


class OutsideVerbs:
    """A part of the client."""

    if TYPE_CHECKING:

        async def _get(
            self, path: str, reader: Callable[[Any], T], id: str = "", query: Mapping[str, Any] | None = None
        ) -> T: ...
        async def _post(
            self, path: str, content: Mapping[str, Any], id: str, accepts: Collection[int] = ()
        ) -> Reply: ...

    async def list_inbox(self, *, limit: int = 50, cursor: str | None = None) -> Page[InboxRecord]:
        """What was left with `app.within`, oldest first: what workers have not taken in yet, or refused."""
        query = {"limit": check_limit(limit), "cursor": cursor}
        return await self._get("/api/inbox", responses.to_page(responses.to_inbox_record), query=query)

    async def forget_refused(self, number: int) -> bool:
        """Remove a refused start or event from the inbox. Returns False if nothing with this number was refused."""
        reply = await self._post(f"/api/inbox/{number:d}/forget", {}, "", accepts=(404,))
        return reply.status != 404 or reply.attempts > 1  # then an earlier attempt, whose answer was lost, did it

    async def list_held_events(self, *, older_than: Duration = OLD) -> list[HeldEvents]:
        """The events of at least this age that are kept because open instances may take them, by type."""
        query = {"older_than": duration_us(older_than, "older_than") / SECOND}
        return await self._get("/api/held-events", responses.to_all_held, query=query)

    async def list_questions(self, *, limit: int = 50, cursor: str | None = None) -> Page[QuestionRecord]:
        """The questions whose answers workflows wait for at present."""
        query = {"limit": check_limit(limit), "cursor": cursor}
        return await self._get("/api/questions", responses.to_page(responses.to_question), query=query)

    async def answer_question(
        self, instance_id: str, person: str, data: object, *, ask_id: str | None = None, by: str | None = None
    ) -> None:
        """Answer a question as one of the people who were asked. Raise `InvalidInput` if that can't be done."""
        body = answer_content(person, data, ask_id, by)
        await self._post(f"/api/instances/{looked_up(instance_id)}/answer", body, instance_id)

    async def answer_as_operator(
        self, instance_id: str, person: str, data: object, *, ask_id: str | None = None
    ) -> None:
        """Answer a question in place of a person. The server records the name of the token: `bob, for ann`."""
        body = {**answer_content(person, data, ask_id, None), "as_operator": True}
        await self._post(f"/api/instances/{looked_up(instance_id)}/answer", body, instance_id)

    async def list_sinks(self) -> list[SinkRecord]:
        """The sinks that any process has declared, by name."""
        return await self._get("/api/sinks", lambda found: [responses.to_sink(item) for item in found["items"]])

    async def list_dead_letters(
        self, sink: str | None = None, /, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """The events that a sink, or any, gave up, by sink, oldest first."""
        query = {"sink": sink, "limit": check_limit(limit), "cursor": cursor}
        return await self._get("/api/dead-letters", responses.to_page(responses.to_dead_letter), query=query)

    async def retry_dead_letters(self, sink: str, /, *, limit: int | None = None) -> int:
        """Let a sink deliver the events again that it gave up, oldest first. Returns how many there are."""
        reply = await self._post(f"/api/sinks/{quoted(sink)}/retry", {"limit": limit}, "", accepts=(404,))
        if reply.status == 404:
            raise InvalidInput(reply.content["error"])
        return reply.content["retried"]

    async def list_workers(self) -> list[WorkerRecord]:
        """The workers of the server's database, the longest-running first."""
        return await self._get("/api/workers", lambda found: [responses.to_worker(item) for item in found["items"]])

    async def retry_now(self, instance_id: str) -> bool:
        """Begin the next attempts of an instance's activities now, as `App.retry_now` does.

        False, with no effect, if no activity waits for its next attempt.
        """
        reply = await self._post(f"/api/instances/{looked_up(instance_id)}/retry-now", {}, instance_id)
        return reply.content["begins"]
