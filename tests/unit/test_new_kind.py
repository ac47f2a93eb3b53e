"""A kind of operation that only this file knows goes through an instance, a step and its hooks like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from romancy import WorkflowContext, workflow
from romancy.core.history import Entry, Kind, Meaning, Payload
from romancy.core.instance import Instance
from romancy.core.model import SECOND, ReceivedEvent, Status, WaitKind
from romancy.core.operations import About, Answer, Operation
from romancy.engine.resident import Answered, Due, Resident
from romancy.engine.step import Step
from romancy.storage.batch import Accept

T0 = 1_800_000_000 * SECOND


@dataclass(slots=True, eq=False)
class Vote(Operation):
    """Ends with a value, or without one when it is due."""

    name: ClassVar[WaitKind] = "child"
    status: ClassVar[Status] = "waiting_for_timer"
    answers: ClassVar[Mapping[int, Meaning]] = {
        Kind.ACTIVITY_COMPLETED: Meaning("counted", Payload.VALUE),
        Kind.TIMER_FIRED: Meaning("closed"),
    }
    when_due: ClassVar[Kind | None] = Kind.TIMER_FIRED

    def settle(self, entry: Entry, event: ReceivedEvent[Any] | None) -> None:
        self.resolve(int, entry.payload or b"0")

    def opened_infos(self, about: About) -> Sequence[object]:
        return [("opened", self.id, about["instance_id"])]

    def settled_infos(self, answer: Answer, about: About) -> Sequence[object]:
        return [(self.answers[answer.entry.kind].outcome, self.id)]


@workflow
async def voting(ctx: WorkflowContext) -> int:
    instance = ctx._instance
    return await instance.perform(Vote(instance.run.next_id("vote"), instance.at, due=T0 + 10 * SECOND))


def feed(resident: Resident, *inputs: Any, at: int = T0) -> Step:
    resident.inbox += inputs
    step = Step(resident, at, lambda event: Accept(event, b""), tell=True)
    step.run()
    return step


def begun() -> tuple[Resident, Step]:
    resident = Resident(Instance(voting._definition, "one", b"{}", T0), 0)
    return resident, feed(resident)


def test_it_has_a_status_a_row_and_hooks() -> None:
    _, step = begun()
    (row,) = step.commit.opened
    assert (row.op, row.due, step.commit.status) == ("vote:1", T0 + 10 * SECOND, "waiting_for_timer")
    assert step.told[-1] == ("opened", "vote:1", "one")


def test_an_answer_settles_it() -> None:
    resident, _ = begun()
    step = feed(resident, Answered("vote:1", Kind.ACTIVITY_COMPLETED, b"7"))
    assert (step.commit.output, step.commit.closed, step.told[-1]) == (b"7", ["vote:1"], ("counted", "vote:1"))


def test_it_ends_when_it_is_due() -> None:
    resident, _ = begun()
    step = feed(resident, Due("vote:1"), at=T0 + 10 * SECOND)
    assert (step.commit.output, step.told[-1]) == (b"0", ("closed", "vote:1"))
