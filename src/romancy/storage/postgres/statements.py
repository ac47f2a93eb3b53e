"""The statements of PostgreSQL for one schema, with numbered parameters. Composes the group commit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from romancy.storage.sql import Statement, dialect, expanded, make
from romancy.storage.urls import quoted

BLOCKS = dialect("postgres")
_NEWBORN = ("starts", "children", "last_children", "queued", "queued_last")
"""The pieces that store new instances."""


_ANSWERED = (
    "moved",
    "appended",
    "starts",
    "children",
    "queued",
    "letters",
    "unlooked",
    "events",
    "successors",
)
"""The pieces whose outcome is part of the answer."""


class Statements:
    """All statements of one schema; each text is built once, so that the server prepares it once."""

    def __init__(self, schema: str, *, relaxed: bool = False, reader: int = 0) -> None:
        """`relaxed`: a group commit is answered before it is on disk. `reader`: the newest schema we know."""
        self.is_relaxed = self._relaxed = relaxed
        self._blocks = {
            name: re.sub(r"\bromancy(?=\.)", lambda _: quoted(schema), text) for name, text in BLOCKS.items()
        }
        self._blocks["{reader}"] = str(reader)
        self._made: dict[object, Statement] = {}

    def get(self, name: str) -> Statement:
        """Return a statement by name."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = make(self._blocks[name], self._blocks, "$")
        return made

    def text(self, name: str) -> str:
        """Return a statement with its parameters as `:name::type`."""
        return expanded(self._blocks[name], self._blocks)

    def write(self, pieces: Sequence[str]) -> Statement:
        """Return the group commit of a batch that needs these pieces, in addition to the fence.

        It is not a complete statement in the file, because unused pieces would take longer than the used ones.
        """
        key = tuple(pieces)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._write(pieces)
        return made

    def _write(self, pieces: Sequence[str]) -> Statement:
        steps = not {"touches", "steps", "runs"}.isdisjoint(pieces)
        results = [
            "fence",
            *(piece for piece in _ANSWERED if piece in pieces),
        ]
        results += ["applied"] if steps else []
        results += ["outdated"] if not {"starts", "queued", "events"}.isdisjoint(pieces) else []
        results += ["relaxed"] if self._relaxed else []
        if "bounded" in pieces:
            results, pieces = [*results, "bounded"], [piece for piece in pieces if piece != "bounded"]
        written = ", ".join(f"{{write_{piece}}}" for piece in ("fence", *pieces))
        answered = ", ".join(f"{{result_{result}}}" for result in results)
        sendable = self._blocks["{sent_by_applied}" if steps else "{sent_by_nobody}"]
        moved = "moved" in pieces
        of_guests = {
            "{startable}": self._blocks["{startable_moved}" if moved else "{startable_always}"],
            "{queueable}": self._blocks["{queueable_moved}" if moved else "{queueable_always}"],
            "{moved_starts}": " UNION ALL ".join(self._blocks[f"{{{part}}}"] for part in _moved_starts(pieces)),
        }
        sendable = self._blocks["{sent_by_guests}"] if moved else sendable
        born = [f"{{newborn_{piece}}}" for piece in _NEWBORN if piece in pieces]
        parts = {**self._blocks, **of_guests, "{sendable}": sendable, "{newborn}": " UNION ALL ".join(born)}
        return make(f"WITH {written} SELECT {answered}", parts, "$")


def _moved_starts(pieces: Sequence[str]) -> list[str]:
    """Return the parts that read which starts were stored now."""
    return [f"{piece}_moved" for piece in ("starts", "queued") if piece in pieces] or ["no_starts_moved"]
