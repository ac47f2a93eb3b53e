"""Commands on a database whose values are sealed: with the codec, and without it."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from romancy import App, CodecError, Database, WorkflowContext, ask, workflow
from romancy.cli.group import main
from romancy.codecs import Encrypted, Outside
from romancy.storage.tools.copy import copy
from romancy.testing import environment
from tests import pg_server
from tests.engine.test_sealed import ALL, SECRET, failing, payment, waiter
from tests.sealed import KEYS

CODE = f"""
from romancy import App
from romancy.codecs import Encrypted
from tests.engine.test_sealed import ALL
codec = Encrypted({KEYS!r})
app = App("sealed.db", workflows=ALL, codec=codec)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a sealed database, and the code of its app."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROMANCY_CODEC", raising=False)
    Path("sealed_shop.py").write_text(CODE)

    async def fill() -> None:
        async with environment(database="sealed.db", workflows=ALL, codec=Encrypted(KEYS)) as env:
            await env.start(payment.options(instance_id="p"), SECRET)
            await env.start(waiter.options(instance_id="w"), SECRET)
            await env.start(failing.options(instance_id="f"), SECRET)
            await env.send_event("paid", "bank", {"card": "other", "note": SECRET})

    asyncio.run(fill())


def romancy(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, [*words, "-d", "sealed.db"], env=environment)


READING = [["list"], ["show", "p"], ["show", "w"], ["show", "f"], ["why", "p"], ["why", "w"], ["waits"], ["events"]]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_without_the_codec_values_are_shown_as_sealed(words: list[str]) -> None:
    result = romancy(*words)
    assert result.exit_code == 0, result.output
    assert SECRET not in result.output
    if words[0] == "show":
        assert "sealed (k2)" in result.output


def test_why_names_the_types_without_the_codec_and_says_that_it_cannot_compare() -> None:
    said = romancy("why", "w").output
    assert "for    paid" in said
    assert (
        "it can't be compared: its filter is sealed with 'k2' (the name of a key, or of a codec), which this process "
        "lacks; give the app its codec, App(codec=...), or set ROMANCY_CODEC"
    ) in " ".join(said.split())
    assert "has arrived" not in said


@workflow
async def refund(ctx: WorkflowContext) -> bool:
    return (await (await ask(ctx, bool, title=SECRET, people=["ann"], ask_id="refund.v2.final")).answer()).data


@workflow
async def large_vote(ctx: WorkflowContext) -> bool:
    people = ["ann", "bob", "cy"]
    vote = await ask(ctx, str, title="?", people=people, agrees=lambda answer: answer == SECRET, needed=2, refusals=2)
    return (await vote.decision()).agreed


async def _ask_and_wait() -> None:
    async with environment(database="sealed.db", workflows=[refund, waiter], codec=Encrypted(KEYS)) as env:
        await env.start(refund.options(instance_id="r"))


def test_why_says_of_a_question_that_it_is_sealed() -> None:
    asyncio.run(_ask_and_wait())
    said = romancy("why", "r").output
    assert "for    the answer to a question\n" in said
    assert "its filter is sealed with 'k2'" in said
    assert SECRET not in said
    assert SECRET in romancy("why", "r", ROMANCY_CODEC="sealed_shop:codec").output
    [item] = json.loads(romancy("questions", "--json").output)["items"]
    assert (item["title"], item["ask_id"], item["instance_id"], item["people"]) == (
        "sealed (k2)",
        "refund.v2.final",
        "r",
        [],
    )
    assert "sealed (k2)" in romancy("questions").output
    assert SECRET in romancy("questions", ROMANCY_CODEC="sealed_shop:codec").output


def test_with_the_codec_they_are_shown() -> None:
    assert SECRET in romancy("show", "w", ROMANCY_CODEC="sealed_shop:codec").output
    refused = romancy("show", "w", ROMANCY_CODEC="sealed_shop:nothing")
    assert refused.exit_code != 0
    assert "is not a codec; write MODULE:OBJECT, as in shop:codec" in refused.output


def test_cancelling_works_without_it_and_sending_does_not() -> None:
    assert romancy("cancel", "w").exit_code == 0
    sent = romancy("send", "paid", json.dumps({"card": SECRET}))
    assert sent.exit_code != 0
    assert "ROMANCY_CODEC" in sent.output


def test_replay_takes_the_codec_of_the_app() -> None:
    refused = romancy("replay", "w", "-m", "tests.engine.test_sealed")
    assert refused.exit_code != 0
    assert "sealed" in refused.output
    result = romancy("replay", "w", "-m", "sealed_shop:app")
    assert result.exit_code == 0, result.output
    assert romancy("replay", "--all", "-m", "sealed_shop:app").exit_code == 0


def test_values_are_redacted() -> None:
    shown = romancy("show", "w", ROMANCY_CODEC="sealed_shop:codec", ROMANCY_REDACT="password,card").output
    assert SECRET not in shown
    assert "(redacted)" in shown


def test_why_redacts_what_did_not_match() -> None:
    said = romancy("why", "w", ROMANCY_CODEC="sealed_shop:codec", ROMANCY_REDACT="card").output
    assert "where card does not match: its values are redacted" in said
    assert SECRET not in said
    assert "other" not in said


def test_a_file_that_is_missing_is_named() -> None:
    Path("outside_shop.py").write_text('from romancy.codecs import Outside\ncodec = Outside("blobs", over=10)\n')

    async def fill() -> None:
        codec = Outside("blobs", over=10)
        async with environment(database="outside.db", workflows=ALL, codec=codec) as env:
            await env.start(waiter.options(instance_id="w"), SECRET)

    asyncio.run(fill())
    shutil.move("blobs", "elsewhere")
    words = ["show", "w", "-d", "outside.db"]
    shown = CliRunner().invoke(main, words, env={"ROMANCY_CODEC": "outside_shop:codec", "COLUMNS": "400"}).output
    assert "outside the database, and not readable" in shown
    assert str(Path("blobs").absolute()) in shown


async def test_who_has_answered_is_known_without_the_answers() -> None:
    codec = Outside("blobs", over=1000)
    async with environment(workflows=[large_vote], codec=codec) as env:
        handle = await env.start(large_vote)
        await env.answer(handle, "bob", "no" * 1000)
        shutil.rmtree("blobs")
        [question] = (await env.app.list_questions()).items
        assert (question.needed, question.answered) == (2, ("bob",))


async def test_a_copy_is_sealed_as_it_was() -> None:
    async with pg_server.schema() as schema:
        await copy("sealed.db", pg_server.url(), schema=schema)
        place = Database(pg_server.url(), schema)
        with pytest.raises(CodecError):
            await App(place, workflows=ALL).start()
        async with App(place, workflows=ALL, codec=Encrypted(KEYS)) as app:
            await app.send_event("paid", "bank", {"card": SECRET})
            assert await app.handle("w").result(timeout=10) == {"card": SECRET}
            assert (await app.get_instance("f")).input == {"card": SECRET}


async def test_a_copy_reads_the_files_of_its_origin_and_has_a_folder_of_its_own() -> None:
    codec = Outside("blobs", over=10)
    async with environment(database="outside.db", workflows=ALL, codec=codec) as env:
        await env.start(waiter.options(instance_id="w"), SECRET)
    async with pg_server.schema() as schema:
        await copy("outside.db", pg_server.url(), schema=schema)
        async with App(Database(pg_server.url(), schema), workflows=ALL, codec=Outside("blobs", over=10)) as app:
            await app.send_event("paid", "bank", {"card": SECRET})
            assert await app.handle("w").result(timeout=10) == {"card": SECRET}
            assert (await app.get_instance("w")).input == {"card": SECRET}
    assert len(list(Path("blobs").iterdir())) == 2
