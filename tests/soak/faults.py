"""A storage that fails: every call may be lost before, lost after, late, or answered by a death. The seed decides."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from romancy.errors import StorageError
from romancy.storage.batch import Batch, BatchResult, Commit
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.protocol import Answered
from tests.soak.storage import InlineStorage, Journal

QUIET_WRITES = ("renew",)
"""Others need not be told of them: they would do nothing but look, three times in every lease."""
PAUSES = (0.001, 0.01, 0.1, 0.6, 2.5)
"""Virtual seconds."""


@dataclass
class Nature:
    """How bad a world is. `calm` ends it all."""

    random: random.Random
    commit_faults: float
    call_faults: float
    lost_notices: float
    counts: Counter[str]
    calm: bool = False
    refusals: bool = True

    def strikes(self, chance: float) -> bool:
        return not self.calm and self.random.random() < chance

    def count(self, kind: str) -> None:
        self.counts[kind] += 1

    def pause(self) -> float:
        return self.random.choice(PAUSES)


_ON_COMMITS = (
    ("commit lost before", 4),
    ("commit lost after", 5),
    ("commit comes late", 3),
    ("commit rolled back", 3),
    ("answer late", 4),
    ("killed before commit", 1),
    ("killed after commit", 1),
    ("value refused", 1),
    ("denied", 1),
)
_ON_CALLS = (("call lost before", 3), ("answer lost", 3), ("answer late", 3), ("call late", 3))


@dataclass
class Neighbours:
    """All storages of one database."""

    all: list[FaultyStorage] = field(default_factory=list["FaultyStorage"])

    def changed(self, by: FaultyStorage) -> None:
        for other in self.all:
            if other is not by:
                other.hear()


class FaultyStorage:
    """The `Storage` of one process, on a database that others use as well."""

    def __init__(
        self,
        inner: InlineStorage,
        journal: Journal,
        nature: Nature,
        neighbours: Neighbours,
        killed: Callable[[], None],
        *,
        is_remote: bool,
    ) -> None:
        self.inner, self.journal, self.nature = inner, journal, nature
        self.catalog, self.schedules, self.sinks = inner.catalog, inner.schedules, inner.sinks
        self.desk, self.acts = inner.desk, inner.acts
        self.emissions, self.keys, self.over = FaultyEmissions(self), inner.keys, inner.over
        self._changed: Callable[[], None] = lambda: None
        self._arrived: Callable[[], None] = lambda: None
        self.is_remote = is_remote
        self.dead = False
        self.cut_off_until = 0.0
        """Everything waits till then, and is done after all."""
        self._neighbours, self._killed = neighbours, killed
        self._noticed = False
        self._cursed: str | None = None
        self._submitted: set[bytes] = set()
        self._unanswered: list[Answered] = []
        self._is_closed = False
        neighbours.all.append(self)

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def die(self) -> None:
        """No call returns any more, and nothing gets through."""
        self.dead = True
        if self in self._neighbours.all:
            self._neighbours.all.remove(self)

    def close(self) -> None:
        """As when a database is closed: what is under way is answered, somehow."""
        unanswered, self._unanswered = self._unanswered, []
        self.die()
        self._is_closed = True
        for answered in unanswered:
            answered(None, TransientError("the database was closed; the outcome is not known"))

    def watch(
        self,
        changed: Callable[[], None],
        arrived: Callable[[], None] = lambda: None,
        rescheduled: Callable[[], None] = lambda: None,
    ) -> None:
        self._changed, self._arrived = changed, arrived

    def hear(self) -> None:
        """Another process wrote something."""
        if self.nature.strikes(self.nature.lost_notices):
            self.nature.count("notice lost")
        elif not self._noticed:
            self._noticed = True
            self._loop.call_later(0.0 if self.nature.calm else self.nature.pause() / 10, self._notice)

    def _notice(self) -> None:
        self._noticed = False
        if not self.dead:
            self._arrived()
            self._changed()

    # --- commits -----------------------------------------------------------------------------------------------------
    def append(self, commit: Commit, worker: str | None) -> bool:
        if self.dead or self._held_for() or self.is_remote:
            return False
        if self.nature.strikes(self.nature.commit_faults):
            if self.nature.random.random() < 0.5:
                self.nature.count("commit lost before")
            else:
                self.nature.count("commit lost after")
                self.journal.append(commit, worker)
            return False
        stored = self.journal.append(commit, worker)
        if stored:
            self._neighbours.changed(self)
        return stored

    def commit(self, batch: Batch, answered: Answered) -> None:
        self._unanswered.append(answered)
        self._commit(batch, answered)

    def _commit(self, batch: Batch, answered: Answered) -> None:
        if self.dead:
            if self._is_closed and answered in self._unanswered:
                self._unanswered.remove(answered)
                self._loop.call_soon(answered, None, TransientError("the database is not open"))
            return
        held = self._held_for()
        if held:
            self._loop.call_later(held, self._commit, batch, answered)
            return
        known = batch.token in self._submitted
        self._submitted.add(batch.token)
        if self._is_refused(batch, known):
            self._answer(answered, None, RefusedValue("a value that no database takes"))
        elif self.nature.strikes(self.nature.commit_faults):
            self._fail_commit(batch, answered)
        else:
            self._answer(answered, *self._apply(batch))

    def _fail_commit(self, batch: Batch, answered: Answered) -> None:
        kinds = [kind for kind, _ in _ON_COMMITS]
        [kind] = self.nature.random.choices(kinds, [weight for _, weight in _ON_COMMITS])
        if kind == "value refused":
            kind = "denied" if not self._curse(batch) else kind
        self.nature.count(kind)
        pause, lost = self.nature.pause(), TransientError("the line went dead")
        match kind:
            case "commit lost before":
                self._answer(answered, None, lost)
            case "commit lost after":
                self._apply(batch)
                self._answer(answered, None, lost)
            case "commit comes late":  # as a server does that lost its client; perhaps after the same batch came again
                self._loop.call_later(pause, self._apply, batch)
                self._answer(answered, None, lost)
            case "commit rolled back":
                self._answer(answered, *self.journal.apply(batch, breaks=True))
            case "answer late":
                self._answer(answered, *self._apply(batch), after=pause)
            case "killed before commit":
                self._kill()
            case "killed after commit":
                self._apply(batch)
                self._kill()
            case "value refused":
                self._submitted.discard(batch.token)
                self._commit(batch, answered)
            case _:
                self._answer(answered, None, StorageError("permission denied for table instances"))

    def _apply(self, batch: Batch) -> tuple[BatchResult | None, BaseException | None]:
        outcome = self.journal.apply(batch)
        self._neighbours.changed(self)
        return outcome

    def _answer(
        self, answered: Answered, answer: BatchResult | None, error: BaseException | None, after: float = 0.0
    ) -> None:
        def tell() -> None:
            if not self.dead:
                self._unanswered.remove(answered)
                answered(answer, error)

        if after:
            self._loop.call_later(after, tell)
        elif self.is_remote:
            self._loop.call_soon(tell)
        else:
            tell()

    def _curse(self, batch: Batch) -> bool:
        """From now on the database refuses what one instance stores, until the engine has found out which it is."""
        candidates = [c.instance for c in batch.commits if c.status != "blocked" and not c.release]
        if not candidates or not self.nature.refusals:
            return False
        self._cursed = self.nature.random.choice(candidates)
        return True

    def _is_refused(self, batch: Batch, known: bool) -> bool:
        """Only what is new is refused: had it been refused before, nobody would ask again."""
        if self._cursed is None or known or all(c.instance != self._cursed for c in batch.commits):
            return False
        if len(batch) == 1:
            self._cursed = None
        return True

    def _kill(self) -> None:
        self.die()
        self._loop.call_soon(self._killed)

    # --- everything else ---------------------------------------------------------------------------------------------
    def _held_for(self) -> float:
        return 0.0 if self.nature.calm else max(0.0, self.cut_off_until - self._loop.time())

    def stop_waiting(self) -> None:
        self.inner.stop_waiting()

    def drop_lock(self, worker: str) -> None:
        self.inner.drop_lock(worker)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, method, args, kwargs)

        return call

    async def _call(self, name: str, method: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        await self._survive(self._held_for())
        kind = ""
        if self.nature.strikes(self.nature.call_faults):
            [kind] = self.nature.random.choices([k for k, _ in _ON_CALLS], [w for _, w in _ON_CALLS])
            self.nature.count(kind)
        if kind == "call late":
            await self._survive(self.nature.pause())
        if kind == "call lost before":
            raise TransientError("the line was dead")
        before = self.inner.writes
        result = await method(*args, **kwargs)
        if self.inner.writes != before and name not in QUIET_WRITES:
            self._neighbours.changed(self)
        await self._survive(self.nature.pause() if kind == "answer late" else 0.0)
        if kind == "answer lost":
            raise TransientError("the line went dead")
        return result

    async def _survive(self, seconds: float) -> None:
        """Let time pass; whoever is dead then never gets any further."""
        if seconds:
            await asyncio.sleep(seconds)
        if self._is_closed:
            raise StorageError("the database is not open")
        if self.dead:
            await self._loop.create_future()


class FaultyEmissions:
    """The emissions of such a storage."""

    def __init__(self, storage: FaultyStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage.inner.emissions, name)
        if name in ("listen", "is_heard"):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._storage._call(name, method, args, kwargs)  # pyright: ignore[reportPrivateUsage]

        return call
