"""`start` and `send`: the commands that start instances and give them events."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from dataclasses import asdict, replace
from typing import Any

import click

from romancy.api.workflow import Workflow, definition_of
from romancy.cli.arguments import SignedNumber, TakesWords, by_annotation
from romancy.cli.arguments import as_json as read_json
from romancy.cli.errors import Failed, Refused
from romancy.cli.modules import find_latest, module_option
from romancy.cli.screen import json_option, note, print_json
from romancy.cli.target import Sent, Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import plural
from romancy.core.events import make_event
from romancy.core.model import FINAL
from romancy.core.queues import MOST_PRIORITY
from romancy.core.strict_json import parse_json
from romancy.errors import AccessDenied, InstanceNotFound, InvalidEvent
from romancy.records import Receipt
from romancy.verbs import Handle

_PICKUP_TIMEOUT, _POLL_INTERVAL = 1.0, 0.05
"""Seconds to wait for a worker to begin a started instance, and between checks."""


@click.command(cls=TakesWords)
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[ARG]...")
@click.option(
    "--id", "instance_id", metavar="ID", help="Id of the instance. The same id and input again has no effect."
)
@click.option("--key", metavar="KEY", help="Its key in the queue of the workflow.")
@click.option(
    "--priority",
    type=SignedNumber(-MOST_PRIORITY, MOST_PRIORITY),
    metavar="N",
    help="Its priority in the queue: higher ones come first.",
)
@module_option
@target_options
@json_option
def start(
    name: str,
    words: tuple[str, ...],
    instance_id: str | None,
    key: str | None,
    priority: int | None,
    modules: tuple[str, ...],
    options: TargetOptions,
    as_json: bool,
) -> None:
    """Start a workflow by name.

    A worker that has the workflow runs it. Use `name=ARG` to pass an argument by name.

    With --module, each ARG is converted according to the annotation of its parameter and checked at once. Without it,
    an ARG that is valid JSON is read as JSON and any other as text, and the worker checks it.
    """
    wf: Workflow[..., Any] | str = find_latest(modules, name) if modules else name
    args, kwargs = by_annotation(wf, words) if isinstance(wf, Workflow) else read_json(words)
    place: dict[str, Any] = {n: v for n, v in (("key", key), ("priority", priority)) if v is not None}
    if place and isinstance(wf, Workflow) and definition_of(wf).queue is None:
        raise Refused(f"workflow {wf.name!r} has no queue, so it takes no key or priority")

    async def work(target: Target) -> tuple[Handle[Any], bool]:
        known = not isinstance(wf, str) or await target.has_run(wf)
        handle = await target.start(wf, instance_id, args, kwargs, place)
        return handle, known or await _begins_soon(target, handle.instance_id)

    handle, known = options.do(work, create=True)
    if not known:
        note(f"no worker has run a workflow named {name!r} yet; check the name, and that a worker with it is running")
    if as_json:
        print_json({"instance_id": handle.instance_id, "created": handle.created})
    else:
        click.echo(f"{handle.instance_id}{'' if handle.created else ' (already exists)'}")


async def _begins_soon(target: Target, id: str) -> bool:
    """Whether a worker begins the instance soon. The workflows of a worker are not stored, so this waits and sees."""
    try:
        async with asyncio.timeout(_PICKUP_TIMEOUT):
            while not await target.has_begun(id):  # noqa: ASYNC110 - another process
                await asyncio.sleep(_POLL_INTERVAL)
        return True
    except TimeoutError:
        return False


@click.command()
@click.argument("type")
@click.argument("data", required=False, metavar="[JSON]")
@click.option("--source", default="romancy.cli", show_default=True, help="Source of the event.")
@click.option("--id", "event_id", metavar="ID", help="Id of the event. The same source and id again is a duplicate.")
@click.option("--subject", help="Subject of the event.")
@click.option("--to", metavar="INSTANCE", help="Deliver the event only to this instance.")
@target_options
@json_option
def send(
    type: str,
    data: str | None,
    source: str,
    event_id: str | None,
    subject: str | None,
    to: str | None,
    options: TargetOptions,
    as_json: bool,
) -> None:
    """Send an event.

    JSON is the data of the event; `-` reads it from standard input. Exits with 1 and drops the event if a different
    event with this source and id exists.

    \b
      romancy send payment.completed '{"order_id": "ORD-1", "amount": 12.5}'
    """
    id = event_id if event_id is not None else uuid.uuid4().hex
    text = sys.stdin.read() if data == "-" else data
    raw = None if text is None else _json(text)
    event = make_event(type, source, raw, subject=subject, id=id, to=to)
    event = event if raw is None else replace(event, datacontenttype="application/json")

    async def work(target: Target) -> tuple[Sent, str]:
        sent = await target.send(event)
        needs_reason = to is not None and not as_json and _is_unclaimed(sent.receipt)
        return sent, await _why_unclaimed(target, to or "") if needs_reason else _UNCLAIMED

    sent, unclaimed = options.do(work)
    line = f"{receipt_line(sent.receipt, sent.unjudged, unclaimed)} (id {id})"
    if as_json:
        print_json({"id": id, **asdict(sent.receipt)})
    elif sent.receipt.differs:
        raise Failed(line)
    else:
        click.echo(line)
    if sent.receipt.differs:
        raise click.exceptions.Exit(1)


def _is_unclaimed(receipt: Receipt) -> bool:
    return not (receipt.duplicate or receipt.delivered or receipt.started or receipt.mismatched)


async def _why_unclaimed(target: Target, id: str) -> str:
    """Explain why an instance did not receive an event that was sent to it alone."""
    try:
        instance = await target.verbs.get_instance(id)
    except InstanceNotFound:
        return f"instance {id!r} does not exist yet; the event is kept for it"
    except AccessDenied:  # the token only allows sending
        return _UNCLAIMED
    if instance.status in FINAL:
        return f"instance {id!r} is {instance.status} and will not receive it"
    return f"instance {id!r} does not wait for it now; it is kept for later waits"


def _json(text: str) -> bytes:
    """Check the data and return it unchanged, so that numbers keep their exact form."""
    raw = text.strip().encode("utf-8", "surrogateescape")
    try:
        parse_json(raw)
    except InvalidEvent as error:
        hint = f"; quote text as JSON: '{json.dumps(text)}'" if text.replace(" ", "").isalnum() else ""
        raise Refused(f"{error}{hint}") from None
    return raw


_UNCLAIMED = "no instance waits for it now; it is kept for later waits of instances that exist already"


def receipt_line(receipt: Receipt, unjudged: int = 0, unclaimed: str = _UNCLAIMED) -> str:
    """Describe what became of an event. `unjudged`: instances counted as reached whose model is not known here."""
    delivered = receipt.delivered - unjudged
    if receipt.differs:
        return "dropped: a different event with this source and id exists; send it with another id"
    if receipt.duplicate:
        return "duplicate: this event was accepted before"
    parts = [
        f"delivered to {plural(delivered, 'instance')}" if delivered > 0 else "",
        f"matches {plural(unjudged, 'waiting instance')} (data not checked yet)" if unjudged else "",
        f"started {plural(receipt.started, 'instance')}" if receipt.started else "",
        f"its data does not fit {plural(receipt.mismatched, 'instance')}" if receipt.mismatched else "",
    ]
    return f"accepted: {', '.join(filter(None, parts)) or unclaimed}"
