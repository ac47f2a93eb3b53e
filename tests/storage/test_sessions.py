"""Sessions of visitors, as every backend keeps them."""

from __future__ import annotations

from romancy.storage import sessions
from romancy.storage.sessions import StoredSession
from tests.storage.conftest import Database


async def test_a_session_is_kept_until_it_is_removed(db: Database) -> None:
    store, session = db.storage.sessions, StoredSession(b"proof\0\xff", db.now + 10)
    await store.add(b"key\0\xff", session, db.now)
    assert await store.get(b"key\0\xff") == session
    assert await store.get(b"key") is None
    await store.remove(b"other")
    assert await store.get(b"key\0\xff") == session
    await store.remove(b"key\0\xff")
    assert await store.get(b"key\0\xff") is None


async def test_what_has_ended_is_forgotten_when_another_comes(db: Database) -> None:
    store, now = db.storage.sessions, db.now
    await store.add(b"a", StoredSession(b"p", now + 10), now)
    await store.add(b"b", StoredSession(b"p", now + 20), now)
    await store.add(b"c", StoredSession(b"p", now + 30), now + 10)
    assert await store.get(b"a") is None
    assert await store.get(b"b") is not None
    assert await store.get(b"c") is not None


async def test_there_are_only_so_many(db: Database, monkeypatch) -> None:
    assert sessions.MOST == 1000
    monkeypatch.setattr(sessions, "MOST", 3)
    store, now = db.storage.sessions, db.now
    for n in range(5):
        await store.add(b"%d" % n, StoredSession(b"p", now + 10 + n), now)
    assert [n for n in range(5) if await store.get(b"%d" % n)] == [2, 3, 4], "the oldest went"
