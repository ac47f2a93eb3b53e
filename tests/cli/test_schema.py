"""`--schema`, and PostgreSQL databases in which there is nothing yet: who only looks or sends makes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from romancy.storage.tools.migration import newest
from tests import pg_server

LOOKS: list[tuple[str, ...]] = [
    ("list",),
    ("show", "x"),
    ("why", "x"),
    ("waits",),
    ("send", "paid", "{}"),
    ("start", "pay"),
    ("cancel", "x"),
    ("resume", "x"),
    ("replay", "x", "-m", "shop"),
    ("top", "--once"),
    ("viewer", "--port", "0"),
]


def there(schema: str) -> bool:
    async def main() -> Any:
        connection = await asyncpg.connect(pg_server.url())
        try:
            return await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema)
        finally:
            await connection.close()

    return bool(asyncio.run(main()))


@pytest.mark.parametrize("words", LOOKS, ids=lambda words: words[0])
def test_nothing_is_made_by_those_who_look_or_send(refused, schema: str, words: tuple[str, ...]) -> None:
    url = pg_server.url()
    said = refused(*words, "-d", url, "--schema", schema)
    assert f"schema {schema!r} of {url} holds no romancy tables; " in said
    assert f"`romancy migrate -d {url} --schema {schema}` creates them" in said
    assert not there(schema)


def test_a_database_that_is_not_there(refused, romancy, database) -> None:
    url = pg_server.url().replace("/postgres?", "/nowhere?")
    for words in (("list",), ("migrate",), ("migrate", "--check"), ("run", "shop:shout", "x")):
        assert "the database does not exist; create it first" in refused(*words, "-d", url)
    assert "the database does not exist; create it first" in romancy("copy", "romancy.db", url, code=2).stderr


def test_every_command_finds_the_schema(romancy, answered, schema: str) -> None:
    where = ("-d", pg_server.url(), "--schema", schema)
    assert f"(schema {schema})" in romancy("run", "shop:shout", "hello", "--id", "loud", *where).stderr
    assert [item["instance_id"] for item in answered("list", *where)["items"]] == ["loud"]
    assert answered("show", "loud", *where)["output"] == "HELLO!\nreally"
    assert answered("start", "pay", "ORD-1", "--id", "p", *where)["created"]
    assert answered("send", "payment.completed", "{}", *where)["duplicate"] is False
    assert answered("waits", *where)["items"] == []
    assert "completed" in romancy("why", "loud", *where).stdout
    assert "ok" in romancy("replay", "loud", "-m", "shop", *where).stdout
    assert answered("top", *where)["counts"]["completed"] == 1
    assert "is cancelled" in romancy("cancel", "p", *where).stdout
    assert "nothing to resume" in romancy("resume", "p", *where, code=1).stderr


def test_the_environment_names_it_too(romancy, answered, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANCY_DATABASE", pg_server.url())
    monkeypatch.setenv("ROMANCY_SCHEMA", schema)
    assert romancy("migrate").stdout == f"created the tables, version {newest(':memory:')} (schema {schema})\n"
    assert answered("list")["items"] == []
    romancy("run", "shop:shout", "hello", "-d", "file.db")  # files have no schemas, and nobody typed one
    assert len(answered("list", "-d", "file.db")["items"]) == 1


def test_an_app_keeps_its_own_unless_another_is_given(romancy, answered, folder, schema: str) -> None:
    url = pg_server.url()
    app = f"from shop import shout\nfrom romancy import App, Database\napp = App(Database({url!r}, {schema!r}))\n"
    (folder / "own.py").write_text(app)
    assert f"(schema {schema})" in romancy("run", "own:shout", "hello").stderr
    assert len(answered("list", "-d", url, "--schema", schema)["items"]) == 1
    assert "(schema" not in romancy("run", "own:shout", "hello", "-d", "file.db").stderr


def test_where_there_is_none(refused, database, schema: str) -> None:
    for words in (*LOOKS, ("run", "shop:shout", "x"), ("serve", "shop"), ("worker", "shop")):
        assert "--schema only applies to PostgreSQL; give a postgresql:// URL" in refused(*words, "--schema", "x")
    assert "--schema requires --database" in refused("list", "--url", "http://127.0.0.1:1", "--schema", "x")
    for name in ("", "x" * 64):
        assert "1 to 63 bytes" in refused("list", "-d", pg_server.url(), "--schema", name)
