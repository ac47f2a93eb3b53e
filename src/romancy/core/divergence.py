"""Errors for code that no longer follows its history, and for code that awaits something foreign."""

from __future__ import annotations

from collections.abc import Mapping

from romancy.core.history import Entry, Kind
from romancy.core.operations import Operation
from romancy.errors import IOInWorkflow, NonDeterminismError


def name_of(entry: Entry) -> str:
    """Describe an entry for the error that shows both sides."""
    kind = Kind(entry.kind).name.lower() if entry.kind in set(Kind) else f"kind {entry.kind}"
    asked = f" {entry.input.decode('utf-8', 'replace')[:200]}" if entry.input else ""
    return f"{kind} {entry.op}{asked}"


def left_history(instance: str, workflow: str, recorded: str, asked: str) -> NonDeterminismError:
    """Return the error that shows both sides."""
    return NonDeterminismError(
        f"the code of instance {instance!r} (workflow {workflow!r}) no longer follows its history:\n"
        f"  recorded: {recorded}\n  the code: {asked}\n"
        "Was the workflow changed while the instance was running? Put the old code back, or keep it beside the new: "
        "if ctx.patched('my-change'): ... else: ...",
        recorded=recorded,
        asked=asked,
    )


_VERBS = {Kind.EVENT_SENT: ("send", "sent"), Kind.EMITTED: ("emit", "emitted")}


def unlike(instance: str, workflow: str, mark: Entry | None, kind: Kind, op: str, made: bytes) -> NonDeterminismError:
    """Return the error for code that sends or emits something else than what it did before, which is `mark`."""
    does, done = _VERBS[kind]
    recorded = f"nothing was {done} as {op}" if mark is None else name_of(mark)
    return left_history(instance, workflow, recorded, f"{does}s {made.decode()}")


def unmade(instance: str, workflow: str, ops: Mapping[str, Operation], mark: Entry) -> NonDeterminismError:
    """Return the error for code that does not send or emit what it did before, and what it waits for instead."""
    verb = "emit" if mark.kind == Kind.EMITTED else "send"
    instead = f"; {_waiting(ops)}" if ops else ""
    return left_history(instance, workflow, name_of(mark), f"did not {verb} it{instead}")


def _waiting(ops: Mapping[str, Operation]) -> str:
    found = [str(op) for op in ops.values() if not op.goes_on]  # free children: perhaps nobody waits for them
    return f"waits for {', '.join(found) or 'nothing'}"


def explain(error: BaseException) -> BaseException:
    """Replace asyncio's error for a foreign future with one that says what to do."""
    if isinstance(error, RuntimeError) and "attached to a different loop" in str(error):
        better = IOInWorkflow(
            "workflow code awaited something from outside the workflow (a client, a future of another loop); "
            "move this into an activity"
        )
        better.__cause__ = error
        return better
    return error


def ended_before(instance: str, entry: Entry) -> NonDeterminismError:
    """Return the error for code that ends earlier than its history."""
    return NonDeterminismError(
        f"the code of {instance!r} has ended, but its history continues with {name_of(entry)}",
        recorded=name_of(entry),
        asked="(the end)",
    )


def unknown_kind(instance: str, entry: Entry) -> NonDeterminismError:
    """Return the error for an entry of a newer version."""
    return NonDeterminismError(
        f"the history of {instance!r} has an entry of kind {entry.kind}, which this version does not know; "
        "run it with the version of romancy that wrote it, or a newer one",
        recorded=name_of(entry),
    )


def answered(instance: str, workflow: str, ops: Mapping[str, Operation], entry: Entry) -> Operation:
    """Return the open operation that an entry answers. The code must have asked for exactly this."""
    operation = ops.get(entry.op)
    if operation is None:
        raise left_history(instance, workflow, name_of(entry), _waiting(ops))
    if entry.kind in operation.answers and (entry.input is None or operation.is_recorded_as(entry.input)):
        return operation
    raise left_history(instance, workflow, name_of(entry), str(operation))
