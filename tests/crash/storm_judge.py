"""The judge of the storm: compares what the observer saw with what the database says, after everything has ended."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from romancy import App, HistoryEntry, Instance
from romancy.testing import replay
from tests.crash.storm_cast import WORKFLOWS
from tests.property.families import place_of

FINAL = frozenset(("completed", "failed", "cancelled"))
_TOLD = {"completed": "child_completed", "failed": "child_failed", "cancelled": "child_cancelled"}


@dataclass
class Case:
    """An instance, and what was seen of it."""

    instance: Instance
    history: Sequence[HistoryEntry]
    did: dict[str, int] = field(default_factory=dict)
    """The keys of what it did, with the line where each was first seen."""
    latest: dict[str, str] = field(default_factory=dict)
    """The key of what it did last under each operation. Another one than before if a retry repeats it."""
    undone: dict[str, int] = field(default_factory=dict)
    """The keys of what it undid, with the line where that was first seen."""
    taken: list[tuple[int, str]] = field(default_factory=list)
    replayed: str = ""
    """What its history leads to."""

    @property
    def id(self) -> str:
        return self.instance.instance_id

    @property
    def standing(self) -> list[HistoryEntry]:
        return [entry for entry in self.history if not entry.dropped]

    @property
    def own_steps(self) -> str:
        """Its plan, without its children's."""
        steps = self.instance.input["plan"].get("steps", ())
        return json.dumps([step for step in steps if step[0] not in ("called", "free")])

    @property
    def has_plain_order(self) -> bool:
        """Whether undos come in the reverse order of all results.

        Not if one got stuck, and came later; nor if a call of a block that was given up ended while the block was being
        undone; nor if only what was given up is undone, because the instance completed.
        """
        steps = self.own_steps
        return self.instance.status != "completed" and "stuck" not in steps and "block" not in steps

    def __str__(self) -> str:
        return f"{self.id} ({self.instance.status})"


class Judge:
    """Finds faults. Each is one line for people."""

    def __init__(self, lines: Sequence[dict[str, Any]], lease: float) -> None:
        self._lines, self._lease = lines, timedelta(seconds=lease)
        self.faults: list[str] = []
        self.cases: dict[str, Case] = {}
        self._latest: dict[str, int] = defaultdict(int)
        self._by_crowd = {line["instance"] for line in lines if line["what"] == "cancelled"}
        self._forks = {line["instance"]: line for line in lines if line["what"] == "forked"}

    async def read(self, app: App) -> None:
        cursor: str | None = None
        while True:
            page = await app.list_instances(limit=500, cursor=cursor)
            for listed in page.items:
                found = await app.get_instance(listed.instance_id)
                self.cases[found.instance_id] = Case(found, await app.get_history(found.instance_id))
            cursor = page.cursor
            if cursor is None:
                return

    def judge(self) -> list[str]:
        for id in self.cases:
            first, replacement = place_of(id)
            self._latest[first] = max(self._latest[first], replacement)
        self.faults += self._observations()
        for case in self.cases.values():
            if case.instance.status not in FINAL:
                error = case.instance.error and case.instance.error["message"]
                self.faults.append(f"{case} has not ended: {error} {case.instance.waits}")
                continue
            self.faults += self._replayed(case)
            self.faults += self._held(case)
            self.faults += self._order(case)
            self.faults += self._heard(case)
            self.faults += self._stream(case)
            self.faults += self._why_cancelled(case)
            if case.instance.parent is not None:
                self.faults += self._child(case)
        self.faults += self._retries()
        return self.faults

    # --- steps and undos ----------------------------------------------------------------------------------------------
    def _observations(self) -> Iterator[str]:
        undo_keys: dict[str, set[str]] = defaultdict(set)
        owners: dict[str, str] = {}
        for number, line in enumerate(self._lines):
            case = self.cases.get(line.get("instance", ""))
            if line["what"] not in ("did", "undid", "took", "used"):
                continue
            if case is None:
                yield f"{line} is of an instance that is not there"
            elif line["what"] == "did":
                if line["key"] not in case.did:
                    case.did[line["key"]] = number
                    case.latest[line["op"]] = line["key"]
                owners[line["key"]] = case.id
            elif line["what"] == "took":
                if (line["n"], line["key"]) not in case.taken:
                    case.taken.append((line["n"], line["key"]))
            elif line["what"] == "undid":
                case.undone.setdefault(line["of"], number)
                undo_keys[line["of"]].add(line["key"])
                if owners.get(line["of"]) != case.id:
                    yield f"{case} undid {line['of']}, which it had not done"
        for key, undos in undo_keys.items():
            if len(undos) > 1:
                yield f"{key} was undone several times: {sorted(undos)}"

    def _held(self, case: Case) -> Iterator[str]:
        """Everything done is undone, or in effect because it was to be."""
        last = {key for key in case.did if _run_of(key) == case.instance.run_number}
        in_effect = {key for key in case.did if key not in case.undone}
        early = {key for key in case.undone if key not in last}
        if early:
            yield f"{case} undid {sorted(early)} of earlier runs"
        if case.instance.status != "completed":
            if in_effect & last and not self._is_given_up(case):
                yield f"{case} did not undo {sorted(in_effect & last)}"
        elif case.instance.workflow == "trip":
            held = {key for key in case.instance.output["held"] if key not in self._copied(case)}
            if held != in_effect:
                yield f"{case} holds {sorted(held)}, and {sorted(in_effect)} are in effect"
        elif case.undone:
            yield f"{case} undid {sorted(case.undone)}"

    def _copied(self, case: Case) -> set[str]:
        """Keys of what a fork did not do itself."""
        if case.id not in self._forks:
            return set()
        return {key for other in self.cases.values() if other is not case for key in other.did}

    def _order(self, case: Case) -> Iterator[str]:
        """Undos come last first, in the history and in the eyes of the observer."""
        open_ones: list[str] = []
        undone: list[str] = []
        for entry in case.standing:
            if entry.kind != "activity_completed" or not entry.operation.startswith(("book", "undo ")):
                continue
            if not entry.operation.startswith("undo "):
                open_ones.append(entry.operation)
                continue
            op = entry.operation.removeprefix("undo ").rpartition(":")[0]
            undone.append(case.latest.get(op, op))
            if op not in open_ones:
                yield f"{case}: {entry.operation} undoes what is not there: {open_ones}"
            elif case.has_plain_order and open_ones[-1] != op:
                yield f"{case}: {entry.operation} comes before the undos of {open_ones[open_ones.index(op) + 1 :]}"
            if op in open_ones:
                open_ones.remove(op)
        seen = sorted(case.undone, key=case.undone.__getitem__)
        if seen != undone:
            yield f"{case} undid {seen}, and its history says {undone}"

    def _replayed(self, case: Case) -> Iterator[str]:
        if len(case.history) == 1 and case.instance.status == "cancelled":
            return  # it never began
        try:
            case.replayed = replay(WORKFLOWS[case.instance.workflow], case.history)
        except Exception as error:
            yield f"{case} does not replay: {type(error).__name__}: {error}"
            return
        if case.replayed != case.instance.status and not self._is_given_up(case):
            yield f"{case} replays to {case.replayed}"

    def _is_given_up(self, case: Case) -> bool:
        """Whether the crowd cancelled it while its undos were stuck, which leaves it as it is."""
        return case.replayed == "compensating" and case.instance.status == "cancelled" and case.id in self._by_crowd

    # --- families -----------------------------------------------------------------------------------------------------
    def _heard(self, case: Case) -> Iterator[str]:
        """What a parent returned of its children is what became of them."""
        if case.instance.status != "completed" or case.instance.workflow != "trip":
            return
        for kind, answer in case.instance.output["heard"]:
            child = self.cases.get(answer["id"] if kind == "completed" else answer)
            if child is None:
                yield f"{case} heard of an instance that is not there: {kind} {answer}"
                continue
            was_retried = any(entry.kind == "retried" for entry in child.history)
            if child.instance.status != kind and not was_retried:
                yield f"{case} heard that {child} is {kind}"
            elif kind == "completed" and child.instance.output != answer:
                yield f"{case} got {answer} of {child}, which returned {child.instance.output}"
        for id in case.instance.output["freed"]:
            if id not in self.cases:
                yield f"{case} started {id}, which is not there"

    def _child(self, child: Case) -> Iterator[str]:
        parent = self.cases[child.instance.parent or ""]
        first, replacement = place_of(child.id)
        if replacement < self._latest[first]:
            return  # another one was started in its place when its parent was retried
        op = first.removeprefix(f"{parent.id}/")
        told = [entry for entry in parent.standing if entry.operation == op and entry.kind in _TOLD.values()]
        if len(told) > 1:
            yield f"{parent} was told several times of {child}: {told}"
        elif told and told[0].kind != _TOLD[child.instance.status]:
            yield f"{parent} was told of {child}: {told[0]}"
        elif told and child.instance.status == "completed" and told[0].result != child.instance.output:
            yield f"{parent} was told of {child}: {told[0]}, which returned {child.instance.output}"
        if child.instance.input["plan"].get("free"):
            return
        if child.instance.finished_at is None or parent.instance.finished_at is None:
            return  # told of elsewhere
        is_asked = any(entry.kind == "cancel_requested" for entry in child.standing) or len(child.history) == 1
        is_asked = is_asked or bool(child.undone)  # once its code has ended, it undoes what it gave up, whoever asks
        if not told and not is_asked and child.instance.finished_at > parent.instance.finished_at + self._lease * 2:
            yield f"{child} went on after {parent} had ended: {child.instance.finished_at}"
        if parent.undone and child.undone and max(child.undone.values()) > min(parent.undone.values()):
            first = min(parent.undone, key=parent.undone.__getitem__)
            if "block" not in parent.own_steps and "hasty" not in parent.own_steps:
                yield f"{parent} began to undo ({first}) before {child} had undone its steps"

    def _why_cancelled(self, case: Case) -> Iterator[str]:
        """Only the crowd and parents cancel, and parents do not cancel free children."""
        is_free = case.instance.parent is None or case.instance.input["plan"].get("free")
        if case.instance.status == "cancelled" and is_free and case.id not in self._by_crowd:
            yield f"{case} was cancelled by nobody: {case.instance.error}"

    # --- streams, retries ---------------------------------------------------------------------------------------------
    def _stream(self, case: Case) -> Iterator[str]:
        if case.instance.workflow != "reader":
            return
        numbers = [n for n, _ in case.taken]
        total = case.instance.input["plan"]["total"]
        begin = numbers[0] if numbers else 0
        if numbers != list(range(begin, begin + len(numbers))):
            yield f"{case} took {case.taken}"
        if case.instance.status == "completed" and numbers and numbers[-1] != total - 1:
            yield f"{case} took {numbers} of {total}"
        fork = self._forks.get(case.id)
        if fork is None and begin != 0:
            yield f"{case} began with {begin}"
        if fork is not None and fork["taken"] and numbers and begin != fork["taken"][-1] + 1:
            yield f"{case}, a fork of {fork}, began with {begin}"

    def _retries(self) -> Iterator[str]:
        accepted: dict[str, int] = defaultdict(int)
        for line in self._lines:
            if line["what"] == "retried":
                accepted[line["instance"]] += 1
        for id, count in accepted.items():
            case = self.cases[id]
            entries = sum(entry.kind == "retried" for entry in case.history)
            # At least: a fork has more from its original, and each child that is replaced adds one.
            if case.instance.run_number == 1 and entries < count:
                yield f"{case} was retried {count} times, and its history says {entries}"


def _run_of(key: str) -> int:
    _, found, number = key.rpartition("/")[2].partition("@")
    return int(number) if found else 1
