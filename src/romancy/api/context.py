"""The contexts user code is given: `ctx` of a workflow, `ctx` of an activity."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any, Protocol, Self

from romancy.core.events import make_event
from romancy.core.instance import Instance, current
from romancy.core.logs import logger
from romancy.core.model import Attribute, Event, from_us


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """Stamps every record with the instance, and is silent while history is being replayed."""

    def __init__(self, instance_id: str, workflow: str, silent: Callable[[], bool]) -> None:
        super().__init__(logger, {"instance_id": instance_id, "workflow": workflow})
        self._silent = silent

    def isEnabledFor(self, level: int) -> bool:
        return not self._silent() and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Context:
    """What workflows and activities both know about themselves."""

    __slots__ = ()

    @property
    def instance_id(self) -> str:
        """The id of the instance this code belongs to."""
        raise TypeError("a bare Context has no instance")

    @property
    def workflow_name(self) -> str:
        """The stored name of its workflow."""
        raise TypeError("a bare Context has no workflow")

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logs with the instance's id; silent while replaying."""
        raise TypeError("a bare Context has no logger")

    @property
    def state(self) -> Any:
        """What was given as `App(state=...)`: your pools and clients."""
        raise TypeError("a bare Context has no state")


class WorkflowContext(Context):
    """A workflow's view of itself. Everything here is the same on every replay."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def __repr__(self) -> str:
        return f"<WorkflowContext {self.workflow_name} {self.instance_id!r}>"

    @property
    def instance(self) -> Instance:
        """The machinery behind; not for workflow code."""
        return self._instance

    @property
    def instance_id(self) -> str:
        return self._instance.id

    @property
    def workflow_name(self) -> str:
        return self._instance.definition.name

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        instance = self._instance
        return _Logger(instance.id, instance.definition.name, lambda: instance.replaying or instance.dead)

    @property
    def state(self) -> Any:
        return self._instance.state

    @property
    def started_at(self) -> datetime:
        """When the instance was created (aware, UTC)."""
        return from_us(self._instance.started_at)

    @property
    def is_replaying(self) -> bool:
        """True only while recorded history is being run through."""
        return self._instance.replaying

    @property
    def random(self) -> random.Random:
        """A random generator that gives the same numbers on every replay."""
        self._instance.glance()
        return self._instance.random

    def now(self) -> datetime:
        """The time of the fact last recorded (aware, UTC): use it instead of the clock."""
        self._instance.glance()
        return from_us(self._instance.at)

    def uuid4(self) -> uuid.UUID:
        """A random UUID that is the same on every replay."""
        self._instance.glance()
        return uuid.UUID(int=self._instance.random.getrandbits(128), version=4)

    def describe(self, text: str) -> None:
        """A line for people, shown beside the status."""
        self._instance.describe(str(text))

    @classmethod
    def current(cls) -> Self:
        """The context of the workflow that is running, for helpers deep inside it."""
        context = current.get(None)
        if not isinstance(context, cls):
            raise RuntimeError("no workflow is running here; pass ctx, or call this from workflow code")
        return context


class AttemptLike(Protocol):
    """What a context knows of the attempt it belongs to."""

    @property
    def instance_id(self) -> str: ...
    @property
    def workflow_name(self) -> str: ...
    @property
    def activity_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def state(self) -> Any: ...
    @property
    def last_progress(self) -> Any: ...
    def keep_progress(self, value: object) -> None: ...


class ActivityContext(Context):
    """An activity's view of itself: which attempt it is, and a key that stays the same over all of them."""

    __slots__ = ("_about", "is_cancelled", "last", "staged")

    def __init__(self, about: AttemptLike) -> None:
        self._about = about
        self.is_cancelled = False
        self.last: Any = None
        self.staged: list[Event] = []
        """Events that leave with this attempt's result, or not at all."""

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
        return _Logger(self.instance_id, self.workflow_name, lambda: False)

    @property
    def state(self) -> Any:
        return self._about.state

    @property
    def activity_id(self) -> str:
        """The id of this call within its instance, e.g. `charge:1`."""
        return self._about.activity_id

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._about.attempt

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this call: hand it to services that can tell a repeat."""
        return f"{self.instance_id}/{self.activity_id}"

    @property
    def last_progress(self) -> Any:
        """What an earlier attempt last reported with `progress`."""
        return self._about.last_progress if self.last is None else self.last

    def progress(self, value: object) -> None:
        """Report how far it got (plain JSON): shown to people, and handed to the next attempt."""
        self.last = value
        self._about.keep_progress(value)

    def check_cancelled(self) -> None:
        """In a `def` activity: raises `CancelledError` when the call was given up."""
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
        """Send an event with this attempt's result: nothing leaves if the attempt fails. For `def` activities."""
        default = f"{self.idempotency_key}/{len(self.staged) + 1}"
        self.staged.append(
            make_event(type, source, data, subject=subject, id=default if id is None else id, to=to, ext=extensions)
        )

    @classmethod
    def current(cls) -> Self:
        """The context of the activity that is running."""
        context = current.get(None)
        if not isinstance(context, cls):
            raise RuntimeError("no activity is running here; pass ctx, or call this from activity code")
        return context


def current_context() -> WorkflowContext | ActivityContext:
    """The context of the workflow or activity that is running."""
    context = current.get(None)
    if isinstance(context, WorkflowContext | ActivityContext):
        return context
    raise RuntimeError("neither a workflow nor an activity is running here")
