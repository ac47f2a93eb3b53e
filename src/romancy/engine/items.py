"""Items: the contents of the committer's queue. Each knows its weight, its place in a batch, and its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

from romancy.storage.batch import (
    Accept,
    AcceptAnswer,
    Batch,
    BatchResult,
    Commit,
    Request,
    RequestAnswer,
    Start,
    StartAnswer,
)
from romancy.storage.errors import RefusedValue

Done = Callable[[bool, "RefusedValue | None"], None]


class Life(Enum):
    """The state of the committer."""

    OPEN = "open"
    CLOSED = "closed"
    """It takes nothing more from outside. Queued items are still stored."""
    DEAD = "dead"
    """As after a crash: nothing is stored or followed up."""


OPEN, CLOSED, DEAD = Life  # looking up an enum member is slow on Python 3.11


class Pump(Enum):
    """Where the committer is with the current batch."""

    IDLE = "idle"
    CALLED = "called"
    """A flush is scheduled."""
    SUBMITTING = "submitting"
    ANSWERED = "answered"
    """The answer came before the call to the database returned."""
    STORING = "storing"
    """The database has a batch, or a batch waits to be submitted again."""


IDLE, CALLED, SUBMITTING, ANSWERED, STORING = Pump  # looking up an enum member is slow on Python 3.11


class Results:
    """The results of a batch, in the order of its items."""

    def __init__(self, result: BatchResult) -> None:
        self.commits: Iterator[bool] = iter(result.commits)
        self.starts: Iterator[StartAnswer] = iter(result.starts)
        self.accepts: Iterator[AcceptAnswer] = iter(result.accepts)
        self.requests: Iterator[RequestAnswer] = iter(result.requests)


class Item:
    """Something to be stored, or looked for."""

    __slots__ = ()

    @property
    def weight(self) -> int:
        """Size in bytes, of the parts that can be large."""
        return 0

    @property
    def names(self) -> Iterable[object]:
        """Names that must not occur in two parts of a batch: of an event, or of an instance that is started."""
        return ()

    def add_to(self, batch: Batch) -> None:
        """Add this item to a batch whose items are lists."""
        raise TypeError(f"{self} can't be part of a batch")  # not an abstract class: isinstance() would be slow

    def settle(self, results: Results) -> None:
        """Take the result of this stored item, and tell the caller."""

    def fail(self, error: BaseException, life: Life) -> None:
        """Tell the caller that this item is not stored."""

    def refuse(self, error: RefusedValue, life: Life) -> None:
        """Tell the caller that the database refuses a value of this item."""
        self.fail(error, life)


class CommitItem(Item):
    """The commit of a step of an instance."""

    __slots__ = ("commit", "done")

    def __init__(self, commit: Commit, done: Done) -> None:
        self.commit, self.done = commit, done

    def __str__(self) -> str:
        return f"a step of instance {self.commit.instance!r}"

    @property
    def weight(self) -> int:
        commit = self.commit
        weight = len(commit.output or b"")
        for entry in commit.entries:
            weight += len(entry.payload or b"") + len(entry.input or b"")
        for sent in commit.sent:
            weight += len(sent.event.data or b"")
        for child in commit.children:
            weight += len(child.input)
        return weight

    @property
    def names(self) -> Iterable[object]:
        return [*(_name(accept) for accept in self.commit.sent), *(child.id for child in self.commit.children)]

    def add_to(self, batch: Batch) -> None:
        _list(batch.commits).append(self.commit)

    def settle(self, results: Results) -> None:
        self.done(next(results.commits), None)

    def fail(self, error: BaseException, life: Life) -> None:
        if life is not DEAD:
            self.done(False, None)

    def refuse(self, error: RefusedValue, life: Life) -> None:
        self.done(False, error)


class LookItem(Item):
    """A look for events for a wait, or for all waits of an instance. Offers arrive before `done` is called."""

    __slots__ = ("done", "instance", "op")

    def __init__(self, instance: str, op: str | None, done: Callable[[], None] | None = None) -> None:
        self.instance, self.op, self.done = instance, op, done

    def __str__(self) -> str:
        return f"a look for events for instance {self.instance!r}"

    def add_to(self, batch: Batch) -> None:
        _list(batch.looks).append((self.instance, self.op))

    def looked(self) -> None:
        if self.done is not None:
            self.done()

    def fail(self, error: BaseException, life: Life) -> None:
        if life is OPEN:  # otherwise it would be taken to mean that there was no event
            self.looked()


class _AskedItem(Item):
    """An item that a caller waits for."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future

    def answer(self, result: Any) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: BaseException, life: Life) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _Starting(Item):
    """An item that starts an instance. `started` is called if this worker owns it."""

    __slots__ = ()

    start: Start
    started: Callable[[Start], None]

    def __str__(self) -> str:
        return f"the start of instance {self.start.id!r}"

    @property
    def weight(self) -> int:
        return len(self.start.input)

    @property
    def names(self) -> Iterable[object]:
        return [self.start.id]

    def add_to(self, batch: Batch) -> None:
        _list(batch.starts).append(self.start)

    def settle(self, results: Results) -> None:
        result = next(results.starts)
        try:
            if result.owned:
                self.started(self.start)
        finally:
            self.answer(result)

    def answer(self, result: Any) -> None:
        """Tell the caller."""
        raise TypeError(f"{self} has no caller to answer")


class StartItem(_AskedItem, _Starting):
    """The start of an instance. It begins even if the caller is gone by now."""

    __slots__ = ("start", "started")

    def __init__(self, start: Start, started: Callable[[Start], None], future: asyncio.Future[Any]) -> None:
        super().__init__(future)
        self.start, self.started = start, started


class ChildItem(_Starting):
    """The start of a child. `done` is called with the answer, or with the error if it can't be stored."""

    __slots__ = ("done", "start", "started")

    def __init__(
        self, start: Start, started: Callable[[Start], None], done: Callable[[StartAnswer | Exception], None]
    ) -> None:
        self.start, self.started, self.done = start, started, done

    def answer(self, result: Any) -> None:
        self.done(result)

    def refuse(self, error: RefusedValue, life: Life) -> None:
        self.done(error)


class EventsItem(_AskedItem):
    """Events that are accepted together: all of them or none. `is_one`: the caller passed one, and gets one result."""

    __slots__ = ("accepts", "is_one")

    def __init__(self, accepts: Sequence[Accept], is_one: bool, future: asyncio.Future[Any]) -> None:
        super().__init__(future)
        self.accepts, self.is_one = accepts, is_one

    def __str__(self) -> str:
        event = self.accepts[0].event
        return f"event {event.id!r} from {event.source!r}"

    @property
    def weight(self) -> int:
        return sum(len(accept.event.data or b"") for accept in self.accepts)

    @property
    def names(self) -> Iterable[object]:
        return [_name(accept) for accept in self.accepts]

    def add_to(self, batch: Batch) -> None:
        _list(batch.accepts).extend(self.accepts)

    def settle(self, results: Results) -> None:
        found = [next(results.accepts) for _ in self.accepts]
        self.answer(found[0] if self.is_one else found)


class JudgedItem(EventsItem):
    """An event whose caller gets what `judge` makes of the result. It is judged even if the caller is gone by now."""

    __slots__ = ("judge",)

    def __init__(
        self, accept: Accept, judge: Callable[[Accept, AcceptAnswer], Any], future: asyncio.Future[Any]
    ) -> None:
        super().__init__([accept], True, future)
        self.judge = judge

    def settle(self, results: Results) -> None:
        answer = next(results.accepts)
        try:
            judged = self.judge(self.accepts[0], answer)
        except Exception as error:
            self.fail(error, OPEN)
        else:
            self.answer(judged)


class RequestItem(_AskedItem):
    """A request to an instance, such as to cancel it."""

    __slots__ = ("request",)

    def __init__(self, request: Request, future: asyncio.Future[Any]) -> None:
        super().__init__(future)
        self.request = request

    def __str__(self) -> str:
        return f"a request to instance {self.request.instance!r}"

    def add_to(self, batch: Batch) -> None:
        _list(batch.requests).append(self.request)

    def settle(self, results: Results) -> None:
        self.answer(next(results.requests))


def fill(batch: Batch, items: Iterable[Item]) -> Batch:
    """Put items into an empty batch."""
    batch.starts, batch.commits, batch.accepts, batch.requests, batch.looks = [], [], [], [], []
    for item in items:
        item.add_to(batch)
    return batch


def _list(items: Sequence[Any]) -> list[Any]:
    assert isinstance(items, list), "the batch is being filled"
    return items


def _name(accept: Accept) -> object:
    return accept.event.source, accept.event.id
