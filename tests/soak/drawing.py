"""Random programs and events, drawn from a seed: the language is the one of `tests.property.programs`."""

from __future__ import annotations

import random
from typing import Any

TYPES = ("a", "b", "c")
SUBJECTS = ("x", "y")
SOURCES = ("test", "other")
Node = list[Any]


class Drawing:
    """Draws. `scale` makes all durations shorter or longer; `targets` are instances that events may be sent to."""

    def __init__(self, random: random.Random, scale: float = 1.0, targets: int = 6) -> None:
        self._random = random
        self._scale = scale
        self._targets = [f"i{n}" for n in range(targets)]

    # --- programs ----------------------------------------------------------------------------------------------------
    def code(self) -> dict[str, Any]:
        draw = self._random.random
        code = {"body": self._body(), "swallow": draw() < 0.3}
        return {**code, "fails": True} if draw() < 0.1 else code

    def _body(self) -> Node:
        """Most get a few waits, else many programs do next to nothing."""
        node, wait = self._node, self._wait
        match self._random.randrange(7):
            case 0:
                return node(3)
            case 6:  # steps that only add to the history
                return ["seq", [["loop", self._random.randint(2, 5), self._act()], self._act(), self._act(), wait()]]
            case 1:
                return ["seq", [node(2), wait(), node(2)]]
            case 2:
                return ["seq", [["race", [wait(), wait()]], node(2)]]
            case 3:
                return ["seq", [["all", "group", [wait(), wait()]], wait()]]
            case 4:
                return ["seq", [["loop", self._random.randint(2, 4), wait()], node(1)]]
            case _:
                return ["seq", [wait(), self._leaf(), wait(), node(1)]]

    def _node(self, depth: int) -> Node:
        if depth == 0 or self._random.random() < 0.35:
            return self._send() if self._random.random() < 0.2 else self._leaf()
        match self._random.randrange(6):
            case 0:
                return ["seq", self._several(1, 3, depth)]
            case 1:
                return ["all", self._random.choice(("gather", "group")), self._several(2, 3, depth)]
            case 2:
                return ["race", [self._runner(depth) for _ in range(self._random.randint(2, 3))]]
            case 3:
                return ["limit", self._seconds(), self._node(depth - 1)]
            case 4:
                return ["loop", self._random.randint(2, 3), self._node(depth - 1)]
            case _:
                return ["finally", self._node(depth - 1)]

    def _several(self, least: int, most: int, depth: int) -> list[Node]:
        return [self._node(depth - 1) for _ in range(self._random.randint(least, most))]

    def _runner(self, depth: int) -> Node:
        """A branch of a race begins with something that takes a fact to end: two can't win at once."""
        match self._random.randrange(4):
            case 0:
                return ["seq", [self._leaf(), *self._several(0, 2, depth)]]
            case 1:
                return ["limit", self._seconds(), self._leaf()]
            case 2:
                return ["finally", self._leaf()]
            case _:
                return self._leaf()

    def _leaf(self) -> Node:
        kind = self._random.random()
        if kind < 0.5:
            return self._wait()
        if kind < 0.8:
            return self._act()
        return [self._random.choice(("sleep", "sleep", "asleep", "until")), self._seconds()]

    def _act(self) -> Node:
        hows = ("ok", "ok", "thread", "fail", "flaky", "raises", "hang", "sends", "thread_sends")
        how = self._random.choice(hows)
        return ["act", how, *self._send()[1:]] if "sends" in how else ["act", how]

    def _wait(self) -> Node:
        choice = self._random.choice
        spec: dict[str, Any] = {
            "types": self._random.sample(TYPES, choice((1, 1, 1, 2))),
            "where": choice((None, None, 0, 1)),
            "model": choice((False, False, True)),
            "since": choice((None, None, None, None, "now", "past")),
            "timeout": choice((None, None, None, 0, 3 * self._scale, 20 * self._scale)),
        }
        if self._random.random() < 0.2:
            spec["subject"] = choice(SUBJECTS)
        if self._random.random() < 0.15:
            spec["source"] = choice(SOURCES)
        return ["wait", spec]

    def _send(self) -> Node:
        target = self._random.choice((None, None, None, *self._targets[:3]))
        return ["send", self._random.choice(TYPES), self._random.randint(0, 1), target]

    def _seconds(self) -> float:
        return self._scale * self._random.choice((0.2, 1, 2.5, 4, 12))

    # --- events ------------------------------------------------------------------------------------------------------
    def event(self) -> dict[str, Any]:
        choice = self._random.choice
        return {
            "type": choice(TYPES),
            "k": self._random.randint(0, 1),
            "n": choice((1, 1, 1, "text")),
            "subject": choice((None, *SUBJECTS)),
            "source": choice(SOURCES),
            "to": choice((None, None, None, None, *self._targets[:2], "nobody")),
        }

    def awaited(self, wait: Any) -> dict[str, Any]:
        """One that an open wait (of `list_waits`) takes."""
        event = self.event()
        event |= {
            "type": self._random.choice(wait.types),
            "n": 1,
            "to": self._random.choice((None, None, wait.instance_id)),
        }
        event["k"] = wait.where.get("k", event["k"])
        return event | {"subject": wait.subject or event["subject"], "source": wait.source or event["source"]}

    def go(self) -> dict[str, Any]:
        """One that starts a program of its own."""
        return {"type": "go", "k": 0, "n": 1, "subject": None, "source": "test", "to": None, "code": self.code()}
