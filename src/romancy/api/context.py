"""The contexts passed to user code: the `ctx` of a workflow and the `ctx` of an activity."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self

from typing_extensions import TypeVar

from romancy.core.emitted import DEFAULT_TOPIC, check_topic, encode_value
from romancy.core.events import make_event
from romancy.core.ids import check_change
from romancy.core.instance import Instance, current
from romancy.core.logs import fields, logger
from romancy.core.model import Attribute, Event, Scalar, from_us
from romancy.core.published import encode_changes, encode_view
from romancy.core.tickets import Links

C_co = TypeVar("C_co", covariant=True, default=Any)


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """Adds the instance to every record. Silent while history is replayed."""

    def __init__(
        self, instance_id: str, workflow: str, headers: Mapping[str, str] | None, silent: Callable[[], bool]
    ) -> None:
        super().__init__(logger, fields(instance_id, workflow, headers))
        self._silent = silent

    def isEnabledFor(self, level: int) -> bool:
        return not self._silent() and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Context:
    """The properties that both workflows and activities have."""

    __slots__ = ()

    @property
    def instance_id(self) -> str:
        """The id of the instance this code belongs to."""
        raise TypeError("a bare Context has no instance")

    @property
    def workflow_name(self) -> str:
        """The stored name of the workflow."""
        raise TypeError("a bare Context has no workflow")

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the instance id to every record. Silent while replaying."""
        raise TypeError("a bare Context has no logger")

    @property
    def state(self) -> Any:
        """The object passed as `App(state=...)`: your pools and clients."""
        raise TypeError("a bare Context has no state")


class WorkflowContext(Context):
    """The `ctx` of a workflow. Its values are the same on every replay."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def __repr__(self) -> str:
        return f"<WorkflowContext {self.workflow_name} {self.instance_id!r}>"

    if not TYPE_CHECKING:  # to type checkers, all names would exist

        def __getattr__(self, name: str) -> NoReturn:
            hint = "; headers are not input: read ctx.headers in an activity" if name == "headers" else ""
            raise AttributeError(f"a WorkflowContext has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def instance_id(self) -> str:
        return self._instance.alias

    @property
    def workflow_name(self) -> str:
        return self._instance.definition.name

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        instance = self._instance
        name, headers = instance.definition.name, instance.run.headers
        return _Logger(instance.id, name, headers, lambda: instance.replaying or instance.dead)

    @property
    def state(self) -> Any:
        return self._instance.state

    @property
    def started_at(self) -> datetime:
        """When the instance was created (aware, UTC)."""
        return from_us(self._instance.started_at)

    @property
    def scheduled_at(self) -> datetime:
        """The time that a schedule started the instance for (aware, UTC), even if it was started later.

        Without a schedule, it is `started_at`.
        """
        tick = self._instance.run.scheduled_at
        return self.started_at if tick is None else from_us(tick)

    @property
    def run_number(self) -> int:
        """1, then one more with every `continue_as_new`."""
        return self._instance.run.number

    @property
    def history_length(self) -> int:
        """The number of entries in the history of this run, up to the latest one that this code has seen."""
        return self._instance.run.length

    @property
    def is_history_long(self) -> bool:
        """Whether it is time to `continue_as_new`: the history is replayed whenever the instance is loaded."""
        return self._instance.run.is_long

    @property
    def is_replaying(self) -> bool:
        """True only while recorded history is replayed."""
        return self._instance.replaying

    @property
    def random(self) -> random.Random:
        """A random generator that gives the same numbers on every replay."""
        self._refuse_in_step("ctx.random")
        self._instance.glance()
        return self._instance.run.random(self._instance.id)

    def now(self) -> datetime:
        """The time of the latest history entry (aware, UTC). Use it instead of the clock."""
        self._instance.glance()
        return from_us(self._instance.at)

    def uuid4(self) -> uuid.UUID:
        """A random UUID that is the same on every replay."""
        self._refuse_in_step("ctx.uuid4()")
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def patched(self, change: str, /) -> bool:
        """Return whether this run takes the new way of a change, named for good: `if ctx.patched("fraud-check"): ...`

        True for runs that get here for the first time, which is recorded. False for runs that older code has already
        taken past this point. The answer stays the same for the rest of the run. Delete the question, and the old way,
        when `romancy replay --all` says that no running instance takes it any more.
        """
        return self._instance.patched(check_change(change))

    def _refuse_in_step(self, what: str) -> None:
        """Refuse random values to the function of a step: it does not run on replay, so later values would differ."""
        if isinstance(current.get(None), ActivityContext):
            raise RuntimeError(f"{what} of the workflow was used in the function of a step; read it before the step")

    def describe(self, text: str) -> None:
        """Set a description of the instance, shown next to its status."""
        self._instance.describe(str(text))

    def set_view(self, value: object, /) -> None:
        """Show a value to everybody who asks: `await handle.view(Progress)`, or `instance.view`.

        It replaces the one before. It is stored with everything else that happens up to the next wait, and stays after
        the end. Plain JSON, a dataclass or a pydantic model, at most 64 KiB.
        """
        instance = self._instance
        instance.publish().set_view(encode_view(value, self.workflow_name))

    def set_attributes(self, attributes: Mapping[str, Scalar], /) -> None:
        """Set attributes, by which instances are found: `list_instances(where={"tier": "gold"})`.

        Others keep their values; None removes one. At most 16; a string has at most 255 characters. They are shown and
        indexed, so do not put secrets into them.
        """
        instance = self._instance
        instance.publish().set_attributes(encode_changes(attributes, instance.id), instance.id)

    @classmethod
    def current(cls) -> Self:
        """Return the context of the running workflow, for helpers deep inside it."""
        context = current.get(None)
        if not isinstance(context, cls):
            raise RuntimeError("no workflow is running here; pass ctx, or call this from workflow code")
        return context


class AttemptLike(Protocol):
    """The attempt that an `ActivityContext` belongs to."""

    @property
    def instance_id(self) -> str: ...
    @property
    def workflow_name(self) -> str: ...
    @property
    def activity_id(self) -> str: ...
    @property
    def activity_name(self) -> str: ...
    @property
    def known_as(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def state(self) -> Any: ...
    @property
    def links(self) -> Links: ...
    @property
    def last_progress(self) -> Any: ...
    def keep_progress(self, value: object) -> None: ...
    def emit(self, topic: str, raw: bytes) -> bool: ...
    async def room(self) -> None: ...


class ActivityContext(Context):
    """The `ctx` of an activity: the number of the attempt, and a key that is the same for all attempts."""

    __slots__ = ("_about", "_last", "_staged", "is_cancelled")

    def __init__(self, about: AttemptLike) -> None:
        self._about = about
        self.is_cancelled = False
        self._last: Any = None
        self._staged: list[Event] = []

    def __repr__(self) -> str:
        return f"<ActivityContext {self.activity_id} attempt {self.attempt} of {self.instance_id!r}>"

    @property
    def instance_id(self) -> str:
        return self._about.instance_id

    @property
    def workflow_name(self) -> str:
        return self._about.workflow_name

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        return _Logger(self.instance_id, self.workflow_name, self.headers, lambda: False)

    @property
    def state(self) -> Any:
        return self._about.state

    @property
    def activity_id(self) -> str:
        """The id of this call within its instance, e.g. `charge:1`."""
        return self._about.activity_id

    @property
    def activity_name(self) -> str:
        """The name of the activity, e.g. `charge`."""
        return self._about.activity_name

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._about.attempt

    @property
    def headers(self) -> Mapping[str, str]:
        """What travels with the instance besides its input, as middleware set it: see `StartRequest.headers`."""
        return self._about.headers

    @property
    def idempotency_key(self) -> str:
        """A key that is the same on each attempt of this call. Pass it to services that recognize repeated requests.

        It is also the same if the call failed and the instance is retried.
        """
        return f"{self.instance_id}/{self._about.known_as}"

    @property
    def last_progress(self) -> Any:
        """The latest value reported with `progress`, by this or an earlier attempt."""
        return self._about.last_progress if self._last is None else self._last

    def progress(self, value: object) -> None:
        """Report progress (plain JSON). It is shown to people and passed to the next attempt."""
        self._last = value
        self._about.keep_progress(value)

    def emit(self, value: object, /, *, topic: str = DEFAULT_TOPIC) -> None:
        """Show a value at once to whoever reads `handle.emitted(topic)`. For `def` activities.

        In `async def` activities, use `await emit(ctx, value)`, which waits if values can't be stored fast enough.
        """
        self._about.emit(check_topic(topic), encode_value(value, topic))

    def check_cancelled(self) -> None:
        """Raise `CancelledError` if the call was given up. For `def` activities."""
        if self.is_cancelled:
            raise asyncio.CancelledError

    def send_event(
        self,
        type: str,
        source: str,
        data: object = None,
        *,
        subject: str | None = None,
        id: str | None = None,
        to: str | None = None,
        extensions: Mapping[str, Attribute] | None = None,
    ) -> None:
        """Send an event with this attempt's result. It is not sent if the attempt fails. For `def` activities."""
        default = f"{self.idempotency_key}/{len(self._staged) + 1}"
        self._staged.append(
            make_event(type, source, data, subject=subject, id=default if id is None else id, to=to, ext=extensions)
        )

    @classmethod
    def current(cls) -> Self:
        """Return the context of the running activity."""
        context = current.get(None)
        if not isinstance(context, cls):
            raise RuntimeError("no activity is running here; pass ctx, or call this from activity code")
        return context

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name == "connection":
                raise AttributeError(
                    f"activity {self.activity_id!r} has no transaction, so its ctx has no connection; "
                    "write @activity(transactional=True) and ctx: TransactionContext"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def links_of(context: ActivityContext) -> Links:
    """Return what signs links to questions."""
    return context._about.links  # pyright: ignore[reportPrivateUsage]


class TransactionContext(ActivityContext, Generic[C_co]):
    """The `ctx` of an activity with `transactional=True`. Its `connection` is inside an open transaction.

    Whatever you write there is committed together with the result of the activity and the events it sends, or not at
    all. `TransactionContext[sqlite3.Connection]` tells type checkers which connection it is.
    """

    __slots__ = ("_connection",)

    def __init__(self, about: AttemptLike, connection: C_co | None = None) -> None:
        super().__init__(about)
        self._connection = connection

    def __repr__(self) -> str:
        return f"<TransactionContext {self.activity_id} attempt {self.attempt} of {self.instance_id!r}>"

    @property
    def connection(self) -> C_co:
        """A connection of the driver: `asyncpg.Connection` or `sqlite3.Connection`. Never commit or roll it back."""
        if self._connection is None:
            raise RuntimeError(
                f"the transaction of activity {self.activity_id!r} of instance {self.instance_id!r} is over; "
                "use ctx.connection only in the activity's own function"
            )
        return self._connection


def instance_of(ctx: WorkflowContext) -> Instance:
    """The instance whose code is running."""
    try:
        return ctx._instance  # pyright: ignore[reportPrivateUsage]
    except AttributeError:
        raise TypeError(f"the workflow's ctx must be the first argument, got {ctx!r}") from None


def staged_events(ctx: ActivityContext) -> list[Event]:
    """Events that leave with this attempt's result, or not at all."""
    return ctx._staged  # pyright: ignore[reportPrivateUsage]


def attempt_of(ctx: ActivityContext) -> AttemptLike:
    """The attempt that a context belongs to."""
    return ctx._about  # pyright: ignore[reportPrivateUsage]


def lend(ctx: TransactionContext[Any], connection: Any) -> None:
    """Set the connection of a transaction; None when it is over."""
    ctx._connection = connection  # pyright: ignore[reportPrivateUsage]


def current_context() -> WorkflowContext | ActivityContext:
    """Return the context of the running workflow or activity."""
    context = current.get(None)
    if isinstance(context, WorkflowContext | ActivityContext):
        return context
    raise RuntimeError("no workflow or activity is running here")
