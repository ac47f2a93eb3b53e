"""Definitions of workflows and activities, looked up by their stored names."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from romancy.core.codec import Codec
from romancy.core.declared_attributes import Paths, check_key_path, check_paths
from romancy.core.interests import Interest, read_interest
from romancy.core.model import MAX_RESULT
from romancy.core.patterns import is_pattern, patterns_of
from romancy.core.queues import Arrivals, Queue
from romancy.core.retry import RetryPolicy
from romancy.core.schedules import Schedule
from romancy.core.signature import Signature
from romancy.core.versions import split_name, stored_name
from romancy.errors import NotStorable, UnknownWorkflow


class Definition:
    """The common base of workflow and activity definitions."""

    name: str
    fn: Callable[..., Any]
    kind: ClassVar[str]

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.fn, f"{self.kind} {self.name!r}")

    def resolve_early(self) -> None:
        """Try to read the annotations where the function is defined, because local classes are visible there.

        Names defined further down are not visible yet. Those annotations are read on first use, and must be valid then.
        """
        with contextlib.suppress(TypeError):
            _ = self.signature


@dataclass(eq=False)
class ActivityDefinition(Definition):
    """An activity: a function that may touch the outside world. It runs at least once; its result is recorded once."""

    kind = "activity"

    name: str
    fn: Callable[..., Any]
    retry: RetryPolicy | None = None
    timeout: int | None = None
    raises: Collection[type[Exception]] = ()
    undo: UndoRule | None = None
    max_per_worker: int | None = None
    transactional: bool = False
    """Whether it runs in a transaction, which also stores its result."""
    is_async: bool = field(init=False)
    key: Hashable = field(init=False)
    """What a fake of the test kit replaces: this function, or all steps with this name."""
    may_return_awaitable: ClassVar[bool] = False
    """Whether what its function returns in a thread may be a coroutine, to be awaited on the event loop."""

    def __post_init__(self) -> None:
        self.is_async = inspect.iscoroutinefunction(self.fn)
        self.key = self.fn

    @cached_property
    def result(self) -> Codec:
        """Writes and reads its results."""
        return self.signature.result

    def encode(self, result: object) -> bytes:
        """Encode a result, to be stored."""
        payload = self.result.encode(result)
        if len(payload) > MAX_RESULT:
            raise NotStorable(
                f"the result of activity {self.name!r} is {len(payload):,} bytes, more than the "
                f"{MAX_RESULT:,} allowed; store it elsewhere and return a reference to it"
            )
        return payload

    def invoke(self, fn: Callable[..., Any], context: object, arguments: bytes) -> Any:
        """Call `fn`, its function or a fake, with recorded arguments."""
        args, kwargs = self.signature.decode(arguments)
        return fn(context, *args, **kwargs)


class StepDefinition(ActivityDefinition):
    """An activity made of a function without parameters, for a single call.

    Do not keep it: the function can be a closure that holds a lot of memory.
    """

    may_return_awaitable = True

    def __init__(
        self,
        name: str,
        fn: Callable[[], Any],
        result: Codec,
        raises: Collection[type[Exception]],
    ) -> None:
        super().__init__(name, fn, raises=raises)
        self.key = name
        self.result = result

    def invoke(self, fn: Callable[..., Any], context: object, arguments: bytes) -> Any:
        return fn()


@dataclass(frozen=True, slots=True)
class UndoRule:
    """How an activity is undone."""

    activity: ActivityDefinition
    retry: RetryPolicy | None
    timeout: int | None
    result: str | None
    """The parameter that takes the result, if it takes that."""
    arguments: Sequence[str]
    """The parameters that take the arguments of the same name."""


@dataclass(eq=False)
class WorkflowDefinition(Definition):
    """A workflow: a deterministic coroutine function, replayed from its history. Its `name` includes its version."""

    kind = "workflow"

    name: str
    fn: Callable[..., Any]
    context: Callable[[Any], Any]
    on_event: tuple[str, ...] = ()
    timeout: int | None = None
    attributes: Paths | None = None
    """Paths into the arguments, by name."""
    fake: Callable[..., Any] | None = None
    """Runs in place of `fn`: a fake of the test kit."""
    expects: tuple[str, ...] | None = None
    """The types of events that it may wait for, if it declares them."""
    schedule: Schedule | None = None
    """When it is started, if its code says so."""
    queue: Queue | None = None
    queue_key: Sequence[str] | None = None
    """The path into the arguments that leads to the key."""
    priority: int = 0

    @cached_property
    def event_model(self) -> Codec | None:
        """For a workflow started by events: the codec of `T` in `event: ReceivedEvent[T]`; None means plain JSON."""
        return event_model(self)

    @cached_property
    def interest(self) -> Interest:
        """Which events its instances may take."""
        return read_interest(self.name, self.fn, self.expects)


def undo_rule(
    activity: ActivityDefinition, undo: ActivityDefinition, retry: RetryPolicy | None, timeout: int | None
) -> UndoRule:
    """Return how `undo` undoes `activity`. The names of its parameters say what it takes; raise TypeError if not."""
    if activity.undo is not None:
        raise TypeError(f"activity {activity.name!r} has its undo already: {activity.undo.activity.name!r}")
    names, theirs = [p.name for p in _parameters(activity.fn)], _parameters(undo.fn)
    all_names = [p.name for p in theirs]
    for taken in (all_names, [p.name for p in theirs if p.name in names or p.default is inspect.Parameter.empty]):
        if taken == names:
            return UndoRule(undo, retry, timeout, None, names)
        if taken and taken[0] not in names and taken[1:] in (names, []):
            return UndoRule(undo, retry, timeout, taken[0], taken[1:])
    raise TypeError(_wrong_undo(activity, undo, names, all_names))


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(fn).parameters.values())[1:]


def _wrong_undo(activity: ActivityDefinition, undo: ActivityDefinition, names: list[str], taken: list[str]) -> str:
    result = "result" if "result" not in names else "its_result"
    forms = [["ctx", *names], ["ctx", result, *names], ["ctx", result]] if names else [["ctx"], ["ctx", result]]
    first, *others = (f"({', '.join(form)})" for form in forms)
    return (
        f"{undo.name!r} undoes {activity.name!r}, so it takes {first}, or the result before or instead of them: "
        f"{' or '.join(others)}; it takes ({', '.join(['ctx', *taken])}). A parameter with the name of one of the "
        f"activity's is that argument; give the result another name"
    )


def event_model(definition: WorkflowDefinition) -> Codec | None:
    arguments = getattr(definition.signature.annotations[definition.signature.names[0]], "__args__", ())
    return Codec(arguments[0], f"the event of workflow {definition.name!r}") if arguments else None


class Registry:
    """The workflows of one app, by name."""

    def __init__(self) -> None:
        self._workflows: dict[str, WorkflowDefinition] = {}
        self._latest: dict[str, WorkflowDefinition] = {}
        """The highest version of each workflow, by bare name."""
        self._on_event: dict[str, list[WorkflowDefinition]] = {}
        """By the types and patterns of events that start them."""
        self._has_patterns = False
        self.names: list[str] = []
        self.queues: dict[str, Queue] = {}
        """The queues of the workflows, by name."""
        self.arrivals = Arrivals()
        """When instances arrived in these queues."""

    def check(self, definition: WorkflowDefinition) -> None:
        """Raise `ValueError` if another workflow has the same name."""
        known = self._workflows.get(definition.name)
        if known is not None and known.fn is not definition.fn:
            raise ValueError(
                f"two different workflows are named {definition.name!r} ({_where(known)} and {_where(definition)}); "
                "give one of them another name or version: @workflow(name=..., version=...)"
            )

    def add(self, definition: WorkflowDefinition) -> None:
        self.check(definition)
        _ = definition.signature  # fail now if the signature can't be stored, not at the first start
        if definition.attributes is not None:
            check_paths(definition.attributes, definition.signature)
        if definition.queue is not None:
            self._add_queue(definition, definition.queue)
        if definition.name not in self._workflows:
            self._workflows[definition.name] = definition
            self.names = sorted(self._workflows)
            name, version = split_name(definition.name)
            known = self._latest.get(name)
            if known is None or version > split_name(known.name)[1]:
                self._latest[name] = definition
                self._sort_by_event()

    def _add_queue(self, definition: WorkflowDefinition, queue: Queue) -> None:
        if definition.queue_key is not None:
            check_key_path(definition.queue_key, definition.signature)
        known = self.queues.setdefault(queue.name, queue)
        if known != queue:
            raise ValueError(
                f"workflow {definition.name!r}: another workflow has a different queue {queue.name!r} ({known!r} and "
                f"{queue!r}); use one Queue object for both, or another name"
            )

    def replace(self, definition: WorkflowDefinition, fake: Callable[..., Any]) -> None:
        """Run a fake in place of the function of a workflow, in this registry only."""
        self.add(definition)
        faked = self._workflows[definition.name] = replace(definition, fake=fake)
        name, _ = split_name(definition.name)
        if self._latest[name].name == definition.name:
            self._latest[name] = faked
            self._sort_by_event()

    def _sort_by_event(self) -> None:
        self._on_event = _by_event(self._latest.values())
        self._has_patterns = any(map(is_pattern, self._on_event))

    @property
    def definitions(self) -> Mapping[str, WorkflowDefinition]:
        return {name: self._workflows[name] for name in self.names}

    def get(self, name: str) -> WorkflowDefinition | None:
        """Return the workflow that is stored under this name."""
        return self._workflows.get(name)

    def latest(self, name: str) -> WorkflowDefinition | None:
        """Return the workflow that a start by name means: the highest version, or the one that the name includes."""
        found = self._latest.get(name)
        return found if found is not None else self._workflows.get(stored_name(*split_name(name)))

    def require(self, name: str) -> WorkflowDefinition:
        definition = self._workflows.get(name)
        if definition is None:
            raise UnknownWorkflow(
                f"no workflow named {name!r} is registered here (registered: {', '.join(self.names) or 'none'}); "
                "pass it in App(workflows=[...]) or app.register(...)"
            )
        return definition

    def on_event(self, event_type: str) -> list[WorkflowDefinition]:
        """Return the workflows that events of this type start: each in its highest version."""
        if not self._has_patterns:
            return self._on_event.get(event_type, [])
        found = [d for pattern in patterns_of(event_type) for d in self._on_event.get(pattern, ())]
        return list(dict.fromkeys(found))

    @property
    def interests(self) -> list[Interest]:
        """Which events the instances of each workflow may take."""
        return [definition.interest for definition in self.definitions.values()]

    @property
    def triggers(self) -> list[tuple[str, str, int | None]]:
        """(event type, workflow, its timeout) for all workflows that events start, each in its highest version."""
        return [(t, d.name, d.timeout) for _, d in sorted(self._latest.items()) for t in d.on_event]

    @property
    def scheduled(self) -> dict[str, tuple[WorkflowDefinition, Schedule]]:
        """The workflows with a schedule, each in its highest version, by bare name."""
        return {name: (d, d.schedule) for name, d in sorted(self._latest.items()) if d.schedule is not None}


def _by_event(definitions: Iterable[WorkflowDefinition]) -> dict[str, list[WorkflowDefinition]]:
    found: dict[str, list[WorkflowDefinition]] = {}
    for definition in definitions:
        for event_type in definition.on_event:
            found.setdefault(event_type, []).append(definition)
    return found


def _where(definition: WorkflowDefinition) -> str:
    return f"{definition.fn.__module__}.{definition.fn.__qualname__}"
