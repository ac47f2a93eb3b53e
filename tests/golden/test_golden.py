"""Histories of earlier versions replay with this one, to the same status and the same result.

A failure means that instances that run today would be blocked by an upgrade. Change the library, not the files. A new
kind of history is recorded with `python -m tests.golden.recorder`, which never rewrites a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from romancy.core.history import Entry, Kind, showable
from romancy.core.instance import Instance
from romancy.core.replay import replay as run_through
from romancy.core.run import Run
from romancy.errors import NonDeterminismError
from romancy.testing.histories import _load, replay
from tests.golden import recorder, workflows

FILES = sorted(recorder.FOLDER.glob("*.json"))


RECORDED = {Kind.PATCHED, Kind.RETRIED, *range(1, 9)}
"""The kinds of entries that must be in a golden history. Add yours with its scene."""


def workflow_of(name: str) -> Any:
    return getattr(workflows, name.partition("-")[0])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_replays(file: Path) -> None:
    golden = json.loads(file.read_text())
    wf, text = workflow_of(file.stem), json.dumps(golden["history"])
    assert replay(wf, text) == golden["status"]
    start, *rest = _load(text)
    about = json.loads(start.payload or b"{}")
    input, options = start.input or b"", {"input_kind": start.event or 0, "deadline": about["deadline"]}
    run = Run(about.get("run", 1), about.get("base", 0), about.get("began_at", start.at), about.get("seeds", ()))
    outcome = run_through(Instance(wf._definition, about["id"], input, start.at, **options, run=run), rest).outcome
    assert showable(None if outcome is None else outcome.output) == golden["output"]


def test_every_scene_is_recorded_and_every_kind_of_entry_is_in_one() -> None:
    assert {file.stem for file in FILES} == {*recorder.SCENES}
    kinds = {entry["kind"] for file in FILES for entry in json.loads(file.read_text())["history"]}
    assert kinds >= RECORDED


def test_a_golden_history_notices_a_change() -> None:
    golden = json.loads((recorder.FOLDER / "activities.json").read_text())
    entries: list[Entry] = _load(json.dumps(golden["history"]))
    assert entries[1].op == "charge:1"
    golden["history"][1]["op"] = "charge:2"
    with pytest.raises(NonDeterminismError):
        replay(workflows.activities, json.dumps(golden["history"]))
