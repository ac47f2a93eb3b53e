"""`romancy replay`: a stored history against today's code."""

from __future__ import annotations

from functools import partial

import click

from romancy.api.workflow import Workflow
from romancy.cli.lists import present
from romancy.cli.modules import find_workflow, module_option
from romancy.cli.screen import Screen
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, plural, value, wanted, when
from romancy.core.history import Entry, showable
from romancy.core.instance import Instance
from romancy.core.model import FINAL, from_us
from romancy.core.operations import EventWait, Operation, Timer
from romancy.errors import InvalidInput, NonDeterminismError, NotStorable
from romancy.records import to_wait
from romancy.storage.records import InstanceRow, StoredWait


@click.command()
@click.argument("id")
@module_option
@partial(target_options, offers_server=False)
def replay(id: str, modules: tuple[str, ...], options: TargetOptions) -> None:
    """Run an instance's history through today's code.

    Nothing is done and nothing is stored. Ends with 1, showing both sides, if the code no longer follows the history.
    """
    if not modules:
        raise click.UsageError("Missing option '--module': where today's code is", click.get_current_context())

    row, history = options.do(lambda target: target.stored(id))
    wf = find_workflow(modules, row.workflow)
    try:
        outcome = follow(wf, row, history)
    except NonDeterminismError as error:
        _show_difference(row.id, error)
        raise click.exceptions.Exit(1) from None
    click.echo(f"ok: the code follows the history ({plural(len(history), 'entry')}); {outcome}")


def _show_difference(id: str, error: NonDeterminismError) -> None:
    screen = Screen()
    screen.say(f"the code no longer follows the history of {clean(id)}", "bold red")
    screen.facts({"recorded": clean(error.recorded), "the code": clean(error.asked)})


def follow(wf: Workflow[..., object], row: InstanceRow, history: list[Entry]) -> str:
    """Replay; says where that leads, or raises `NonDeterminismError` with both sides."""
    instance = Instance(
        wf.definition, row.id, row.input, row.created_at, input_kind=row.input_kind, deadline=row.deadline
    )
    try:
        instance.replay(history)
        return _compare(instance, row)
    except (InvalidInput, NotStorable) as error:
        stored = f"started with {value(showable(row.input), 300)}"
        raise NonDeterminismError(str(error), recorded=stored, asked=str(error)) from error
    finally:
        instance.evict()


def _compare(instance: Instance, row: InstanceRow) -> str:
    outcome = instance.outcome
    if outcome is None:
        waiting = ", ".join(map(_waited, instance.ops.values()))
        if row.status == "completed":
            raise _difference(f"completed with {value(showable(row.output), 300)}", f"goes on: {waiting}")
        return f"it then waits for {waiting}"
    if row.status in FINAL and (row.status, row.output) != (outcome.status, outcome.output):
        raise _difference(_ending(row.status, row.output), _ending(outcome.status, outcome.output))
    return f"it ends as {outcome.status}" + ("" if row.status in FINAL else f" (it is {row.status} now)")


def _waited(op: Operation) -> str:
    """What the code waits for, as `why` says it."""
    due = op.due if isinstance(op, (EventWait, Timer)) else None
    until = "" if due is None else f", until {when(from_us(due), present())}"
    if not isinstance(op, EventWait):
        return clean(str(op)) + until
    stored = StoredWait("", "", op.id, "event", op.spec, op.since, due, op.location)
    return f"event {clean(op.id)} for {wanted(to_wait(stored))}{until}"


def _ending(status: str, output: bytes | None) -> str:
    return f"{status} with {value(showable(output), 300)}" if status == "completed" else status


def _difference(recorded: str, asked: str) -> NonDeterminismError:
    return NonDeterminismError("the code ends otherwise", recorded=recorded, asked=asked)
