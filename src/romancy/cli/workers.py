"""`romancy run` and `romancy worker`: the commands that run workflows."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import click

from romancy.api.workflow import Workflow
from romancy.app import App
from romancy.cli.arguments import TakesWords, by_annotation
from romancy.cli.database import check_shareable, database_options, on, settle
from romancy.cli.errors import Failed
from romancy.cli.lifeline import Lifeline, take_lifeline
from romancy.cli.logs import log_to_stderr
from romancy.cli.modules import app_of, load, load_workflow, register
from romancy.cli.screen import note
from romancy.cli.supervisor import supervise, workers_option
from romancy.cli.words import value
from romancy.core.garbage import collect_less
from romancy.core.ids import check_id, new_id
from romancy.service import runtime_of
from romancy.signals import on_first_signal


@click.command(cls=TakesWords)
@click.argument("target", metavar="MODULE:WORKFLOW")
@click.argument("words", nargs=-1, metavar="[ARG]...")
@click.option(
    "--id", "instance_id", metavar="ID", help="Id of the instance. The same id again continues where it stopped."
)
@database_options
def run(target: str, words: tuple[str, ...], instance_id: str | None, database: str, schema: str | None) -> None:
    """Run a workflow to completion and print its result.

    Each ARG is converted according to the annotation of its parameter: text, a number, a date, or JSON for models. Use
    `name=ARG` to pass an argument by name.

    If MODULE defines one App, its settings apply (state, hooks, and the database unless another is given). The
    workflow runs here even if that App has worker=False.

    \b
      romancy run shop:payment ORD-1 amount=12.50
    """
    module, wf = load_workflow(target)
    args, kwargs = by_annotation(wf, words)
    log_to_stderr(logging.WARNING)
    app = settle(app_of(module), database, schema)
    runtime_of(app).works = True
    register(app, module)
    id = check_id(instance_id) if instance_id is not None else new_id(runtime_of(app).clock.now())
    try:
        click.echo(on(app, lambda app: _run(app, wf.options(instance_id=id), args, kwargs)))
    except KeyboardInterrupt:
        note(f"romancy: interrupted; continue with `romancy run {target} ... --id {id}` or a worker")
        raise click.exceptions.Exit(130) from None


async def _run(app: App, wf: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    handle = await app.start_workflow(wf, *args, **kwargs)
    exists = "" if handle.created else " (already exists)"
    note(f"instance {handle.instance_id} on {runtime_of(app).shown_database}{exists}")
    await handle.result()
    output = (await app.get_instance(handle.instance_id)).output  # as stored, not converted by the annotation
    return output if isinstance(output, str) else value(output)


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="MODULE[:APP]...")
@workers_option
@database_options
def worker(targets: tuple[str, ...], workers: int, database: str, schema: str | None) -> None:
    """Run a worker for the workflows of one or more modules.

    The worker runs until Ctrl-C or SIGTERM. It then finishes or hands back the running instances.

    If a MODULE defines one App, or MODULE:APP names one, its settings apply, and its database unless another is given.
    Otherwise, the worker runs every workflow in the modules.

    The worker also runs the workflows of an App(worker=False), so an API process that only starts workflows and sends
    events can share a module with its workers.

    With --workers N, N processes run the workflows. Those that die are restarted.
    """
    lifeline = take_lifeline()
    log_to_stderr(logging.INFO, lifeline)
    if workers > 1 and lifeline is None:
        raise click.exceptions.Exit(supervise(workers))
    split = [target.partition(":") for target in targets]
    modules = [load(name) for name, _, _ in split]
    apps = [app_of(module, name or None) for module, (_, _, name) in zip(modules, split, strict=True)]
    given = list({id(app): app for app in apps if app is not None}.values())
    if len(given) > 1:
        raise Failed("the modules define several Apps; start a worker for each, or choose one with MODULE:APP")
    app = settle(given[0] if given else None, database, schema)
    runtime_of(app).works = True
    register(app, *modules)
    if not app.workflows:
        raise Failed(f"no workflow in {', '.join(targets)}; is @workflow missing?")
    if lifeline is not None:
        check_shareable(app)
    on(app, lambda app: _work(app, lifeline))


async def _work(app: App, lifeline: Lifeline | None) -> None:
    """Run until the first signal; a second one ends the process at once."""
    stopped = asyncio.Event()
    on_first_signal(stopped.set, None if lifeline is None else lifeline.fileno())
    collect_less()
    if lifeline is not None:
        lifeline.report("romancy works", runtime_of(app).grace)
    await stopped.wait()
