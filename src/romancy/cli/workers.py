"""`romancy run` and `romancy worker`: the commands that do a worker's work."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import click

from romancy.api.workflow import Workflow
from romancy.app import App
from romancy.cli.arguments import TakesWords, by_annotation
from romancy.cli.database import database_options, on, settle
from romancy.cli.errors import Failed
from romancy.cli.logs import log_to_stderr
from romancy.cli.modules import app_of, load, load_workflow, register
from romancy.cli.screen import note
from romancy.cli.words import value
from romancy.core.ids import check_id, new_id
from romancy.service import runtime_of
from romancy.signals import on_first_signal


@click.command(cls=TakesWords)
@click.argument("target", metavar="MODULE:WORKFLOW")
@click.argument("words", nargs=-1, metavar="[ARG]...")
@click.option("--id", "instance_id", help="The instance's id; the same one again goes on where it was.")
@database_options
def run(target: str, words: tuple[str, ...], instance_id: str | None, database: str, schema: str | None) -> None:
    """Run a workflow to its end and print the result.

    Each ARG is read by the annotation of its parameter: text, a number, a date, or JSON for models; `name=ARG` names
    the parameter. If MODULE defines one App, its settings are used (state, hooks), and its database unless another is
    given; it works even if that App says worker=False.

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
        note(f"romancy: interrupted; `romancy run {target} ... --id {id}` or a worker goes on with it")
        raise click.exceptions.Exit(130) from None


async def _run(app: App, wf: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    handle = await app.start_workflow(wf, *args, **kwargs)
    there = "" if handle.created else " (it was there already)"
    note(f"instance {handle.instance_id} on {runtime_of(app).shown_database}{there}")
    await handle.result()
    output = (await app.get_instance(handle.instance_id)).output  # as it is stored, whatever the annotation makes of it
    return output if isinstance(output, str) else value(output)


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="MODULE[:APP]...")
@database_options
def worker(targets: tuple[str, ...], database: str, schema: str | None) -> None:
    """Work on the workflows of modules until Ctrl-C or SIGTERM.

    A MODULE that defines one App, or MODULE:APP, gives its settings and its database unless another is given; else
    every workflow in the modules is worked on. What is running when it stops is finished or handed back.

    It works for an App(worker=False), too: an API process that only starts and sends, and workers beside it, can share
    one module.
    """
    log_to_stderr(logging.INFO)
    split = [target.partition(":") for target in targets]
    modules = [load(name) for name, _, _ in split]
    apps = [app_of(module, name or None) for module, (_, _, name) in zip(modules, split, strict=True)]
    given = list({id(app): app for app in apps if app is not None}.values())
    if len(given) > 1:
        raise Failed("the modules define several Apps; start a worker for each, or name one as MODULE:APP")
    app = settle(given[0] if given else None, database, schema)
    runtime_of(app).works = True
    register(app, *modules)
    if not app.workflows:
        raise Failed(f"there is no workflow in {', '.join(targets)}; is @workflow missing?")
    on(app, _work)


async def _work(app: App) -> None:
    """Until a signal comes; a second one is not waited for."""
    stopped = asyncio.Event()
    on_first_signal(stopped.set)
    await stopped.wait()
