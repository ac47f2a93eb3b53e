"""What `romancy doctor` found: values, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from romancy.cli.screen import Screen
from romancy.cli.words import clean

Level = Literal["ok", "warning", "problem"]
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: Level
    check: str
    """What was checked, in one word."""
    says: str
    advice: str = ""
    """What to do about it."""
    ids: Sequence[str] = ()
    """Instances, workers, queues or sinks it is about; the first ones, if there are many."""


def ok(check: str, says: str) -> Finding:
    return Finding("ok", check, says)


def warning(check: str, says: str, advice: str, ids: Sequence[str] = ()) -> Finding:
    return Finding("warning", check, says, advice, ids)


def problem(check: str, says: str, advice: str, ids: Sequence[str] = ()) -> Finding:
    return Finding("problem", check, says, advice, ids)


def failure(check: str, error: Exception, advice: str) -> Finding:
    """Return an error as a problem, with the advice that its message ends with, or else with this advice."""
    says, _, own = str(error).rpartition("; ")
    return problem(check, says, own) if says else problem(check, own, advice)


def has_problem(findings: Sequence[Finding]) -> bool:
    return any(finding.level == "problem" for finding in findings)


def show(findings: Sequence[Finding]) -> None:
    """Print a line for each finding: what is wrong, and what to do."""
    screen, width = Screen(), max(len(finding.check) for finding in findings)
    for finding in findings:
        line = "; ".join(filter(None, (finding.says, finding.advice)))
        screen.say(
            f"{finding.level:7}  {finding.check:{width}}  {clean(' '.join(line.split()))}", _STYLES[finding.level]
        )
