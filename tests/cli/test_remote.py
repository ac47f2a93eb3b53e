"""Commands against a server: `--url` says the same as the server's database would."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from romancy import App, WorkerOptions
from romancy.cli.check import find_problems
from tests.helpers import free_port
from tests.http.conftest import Live
from tests.http.flaky import RESET, Canned, proxy


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROMANCY_URL", "ROMANCY_TOKEN", "ROMANCY_TOKENS", "ROMANCY_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def served(database: Path) -> Iterator[Callable[..., Live]]:
    """Starts a server on the stocked database."""
    running: list[Live] = []

    def start(**options: Any) -> Live:
        workflows = importlib.import_module("shop")
        running.append(Live(App(database, **{"workflows": workflows, "worker": WorkerOptions(grace=1), **options})))
        return running[-1]

    yield start
    for live in running:
        live.stop()


@pytest.fixture
def url(served: Callable[..., Live]) -> str:
    """A server that does no work: what it has stays as it is."""
    return served(worker=False).url


# --- the same as on the database --------------------------------------------------------------------------------------
SAME = [
    ("list",),
    ("list", "-s", "failed", "-s", "blocked"),
    ("list", "-w", "pay", "--limit", "1"),
    ("list", "--text", "no way"),
    ("waits",),
    ("waits", "-t", "payment.completed"),
    ("show", "done"),
    ("show", "failed"),
    ("show", "[red]x"),
    ("show", "blocked"),
    ("why", "order-1"),
    ("why", "asleep"),
    ("why", "failed"),
    ("why", "done"),
]


@pytest.mark.parametrize("words", SAME, ids=" ".join)
def test_looking_says_the_same(romancy: Any, answered: Any, url: str, words: tuple[str, ...]) -> None:
    assert still(said(romancy(*words, "--url", url))) == still(_HOLDER.sub("", said(romancy(*words))))
    here, there = answered(*words), answered(*words, "--url", url)
    for answer in (here, there):
        for wait in answer.get("waits", ()):
            wait.pop("seconds_left", None)
    if words[0] == "why":
        assert (there["worker"], there["lease_until"]) == (None, None), "a server does not tell"
        there |= {"worker": here["worker"], "lease_until": here["lease_until"]}
        here["says"] = [line for line in here["says"] if not _HOLDER.match(f"{line}\n")]
        here["says"], there["says"] = [still(line) for line in here["says"]], [still(line) for line in there["says"]]
    assert there == here


_HOLDER = re.compile("no worker holds it (now|while).*\n")
"""What only the database tells of an instance that waits."""


def said(result: Any) -> str:
    return result.stdout + result.stderr


def still(text: str) -> str:
    """What was said, without what a moment changes."""
    return re.sub(r" +", " ", re.sub(r"\((in [^()\n]*|[^()\n]* ago|now)\)", "(then)", text))


def test_the_nearest_events(romancy: Any, answered: Any, url: str) -> None:
    at = ("--url", url)
    romancy("send", "payment.completed", '{"order": {"id": "ORD-9"}}', "--id", "far", "--to", "done", *at)
    romancy("send", "payment.completed", '{"order": {"id": "ORD-8"}}', "--id", "near", *at)
    romancy("send", "payment.complete", '{"order": {"id": "ORD-1"}}', "--id", "slip", *at)
    romancy("send", "payment.completed", '{"order": {"id": "ORD-1"}}', "--id", "fits", *at)
    (wait,) = answered("why", "order-1", *at)["waits"]
    assert [(event["id"], event["reasons"]) for event in wait["near"]] == [
        (
            "fits",
            [
                "no worker has looked at it yet, or its data does not fit the model; see the worker's log, "
                "or `romancy why -d DATABASE`"
            ],
        ),
        ("slip", ["its type is not 'payment.completed'"]),
        ("near", ["where order.id = 'ORD-1' but got 'ORD-8'"]),
    ]


def test_what_a_server_does_not_tell_is_said_to_be_unknown(romancy: Any, url: str) -> None:
    romancy("start", "hello", "Ada", "--id", "fresh", "--url", url)
    text = romancy("why", "fresh", "--url", url).stdout
    assert "a server does not show which worker runs it; use -d with its database to see more" in text
    assert "nothing is recorded yet; it was started" in text
    assert "no worker" not in text


def test_a_blocked_instance_says_what_to_do(romancy: Any, url: str) -> None:
    text = romancy("why", "blocked", "--url", url).stdout
    assert "it is blocked: it does nothing until a worker has code that follows its history (build " in text
    assert "`romancy resume blocked` lets any worker try at once (or `romancy cancel blocked`)" in text


def test_replay_is_refused(refused: Any, url: str) -> None:
    said = refused("replay", "done", "-m", "shop", "--url", url)
    assert "replay needs the stored history, which a server does not expose; give the database with -d" in said


# --- acting -----------------------------------------------------------------------------------------------------------
def test_a_session(served: Any, romancy: Any, answered: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    live = served()
    monkeypatch.setenv("ROMANCY_URL", live.url)
    assert romancy("start", "hello", "Ada", "times=2", "--id", "first").stdout == "first\n"
    assert romancy("start", "hello", "Ada", "times=2", "--id", "first").stdout == "first (already exists)\n"
    by_annotation = answered("start", "hello", "7", "--id", "seven", "-m", "shop")
    assert by_annotation == {"instance_id": "seven", "created": True}
    live.until("seven", "completed")
    assert answered("show", "seven")["output"] == {"greeting": "hello 7 "}
    romancy("start", "pay", "ORD-7", "--id", "order-7")
    live.until("order-7", "waiting_for_event")
    payment = ("send", "payment.completed", '{"order": {"id": "ORD-7"}, "amount": 5}', "--id", "e7")
    sent = romancy(*payment)
    assert sent.stdout == "accepted: delivered to 1 instance (id e7)\n"
    live.until("order-7", "completed")
    assert "duplicate: this event was accepted before" in romancy(*payment).stdout
    other = romancy("send", "payment.completed", "{}", "--id", "e7", code=1)
    assert "dropped: a different event with this source and id exists" in other.stderr
    assert "instance 'nosuch' does not exist yet" in romancy("send", "unheard", "--to", "nosuch").stdout
    receipt = answered("send", "unheard", "--id", "u")
    assert receipt == {
        "id": "u",
        "status": "accepted",
        "duplicate": False,
        "delivered": 0,
        "started": 0,
        "mismatched": 0,
        "differs": False,
    }
    assert "instance 'order-1' " in romancy("cancel", "order-1", "--reason", "changed").stdout
    live.until("order-1", "cancelled")
    assert answered("show", "order-1")["error"]["message"] == "changed"
    assert "'done' is already completed; nothing to cancel" in romancy("cancel", "done", code=1).stderr
    assert "not blocked; nothing to resume" in romancy("resume", "asleep", code=1).stderr
    assert "a worker that has workflow 'turns' will retry instance 'blocked'" in romancy("resume", "blocked").stdout


def test_start_warns_of_a_name_nobody_has(romancy: Any, url: str) -> None:
    warning = "no worker has run a workflow named 'helo' yet; check the name, and that a worker with it is running\n"
    assert romancy("start", "helo", "--url", url).stderr == warning
    assert romancy("start", "helo", "--url", url).stderr == warning
    assert romancy("start", "shout", "x", "--url", url).stderr == "", "the server has it"


def test_numbers_arrive_as_they_were_written(romancy: Any, url: str, database: Path) -> None:
    romancy("send", "exact", '{"n": 12345678901234567.891}', "--url", url)

    async def stored() -> bytes | None:
        async with App(database, worker=False) as app:
            return (await app.list_events(type="exact")).items[0].event.data

    assert asyncio.run(stored()) == b'{"n": 12345678901234567.891}'


# --- which place ------------------------------------------------------------------------------------------------------
def test_what_is_typed_counts_more_than_the_environment(
    romancy: Any, refused: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("ROMANCY_URL", nowhere)
    assert "done" in romancy("list", "-d", "romancy.db").stdout
    assert "done" in romancy("list", "--url", url).stdout
    monkeypatch.setenv("ROMANCY_DATABASE", "romancy.db")
    assert "can't reach the server" in refused("list", code=1), "a server counts more than a database"
    monkeypatch.setenv("ROMANCY_URL", "")
    assert "done" in romancy("list").stdout
    assert "give --url or --database, not both" in refused("list", "--url", url, "-d", "romancy.db")
    assert "--token-file requires --url" in refused("list", "--token-file", "x")


def test_replay_follows_the_environment_too(refused: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANCY_URL", url)
    assert "which a server does not expose" in refused("replay", "done", "-m", "shop")


def test_a_server_needs_no_database_here(romancy: Any, url: str, database: Path, tmp_path_factory: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        patch.chdir(elsewhere)
        assert "done" in romancy("list", "--url", url).stdout
        assert "done" in romancy("show", "done", "--url", url).stdout
        assert list(elsewhere.iterdir()) == []


# --- tokens -----------------------------------------------------------------------------------------------------------
def test_tokens_come_from_the_environment_or_a_file(
    served: Any, romancy: Any, refused: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = served(worker=False, tokens=["SECRET", "read:LOOK", "events:SEND"])
    (folder / "token").write_text("SECRET\n")
    (folder / "empty").write_text("\n")
    at = ("--url", live.url)
    hint = "; set ROMANCY_TOKEN, or give a token file with --token-file"
    assert refused("list", *at, code=1) == f"romancy: the server at {live.url} requires a token{hint}"
    assert "done" in romancy("list", *at, "--token-file", "token").stdout
    monkeypatch.setenv("ROMANCY_TOKEN", "WRONG")
    assert refused("list", *at, code=1) == f"romancy: the server at {live.url} does not accept this token{hint}"
    assert "done" in romancy("list", *at, "--token-file", "token").stdout, "the file counts more"
    monkeypatch.setenv("ROMANCY_TOKEN", "LOOK")
    assert "done" in romancy("list", *at).stdout
    assert "does not have the scope 'control'" in refused("cancel", "order-1", *at, code=1)
    monkeypatch.setenv("ROMANCY_TOKEN", "SEND")
    assert "no instance waits for it now" in romancy("send", "unheard", "--to", "nosuch", *at).stdout, "it may not look"
    assert "can't read the token from 'missing': No such file" in refused("list", *at, "--token-file", "missing")
    assert "no token in 'empty'" in refused("list", *at, "--token-file", "empty")
    assert "LOOK" not in refused("list", *at, "--token-file", "shop.py"), "a token is not shown"


def test_a_token_is_no_word_of_the_command_line(refused: Any, url: str) -> None:
    assert "no such option" in refused("list", "--url", url, "--token", "SECRET"), "others could read it there"


# --- what can go wrong ------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("folder")
def test_nobody_there(refused: Any) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    said = f"romancy: can't reach the server at {nowhere}: Connection refused; is it running, and is the URL right?"
    assert refused("list", "--url", nowhere, code=1) == said
    assert "(event 'e1')" in refused("send", "paid", "--id", "e1", "--url", nowhere, code=1)
    assert "is not the URL of a server; use one like http://" in refused("list", "--url", "localhost:8001")


def test_another_program(refused: Any, url: str) -> None:
    with proxy(url, Canned(200, "<html>"), Canned(404, "{}"), RESET, Canned(503)) as between:
        for _ in range(2):
            assert "there is no Romancy server at" in refused("list", "--url", between.url, code=1)
        assert "can't reach the server" in refused("list", "--url", between.url, code=1)
        assert "a proxy in front of it answered 503" in refused("list", "--url", between.url, code=1)


def test_errors_read_as_on_a_database(refused: Any, url: str) -> None:
    at = ("--url", url)
    for words in (("show", "nobody"), ("why", "nobody"), ("cancel", "nobody"), ("resume", "nobody")):
        assert refused(*words, *at, code=1) == refused(*words, code=1)
    taken = ("start", "hello", "Bob", "--id", "done")
    assert refused(*taken, *at, code=1) == refused(*taken, code=1)
    assert "missing a required argument: 'name'" in refused("start", "hello", *at)
    assert "is not a cursor" in refused("list", "--cursor", "zz", *at)
    assert "quote text as JSON" in refused("send", "paid", "hello", *at)


def test_a_server_that_stops_meanwhile(refused: Any, served: Any) -> None:
    live = served(worker=False)
    live.drain()
    assert "the server is stopping; try again in a moment" in refused("list", "--url", live.url, code=1)


def test_check_finds_a_client_in_workflow_code() -> None:
    code = """
from romancy import Client, WorkflowContext, workflow
client = Client("http://x")

@workflow
async def pay(ctx: WorkflowContext) -> None:
    await client.get_instance("x")
"""
    (problem,) = find_problems(code, "shop.py")
    assert (problem.code, problem.line) == ("app", 7)
