"""`romancy --help` and what is the same for every command."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import click
import pytest

from romancy import __version__
from romancy.cli.group import SECTIONS, main

COMMANDS = (
    "demo init run worker serve mcp check list show why doctor waits schedules events inbox queues questions sinks "
    "workers replay viewer tail top start send answer cancel resume retry retry-now fork migrate copy"
).split()


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_by_what_it_is_for(romancy, words: list[str]) -> None:
    text = romancy(*words).stdout
    titles = ["Run:", "Inspect:", "Control:", "Manage databases:"]
    assert [title for title in titles if f"\n{title}\n" in text] == titles
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert "..." not in text.partition("Run:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(romancy, name: str) -> None:
    assert f"Usage: romancy {name}" in romancy(name, "--help").stdout


def test_every_command_is_listed_with_the_first_line_of_its_help() -> None:
    context = click.Context(main)
    assert main.list_commands(context) == COMMANDS
    listed = {name: text for commands in SECTIONS.values() for name, (_, text) in commands.items()}
    found = {name: main.get_command(context, name) for name in COMMANDS}
    assert {name: command.name for name, command in found.items() if command} == {name: name for name in COMMANDS}
    assert {name: command.get_short_help_str(90) for name, command in found.items() if command} == listed


@pytest.mark.parametrize("words", ["--version", "--help"])
def test_help_and_version_import_no_command(words: str) -> None:
    program = (
        "import sys, click.testing, romancy.cli.group as group\n"
        f"assert click.testing.CliRunner().invoke(group.main, [{words!r}]).exit_code == 0\n"
        "print([name for name in sys.modules if name.startswith(('rich', 'romancy.cli.'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['romancy.cli.group']\n"


def test_ctrl_c_while_the_commands_are_imported_is_one_line() -> None:
    program = (
        "import sys, romancy.cli\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == module: raise KeyboardInterrupt\n"
        "module, sys.argv = sys.argv[1], ['romancy', 'list']\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "romancy.cli.main()\n"
    )
    for module in ("romancy.cli.group", "click", "romancy.cli.lists", "rich"):
        done = subprocess.run([sys.executable, "-c", program, module], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "romancy: interrupted"), module


def test_version(romancy) -> None:
    assert __version__ in romancy("--version").stdout


def test_a_slip_of_the_pen_is_one_line(refused) -> None:
    assert "no such command" in refused("lst")
    assert "see `romancy show --help`" in refused("show")
    assert "--nope" in refused("list", "--nope")


def test_a_fault_of_ours_is_one_line_too(refused, monkeypatch: pytest.MonkeyPatch, database) -> None:
    def fault(*args: Any) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("romancy.cli.target_options.check_exists", fault)
    monkeypatch.delenv("ROMANCY_DEBUG", raising=False)
    assert "unexpected error: KeyError: 'oops' (set ROMANCY_DEBUG=1" in refused("list", code=1)
