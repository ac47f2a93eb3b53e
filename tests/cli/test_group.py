"""`romancy --help` and what is the same for every command."""

from __future__ import annotations

from typing import Any

import pytest

from romancy import __version__
from romancy.cli import main

COMMANDS = "demo run worker check list show why waits replay start send cancel resume".split()


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_by_what_it_is_for(romancy, words: list[str]) -> None:
    text = romancy(*words).stdout
    assert [title for title in ("Run:", "Look:", "Act:") if f"\n{title}\n" in text] == ["Run:", "Look:", "Act:"]
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert "..." not in text.partition("Run:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(romancy, name: str) -> None:
    assert f"Usage: romancy {name}" in romancy(name, "--help").stdout


def test_every_command_is_listed() -> None:
    assert sorted(main.commands) == sorted(COMMANDS)


def test_version(romancy) -> None:
    assert __version__ in romancy("--version").stdout


def test_a_slip_of_the_pen_is_one_line(refused) -> None:
    assert "No such command" in refused("lst")
    assert "see romancy show --help" in refused("show")
    assert "--nope" in refused("list", "--nope")


def test_a_fault_of_ours_is_one_line_too(refused, monkeypatch: pytest.MonkeyPatch, database) -> None:
    def fault(*args: Any) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("romancy.cli.reading.on_existing", fault)
    monkeypatch.delenv("ROMANCY_DEBUG", raising=False)
    assert "something unexpected went wrong: KeyError: 'oops' (ROMANCY_DEBUG=1" in refused("list", code=1)
