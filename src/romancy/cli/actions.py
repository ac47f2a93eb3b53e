"""`start`, `send`, `cancel`, `resume`: what acts on instances from outside."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from dataclasses import asdict, replace
from typing import Any

import click

from romancy.api.workflow import Workflow
from romancy.cli.arguments import TakesWords, by_annotation
from romancy.cli.arguments import as_json as read_json
from romancy.cli.errors import Failed, Refused
from romancy.cli.modules import find_workflow, module_option
from romancy.cli.screen import json_option, note, print_json
from romancy.cli.target import Sent, Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import plural
from romancy.core.events import make_event
from romancy.core.model import FINAL
from romancy.core.strict_json import parse_json
from romancy.errors import AccessDenied, InstanceNotFound, InvalidEvent
from romancy.records import Instance, Receipt
from romancy.verbs import Handle

_SOON, _LOOK = 1.0, 0.05
"""Seconds a worker is given to take up what was started, and between looks at that."""


@click.command(cls=TakesWords)
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[ARG]...")
@click.option("--id", "instance_id", help="The instance's id; the same id and input again start nothing new.")
@module_option
@target_options
@json_option
def start(
    name: str,
    words: tuple[str, ...],
    instance_id: str | None,
    modules: tuple[str, ...],
    options: TargetOptions,
    as_json: bool,
) -> None:
    """Start a workflow by name; a worker that has it runs it.

    With --module each ARG is read by the annotation of its parameter, at once. Without, it is JSON, else plain text,
    and checked by the worker. `name=ARG` names the parameter.
    """
    wf: Workflow[..., Any] | str = find_workflow(modules, name) if modules else name
    args, kwargs = by_annotation(wf, words) if isinstance(wf, Workflow) else read_json(words)

    async def work(target: Target) -> tuple[Handle[Any], bool]:
        known = not isinstance(wf, str) or await target.has_run(wf)
        handle = await target.start(wf, instance_id, args, kwargs)
        return handle, known or await _is_taken_up(target, handle.instance_id)

    handle, known = options.do(work, make=True)
    if not known:
        note(f"no worker has run a workflow named {name!r} here yet; is it spelled right, and does one have it?")
    if as_json:
        print_json({"instance_id": handle.instance_id, "created": handle.created})
    else:
        click.echo(f"{handle.instance_id}{'' if handle.created else ' (it was there already)'}")


async def _is_taken_up(target: Target, id: str) -> bool:
    """Whether a worker begins with it soon: which workflows each of them has is not stored anywhere."""
    try:
        async with asyncio.timeout(_SOON):
            while not await target.is_taken_up(id):  # noqa: ASYNC110 - another process
                await asyncio.sleep(_LOOK)
        return True
    except TimeoutError:
        return False


@click.command()
@click.argument("type")
@click.argument("data", required=False, metavar="[JSON]")
@click.option("--source", default="romancy.cli", show_default=True, help="Who sends it.")
@click.option("--id", "event_id", help="The event's id; the same source and id again is a duplicate.")
@click.option("--subject", help="What it is about.")
@click.option("--to", metavar="INSTANCE", help="Only this instance may receive it.")
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
    """Send an event. JSON is its data; `-` reads it from standard input.

    Exits with 1 if another event has this source and id already: it is dropped then.

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
        is_asked = to is not None and not as_json and _is_unclaimed(sent.receipt)
        return sent, await _meant_for(target, to or "") if is_asked else _UNCLAIMED

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


async def _meant_for(target: Target, id: str) -> str:
    """What is to be said of an event for one instance that does not wait for it."""
    try:
        instance = await target.verbs.get_instance(id)
    except InstanceNotFound:
        return f"there is no instance {id!r} yet; it is kept for when there is"
    except AccessDenied:  # a token for sending alone
        return _UNCLAIMED
    if instance.status in FINAL:
        return f"instance {id!r} is {instance.status} and will not take it"
    return f"{id!r} does not wait for it now; it is kept for when it does"


def _json(text: str) -> bytes:
    """The data as it was written, numbers and all; only checked."""
    raw = text.strip().encode("utf-8", "surrogateescape")
    try:
        parse_json(raw)
    except InvalidEvent as error:
        hint = f"; text needs quotes: '{json.dumps(text)}'" if text.replace(" ", "").isalnum() else ""
        raise Refused(f"{error}{hint}") from None
    return raw


_UNCLAIMED = "no instance waits for it now; it is kept for later waits"


def receipt_line(receipt: Receipt, unjudged: int = 0, unclaimed: str = _UNCLAIMED) -> str:
    """What became of an event, in words. `unjudged`: instances that are counted as reached, but may not want it."""
    delivered = receipt.delivered - unjudged
    if receipt.differs:
        return "dropped: another event with this source and id is stored; send it with an id of its own"
    if receipt.duplicate:
        return "accepted before: a duplicate, nothing happens"
    said = [
        f"delivered to {plural(delivered, 'instance')}" if delivered > 0 else "",
        f"{plural(unjudged, 'instance')} {'waits' if unjudged == 1 else 'wait'} for such an event" if unjudged else "",
        f"started {plural(receipt.started, 'instance')}" if receipt.started else "",
        f"its data does not fit {plural(receipt.mismatched, 'instance')}" if receipt.mismatched else "",
    ]
    told = ", ".join(filter(None, said)) or unclaimed
    return f"accepted: {told}"


@click.command()
@click.argument("id")
@click.option("--reason", help="Why; it is recorded and shown.")
@target_options
def cancel(id: str, reason: str | None, options: TargetOptions) -> None:
    """Cancel an instance; its code may clean up first.

    Exits with 1 if it has ended already.
    """

    async def work(target: Target) -> tuple[bool, Instance]:
        took = await target.verbs.cancel_workflow(id, reason=reason)
        return took, await target.verbs.get_instance(id)

    took, after = options.do(work)
    if not took:
        raise Failed(f"instance {id!r} is {after.status} already; there is nothing to cancel{_instead(after, id)}")
    if after.status == "cancelled":
        click.echo(f"instance {id!r} is cancelled")
    else:
        click.echo(f"instance {id!r} was asked to stop; the worker that runs it will see to it")


@click.command()
@click.argument("id")
@target_options
def resume(id: str, options: TargetOptions) -> None:
    """Try a blocked instance again, after you fixed its code.

    Exits with 1 if it is not blocked.
    """

    async def work(target: Target) -> tuple[bool, Instance]:
        took = await target.verbs.resume_workflow(id)
        return took, await target.verbs.get_instance(id)

    took, after = options.do(work)
    if not took:
        raise Failed(f"instance {id!r} is {after.status}, not blocked; there is nothing to resume{_instead(after, id)}")
    click.echo(f"instance {id!r} will be tried again by a worker that has workflow {after.workflow!r}")


def _instead(instance: Instance, id: str) -> str:
    """What may help with one that is not blocked."""
    if instance.status in FINAL:
        return f" (`romancy show {id}` has how it ended)"
    return f" (`romancy why {id}` says what it waits for)"
