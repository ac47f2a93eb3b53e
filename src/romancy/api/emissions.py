"""Emitting: values for whoever follows an instance while it runs."""

from __future__ import annotations

from romancy.api.context import ActivityContext, Context, WorkflowContext, attempt_of, instance_of
from romancy.core.emitted import DEFAULT_TOPIC, check_topic, encode_value
from romancy.core.emitted import emit as emit_in_workflow
from romancy.core.eviction import Refusal


async def emit(ctx: Context, value: object, /, *, topic: str = DEFAULT_TOPIC) -> None:
    """Show a value to whoever reads `handle.emitted(topic)`: plain JSON, a dataclass or a pydantic model.

    >>> await emit(ctx, "Once upon a time", topic="tokens")

    From an activity, it is stored and shown within a moment. If the activity is repeated, readers get a `restart` item
    first. From a workflow, it is stored and shown once, together with everything else up to the next wait.
    """
    raw = encode_value(value, check_topic(topic))
    if isinstance(ctx, ActivityContext):
        attempt = attempt_of(ctx)
        if not attempt.emit(topic, raw):
            await attempt.room()
        return
    if not isinstance(ctx, WorkflowContext):
        raise TypeError(f"emit needs the ctx of a workflow or activity, got {ctx!r}")
    instance = instance_of(ctx)
    if instance.is_halted:
        await Refusal(instance)
    emit_in_workflow(instance, topic, raw)
