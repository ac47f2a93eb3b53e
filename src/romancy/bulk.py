"""Acting on many instances: newest first, page by page, with no lock between two pages.

The position in the list never changes, so an instance that changes meanwhile is not met twice, and instances started
meanwhile are not met at all. `BulkVerb` says what happens to the instances of a page; a further verb is one more of
these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from romancy.core.actor import current_actor
from romancy.core.model import FINAL, Status
from romancy.engine.engine import Engine
from romancy.errors import InvalidInput
from romancy.records import BulkResult
from romancy.reruns import RETRYABLE, refused_retries, retry_all
from romancy.storage.batch import STATUS_CODES
from romancy.storage.catalog import Catalog, Position, Search, Summary

PAGE = 100
"""Instances that are changed together."""
ERRORS = 100
"""Errors that a result has at most."""
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
    refusals: Callable[[Sequence[str]], Awaitable[Mapping[str, str]]] | None = None
    """Tells which of these instances it can't change, and why; None if there are none."""


def cancelling(engine: Engine, reason: str | None) -> BulkVerb:
    who = current_actor()

    async def act(ids: Sequence[str]) -> Done:
        # Asked for together, the requests are one batch.
        answers = await asyncio.gather(*(engine.cancel(id, reason, who) for id in ids))
        return Done(sum(answer.took for answer in answers))

    return BulkVerb(frozenset(STATUS_CODES) - FINAL, act)


def resuming(engine: Engine) -> BulkVerb:
    who = current_actor()

    async def act(ids: Sequence[str]) -> Done:
        resumed = await engine.storage.resume_all(ids, who)
        engine.kick()
        return Done(len(resumed))

    return BulkVerb(frozenset[Status]({"blocked"}), act)


def retrying(engine: Engine) -> BulkVerb:
    who = current_actor()

    async def act(ids: Sequence[str]) -> Done:
        return Done(*await retry_all(engine, ids, who))

    async def refusals(ids: Sequence[str]) -> Mapping[str, str]:
        return await refused_retries(engine, ids)

    return BulkVerb(RETRYABLE, act, refusals)


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

    Instances that are left alone or refused do not count. With `dry_run`, change nothing, and count what would be
    changed.
    """
    left = limit
    while True:
        found = await catalog.search(search, PAGE, cursor, SCAN)
        able, refused = await _judge(found.rows, verb)
        page = found.rows if left is None else _first(found.rows, able, left)
        ids = [row.id for row in page if row.id in able]
        done = Done(len(ids)) if dry_run else await verb.act(ids) if ids else Done(0)
        errors = {row.id: refused[row.id] for row in page if row.id in refused} | dict(done.errors)
        left = None if left is None else left - done.changed
        is_cut = len(page) == PAGE or len(page) < len(found.rows)
        cursor = None if left == 0 else (page[-1].created_at, page[-1].id) if is_cut else found.reached
        yield Part(BulkResult(len(page), done.changed, errors), cursor)
        if cursor is None:
            return


async def _judge(rows: Sequence[Summary], verb: BulkVerb) -> tuple[set[str], Mapping[str, str]]:
    """Return the ids of the rows that the verb can change, and why it refuses others."""
    ids = [row.id for row in rows if row.status in verb.applies_to]
    refused = await verb.refusals(ids) if verb.refusals is not None and ids else dict[str, str]()
    return set(ids) - refused.keys(), refused


def _first(rows: Sequence[Summary], able: Collection[str], most: int) -> list[Summary]:
    """Return the rows up to the last one to act on."""
    taken: list[Summary] = []
    for row in rows:
        if most == 0:
            break
        taken.append(row)
        most -= row.id in able
    return taken


def add_up(results: Iterable[BulkResult]) -> BulkResult:
    """Return the sum of the results of several parts, with the first of their errors."""
    matched, changed, errors = 0, 0, dict[str, str]()
    for result in results:
        matched, changed = matched + result.matched, changed + result.changed
        errors |= islice(result.errors.items(), ERRORS - len(errors))
    return BulkResult(matched, changed, errors)


def check_most(limit: int | None) -> int | None:
    """Check the limit of a verb for many instances."""
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    if limit is not None and (not is_number or limit < 1):
        raise InvalidInput(f"limit must be a whole number of at least 1, or None for all, got {limit!r}")
    return limit
