"""`romancy replay`: replay a stored history with the current code."""

from __future__ import annotations

from functools import partial

import click

from romancy.api.workflow import definition_of
from romancy.cli.lists import present
from romancy.cli.modules import find_workflow, module_option
from romancy.cli.screen import Screen
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, plural, value, wanted, when
from romancy.core.history import showable
from romancy.core.instance import Instance
from romancy.core.model import FINAL, Status, from_us
from romancy.core.operations import EventWait, Operation
from romancy.core.replay import Replay
from romancy.core.replay import replay as run_through
from romancy.errors import InvalidInput, NonDeterminismError, NotStorable
from romancy.records import to_wait
from romancy.storage.records import InstanceRow, StoredWait


@click.command()
@click.argument("id")
@module_option
@partial(target_options, offers_server=False)
def replay(id: str, modules: tuple[str, ...], options: TargetOptions) -> None:
    """Replay the history of an instance with the current code.

    Nothing is executed or stored. Exits with 1 and shows the difference if the code no longer follows the history.
    """
    if not modules:
        raise click.UsageError("missing option '--module' (the current code)", click.get_current_context())

    row, history = options.do(lambda target: target.stored(id))
    definition = definition_of(find_workflow(modules, row.workflow))
    kind, deadline = row.input_kind, row.deadline
    instance = Instance(definition, row.id, row.input, row.created_at, input_kind=kind, deadline=deadline, run=row.run)
    found = run_through(instance, history, observe=False)
    sides = _difference(found, row)
    if sides is not None:
        screen = Screen()
        screen.say(f"the code no longer follows the history of {clean(row.id)}", "bold red")
        screen.facts({"recorded": clean(sides[0]), "the code": clean(sides[1])})
        raise click.exceptions.Exit(1)
    click.echo(f"ok: the code follows the history ({plural(len(history), 'entry')}); {_stand(found, row.status)}")


def _difference(found: Replay, row: InstanceRow) -> tuple[str, str] | None:
    """Return what is recorded and what the code does instead, or None if the code follows the history."""
    error, outcome = found.error, found.outcome
    if isinstance(error, NonDeterminismError):
        return error.recorded, error.asked
    if isinstance(error, (InvalidInput, NotStorable)):
        return f"started with {value(showable(row.input), 300)}", str(error)
    if error is not None:
        raise error
    if outcome is None:
        ended = row.status == "completed"
        return (_ending(row.status, row.output), f"continues with {_waits(found)}") if ended else None
    if row.status in FINAL and (row.status, row.output) != (outcome.status, outcome.output):
        return _ending(row.status, row.output), _ending(outcome.status, outcome.output)
    return None


def _stand(found: Replay, now: Status) -> str:
    if found.outcome is None:
        return f"it then waits for {_waits(found)}"
    return f"it ends as {found.status}" + ("" if now in FINAL else f" (it is {now} now)")


def _waits(found: Replay) -> str:
    return ", ".join(map(_waited, found.waiting))


def _waited(op: Operation) -> str:
    """Describe what the code waits for, like `why`."""
    until = "" if op.due is None else f", until {when(from_us(op.due), present())}"
    if not isinstance(op, EventWait):
        return clean(str(op)) + until
    stored = StoredWait("", "", op.id, op.name, op.spec, op.opened_at, op.due, op.location)
    return f"event {clean(op.id)} for {wanted(to_wait(stored))}{until}"


def _ending(status: str, output: bytes | None) -> str:
    return f"{status} with {value(showable(output), 300)}" if status == "completed" else status
