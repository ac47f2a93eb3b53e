"""`romancy cancel` and `resume` for many instances, and the filters of `romancy list`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from romancy.cli import bulk
from tests.cli.test_remote import served  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture(params=["database", "server"])
def at(request: pytest.FixtureRequest) -> list[str]:
    """Each target in turn: the database itself, and a server on it that does no work."""
    if request.param == "database":
        return []
    return ["--url", request.getfixturevalue("served")(worker=False).url]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A person at a terminal, who answers the question."""

    def answering(text: str) -> list[str]:
        asked: list[str] = []

        def confirm(question: str, **_: Any) -> bool:
            asked.append(question)
            return text == "y"

        monkeypatch.setattr(bulk.click, "confirm", confirm)
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: self.name == "<stdin>")
        return asked

    return answering


def ids(romancy: Any, *words: str) -> list[str]:
    return [item["instance_id"] for item in json.loads(romancy("list", *words, "--json").stdout)["items"]]


# --- the list --------------------------------------------------------------------------------------------------------
def test_the_list_takes_all_filters(romancy, refused, at: list[str]) -> None:
    everything = ids(romancy, *at)
    assert ids(romancy, "--error-type", "RuntimeError", *at) == ["failed"]
    assert ids(romancy, "--error-type", "Nope", *at) == []
    assert ids(romancy, "--parent", "nobody", *at) == []
    assert ids(romancy, "--since", "52w", *at) == everything
    assert ids(romancy, "--until", "2001-01-01", *at) == []
    assert ids(romancy, "--since", "2001-01-01T00:00:00Z", "--until", "2999-01-01 10:00", *at) == everything
    assert "neither a time like" in refused("list", "--since", "yesterday", *at, code=2)
    assert "neither a time like" in refused("list", "--since", "99999999999w", *at, code=2)


# --- several ids -----------------------------------------------------------------------------------------------------
def test_several_ids(romancy, at: list[str]) -> None:
    said = romancy("cancel", "order-1", "asleep", "order-1", *at).stdout.splitlines()
    assert [line.split("'")[1] for line in said] == ["order-1", "asleep"]


def test_several_ids_of_which_some_have_ended(romancy, at: list[str]) -> None:
    result = romancy("cancel", "done", "nobody", "blocked", *at, code=1)
    assert result.stdout == "instance 'blocked' is cancelled\n"
    assert "'done' is already completed" in result.stderr
    assert "no instance with id 'nobody'" in result.stderr
    result = romancy("resume", "order-1", "failed", *at, code=1)
    assert result.stderr.count("nothing to resume") == 2


def test_ids_and_filters_do_not_mix(refused) -> None:
    for verb in ("cancel", "resume"):
        assert "give ids or filters, not both" in refused(verb, "order-1", "--workflow", "pay", code=2)
        assert "give ids or filters, not both" in refused(verb, "order-1", "--limit", "3", code=2)
        assert "give the ids of instances, or filters such as --workflow NAME" in refused(verb, code=2)
        assert "give the ids" in refused(verb, "--limit", "3", "--yes", code=2)


# --- filters ---------------------------------------------------------------------------------------------------------
def test_all_that_match_are_cancelled(romancy, at: list[str]) -> None:
    result = romancy("cancel", "-w", "pay", "--since", "52w", "--reason", "sold out", "--yes", *at)
    assert "order-1" in result.stdout
    assert "[red]x" in result.stdout
    assert "asleep" not in result.stdout
    assert "2 cancelled, or asked to stop: their workers will cancel them" in result.stdout
    assert "it was asked to stop" in romancy("why", "order-1").stdout
    assert "it was asked to stop" not in romancy("why", "asleep").stdout


def test_blocked_ones_are_resumed(romancy, at: list[str]) -> None:
    """Without --status, only those that can be resumed are meant."""
    result = romancy("resume", "--text", "", "--since", "52w", "-y", *at)
    assert "1 resumed: workers that have their workflow will retry them" in result.stdout
    assert ids(romancy, "-s", "blocked") == []


def test_at_most_the_limit(romancy, at: list[str]) -> None:
    result = romancy("cancel", "--since", "52w", "--limit", "1", "--yes", *at)
    assert "retrying" in result.stdout
    assert "order-1" not in result.stdout
    assert "1 cancelled" in result.stdout


def test_nothing_done_is_a_failure(romancy, refused, at: list[str]) -> None:
    assert "no instance to cancel matches" in refused("cancel", "-w", "nosuch", "--yes", *at, code=1)
    assert "give one workflow, not 2: pay, other" in refused("cancel", "-w", "pay", "-w", "other", "--yes", *at, code=2)
    assert "no instance to resume matches" in refused("resume", "-w", "pay", "--yes", *at, code=1)
    said = romancy("cancel", "-s", "completed", "--yes", *at, code=1).stderr
    assert said == "romancy: nothing to cancel: 1 instance matched, none was changed\n"


def test_without_a_terminal_and_without_yes_nothing_happens(romancy, at: list[str]) -> None:
    result = romancy("cancel", "-w", "pay", *at, code=2)
    assert "order-1" in result.stdout
    assert "2 instances to cancel, but there is no terminal to ask you; add --yes to go on" in result.stderr
    assert "it was asked to stop" not in romancy("why", "order-1").stdout


@pytest.mark.parametrize(("text", "code"), [("y", 0), ("n", 1)])
def test_a_person_is_asked(romancy, answer, text: str, code: int) -> None:
    asked = answer(text)
    result = romancy("cancel", "-w", "pay", "--limit", "1", code=code)
    assert asked == ["Cancel 1 of 2 instances?"]
    assert ("nothing was done" in result.stderr) == (text == "n")
    assert ("it was asked to stop" in romancy("why", "order-1").stdout) == (text == "y")


def test_the_preview_is_short(romancy, monkeypatch: pytest.MonkeyPatch, database: Path) -> None:
    monkeypatch.setattr(bulk, "_PREVIEW", 2)
    result = romancy("cancel", "--since", "52w", "--yes")
    assert "... and 3 more" in result.stderr
    assert "5 cancelled" in result.stdout


def test_long_work_shows_its_progress(romancy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    words = ("cancel", "-w", "pay", "--yes")
    assert "/2" not in romancy(*words).stderr, "it is done in no time"
    monkeypatch.setattr(bulk, "PAGE", 1)
    assert "/2" in romancy(*words).stderr
