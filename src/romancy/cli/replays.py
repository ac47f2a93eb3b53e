"""`romancy replay`: replay stored histories with the current code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from romancy.api.workflow import definition_of
from romancy.cli.database import is_default
from romancy.cli.differences import difference, instance_of, waits_of
from romancy.cli.instance_filters import workflow_option
from romancy.cli.modules import code_of, module_option, pick
from romancy.cli.screen import Screen
from romancy.cli.survey import SAMPLE, ChangedWait, Survey
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, one_line, plural
from romancy.core.model import FINAL, Status
from romancy.core.registry import WorkflowDefinition
from romancy.core.replay import Replay
from romancy.core.replay import replay as run_through
from romancy.service import runtime_of
from romancy.storage.records import Snapshot


@click.command()
@click.argument("id", required=False)
@module_option
@click.option("--all", "is_all", is_flag=True, help="Replay all unfinished instances, before you deploy the code.")
@workflow_option("With --all: only instances of this workflow.")
@click.option("--every", is_flag=True, help=f"With --all: also replay more than {SAMPLE} instances with equal entries.")
@partial(target_options, offers_server=False)
def replay(
    id: str | None, modules: tuple[str, ...], is_all: bool, workflow: str | None, every: bool, options: TargetOptions
) -> None:
    """Replay the history of an instance with the current code.

    With --all, replay every unfinished instance, to check code before you deploy it.

    Nothing is executed or stored. Exits with 1 and shows the difference if the code no longer follows a history.
    With --all, also if the code lacks a version of a workflow that instances run, and has another one.

    It takes the workflows that `romancy worker MODULE` runs. MODULE can name an App, as in `romancy serve shop:app`:
    then its database is read, unless you give another one.
    """
    ctx = click.get_current_context()
    if not modules:
        raise click.UsageError("missing option '--module' (the current code)", ctx)
    if is_all == (id is not None):
        raise click.UsageError("give the ID of an instance, or --all", ctx)
    if not is_all and (workflow is not None or every):
        raise click.UsageError("--workflow and --every require --all", ctx)
    code, app = code_of(modules)
    if app is not None and is_default("database") and options.url is None:
        options = TargetOptions(app.database, runtime_of(app).database.schema)
    if app is not None:
        options = replace(options, codec=runtime_of(app).codec)
    if id is not None:
        snapshot = options.do(lambda target: target.stored(id))
        _replay_one(definition_of(pick(code, snapshot.row.workflow, modules)), snapshot)
        return
    survey = Survey({name: definition_of(wf) for name, wf in code.items()}, every)
    options.do(lambda target: _run(survey, target, workflow))
    _show(survey, workflow)


def _replay_one(definition: WorkflowDefinition, snapshot: Snapshot) -> None:
    found = judge(definition, snapshot)
    if found.sides is not None:
        screen = Screen()
        screen.say(found.text, "bold red")
        screen.facts({"recorded": clean(found.sides[0]), "the code": clean(found.sides[1])})
        raise click.exceptions.Exit(1)
    click.echo(f"ok: {found.text}")


@dataclass(frozen=True)
class Verdict:
    """Whether the code follows a history."""

    text: str
    sides: tuple[str, str] | None = None
    """If it does not: what is recorded, and what the code does instead."""


def judge(definition: WorkflowDefinition, snapshot: Snapshot) -> Verdict:
    """Replay the history of an instance. Nothing is executed or stored."""
    row, history = snapshot.row, snapshot.fed
    has_begun = bool(history or snapshot.waits or row.status in FINAL)
    found = run_through(instance_of(definition, row), history, observe=False, has_begun=has_begun)
    sides = difference(found, row)
    if sides is not None:
        return Verdict(f"the code no longer follows the history of {clean(row.id)}", sides)
    count = plural(len(history), "entry")
    return Verdict(f"the code follows the history ({count}); {_stand(found, row.status)}")


def _stand(found: Replay, now: Status) -> str:
    if found.outcome is None:
        return f"it then waits for {waits_of(found)}"
    return f"it ends as {found.status}" + ("" if now in FINAL else f" (it is {now} now)")


# --- all of them ------------------------------------------------------------------------------------------------------
async def _run(survey: Survey, target: Target, workflow: str | None) -> None:
    """Replay with a progress bar, on a terminal."""
    storage, console = target.storage(), Console(stderr=True)
    total = None
    if workflow is None and console.is_terminal:
        counts = await storage.catalog.counts(1_000_000)
        total = sum(count for status, count in counts.items() if status not in FINAL)
    columns = TextColumn("replaying"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=total)
        await survey.run(storage, workflow, lambda count: bars.advance(task, count))


def _show(survey: Survey, workflow: str | None) -> None:
    """Show the result, and exit with 1 if the code leaves a history, or lacks a version that is in use."""
    screen, found = Screen(), survey.differences
    total, replayed = sum(survey.counts.values()), survey.replayed
    if found:
        failed = sum(each.count for each in found)
        screen.say(f"the code no longer follows {failed:,} of {plural(replayed, 'replayed history')}", "bold red")
        rows = [
            (
                clean(each.workflow),
                f"{each.count:,}",
                clean(each.example),
                one_line(each.recorded, 200),
                one_line(each.asked, 200),
            )
            for each in found
        ]
        screen.table(("workflow", "count", "instance", "recorded", "the code"), rows)
    else:
        ok, color = ("", "") if survey.removed else ("ok: ", "green")
        screen.say(f"{ok}the code follows {plural(replayed, 'replayed history')}", color)
    left_out = total - replayed - sum(survey.missing.values())
    if left_out > 0:
        note = f"{left_out:,} more have the same entries as {SAMPLE} of these; --every replays them, too"
        screen.say(note, "dim")
    removed = survey.removed
    for name, count in survey.missing.items():
        what = f"{plural(count, 'running instance')} of {clean(name)!r}: this code"
        if name in removed:
            screen.say(f"{what} has other versions of it, but not this one; keep it until they have ended", "bold red")
        else:
            screen.say(f"{what} has no such workflow", "yellow")
    for changed in survey.changed_waits:
        screen.say(_changed(changed), "yellow")
    for change, old in survey.old_ways.items():
        if old.count or not found:  # where the code leaves a history, it is not known what it would ask further on
            screen.say(_old_way(change, old.count, old.is_exact))
    for name in survey.unused if workflow is None else ():
        screen.say(f"no running instance uses {clean(name)!r}, and there is a newer version; you can delete it")
    if found or removed:
        raise click.exceptions.Exit(1)


def _changed(changed: ChangedWait) -> str:
    who = f"{plural(changed.count, 'replayed instance')} of {clean(changed.workflow)!r}"
    waits = "waits" if changed.count == 1 else "wait"
    return (
        f"{who} (such as {clean(changed.example)}) {waits} for other events at {clean(changed.wait)!r} than this code: "
        "events that fit only the new wait do not wake what waits in the old way"
    )


def _old_way(change: str, count: int, is_exact: bool) -> str:
    name = repr(clean(change))
    if count == 0:
        return f"no running instance takes the old way of {name}; you can delete the question"
    about = "" if is_exact else "about "
    return f"{about}{plural(count, 'running instance')} still take{'s' if count == 1 else ''} the old way of {name}"
