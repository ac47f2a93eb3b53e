"""`start`, `send`, `cancel`, `resume`: what acts on a database from outside."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from romancy.api.workflow import Workflow
from romancy.app import App, to_receipt
from romancy.cli.arguments import TakesWords, by_annotation
from romancy.cli.arguments import as_json as read_json
from romancy.cli.database import database_option, file_of, on, on_existing, refuse_memory
from romancy.cli.failing import Refused
from romancy.cli.loading import find_workflow, module_option, register
from romancy.cli.screen import json_option, note, print_json
from romancy.cli.words import plural
from romancy.core.matching import parse_json
from romancy.core.model import FINAL
from romancy.core.operations import MODELS
from romancy.core.outgoing import make_event
from romancy.engine.delivery import Accepted
from romancy.errors import InvalidEvent
from romancy.handle import WorkflowHandle
from romancy.records import Instance, Receipt
from romancy.storage.protocol import Matched


@click.command(cls=TakesWords)
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[ARG]...")
@click.option("--id", "instance_id", help="The instance's id; the same id and input again start nothing new.")
@module_option
@database_option
@json_option
def start(
    name: str, words: tuple[str, ...], instance_id: str | None, modules: tuple[str, ...], database: str, as_json: bool
) -> None:
    """Start a workflow by name; a worker that has it runs it.

    With --module each ARG is read by the annotation of its parameter, at once. Without, it is JSON, else plain text,
    and checked by the worker. `name=ARG` names the parameter.
    """
    refuse_memory(database)
    app = App(database, worker=False)
    wf: Workflow[..., Any] | str = find_workflow(modules, name) if modules else name
    if isinstance(wf, Workflow):
        args, kwargs = by_annotation(wf, words)
        register(app, wf)
    else:
        args, kwargs = read_json(words)
    file = file_of(database)
    fresh = file is not None and not file.exists()

    async def work(app: App) -> tuple[WorkflowHandle[Any], bool]:
        if isinstance(wf, Workflow):
            return await app.start_workflow(wf.options(instance_id=instance_id), *args, **kwargs), True
        known = await _has_run(app, wf)
        return await app.start_workflow(wf, *args, instance_id=instance_id, **kwargs), known

    handle, known = on(app, work)
    if fresh:
        note(f"made the database {database!r}")
    if not known:
        note(f"no worker has run a workflow named {name!r} here yet; is it spelled right, and does one have it?")
    if as_json:
        print_json({"instance_id": handle.instance_id, "created": handle.created})
    else:
        click.echo(f"{handle.instance_id}{'' if handle.created else ' (it was there already)'}")


async def _has_run(app: App, name: str) -> bool:
    """Whether any of the newest instances of this name was ever taken up by a worker."""
    rows = await app.engine.storage.instances(workflow=name, limit=50)
    return any(row.owner is not None or row.status != "running" for row in rows)


@click.command()
@click.argument("type")
@click.argument("data", required=False, metavar="[JSON]")
@click.option("--source", default="romancy.cli", show_default=True, help="Who sends it.")
@click.option("--id", "event_id", help="The event's id; the same source and id again is a duplicate.")
@click.option("--subject", help="What it is about.")
@click.option("--to", metavar="INSTANCE", help="Only this instance may receive it.")
@database_option
@json_option
def send(
    type: str,
    data: str | None,
    source: str,
    event_id: str | None,
    subject: str | None,
    to: str | None,
    database: str,
    as_json: bool,
) -> None:
    """Send an event. JSON is its data; `-` reads it from standard input.

    \b
      romancy send payment.completed '{"order_id": "ORD-1", "amount": 12.5}'
    """
    id = event_id if event_id is not None else uuid.uuid4().hex
    text = sys.stdin.read() if data == "-" else data
    raw = None if text is None else _json(text)
    event = make_event(type, source, raw, subject=subject, id=id, to=to)
    event = event if raw is None else replace(event, datacontenttype="application/json")

    async def work(app: App) -> Accepted:
        return await app.engine.accept(event)

    accepted = on_existing(database, work)
    answer = accepted.answer
    receipt = to_receipt(accepted)
    if as_json:
        print_json({"id": id, **asdict(receipt)})
    else:
        click.echo(f"{receipt_line(receipt, _unjudged(answer.matched, type))} (id {id})")


def _unjudged(matched: Sequence[Matched], type: str) -> int:
    """How many instances wait with a model that is not known here, so that only their worker can judge the data."""
    known: set[str] = set()
    for wait in matched:
        keys = wait.model.split(",")
        types: list[str] = json.loads(wait.spec)["types"]
        key = keys[0] if len(keys) == 1 else keys[types.index(type)]
        if not key or key in MODELS:
            known.add(wait.instance)
    return len({wait.instance for wait in matched} - known)


def _json(text: str) -> bytes:
    """The data as it was written, numbers and all; only checked."""
    raw = text.strip().encode("utf-8", "surrogateescape")
    try:
        parse_json(raw)
    except InvalidEvent as error:
        hint = f"; text needs quotes: '{json.dumps(text)}'" if text.replace(" ", "").isalnum() else ""
        raise Refused(f"{error}{hint}") from None
    return raw


def receipt_line(receipt: Receipt, unjudged: int = 0) -> str:
    """What became of an event, in words. `unjudged`: instances that are counted as reached, but may not want it."""
    delivered = receipt.delivered - unjudged
    if receipt.duplicate:
        return "accepted before: a duplicate, nothing happens"
    said = [
        f"delivered to {plural(delivered, 'instance')}" if delivered > 0 else "",
        f"{plural(unjudged, 'instance')} {'waits' if unjudged == 1 else 'wait'} for such an event" if unjudged else "",
        f"started {plural(receipt.started, 'instance')}" if receipt.started else "",
        f"its data does not fit {plural(receipt.mismatched, 'instance')}" if receipt.mismatched else "",
    ]
    told = ", ".join(filter(None, said)) or "nobody waits for it now; it is kept for those who will"
    return f"accepted: {told}"


@click.command()
@click.argument("id")
@click.option("--reason", help="Why; it is recorded and shown.")
@database_option
def cancel(id: str, reason: str | None, database: str) -> None:
    """Cancel an instance; its code may clean up first."""

    async def work(app: App) -> tuple[Instance, Instance]:
        before = await app.get_instance(id)
        if before.status not in FINAL:
            await app.cancel_workflow(id, reason=reason)
        return before, await app.get_instance(id)

    before, after = on_existing(database, work)
    if before.status in FINAL:
        click.echo(f"instance {id!r} is {before.status} already; there is nothing to cancel")
    elif after.status == "cancelled":
        click.echo(f"instance {id!r} is cancelled")
    else:
        click.echo(f"instance {id!r} was asked to stop; the worker that runs it will see to it")


@click.command()
@click.argument("id")
@database_option
def resume(id: str, database: str) -> None:
    """Try a blocked instance again, after its code was mended."""

    async def work(app: App) -> Instance:
        before = await app.get_instance(id)
        await app.resume_workflow(id)
        return before

    before = on_existing(database, work)
    if before.status == "blocked":
        click.echo(f"instance {id!r} will be tried again by a worker that has workflow {before.workflow!r}")
    else:
        click.echo(f"instance {id!r} is {before.status}, not blocked; there is nothing to resume")
