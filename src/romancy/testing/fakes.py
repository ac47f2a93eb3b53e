"""Functions that replace activities and child workflows in tests."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any, cast

from romancy.api.activity import Activity
from romancy.api.context import ActivityContext, WorkflowContext
from romancy.api.workflow import Workflow
from romancy.core.registry import ActivityDefinition


def check_fake(target: object, fake: object) -> None:
    """Raise a TypeError if `target` is no activity or workflow, or if the fake can't be called like it."""
    if not isinstance(target, Activity | Workflow):
        raise TypeError(f"env.replace takes an activity or a workflow, not {target!r}; is @activity missing?")
    known = cast("Activity[..., Any] | Workflow[..., Any]", target)
    what = f"{'activity' if isinstance(known, Activity) else 'workflow'} {known.name!r}"
    if not callable(fake) or isinstance(fake, (Activity, Workflow)):
        raise TypeError(f"the fake for {what} must be a plain function, not {fake!r}")
    declared = list(inspect.signature(known.fn).parameters.values())[1:]
    try:
        fakes = inspect.signature(fake)
    except ValueError:  # some builtins have no signature
        return
    args = [p.name for p in declared if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    kwargs = {p.name: p.name for p in declared if p.kind is Parameter.KEYWORD_ONLY}
    try:
        fakes.bind(*args, **kwargs)
    except TypeError as error:
        call = ", ".join([*args, *(f"{name}=..." for name in kwargs)])
        raise TypeError(
            f"the fake for {what} does not fit: {error}; it is called without ctx, as fake({call}), "
            f"and its signature is {fakes}"
        ) from None


def check_step_fake(name: object, fake: object) -> None:
    """Raise a TypeError if `name` can't be the name of a step, or if the fake can't be called without arguments."""
    if isinstance(name, Activity):
        raise TypeError(f"env.replace_step takes the name of a step; to replace {name!r}, use env.replace")
    if not isinstance(name, str) or not name:
        raise TypeError(f"env.replace_step takes the name of a step, e.g. 'model', not {name!r}")
    if not callable(fake) or isinstance(fake, (Activity, Workflow)):
        raise TypeError(f"the fake for step {name!r} must be a plain function, not {fake!r}")
    try:
        inspect.signature(fake).bind()
    except ValueError:  # some builtins have no signature
        return
    except TypeError as error:
        raise TypeError(f"the fake for step {name!r} does not fit: {error}; it is called as fake()") from None


def stand_in_for_step(fake: Callable[[], Any]) -> Callable[[], Any]:
    """Return a replacement for the functions of steps. As a coroutine function, it fits async and plain ones."""

    @functools.wraps(fake)
    async def stand_in() -> Any:
        result = fake()
        return await result if inspect.isawaitable(result) else result

    return stand_in


def stand_in_for_workflow(fake: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for the function of a workflow. It runs as workflow code does, but is not given ctx."""

    @functools.wraps(fake)
    async def stand_in(ctx: WorkflowContext, *args: Any, **kwargs: Any) -> Any:
        result = fake(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return stand_in


def stand_in_for(definition: ActivityDefinition, fake: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of the same kind as the activity: async for async, plain for plain."""
    fake_is_async = inspect.iscoroutinefunction(fake)
    if definition.is_async:

        @functools.wraps(fake)
        async def stand_in(ctx: ActivityContext, *args: Any, **kwargs: Any) -> Any:
            result = fake(*args, **kwargs)
            return await result if fake_is_async else result

        return stand_in

    @functools.wraps(fake)
    def plain_stand_in(ctx: ActivityContext, *args: Any, **kwargs: Any) -> Any:
        return asyncio.run(fake(*args, **kwargs)) if fake_is_async else fake(*args, **kwargs)

    return plain_stand_in
