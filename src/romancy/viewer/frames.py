"""A stored traceback as exceptions with frames: the cause first, and the user's own code before that of libraries.

The text comes from the database, and parts of it may come from anyone (an error message can contain anything). So no
file is read because the text names it: `own_files` says which files may be shown.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import sysconfig
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from romancy.core.registry import Definition, WorkflowDefinition

_HEAD = "Traceback (most recent call last):"
_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')
_PREFIX = re.compile(r"^(?: *[|+](?:-\+-+)? ?)+")
"""What exception groups put before each line."""
_INSIDE = "Inside "
_LINKS = ("The above exception was", "During handling of the above")
_LIBRARY = re.compile(r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python\d[\d.]*[/\\]|^<frozen ")
_HOME = str(Path(__file__).parents[1])
_STANDARD = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
_BODY = ("body.py", "run_body")
"""The frame of the library below which a workflow's code runs."""
BEFORE, AFTER = 3, 2
"""How many lines around the one that raised are shown."""


@dataclass(frozen=True)
class Frame:
    """A line of code that a traceback names. `source`: it and the lines around it, if they may be shown."""

    file: str
    line: int
    function: str
    code: str = ""
    source: Sequence[tuple[int, str]] = ()

    @property
    def is_own(self) -> bool:
        """Whether it is the user's code, neither this library's nor another one's."""
        is_library = _LIBRARY.search(self.file) or self.file.startswith((_HOME, *_STANDARD))
        return not is_library


@dataclass
class Raised:
    """One exception of a chain, with its frames from the outermost to the innermost."""

    activity: str = ""
    """The activity in which it was raised; empty if unknown or in the workflow."""
    frames: list[Frame] = field(default_factory=list[Frame])
    error: str = ""

    @property
    def own(self) -> list[Frame]:
        """The user's frames, the innermost first."""
        return [frame for frame in reversed(self.frames) if frame.is_own]

    @property
    def libraries(self) -> list[Frame]:
        return [frame for frame in self.frames if not frame.is_own]


def exceptions_of(text: str, files: Collection[str] = ()) -> list[Raised]:
    """Parse a traceback: the first exception is the cause of all others. `files`: whose lines may be shown."""
    groups: list[list[Raised]] = [[]]
    activities = [""]
    for intro, lines in _sections(text):
        found = _read(lines, files)
        if intro.startswith(_INSIDE):  # a note on the exception before, with the traceback of its cause
            kind, _, name = intro.removeprefix(_INSIDE).rstrip(":").partition(" ")
            groups.append([])
            activities.append(name.strip("'\"") if kind == "activity" else "")
        elif activities[-1] and _is_of_workflow(found):  # the note has ended
            latest = max(i for i, activity in enumerate(activities) if not activity)
            groups[latest].append(found)
            continue
        found.activity = activities[-1]
        groups[-1].append(found)
    return [found for group in reversed(groups) for found in group if found.frames or found.error]


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """The lines of each traceback in a text, and the line that introduces it."""
    found: list[tuple[str, list[str]]] = []
    intro, lines = "", list[str]()
    for raw in text.split("\n"):
        line = _PREFIX.sub("", raw)
        if line == _HEAD:
            found.append((intro, lines := []))
            intro = ""
        elif line.startswith(_LINKS) or (line.startswith(_INSIDE) and line.endswith(":")):
            intro, lines = line, []
        elif found:
            lines.append(line)
    return found


def _read(lines: Sequence[str], files: Collection[str]) -> Raised:
    found = Raised()
    for i, line in enumerate(lines):
        match = _FRAME.fullmatch(line.strip()) if line.startswith("  ") else None
        if match is not None:
            code = lines[i + 1].strip() if i + 1 < len(lines) and lines[i + 1].startswith("    ") else ""
            number = int(match["line"][:9])
            found.frames.append(
                Frame(match["file"], number, match["function"], code, _around(match["file"], number, code, files))
            )
        elif line and not line.startswith(" "):
            found.error = "\n".join(lines[i:]).strip()
            break
    return found


def _is_of_workflow(raised: Raised) -> bool:
    """Whether it left the code of a workflow: it came through the frame below which that runs."""
    return any(
        frame.file.startswith(_HOME) and (Path(frame.file).name, frame.function) == _BODY for frame in raised.frames
    )


def _around(file: str, number: int, code: str, files: Collection[str]) -> Sequence[tuple[int, str]]:
    """The lines around one, unless the file must not be shown, or has changed since."""
    if file not in files or not code:
        return ()
    lines = linecache.getlines(file)
    if not 0 < number <= len(lines) or lines[number - 1].strip() != code:
        return ()
    first = max(1, number - BEFORE)
    return [(n, lines[n - 1].rstrip("\n")) for n in range(first, min(len(lines), number + AFTER) + 1)]


def own_files(definition: WorkflowDefinition) -> set[str]:
    """The files that define a workflow and the activities and workflows that its module names, as far as imported."""
    module = sys.modules.get(inspect.unwrap(definition.fn).__module__)
    named: list[Any] = list(vars(module).values()) if module is not None else []
    # Statically: lazy objects and modules run code when an attribute is looked up, which may raise anything.
    known = [inspect.getattr_static(value, "_definition", None) for value in named]
    functions = [inspect.unwrap(one.fn) for one in (definition, *known) if isinstance(one, Definition)]
    loaded = {str(inspect.getattr_static(one, "__file__", "")) for one in list(sys.modules.values())}
    files = {fn.__code__.co_filename for fn in functions if hasattr(fn, "__code__")}
    return {file for file in files & loaded if Frame(file, 1, "").is_own}


def line_in(raised: Sequence[Raised], definition: WorkflowDefinition) -> tuple[int, str] | None:
    """The number and text of the line of a workflow's own function at which an exception left it."""
    code = inspect.unwrap(definition.fn).__code__
    names = (code.co_name, code.co_qualname)
    for one in reversed(raised):
        for frame in one.frames:
            if frame.file == code.co_filename and frame.function in names:
                return frame.line, frame.code
    return None
