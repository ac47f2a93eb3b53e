"""Replays old histories with the current code."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from romancy.api.workflow import Workflow, definition_of
from romancy.core.history import Entry
from romancy.core.instance import Instance
from romancy.core.model import Status
from romancy.core.replay import replay as run_through
from romancy.core.run import Run
from romancy.records import HistoryEntry, raw_entry


def replay(wf: Workflow[..., Any], history: Sequence[HistoryEntry] | str) -> Status:
    """Replay a recorded history (from `app.get_history`, or a string from `dump`) with the current code.

    Raise `NonDeterminismError` if the code no longer follows it; return the status that it ends in.
    """
    entries = list(map(raw_entry, history)) if not isinstance(history, str) else _load(history)
    start, rest = entries[0], entries[1:]
    about = json.loads(start.payload or b"{}")
    instance = Instance(
        definition_of(wf),
        about.get("id", "replay"),  # random numbers and the ids of sent events derive from it
        start.input or b"{}",
        start.at,
        input_kind=start.event or 0,
        deadline=about.get("deadline"),
        run=Run(about.get("run", 1), about.get("base", 0), about.get("began_at", start.at), about.get("seeds", ())),
    )
    found = run_through(instance, rest, observe=False)
    if found.error is not None:
        raise found.error
    return found.status


def dump(history: Sequence[HistoryEntry]) -> str:
    """Return a history as a string, to keep in a file with your tests."""
    return json.dumps([{k: _pack(v) for k, v in asdict(raw_entry(e)).items()} for e in history])


def _load(text: str) -> list[Entry]:
    return [Entry(**{k: _unpack(v) for k, v in entry.items()}) for entry in json.loads(text)]


def _pack(value: Any) -> Any:
    return {"b": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _unpack(value: Any) -> Any:
    return base64.b64decode(cast("dict[str, str]", value)["b"]) if isinstance(value, dict) else value
