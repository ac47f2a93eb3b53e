"""Acting on many instances: newest first, page by page, with no lock between two pages.

The position in the list never changes, so an instance that changes meanwhile is not met twice, and instances started
meanwhile are not met at all. `BulkVerb` says what happens to the instances of a page; a further verb is one more of
these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from romancy.core.model import FINAL, Status
from romancy.engine.engine import Engine
from romancy.errors import InvalidInput
from romancy.records import BulkResult
from romancy.reruns import RETRYABLE, retry_all
from romancy.storage.batch import STATUS_CODES
from romancy.storage.catalog import Catalog, Position, Search, Summary

PAGE = 100
"""Instances that are changed together."""
SCAN = 10_000
"""Rows that one statement checks where no index answers the filter."""


@dataclass(frozen=True)
class Done:
    """What became of the instances of a page."""

    changed: int
    errors: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class BulkVerb:
    """Something to do to many instances. Those with another status are left alone."""

    applies_to: frozenset[Status]
    act: Callable[[Sequence[str]], Awaitable[Done]]
    """Changes these instances, in one transaction where possible."""


def cancelling(engine: Engine, reason: str | None) -> BulkVerb:
    async def act(ids: Sequence[str]) -> Done:
        # Asked for together, the requests are one batch.
        answers = await asyncio.gather(*(engine.cancel(id, reason) for id in ids))
        return Done(sum(answer.took for answer in answers))

    return BulkVerb(frozenset(STATUS_CODES) - FINAL, act)


def resuming(engine: Engine) -> BulkVerb:
    async def act(ids: Sequence[str]) -> Done:
        resumed = await engine.storage.resume_all(ids)
        engine.kick()
        return Done(len(resumed))

    return BulkVerb(frozenset[Status]({"blocked"}), act)


def retrying(engine: Engine) -> BulkVerb:
    async def act(ids: Sequence[str]) -> Done:
        return Done(*await retry_all(engine, ids))

    return BulkVerb(RETRYABLE, act)


@dataclass(frozen=True)
class Part:
    """What became of a part of the instances, and where the rest begins; None if this was the last part."""

    result: BulkResult
    cursor: Position | None = None


async def parts(
    catalog: Catalog,
    search: Search,
    verb: BulkVerb,
    limit: int | None = None,
    cursor: Position | None = None,
    *,
    dry_run: bool = False,
) -> AsyncGenerator[Part]:
    """Act on all instances of a search, page by page. `limit`: change at most so many.

    With `dry_run`, change nothing, and count what would be changed.
    """
    left = limit
    while True:
        found = await catalog.search(search, PAGE, cursor, SCAN)
        page = found.rows if left is None else _first(found.rows, verb, left)
        ids = [row.id for row in page if row.status in verb.applies_to]
        done = Done(len(ids)) if dry_run else await verb.act(ids) if ids else Done(0)
        left = None if left is None else left - done.changed - len(done.errors)
        is_cut = len(page) == PAGE or len(page) < len(found.rows)
        cursor = None if left == 0 else (page[-1].created_at, page[-1].id) if is_cut else found.reached
        yield Part(BulkResult(len(page), done.changed, done.errors), cursor)
        if cursor is None:
            return


def _first(rows: Sequence[Summary], verb: BulkVerb, most: int) -> list[Summary]:
    """Return the rows up to the last one to act on."""
    taken: list[Summary] = []
    for row in rows:
        if most == 0:
            break
        taken.append(row)
        most -= row.status in verb.applies_to
    return taken


def add_up(results: Iterable[BulkResult]) -> BulkResult:
    """Return the sum of the results of several parts."""
    matched, changed, errors = 0, 0, dict[str, str]()
    for result in results:
        matched, changed = matched + result.matched, changed + result.changed
        errors |= result.errors
    return BulkResult(matched, changed, errors)


def check_most(limit: int | None) -> int | None:
    """Check the limit of a verb for many instances."""
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    if limit is not None and (not is_number or limit < 1):
        raise InvalidInput(f"limit must be a whole number of at least 1, or None for all, got {limit!r}")
    return limit
