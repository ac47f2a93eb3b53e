"""Problems as SARIF 2.1.0, the format that code scanners and editors read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from romancy.cli.checker.rules import KINDS
from romancy.cli.checker.source import Problem

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_INDEX = {code: n for n, code in enumerate(KINDS)}


def sarif_log(problems: Iterable[Problem], version: str) -> dict[str, object]:
    """Return a SARIF log with one run, whose rules are all kinds of problems, found or not."""
    driver = {"name": "romancy check", "version": version, "rules": [_rule(code) for code in KINDS]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "results": [_result(problem) for problem in problems],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, object]:
    summary, instead = KINDS[code]
    return {
        "id": code,
        "shortDescription": {"text": summary},
        "help": {"text": f"{instead} The comment `# romancy: allow` suppresses problems on its line."},
        "defaultConfiguration": {"level": "error"},
    }


def _result(problem: Problem) -> dict[str, object]:
    region = {"startLine": problem.line, "startColumn": problem.column}
    return {
        "ruleId": problem.code,
        "ruleIndex": _INDEX[problem.code],
        "level": "error",
        "message": {"text": problem.message},
        "locations": [{"physicalLocation": {"artifactLocation": _location(problem.file), "region": region}}],
    }


def _location(file: str) -> dict[str, str]:
    """Return a URI relative to the current folder, which readers take for the root of the sources; else a file URI."""
    path = Path(file)
    if path.is_absolute():
        return {"uri": path.as_uri()}
    return {"uri": quote(os.fsencode(path.as_posix())), "uriBaseId": "%SRCROOT%"}
