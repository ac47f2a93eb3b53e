"""Runs the body of a workflow: calls the user's function with its input and encodes its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from romancy.core.compensation import Compensation
from romancy.core.continuation import continuation
from romancy.core.declared_attributes import declared
from romancy.core.inputs import BOUND, read_input
from romancy.core.loop import WorkflowLoop
from romancy.core.model import MAX_RESULT
from romancy.core.published import Published
from romancy.core.registry import WorkflowDefinition
from romancy.core.run import Run
from romancy.errors import NotStorable


class _Instance(Protocol):
    """The instance whose code runs."""

    definition: WorkflowDefinition
    loop: WorkflowLoop
    compensation: Compensation | None
    id: str
    run: Run

    @property
    def is_cut_short(self) -> bool: ...
    def publish(self) -> Published: ...


async def run_body(instance: _Instance, context: Any, kind: int, input: bytes) -> bytes:
    """Run a workflow's function, and encode its result. Undo what it did if it fails."""
    definition = instance.definition
    try:
        try:
            result = await _call(instance, context, kind, input)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"the workflow raised {type(error).__name__}") from error
        finally:
            if instance.loop.generators:
                await _close_generators(instance.loop)
        output = definition.signature.result.encode(result)
        if len(output) > MAX_RESULT:
            raise _too_long(definition.name, output)
    except (Exception, asyncio.CancelledError):
        if instance.compensation is not None:
            await instance.compensation.unwind(is_failed=True)
        raise
    except BaseException as error:
        if instance.compensation is not None and continuation(error) is not None:
            is_failed = instance.is_cut_short
            await instance.compensation.unwind(is_failed=is_failed, goes_on=not is_failed)
        raise
    if instance.compensation is not None:
        await instance.compensation.unwind(is_failed=instance.is_cut_short)
    return output


def _call(instance: _Instance, context: Any, kind: int, input: bytes) -> Awaitable[Any]:
    """Call the function with its input. Not in `run_body`, which would keep the arguments while the workflow waits."""
    definition = instance.definition
    args, kwargs = read_input(definition, kind, input)
    if definition.attributes is not None:
        _publish_declared(instance, kind, declared(definition.attributes, definition.signature, args, kwargs))
    return (definition.fake or definition.fn)(context, *args, **kwargs)


def _publish_declared(instance: _Instance, kind: int, attributes: Mapping[str, str]) -> None:
    """Publish what the arguments say. A start by a process with the code has already stored it; see `declared_by`.

    Of a fork, nothing is stored yet.
    """
    published = instance.publish()
    published.set_attributes(attributes, instance.id)
    if kind == BOUND and instance.run.number == 1 and not instance.run.seeds:
        published.settle_declared()


def _too_long(workflow: str, output: bytes) -> NotStorable:
    return NotStorable(
        f"the result of workflow {workflow!r} is {len(output):,} bytes, more than the "
        f"{MAX_RESULT:,} allowed; store it elsewhere and return a reference to it"
    )


async def _close_generators(loop: WorkflowLoop) -> None:
    """Close open generators here, in order, and not when they are garbage collected."""
    while loop.generators:
        generator = loop.generators.pop(0)
        try:
            if not getattr(generator, "ag_running", False):  # else a task is inside; it ends with the workflow
                await generator.aclose()
        except Exception as error:
            loop.call_exception_handler({"message": "closing an async generator failed", "exception": error})
