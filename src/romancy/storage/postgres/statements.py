"""The statements of postgres*.sql for one schema, with numbered parameters; the group commit is put together here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from romancy.storage.sql import blocks

_BLOCKS = blocks("postgres.sql") | blocks("postgres_owning.sql")
_PART = re.compile(r"\{(\w+)\}")
_PARAMETER = re.compile(r"(?<!:):(\w+)")
_RESULTS = {
    "applied": "(SELECT array_agg(id) FROM applied) AS applied",
    "appended": "(SELECT array_agg(instance) FROM appended) AS appended, (SELECT ('the history of ' || id || "
    "' is not as its owner knows it; nothing is stored')::integer FROM strange) AS strange",
    "started": "(SELECT array_agg(id) FROM started) AS started",
    "unlooked": "(SELECT array_agg(instance) FROM unlooked) AS unlooked",
    "events": "(SELECT array_agg(source ORDER BY seq) FROM accepted) AS sources, "
    "(SELECT array_agg(id ORDER BY seq) FROM accepted) AS ids, "
    "(SELECT array_agg(seq ORDER BY seq) FROM accepted) AS seqs",
}


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with $1, $2, ... and the names of what goes there."""

    sql: str
    names: tuple[str, ...]

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        return [given[name] for name in self.names]


class Statements:
    """All statements of one schema; each text is made once, so that the server prepares it once."""

    def __init__(self, schema: str, *, relaxed: bool = False, reader: int = 0) -> None:
        """`relaxed`: a group commit need not be on disk before it is answered; `reader`: the newest schema we know."""
        self._relaxed, self._reader = relaxed, str(reader)
        self._schema = '"' + schema.replace('"', '""') + '".'
        self._made: dict[object, Statement] = {}

    def get(self, name: str, **parts: str) -> Statement:
        """A statement by name; `parts` fill its {gaps}, other gaps are blocks of the file."""
        key = (name, *parts.items())
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(_BLOCKS[name], parts)
        return made

    def write(self, pieces: Sequence[str]) -> Statement:
        """The group commit of a batch that needs these pieces, besides the fence."""
        key = ("", *pieces)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._write(pieces)
        return made

    def _write(self, pieces: Sequence[str]) -> Statement:
        steps = "touches" in pieces or "steps" in pieces
        senders = "WHERE sender IS NULL" + (" OR sender IN (SELECT id FROM applied)" if steps else "")
        results = ["(SELECT count(*) FROM fence) AS alive", "{time} AS now"]
        results += [_RESULTS["applied"]] if steps else []
        results += [_RESULTS["appended"]] if "appended" in pieces else []
        results += [_RESULTS["started"]] if "starts" in pieces else []
        results += [_RESULTS["unlooked"]] if "unlooked" in pieces else []
        results += [_RESULTS["events"]] if "events" in pieces else []
        # A worker's commits need no such check: the migration took away its row, and with it the fence.
        results += ["{outdated} AS outdated"] if "starts" in pieces or "events" in pieces else []
        results += ["set_config('synchronous_commit', 'off', true)"] if self._relaxed else []
        text = ", ".join(_BLOCKS[f"write_{piece}"] for piece in ("fence", *pieces))
        return self._make(f"WITH {text} SELECT {', '.join(results)}", {"senders": senders})

    def _make(self, text: str, parts: Mapping[str, str]) -> Statement:
        parts = {"reader": self._reader, **parts}
        while _PART.search(text):
            text = _PART.sub(lambda m: parts[m[1]] if m[1] in parts else _BLOCKS[m[1]], text)
        text = re.sub(r"\bromancy\.", lambda _: self._schema, text)
        names: list[str] = []

        def number(match: re.Match[str]) -> str:
            if match[1] not in names:
                names.append(match[1])
            return f"${names.index(match[1]) + 1}"

        return Statement(_PARAMETER.sub(number, text), tuple(names))
