"""Sending events from workflows and activities. An event is stored in the commit of its step, or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from romancy.api.context import ActivityContext, Context, WorkflowContext, instance_of
from romancy.core.dropped import encode_identity
from romancy.core.events import make_event
from romancy.core.eviction import Refusal
from romancy.core.model import Attribute


async def send_event(
    ctx: Context,
    type: str,
    source: str,
    data: object = None,
    *,
    subject: str | None = None,
    id: str | None = None,
    to: str | None = None,
    extensions: Mapping[str, Attribute] | None = None,
) -> None:
    """Send an event as part of this step. `to=` names the only instance that can receive it.

    The default id is `<instance>/<operation>`, so a repeated step sends a duplicate, which is delivered once.
    """
    if isinstance(ctx, ActivityContext):
        ctx.send_event(type, source, data, subject=subject, id=id, to=to, extensions=extensions)
        return
    if not isinstance(ctx, WorkflowContext):
        raise TypeError(
            f"send_event needs the ctx of a workflow or activity, got {ctx!r}; elsewhere use app.send_event"
        )
    instance = instance_of(ctx)
    if instance.is_halted:
        await Refusal(instance)
    instance.check_alive()
    op = instance.run.next_id(f"send {type}")
    event = make_event(
        type, source, data, subject=subject, id=f"{instance.alias}/{op}" if id is None else id, to=to, ext=extensions
    )
    digest = hashlib.blake2b(event.data or b"", digest_size=8).hexdigest()
    identity = {"type": type, "source": source, "subject": subject, "id": event.id, "to": to, "data": digest}
    if instance.dropped is not None and id is None:
        identity["id"] = instance.dropped.event_id(op, event.id, identity)
        event = replace(event, id=identity["id"])
    instance.send(op, event, encode_identity(identity))
