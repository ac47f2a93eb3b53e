"""How a recorded fact reaches the code that waits for it: results, failures, timers, events, timeouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from romancy.core import failure as failures
from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind, plain_data, received, unpack_event
from romancy.core.model import Event, ReceivedEvent
from romancy.core.operations import ActivityCall, EventWait, Operation, Timer
from romancy.errors import IOInWorkflow, NonDeterminismError, NotStorable, WaitTimeout

if TYPE_CHECKING:
    from romancy.core.instance import Instance


def _result(instance: Instance, op: Operation, entry: Entry, value: ReceivedEvent[Any] | None) -> None:
    assert isinstance(op, ActivityCall)
    _resolve(op, op.activity.signature.result.decode, entry.payload or b"null")


def _failure(instance: Instance, op: Operation, entry: Entry, value: ReceivedEvent[Any] | None) -> None:
    assert isinstance(op, ActivityCall)
    failure = Failure.decode(entry.payload or b"{}")
    assert op.future is not None
    op.future.set_exception(failures.rebuild(failure, op.activity.name, op.activity.raises))


def _timer(instance: Instance, op: Operation, entry: Entry, value: ReceivedEvent[Any] | None) -> None:
    if isinstance(op, Timer) and op.handle is not None:
        op.handle.ring()
    elif op.future is not None:
        op.future.set_result(None)
    else:
        instance.run_out_of_time()


def _event(instance: Instance, op: Operation, entry: Entry, value: ReceivedEvent[Any] | None) -> None:
    assert isinstance(op, EventWait)
    _resolve(op, lambda payload: value or fit(op, unpack_event(payload)), entry.payload or b"{}")


def _timeout(instance: Instance, op: Operation, entry: Entry, value: ReceivedEvent[Any] | None) -> None:
    assert isinstance(op, EventWait)
    assert op.future is not None
    names = " or ".join(repr(t) for t in op.types)
    op.future.set_exception(
        WaitTimeout(f"no event {names} came in time for wait {op.id!r}", types=op.types, wait_id=op.id)
    )


def _resolve(op: Operation, decode: Callable[[bytes], Any], payload: bytes) -> None:
    """A recorded value goes to the code as its decoded copy.

    One that no longer fits the code's types is not the workflow's to handle: it happened, and did not fail. The error
    leaves the instance, which is then blocked until the types fit again.
    """
    assert op.future is not None
    op.future.set_result(decode(payload))


def fit(wait: EventWait, event: Event) -> ReceivedEvent[Any]:
    """The event as this wait's model makes it; raises `NotStorable` where the data does not fit."""
    model = wait.model_of(event.type)
    if model is None:
        try:
            return received(event, plain_data(event))
        except (ValueError, RecursionError) as error:
            raise NotStorable(f"its data can't be read as {event.datacontenttype or 'JSON'}: {error}") from None
    return received(event, model.judge(event.data if event.data is not None else b"null"))


Settle = Callable[["Instance", Operation, Entry, "ReceivedEvent[Any] | None"], None]
SETTLE: dict[int, Settle] = {
    Kind.ACTIVITY_COMPLETED: _result,
    Kind.ACTIVITY_FAILED: _failure,
    Kind.TIMER_FIRED: _timer,
    Kind.EVENT_RECEIVED: _event,
    Kind.WAIT_TIMED_OUT: _timeout,
}
ANSWERS: dict[type[Operation], set[int]] = {
    ActivityCall: {Kind.ACTIVITY_COMPLETED, Kind.ACTIVITY_FAILED},
    EventWait: {Kind.EVENT_RECEIVED, Kind.WAIT_TIMED_OUT},
    Timer: {Kind.TIMER_FIRED},
}


def name_of(entry: Entry) -> str:
    """An entry in words, for the message that shows both sides."""
    kind = Kind(entry.kind).name.lower() if entry.kind in set(Kind) else f"kind {entry.kind}"
    asked = f" {entry.input.decode('utf-8', 'replace')[:200]}" if entry.input else ""
    return f"{kind} {entry.op}{asked}"


def left_history(instance: Instance, recorded: str, asked: str) -> NonDeterminismError:
    return NonDeterminismError(
        f"the code of instance {instance.id!r} (workflow {instance.definition.name!r}) no longer follows its history:\n"
        f"  recorded: {recorded}\n  the code: {asked}\n"
        "Was the workflow changed while the instance was running? Put the old code back.",
        recorded=recorded,
        asked=asked,
    )


def is_same_call(recorded: bytes, call: ActivityCall) -> bool:
    """Whether a recorded call is the one the code makes now, but for defaults that were added since."""
    signature = call.activity.signature
    again = signature.read_again(recorded)
    return signature.same_call(recorded, call.arguments) or (
        again is not None and signature.same_call(again, call.arguments)
    )


def explain(error: BaseException) -> BaseException:
    """asyncio's words for a foreign future are no help; say what to do."""
    if isinstance(error, RuntimeError) and "attached to a different loop" in str(error):
        better = IOInWorkflow(
            "workflow code awaited something that belongs to the outside (a client, another loop's future); "
            "move this into an activity"
        )
        better.__cause__ = error
        return better
    return error
