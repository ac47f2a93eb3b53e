"""`@workflow`: a coroutine function with durable progress."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, TypeVar, overload

from romancy.api.activity import check_function, check_plain
from romancy.api.context import WorkflowContext, instance_of
from romancy.core.continuation import ContinueAsNew, NextRun
from romancy.core.declared_attributes import parse_key, parse_paths
from romancy.core.events import OURS
from romancy.core.ids import check_id, check_name
from romancy.core.inputs import write_input
from romancy.core.instance import Instance
from romancy.core.interests import check_expects
from romancy.core.model import FOREVER_US, Duration, duration_us
from romancy.core.operations import ChildCall, child_id
from romancy.core.patterns import check_pattern
from romancy.core.places import place_of
from romancy.core.queues import Queue, check_key, check_priority
from romancy.core.registry import WorkflowDefinition
from romancy.core.schedules import Schedule, to_schedule
from romancy.core.versions import bare_name, check_version, stored_name

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Workflow(Generic[P, R_co]):
    """A function decorated with `@workflow`. Start it with `app.start_workflow(payment, "ORD-1")`."""

    def __init__(
        self,
        definition: WorkflowDefinition,
        instance_id: str | None = None,
        timeout: int | None = None,
        key: str | None = None,
        priority: int | None = None,
    ) -> None:
        self._definition = definition
        self._instance_id = instance_id
        self._own_timeout = timeout
        self._timeout = definition.timeout if timeout is None else timeout
        self._key, self._priority = key, priority
        self.name = definition.name
        self.fn: Callable[..., Any] = definition.fn
        self.__doc__ = definition.fn.__doc__
        self.__name__ = definition.fn.__name__
        self.__module__ = definition.fn.__module__
        self.__qualname__ = definition.fn.__qualname__
        self.__wrapped__ = definition.fn

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    async def __call__(self, ctx: WorkflowContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it as a child of the current workflow, and return its result. It is cancelled with this await.

        Its id is `<parent>/<operation>`, or the one of `options(instance_id=...)`. Raises `WorkflowFailed` or
        `WorkflowCancelled` if it ends so, and `InstanceExists` if its id belongs to another instance.
        """
        instance = instance_of(ctx)
        return await instance.perform(child_call(instance, self, args, kwargs))

    def continue_as_new(self, ctx: WorkflowContext, /, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        """End this run, and let the instance go on with a new run of this workflow and an empty history.

        The instance keeps its id, its deadline and the events that it has not received yet. `finally` blocks run, and
        `except Exception` does not catch it. `return` is not needed. Any workflow can follow any other.
        `options(timeout=...)` sets a new deadline.
        """
        instance = instance_of(ctx)
        instance.check_alive()
        kind, input = write_input(self._definition, self.name, args, kwargs)
        deadline = None if self._own_timeout is None else min(instance.at + self._own_timeout, FOREVER_US)
        raise ContinueAsNew(NextRun(self.name, input, kind, deadline))

    def options(
        self,
        *,
        instance_id: str | None = None,
        timeout: Duration | None = None,
        key: str | int | None = None,
        priority: int | None = None,
    ) -> Workflow[P, R_co]:
        """Return the same workflow with its own instance id or time limit for one start.

        Of a workflow with a queue, also with its own key, or its own priority: a higher one comes first. `key=""`
        starts it without a key; None, as for all options, changes nothing.
        """
        if self._definition.queue is None and (key is not None or priority is not None):
            raise TypeError(
                f"workflow {self.name!r} has no queue, so it takes no key or priority: @workflow(queue=...)"
            )
        return Workflow(
            self._definition,
            instance_id if instance_id is not None else self._instance_id,
            self._own_timeout if timeout is None else duration_us(timeout, "timeout"),
            self._key if key is None else check_key(key),
            self._priority if priority is None else check_priority(priority),
        )


def child_call(
    instance: Instance,
    wf: Workflow[..., Any] | str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    instance_id: str | None = None,
    *,
    is_free: bool = False,
) -> ChildCall:
    """Return the operation that starts a child."""
    if isinstance(wf, str):
        name, definition, given, timeout = check_name(wf), None, None, None
    elif isinstance(wf, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance]
        name, definition, (given, timeout) = wf.name, definition_of(wf), start_options(wf)
    else:
        raise TypeError(f"start_workflow(ctx, ...) takes a workflow, not {wf!r}; put @workflow on it")
    kind, input = write_input(definition, name, args, kwargs)
    op = instance.run.next_id(bare_name(name))  # not its version: a child that runs an older one is still the same
    chosen = instance_id if instance_id is not None else given
    own = None if chosen is None else check_id(chosen)
    suffix = "" if instance.dropped is None else instance.dropped.suffix(op)
    about = name, definition, input, kind, child_id(instance.alias, op, own, suffix), timeout
    place = None if isinstance(wf, str) else place_of(definition, kind, input, *queue_options(wf))
    return ChildCall(op, instance.at, *about, is_free=is_free, own_id=own, place=place)


def definition_of(wf: Workflow[..., Any]) -> WorkflowDefinition:
    """What the engine knows of a workflow."""
    return wf._definition  # pyright: ignore[reportPrivateUsage]


def start_options(wf: Workflow[..., Any]) -> tuple[str | None, int | None]:
    """The id and the time limit (in microseconds) a workflow is to be started with."""
    return wf._instance_id, wf._timeout  # pyright: ignore[reportPrivateUsage]


def queue_options(wf: Workflow[..., Any]) -> tuple[str | None, int | None]:
    """The key and the priority of a start, if it has its own."""
    return wf._key, wf._priority  # pyright: ignore[reportPrivateUsage]


class _WorkflowDecorator(Protocol):
    def __call__(self, fn: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


class _ScheduleDecorator(Protocol):
    def __call__(self, fn: Callable[[WorkflowContext], Coroutine[Any, Any, R]], /) -> Workflow[[], R]: ...


@overload
def workflow(fn: Callable[Concatenate[WorkflowContext, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: int = 1,
    on_event: str | Sequence[str] = (),
    timeout: Duration | None = None,
    attributes: Mapping[str, str] | None = None,
    expects: str | Sequence[str] | None = None,
) -> _WorkflowDecorator: ...
@overload
def workflow(
    *,
    schedule: str | Schedule,
    name: str | None = None,
    version: int = 1,
    timeout: Duration | None = None,
) -> _ScheduleDecorator: ...
@overload
def workflow(
    *,
    queue: Queue | None,
    key: str | None = None,
    priority: int = 0,
    name: str | None = None,
    version: int = 1,
    on_event: str | Sequence[str] = (),
    timeout: Duration | None = None,
    attributes: Mapping[str, str] | None = None,
) -> _WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    on_event: str | Sequence[str] = (),
    timeout: Duration | None = None,
    attributes: Mapping[str, str] | None = None,
    expects: str | Sequence[str] | None = None,
    schedule: str | Schedule | None = None,
    queue: Queue | None = None,
    key: str | None = None,
    priority: int = 0,
) -> Any:
    """Turn an `async def` function whose first parameter is `ctx` into a workflow.

    Its name is stored: moving the function is safe, renaming it requires `name=`. With `on_event=`, it takes
    `(ctx, event: ReceivedEvent[Order])`, and every event of that type starts it once.

    With `version=2`, it is registered beside version 1 of that name, which finishes its own instances. Starts by name
    and events mean the highest version; a workflow object means itself.

    `attributes={"customer": "order.customer_id"}` gives every instance an attribute to find it by. The path begins with
    the name of a parameter, followed by fields or keys.

    `expects=["approved", "payment.*"]` declares all types of events that it may wait for. They are kept while an open
    instance may take them, and waiting for others is an error. Without it, the types are learned.

    With `schedule=`, a cron expression or a `Schedule`, it takes `ctx` alone, and is started at these times as long as
    a worker runs. The schedule has the name of the workflow. `ctx.scheduled_at` is the time it was started for.

    With `queue=Queue("mail", max_concurrent=50)`, its instances are `queued` until the limits of the queue allow them
    to run. `key="customer"` is a path into the arguments, like those of `attributes`: keys take turns, and can have
    limits of their own. Within a key, a higher `priority` comes first.
    """
    times = None if schedule is None else to_schedule(schedule)
    types = (on_event,) if isinstance(on_event, str) else tuple(on_event)

    def decorate(fn: Callable[..., Any]) -> Workflow[..., Any]:
        check_plain(fn, "workflow")
        bare = name if name is not None else fn.__name__
        check_function(fn, "workflow", bare)
        check_version(bare, version)
        stored = stored_name(bare, version)
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(f"workflow {stored!r} must be an `async def` function")
        if types and len(inspect.signature(fn).parameters) != 2:
            raise TypeError(f"workflow {stored!r} is started by events, so it must take exactly (ctx, event)")
        for type in types:
            _check_trigger(type, stored)
        if times is not None:
            _check_scheduled(fn, stored, types)
        us = None if timeout is None else duration_us(timeout, "timeout")
        paths = parse_paths(attributes, f"workflow {stored!r}")
        expected = check_expects(expects, f"workflow {stored!r}")
        definition = WorkflowDefinition(stored, fn, WorkflowContext, types, us, paths, expects=expected, schedule=times)
        _set_queue(definition, queue, key, priority)
        definition.resolve_early()
        return Workflow(definition)

    return decorate if fn is None else decorate(fn)


def _check_trigger(type: str, name: str) -> None:
    try:
        check_pattern(type, "on_event")
    except ValueError as error:
        raise TypeError(f"workflow {name!r}: {error}") from None
    if type.startswith(OURS):
        raise TypeError(f"workflow {name!r}: events {type!r} are Romancy's own and start no workflows")


def _check_scheduled(fn: Callable[..., Any], name: str, types: Sequence[str]) -> None:
    if types:
        raise TypeError(f"workflow {name!r} has both on_event= and schedule=; write two workflows")
    needed = [
        p.name
        for p in list(inspect.signature(fn).parameters.values())[1:]
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise TypeError(
            f"workflow {name!r} is started by its schedule, so it takes ctx alone, not {', '.join(needed)}; for "
            "arguments, leave schedule= out and call app.set_schedule(name, schedule, workflow, *args)"
        )


def _set_queue(definition: WorkflowDefinition, queue: Any, key: Any, priority: Any) -> None:
    what = f"workflow {definition.name!r}"
    if queue is None:
        if key is not None or priority != 0:
            raise TypeError(f"{what} has no queue, so it takes no key or priority: @workflow(queue=...)")
        return
    if not isinstance(queue, Queue):
        raise TypeError(f"{what}: queue= takes a Queue, e.g. Queue('mail', max_concurrent=50), got {queue!r}")
    definition.queue, definition.queue_key = queue, parse_key(key, what)
    definition.priority = check_priority(priority)
