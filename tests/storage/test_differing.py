"""Conformance: the same source and id again with other content is a duplicate that says so."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from romancy.core.model import Event
from romancy.storage.batch import Accept, Commit
from romancy.storage.postgres import PostgresStorage
from romancy.storage.rows import event_values
from romancy.storage.sql import migrations, prefixed
from romancy.storage.sqlite import SQLiteStorage
from romancy.testing import ManualClock
from tests import pg_server
from tests.storage.conftest import BEGINNING, Database, make

BASE: dict[str, Any] = {
    "type": "go",
    "data": b'{"a": 1, "b": [true, null]}',
    "subject": "s",
    "datacontenttype": "application/json",
    "extensions": {"traceparent": "00-1"},
    "time": 5,
}
SAME: dict[str, dict[str, Any]] = {
    "bytes": {},
    "order and spaces": {"data": b'{"b":[true,null],"a":1}'},
    "numbers": {"data": b'{"a": 1.0, "b": [true, null]}'},
    "escapes": {"data": b'{"\\u0061": 1, "b": [true, null]}'},
    "charset": {"datacontenttype": "application/json; charset=utf-8"},
    "trace": {"extensions": {"traceparent": "00-2", "more": 1}},
    "time": {"time": 7},
}
OTHER: dict[str, dict[str, Any]] = {
    "value": {"data": b'{"a": 2, "b": [true, null]}'},
    "true is not 1": {"data": b'{"a": true, "b": [true, null]}'},
    "text is not a number": {"data": b'{"a": "1", "b": [true, null]}'},
    "order of an array": {"data": b'{"a": 1, "b": [null, true]}'},
    "longer array": {"data": b'{"a": 1, "b": [true, null, null]}'},
    "absent member": {"data": b'{"a": 1}'},
    "null is not absent": {"data": b'{"a": 1, "b": [true, null], "c": null}'},
    "array for object": {"data": b"[]"},
    "no data": {"data": None},
    "type": {"type": "stop"},
    "subject": {"subject": "t"},
    "no subject": {"subject": None},
    "target": {"target": "a"},
    "text": {"datacontenttype": "text/plain"},
}


def made(db: Database, **fields: Any) -> Accept:
    event = Event(id="e", source="bank", accepted_at=db.now, **{**BASE, **fields})
    return Accept(event, b"")


async def differed(db: Database) -> Any:
    [stored] = await db.storage.catalog.events()
    shown = await db.storage.catalog.event("bank", "e")
    assert shown is not None
    assert shown.differed_at == stored.differed_at
    return stored.differed_at


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
async def test_what_a_retry_changes_makes_no_difference(db: Database, change: dict[str, Any]) -> None:
    await db.commit(accepts=[made(db)])
    [again] = (await db.commit(accepts=[made(db, **change)])).accepts
    assert (again.duplicate, again.differs) == (True, False)
    assert await differed(db) is None


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER)
async def test_other_content_differs(db: Database, change: dict[str, Any]) -> None:
    [first] = (await db.commit(accepts=[made(db)])).accepts
    [again] = (await db.commit(accepts=[made(db, **change)])).accepts
    assert (first.differs, again.duplicate, again.differs, again.seq) == (False, True, True, first.seq)
    assert await differed(db) == db.now


async def test_data_that_is_not_json_is_compared_byte_by_byte(db: Database) -> None:
    plain = {"datacontenttype": "text/plain"}
    await db.commit(accepts=[made(db, data=b'{"a": 1}', **plain)])
    again = [made(db, data=data, **plain) for data in (b'{"a": 1}', b'{"a":1}')]
    assert [a.differs for a in (await db.commit(accepts=again)).accepts] == [False, True]
    damaged = replace(made(db).event, id="damaged", data=b"{")
    await db.commit(accepts=[Accept(damaged, b"")])
    again = [Accept(damaged, b""), Accept(replace(damaged, data=b"{ "), b"")]
    assert [a.differs for a in (await db.commit(accepts=again)).accepts] == [False, True]


async def test_twins_in_one_batch(db: Database) -> None:
    twins = [made(db), made(db), made(db, data=b"2"), made(db)]
    answers = (await db.commit(accepts=twins)).accepts
    assert [a.duplicate for a in answers] == [False, True, True, True]
    assert [a.differs for a in answers] == [False, False, True, False], "each is compared with what is stored"
    assert await differed(db) == db.now
    answers = (await db.commit(accepts=twins)).accepts
    assert [a.differs for a in answers] == [False, False, True, False]


async def test_a_batch_submitted_again_gives_the_same_answers(db: Database) -> None:
    batch = db.batch(accepts=[made(db), made(db, data=b"2")])
    for _ in range(2):
        answers = (await db.submit(batch)).accepts
        assert [(a.duplicate, a.differs) for a in answers] == [(False, False), (True, True)]


async def test_the_first_difference_is_the_one_that_is_noted(db: Database) -> None:
    await db.commit(accepts=[made(db)])
    await db.commit(accepts=[made(db, data=b"2")])
    noted = db.now
    db.clock.turn_to(db.now + 5)
    [again] = (await db.commit(accepts=[made(db, data=b"3")])).accepts
    assert again.differs
    assert await differed(db) == noted
    assert [(e.event.type, e.event.data) for e in await db.storage.catalog.events()] == [("go", BASE["data"])]


async def test_events_that_instances_send(db: Database) -> None:
    await db.start("a", "me")
    await db.start("b", "me")
    sent = [made(db), made(db, data=b"2")]
    commits = [
        Commit(id, 0, "running", db.now, same_status=True, sent=[item]) for id, item in zip("ab", sent, strict=True)
    ]
    answers = (await db.commit("me", commits=commits, accepts=[made(db, subject="other")])).sent
    assert [(a.duplicate, a.differs) for a in answers] == [(False, False), (True, True)]
    assert [a.differs for a in (await db.commit("me", accepts=[made(db)])).accepts] == [False]


@pytest.mark.parametrize("backend", ["file", "postgres"])
async def test_events_stored_before_are_compared_too(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(BEGINNING)
    async with AsyncExitStack() as stack:
        old = await make(backend, tmp_path, clock, stack)
        for place in ("romancy.storage.sql.migrations", "romancy.storage.postgres.migrations.migrations"):
            monkeypatch.setattr(place, lambda dialect: migrations(dialect)[:1])
        await old.open()
        await _store(old, made(Database(old, clock)).event)
        await old.close()
        monkeypatch.undo()
        path = old.path if isinstance(old, SQLiteStorage) else ""
        new = SQLiteStorage(path, durability="normal", clock=clock) if path else _again(old, clock)
        await new.open()
        db = Database(new, clock)
        answers = (await db.commit(accepts=[made(db), made(db, data=b"2")])).accepts
        assert [(a.duplicate, a.differs) for a in answers] == [(True, False), (True, True)]
        assert await differed(db) == db.now
        await new.close()


async def _store(storage: Any, event: Event) -> None:
    """As a former version did it."""
    columns = "source, id, type, subject, time, target, attrs, data, token, accepted_at, expires_at"
    values = (1, *event_values(event, b"former")[: len(columns.split(", "))])
    marks = ", ".join(f"${n + 1}" if isinstance(storage, PostgresStorage) else "?" for n in range(len(values)))
    query = f"INSERT INTO romancy.events (seq, {columns}) VALUES ({marks})"
    if isinstance(storage, SQLiteStorage):
        await storage._write(lambda c: c.execute(prefixed(query), values))
    else:
        await Database(storage, ManualClock(BEGINNING)).rows(query, *values)


def _again(storage: Any, clock: ManualClock) -> PostgresStorage:
    return PostgresStorage(pg_server.url(), schema=storage.schema, durability="normal", clock=clock)
