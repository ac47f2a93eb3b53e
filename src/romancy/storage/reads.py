"""The engine's reads that both databases share. Each database has statements with the same names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from romancy.core.clock import Clock
from romancy.storage.acts import Acts
from romancy.storage.batch import STATUS_NAMES, UNKNOWN, Batch
from romancy.storage.catalog import Catalog
from romancy.storage.desk import DeskRows
from romancy.storage.inbox_items import InboxItem, to_item
from romancy.storage.interests import Held, Keeping
from romancy.storage.queues import Admit, Queues
from romancy.storage.records import (
    FIRST_MAIL,
    MOST_DEATHS,
    POOLED,
    Death,
    Due,
    Finished,
    Idle,
    KnownChild,
    Mail,
    MailPlace,
    Mortality,
    StoredRequest,
    Tally,
)
from romancy.storage.schedules import Schedules
from romancy.storage.sessions import Sessions
from romancy.storage.sinks import Sinks
from romancy.storage.sql import Run


class Reads:
    """The part of a storage that all backends share.

    `look` reads for people, `schedule` writes schedules, `sink` what sinks do, and the minutes, `do` everything
    else.
    """

    keys = ""
    over: int | None = None

    def __init__(self, ask: Run, look: Run, do: Run, admit: Admit, clock: Clock, schedule: Run, sink: Run) -> None:
        self._ask, self._do_named, self._clock = ask, do, clock
        self.queues = Queues(ask, do, admit)
        self.catalog = Catalog(look)
        self.acts = Acts(look)
        self.sessions = Sessions(ask, do)
        self.schedules = Schedules(ask, schedule)
        self.sinks = Sinks(ask, look, sink)
        self.desk = DeskRows(ask, look, sink)
        self._keeping, self._holding = Keeping(ask), Keeping(look)

    async def prepare(self, batch: Batch) -> None:
        return None  # all values are kept in the database

    async def sweep(self) -> int:
        return 0

    async def is_gone(self, worker: str) -> bool:
        return worker in await self.gone([worker])

    async def gone(self, workers: Collection[str]) -> set[str]:
        raise NotImplementedError  # each backend has its own signs of life

    async def held(self, before: int, most: int) -> list[Held]:
        return await self._holding.held(before, most)

    async def mail(self, worker: str, limit: int, after: MailPlace = FIRST_MAIL) -> Mail:
        place = {"event": after.event, "instance": after.instance, "request": after.request}
        rows = await self._ask("mail", worker=worker, limit=limit, **place)
        deliveries = [(instance, event) for instance, event, kind, *_ in rows if kind is None]
        requests = [(instance, StoredRequest(*request)) for instance, *request in rows if request[1] is not None]
        instance, event = deliveries[-1] if len(deliveries) == limit else ("", 0)
        request = requests[-1][1].id if len(requests) == limit else 0
        return Mail(deliveries, requests, MailPlace(event, instance, request))

    async def arrivals(self, limit: int, bytes: int, after: int = 0) -> list[InboxItem]:
        return [to_item(tuple(row)) for row in await self._ask("inbox", limit=limit, bytes=bytes, after=after)]

    async def refuse_arrival(self, number: int, reason: str) -> None:
        await self._do_named("refuse_arrival", number=number, reason=reason, at=self._clock.now())

    async def forget_arrival(self, number: int) -> bool:
        return bool(await self._do_named("inbox_forget", id=number))

    async def due(self, worker: str, before: int, limit: int) -> list[Due]:
        given: dict[str, Any] = {"worker": worker, "before": before, "limit": limit}
        rows = await self._ask("due_waits", **given) + await self._ask("due_retries", **given)
        return sorted((Due(*row) for row in rows), key=lambda due: due.due)[:limit]

    async def unloaded(self, worker: str) -> list[str]:
        return [id for (id,) in await self._ask("restless_of_worker", worker=worker)]

    async def existing(self, instances: Collection[str]) -> set[str]:
        return {id for (id,) in await self._ask("known_instances", listed=list(instances))}

    async def children(self, parent: str, instances: Collection[str]) -> dict[str, KnownChild]:
        rows = await self._ask("known_children", listed=list(instances), parent=parent)
        return {id: KnownChild(op, bool(has_ended)) for id, op, has_ended in rows}

    async def finished(self, instances: Collection[str]) -> list[Finished]:
        rows = await self._ask("finished_instances", listed=list(instances))
        return [Finished(id, STATUS_NAMES.get(status, UNKNOWN), output, error) for id, status, output, error in rows]

    async def idle(self, worker: str, due_after: int, limit: int) -> list[Idle]:
        rows = await self._ask("idle_of_worker", worker=worker, due=due_after, limit=limit)
        return [Idle(id, version, STATUS_NAMES[status]) for id, version, status in rows]

    async def mortality(self) -> Mortality:
        deaths = await self._ask("deaths", most=MOST_DEATHS)
        tallies = await self._ask("tallies", after=self._clock.now() - POOLED)
        return Mortality([Death(*row) for row in deaths], {name: Tally(*row) for name, *row in tallies})
