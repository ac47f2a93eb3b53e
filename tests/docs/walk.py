"""Walk through the pages of a tutorial as a reader does: save the files, type the commands, compare what is shown.

A page is a script, from top to bottom:

- A block of Python or settings is a file; the text before it names it. A diff changes the file named last.
- An indented line is a command. `romancy serve` and `romancy worker` keep running, as in a terminal of their own.
- A console block right after a command is what it prints, without times, and perhaps not all of it; a file is shown
  whole. After "prints:" or "printed:" it is what the server or the worker has printed since the last such block; `...`
  stands for anything.
- Some sentences tell the reader to do something (`GESTURES`): stop the server, open a page.
"""

from __future__ import annotations

import html
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

PATIENCE = 30
FILES = ("python", "ini")
VARYING = [
    (r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ", ""),  # the time of a line in the log
    (r"\d{4}-\d\d-\d\dT\S+( \([^)]*\))?", ""),
    (r"^n +at ", "n "),  # the header of a history
    (r"\(id \w+\)", "(id ...)"),
    (r"/ask/[\w-]+", "/ask/..."),
    (r"in \d+\.\d+s$", "in some time"),
    (r"\s+", " "),
]
ELSEWHERE = ("mkdir ", "python3 -m venv", ". .venv/", "pip install", "docker ")
"""Commands that set up the machine of the reader."""
CAN_REPEAT = ("romancy why", "romancy show", "romancy questions", "romancy replay", "cat ", "grep ")
STAYS = re.compile(r"(?P<settings>(?:\w+=\S+ )*)romancy (?P<kind>serve|worker) (?P<rest>.*)")


@dataclass
class Item:
    """A paragraph, a command, or a block of the kind that its fence names."""

    kind: str
    text: str


def items(page: str) -> Iterator[Item]:
    """Yield what is on a page, in order."""
    for part in re.split(r"^(```.*?^```)\n", page, flags=re.DOTALL | re.MULTILINE):
        if part.startswith("```"):
            kind, text = part.removesuffix("```").split("\n", 1)
            yield Item(kind.removeprefix("```"), text)
            continue
        for paragraph in re.split(r"\n\n+", part.strip("\n")):
            if not paragraph or paragraph.startswith("<!--"):
                continue
            if not paragraph.startswith("    "):
                yield Item("text", " ".join(paragraph.split()))
                continue
            for command in re.split(r"\n    (?=\S)", paragraph.removeprefix("    ")):
                yield Item("command", command)


def lines(text: str) -> list[str]:
    """Return the lines of what was printed, without what differs from run to run."""
    found: list[str] = []
    for line in text.splitlines():
        for pattern, instead in VARYING:
            line = re.sub(pattern, instead, line)
        found.append(line.strip())
    return [line for line in found if line]


def is_part(shown: list[str], printed: list[str]) -> bool:
    """Whether these lines were printed, in this order."""
    rest = iter(printed)
    return all(line in rest for line in shown)


def within(seconds: float, attempt: Callable[[], bool]) -> bool:
    """Try until it works. Waits for other processes, so there is nothing to be told by."""
    end = time.monotonic() + seconds
    while not (worked := attempt()) and time.monotonic() < end:
        time.sleep(0.05)
    return worked


@dataclass
class Terminal:
    """A process that keeps running, and what it has printed that the page has not shown yet."""

    process: subprocess.Popen[bytes]
    log: Path
    claimed: int | None = None
    """How many lines the page has shown; None if it shows none."""

    def printed(self) -> list[str]:
        """Return all lines except those that only inform."""
        return [line for line in lines(self.log.read_text(encoding="utf-8")) if not line.startswith("INFO ")]

    def compare(self, shown: list[str]) -> None:
        def is_shown() -> bool:
            new = self.printed()[self.claimed or 0 :]
            return new[-len(shown) + 1 :] == shown[1:] if shown[0] == "..." else new == shown

        assert within(PATIENCE, is_shown), (shown, self.printed()[self.claimed or 0 :])
        self.claimed = len(self.printed())

    def end(self, by: signal.Signals) -> None:
        """End it. It must not have printed anything else in the meantime, if the page shows what it prints."""
        self.process.send_signal(by)
        self.process.wait(PATIENCE)
        if self.claimed is not None:
            assert self.printed()[self.claimed :] == []


@dataclass
class Walk:
    """A reader's folder, with what runs there."""

    folder: Path
    port: int
    environment: dict[str, str]
    postgres: str = ""
    terminals: dict[str, Terminal] = field(default_factory=dict[str, Terminal])
    ran: list[str] = field(default_factory=list[str])
    _file: str = ""
    _prose: str = ""
    _printed: list[str] = field(default_factory=list[str])
    _opened: str = ""

    def read(self, page: str) -> None:
        """Do everything that the page says."""
        try:
            before = ""
            for item in items(self._here(page)):
                self._do(item, before)
                before = item.kind
        finally:
            for terminal in self.terminals.values():
                terminal.process.kill()
                terminal.process.wait()

    def save_files(self, page: str) -> None:
        """Only write the files of the page."""
        for item in items(self._here(page)):
            if item.kind == "text":
                self._prose = item.text
            elif item.kind in (*FILES, "diff"):
                self._do(item, "")

    def run(self, command: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, lines(done.stdout)

    def _here(self, page: str) -> str:
        return page.replace("127.0.0.1:8001", f"127.0.0.1:{self.port}")

    def _do(self, item: Item, before: str) -> None:
        if item.kind == "text":
            self._prose = item.text
            self._gesture(item.text)
        elif item.kind in FILES:
            (self.folder / self._name()).write_text(item.text, encoding="utf-8")
        elif item.kind == "diff":
            self._change(item.text)
        elif item.kind == "command":
            self._command(item.text)
        elif before == "command":
            self._compare(lines(item.text))
        else:
            self._terminal().compare(lines(item.text))

    def _name(self) -> str:
        named = re.findall(r"`(\w+\.(?:py|ini))`", self._prose)
        self._file = named[-1] if named else self._file
        return self._file

    def _change(self, diff: str) -> None:
        path = self.folder / self._name()
        code = path.read_text(encoding="utf-8")
        for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
            changed = hunk.splitlines(keepends=True)
            old, new = ("".join(line[1:] for line in changed if line[0] in marks) for marks in (" -", " +"))
            assert code.count(old) == 1, f"{old!r} is not in {path.name} once"
            code = code.replace(old, new)
        path.write_text(code, encoding="utf-8")

    def _command(self, command: str) -> None:
        if command.startswith(ELSEWHERE):
            return
        self.ran.append(command)
        if stays := STAYS.fullmatch(command):
            self._start(stays)
        elif command == 'pkill -9 -f "romancy serve shop:app"':
            self.terminals.pop("serve").end(signal.SIGKILL)
        elif command.startswith("export ROMANCY_DATABASE="):
            self.environment["ROMANCY_DATABASE"] = self.postgres
        elif not command.startswith(CAN_REPEAT):
            status, self._printed = self.run(command)
            assert status == 0, (command, self._printed)

    def _start(self, stays: re.Match[str]) -> None:
        kind = stays["kind"]
        words = [sys.executable, "-m", "romancy", kind, *stays["rest"].split()]
        words += ["--port", str(self.port)] if kind == "serve" else []
        settings = dict(setting.split("=", 1) for setting in stays["settings"].split())
        log = self.folder / f"{kind}-{len(self.ran)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                words, cwd=self.folder, env=self.environment | settings, stdout=output, stderr=subprocess.STDOUT
            )
        self.terminals[kind] = Terminal(process, log)
        ready = f"romancy {'serves' if kind == 'serve' else 'works'}"
        assert within(PATIENCE, lambda: ready in log.read_text(encoding="utf-8")), log.read_text(encoding="utf-8")

    def _compare(self, shown: list[str]) -> None:
        """Compare with what the last command prints; one that only reads may be too early."""
        command = self.ran[-1]

        def is_shown() -> bool:
            status, self._printed = self.run(command)
            return status == (1 if "no longer follows" in shown[0] else 0) and is_like(shown, self._printed)

        is_like = list[str].__eq__ if command.startswith(("cat ", "grep ")) else is_part
        worked = within(PATIENCE, is_shown) if command.startswith(CAN_REPEAT) else is_part(shown, self._printed)
        assert worked, (command, shown, self._printed)

    def _terminal(self) -> Terminal:
        assert re.search(r"print(s|ed):$", self._prose), f"what prints this? {self._prose!r}"
        return self.terminals["worker" if "the worker" in self._prose else "serve"]

    def _gesture(self, text: str) -> None:
        for phrase, gesture in GESTURES.items():
            if re.search(phrase, text):
                gesture(self, text)

    def stop(self, _: str, kind: str = "serve") -> None:
        self.terminals.pop(kind).end(signal.SIGINT)

    def look(self, text: str) -> None:
        """Open a page, or look at it again: what the text says in italics is there."""
        opened = re.search(r"<(http://[^>]+)>", text)
        self._opened = opened[1] if opened else self._opened
        words = re.findall(r"\*([^*]+)\*", text)

        def is_there() -> bool:
            shown = re.sub(r"<[^>]+>", " ", html.unescape(httpx2.get(self._opened).raise_for_status().text))
            return all(word in shown for word in words)

        assert within(PATIENCE, is_there), f"{self._opened} does not say {words}"

    def answer(self, _: str) -> None:
        [link] = re.findall(r"http://\S+/ask/\S+", self.terminals["serve"].log.read_text(encoding="utf-8"))
        form = httpx2.get(link).raise_for_status().text
        assert "Approved" in form
        assert "Note" in form
        assert httpx2.post(link, data={"approved": "true", "note": ""}).status_code == 303

    def repeat(self, text: str) -> None:
        said = re.search(r"The answer says `([^`]+)`", text)
        assert said
        status, printed = self.run(self.ran[-1])
        assert status == 0
        assert said[1] in printed[-1]

    def break_something(self, text: str) -> None:
        """Remove a line, see the tests fail, put it back."""
        line, name = re.findall(r"`([^`]+)`", text)
        path = self.folder / name
        code = path.read_text(encoding="utf-8")
        assert code.count(f"{line}\n") == 1
        path.write_text(code.replace(f"{line}\n", ""), encoding="utf-8")
        status, printed = self.run(self.ran[-1])
        path.write_text(code, encoding="utf-8")
        assert (status, "failed" in printed[-1]) == (1, True), printed


GESTURES: dict[str, Callable[[Walk, str], None]] = {
    "[Ss]top the server with Ctrl-C": Walk.stop,
    "Stop the worker with Ctrl-C": lambda walk, text: walk.stop(text, "worker"),
    "^Open <http|^In the viewer|[.] In the viewer": Walk.look,
    "Open the link in the browser": Walk.answer,
    "repeat the `curl` command": Walk.repeat,
    "^Break something": Walk.break_something,
}


def reader(folder: Path, port: int) -> Walk:
    """Return a reader with a folder, in whose shell `romancy` and `pytest` are those of this Python."""
    commands = folder.parent / f"{folder.name}-commands"
    commands.mkdir()
    for name in ("romancy", "pytest"):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n', encoding="utf-8")
        (commands / name).chmod(0o755)
    known = {key: value for key, value in os.environ.items() if not key.startswith("ROMANCY_")}
    known.pop("PYTHONDONTWRITEBYTECODE", None)  # dozens of commands: compile what they import once
    settings = {
        "PATH": f"{commands}{os.pathsep}{known['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the reader has only these two
        "PYTEST_PLUGINS": "pytest_asyncio.plugin,romancy.testing.plugin",
    }
    return Walk(folder, port, known | settings)
