"""An accepted event is offered at once if nothing else is on its way to the instance. It never overtakes another one.

Instances with random waits get random events: one by one, in bursts, before and while they wait, in memory and evicted,
some with a crash or a restart between. Each wait must take the oldest event that it can take. Besides, on SQLite every
such offer is held against a look: see `no_event_overtakes_another` in the conftest of all tests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romancy import App, Database, WorkerOptions, WorkflowContext, wait_event, workflow
from romancy.storage.postgres.batches import BatchWriter
from tests import direct_offers, pg_schemas, pg_server

Wait = tuple[str, int | None, bool]
"""The type, the key that it filters by, and whether it takes only numbers."""


@workflow
async def reads(ctx: WorkflowContext, waits: list[list[Wait]]) -> list[str]:
    """Wait for one group after the other; the waits of a group are open at the same time."""
    taken: list[str] = []
    for group in waits:
        together = await asyncio.gather(*(_wait(ctx, *wait) for wait in group))
        taken += together
    return taken


async def _wait(ctx: WorkflowContext, type: str, k: int | None, strict: bool) -> str:
    where = None if k is None else {"k": k}
    event: Any = await (
        wait_event(ctx, type, where=where, model=dict[str, int]) if strict else wait_event(ctx, type, where=where)
    )
    return event.id


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Events that do not fit are part of the game."""
    logger = logging.getLogger("romancy")
    level, logger.level = logger.level, logging.ERROR
    yield
    logger.level = level


keys = st.sampled_from([1, 1, 2])
waits = st.tuples(st.sampled_from("aab"), st.none() | keys, st.booleans())
alone = st.lists(st.lists(waits, min_size=1, max_size=1), min_size=1, max_size=5)
grouped = st.lists(st.lists(waits, min_size=1, max_size=3), min_size=1, max_size=3)
events = st.tuples(st.sampled_from("aab"), keys, st.sampled_from([1, 1, "text"]))
bursts = st.lists(st.lists(events, min_size=1, max_size=4), min_size=1, max_size=6)


def expected(code: list[list[Wait]], log: list[tuple[str, str, dict[str, Any]]]) -> list[str] | None:
    """What an instance takes that waits for one event at a time; None if it still waits at the end."""
    taken: list[str] = []
    for [(type, k, strict)] in code:
        fitting = (
            id
            for id, of, data in log
            if id not in taken
            and of == type
            and (k is None or data["k"] == k)
            and not (strict and not isinstance(data["n"], int))
        )
        found = next(fitting, None)
        if found is None:
            return None
        taken.append(found)
    return taken


@asynccontextmanager
async def database(kind: str) -> AsyncIterator[Callable[[], Database]]:
    if kind == "postgres":
        async with pg_schemas.schemas() as another:
            schema = another()
            yield lambda: Database(pg_server.url(), schema=schema, durability="normal")
        return
    with TemporaryDirectory() as folder:
        yield lambda: Database(Path(folder) / "w.db", durability="normal")


async def play(
    kind: str, codes: list[list[list[Wait]]], parts: list[Any], most: int, ends: str, end_before: int
) -> None:
    log: list[tuple[str, str, dict[str, Any]]] = []
    async with database(kind) as opened:

        def make() -> App:
            return App(opened(), workflows=[reads], worker=WorkerOptions(max_resident=most))

        app = make()
        await app.start()
        try:
            for n, code in enumerate(codes):
                await app.start_workflow(reads, code, instance_id=f"i{n}")
            for n, burst in enumerate(parts):
                if n == end_before:
                    await (app._runtime.crash() if ends == "crash" else app.stop())
                    app = make()
                    await app.start()
                numbered = [(f"e{n}-{i}", type, {"k": k, "n": value}) for i, (type, k, value) in enumerate(burst)]
                log += numbered
                await asyncio.gather(*(app.send_event(type, "test", data, id=id) for id, type, data in numbered))
            for n, code in enumerate(codes):
                if all(len(group) == 1 for group in code) and (taken := expected(code, log)) is not None:
                    assert await app.handle(f"i{n}").result(20) == taken
        finally:
            await app.stop()


@settings(max_examples=50, derandomize=True, database=None)
@given(
    codes=st.lists(alone | grouped, min_size=1, max_size=3),
    parts=bursts,
    most=st.sampled_from([1, 1000]),
    ends=st.sampled_from(["crash", "stop", "stop"]),
    end_before=st.sampled_from([99, 99, 1, 2]),
)
def _check(kind: str, codes: list[list[list[Wait]]], parts: list[Any], most: int, ends: str, end_before: int) -> None:
    asyncio.run(play(kind, codes, parts, most, ends, end_before))


def test_each_wait_takes_the_oldest_event_that_it_can_take() -> None:
    before = direct_offers.made
    _check("sqlite")
    assert direct_offers.made - before > 30


@pytest.mark.play
def test_each_wait_takes_the_oldest_event_that_it_can_take_on_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    made, offers = 0, BatchWriter._offers

    def counted(*given: Any) -> Any:
        nonlocal made
        found = offers(*given)
        made += len(found)
        return found

    monkeypatch.setattr(BatchWriter, "_offers", counted)
    _check("postgres")
    assert made > 30
