"""Exceptions in stored form: recorded once, raised again identically on every replay."""

from __future__ import annotations

import json
import traceback
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from romancy.core.raised import (
    Worded,
    find_listed,
    find_subclass,
    find_unmoved,
    full_name,
    listed_for,
    namesakes,
    worded,
)
from romancy.errors import ActivityError, ActivityTimeout, NonDeterminismError

_TRACEBACK_LIMIT = 20_000
_MEMBERS = 5
"""How many exceptions of a group its message lists."""
_OF_TASKS = "unhandled errors in a TaskGroup"
"""What asyncio and anyio say of every failed task group. It comes last, because lists show only the beginning."""
_NOTE_LIMIT = 10_000
"""Maximum characters of an activity's traceback in the note on the exception that the workflow sees."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The stored form of an exception."""

    error_type: str
    message: str
    traceback: str = ""
    attempts: int = 1
    timeout: bool = False
    answer: list[Any] | None = None
    """The `args` of an exception listed in `raises=`, if they are plain JSON."""
    state: dict[str, Any] | None = None
    listed: str | None = None
    """`module.qualname` of the class in `raises=` that it matched."""
    listed_name: str | None = None
    """The same without the module, because classes can move. None in old histories, like all that follows."""
    namesakes: list[str] | None = None
    """Other classes in `raises=` with the same name, by module and name."""
    module: str | None = None
    """The module of its own class, if that is a subclass of the listed one."""
    opaque: bool = False
    """It was listed, but can't be rebuilt from the stored data: the code gets an `ActivityError`."""
    missing: str | None = None
    """The name of a key or codec: the instance is blocked because the worker that tried it lacks that."""
    not_undone: list[str] | None = None
    """The operations that are not undone, if undos failed for good: the instance is blocked, or was cancelled then."""
    culprits: list[int] | None = None
    """The numbers of the entries that led to the end of the instance. None if it ended before these were stored."""
    rolled_back: bool = False
    """It was raised by a transactional activity: what that had written was rolled back."""

    def encode(self) -> bytes:
        return json.dumps({k: v for k, v in asdict(self).items() if v not in (None, "", False)}).encode()

    @staticmethod
    def beginning(error_type: str) -> bytes:
        """Return how the stored form of every exception of this type begins: the type is its first member."""
        return json.dumps({"error_type": error_type})[:-1].encode()

    @classmethod
    def decode(cls, raw: bytes) -> Failure:
        stored: dict[str, Any] = json.loads(raw)
        fields: dict[str, Any] = {"error_type": "", "message": ""}
        return cls(**(fields | {k: v for k, v in stored.items() if k in cls.__slots__}))


def describe(error: BaseException) -> str:
    """Return the message of an exception, even if its `__str__` is broken. That of a group says what is in it."""
    try:
        text = str(error).encode("utf-8", "backslashreplace").decode()
    except Exception as broken:
        return f"<the message can't be shown: {type(broken).__name__}>"
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        inner = [f"{type(one).__qualname__}: {describe(one) or _place(one)}" for one in group.exceptions[:_MEMBERS]]
        members = "; ".join([*inner, *(["..."] if len(group.exceptions) > _MEMBERS else [])])
        return f"{members} ({_OF_TASKS})" if group.message == _OF_TASKS else f"{text}: {members}"
    return text


def _place(error: BaseException) -> str:
    """Say where an exception without a message was raised."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return "no message"
    frame, line = frames[-1]
    return f"no message (raised in {frame.f_code.co_name}, {Path(frame.f_code.co_filename).name} line {line})"


def capture(
    error: BaseException,
    *,
    attempts: int = 1,
    timeout: bool = False,
    raises: Collection[type[Exception]] = (),
    rolled_back: bool = False,
) -> Failure:
    """Return the stored form of an exception. One listed in `raises` can be rebuilt as itself."""
    text = "".join(traceback.format_exception(error)).encode("utf-8", "backslashreplace").decode()[-_TRACEBACK_LIMIT:]
    message = describe(error) or _place(error)
    failure = Failure(type(error).__qualname__, message, text, attempts, timeout, rolled_back=rolled_back)
    listed = listed_for(error, raises)
    if listed is None:
        return failure
    kind = type(error)
    is_subclass = listed in kind.__mro__[1:]
    answer = replace(
        failure,
        timeout=False,
        answer=_plain(_arguments(error)),
        state=_plain(dict(vars(error))),
        listed=full_name(listed),
        listed_name=listed.__qualname__,
        namesakes=namesakes(listed, raises) or None,
        module=kind.__module__ if is_subclass else None,
    )
    rebuilt = _as_itself(cast("type[Exception]", kind) if is_subclass else listed, answer)
    return replace(answer, opaque=rebuilt is None)


def _arguments(error: BaseException) -> list[Any]:
    """Return the arguments of an exception. An OSError keeps its file names separate from its `args`."""
    if isinstance(error, OSError) and error.filename is not None:
        return [error.errno, error.strerror, error.filename, None, error.filename2]
    return list(error.args)


def _plain(value: Any) -> Any:
    try:
        return value if json.loads(json.dumps(value)) == value else None
    except (TypeError, ValueError):
        return None


def rebuild(failure: Failure, activity: str, raises: Collection[type[Exception]]) -> Exception:
    """Return the exception that workflow code sees: itself if the activity lists it, else `ActivityError`.

    Raise `NonDeterminismError` if it was listed but can't be found or rebuilt today. The activity's traceback is
    attached as a note, to show where the exception came from if it ends the workflow.
    """
    error = _rebuild(failure, activity, raises)
    if failure.traceback:
        error.add_note(f"Inside activity {activity!r}:\n{failure.traceback[-_NOTE_LIMIT:].rstrip()}")
    return error


def _rebuild(failure: Failure, activity: str, raises: Collection[type[Exception]]) -> Exception:
    if failure.listed is not None and not failure.opaque:
        kind = _find(failure, activity, raises)
        answer = _as_itself(kind, failure)
        if answer is not None:
            return answer
        if failure.listed_name is not None:
            raise _lost(failure, activity, f"{full_name(kind)} can no longer be rebuilt from the stored data")
    kind = ActivityTimeout if failure.timeout else ActivityError
    return kind(
        failure.message,
        activity=activity,
        error_type=failure.error_type,
        traceback=failure.traceback,
        attempts=failure.attempts,
    )


def _as_itself(kind: type[Exception], failure: Failure) -> Exception | None:
    """Rebuild an exception without calling its `__init__`; None for built-in classes that JSON can't represent."""
    if failure.answer is None and kind.__new__ is not Exception.__new__:
        return None
    try:
        error = _make(kind, failure)
        if not _can_be_shown(error):
            error = _make(worded(kind), failure)
            cast("Worded", error).recorded_message = failure.message
    except Exception:
        return None
    return error


def _make(kind: type[Exception], failure: Failure) -> Exception:
    args = (failure.message,) if failure.answer is None else tuple(failure.answer)
    error = kind.__new__(kind, *args)  # built-in classes (OSError) set their fields and args here
    if not isinstance(error, OSError):
        error.args = args
    error.__dict__.update(failure.state or {})
    return error


def _can_be_shown(error: Exception) -> bool:
    """Whether it has all attributes that its `__str__` and `__repr__` use: those that are not plain JSON are lost."""
    try:
        _ = str(error) + repr(error)
    except Exception:
        return False
    return True


def _find(failure: Failure, activity: str, raises: Collection[type[Exception]]) -> type[Exception]:
    """Return the class of a listed exception, wherever it is defined today."""
    assert failure.listed is not None
    others = failure.namesakes or ()
    listed = find_listed(failure.listed, failure.listed_name, others, raises)
    is_subclass = failure.module is not None or (
        failure.listed_name is None and not failure.listed.endswith(f".{failure.error_type}")
    )
    if listed is not None and not is_subclass:
        return listed
    own = failure.listed if failure.module is None else f"{failure.module}.{failure.error_type}"
    if listed is not None:
        kind = find_subclass([listed], failure.module, failure.error_type)
    else:  # the class it matched is gone; today its own class may be listed, or one of its bases
        kind = find_listed(own, failure.error_type, others, raises) or find_unmoved(raises, own)
    if kind is not None:
        return kind
    if listed is not None and failure.module is None:
        return listed  # an old history does not say where the subclass was
    why = f"raises= no longer lists {failure.listed}" if listed is None else f"the subclass {own} no longer exists"
    raise _lost(failure, activity, why)


def _lost(failure: Failure, activity: str, why: str) -> NonDeterminismError:
    return NonDeterminismError(
        f"activity {activity!r} raised {failure.error_type} ({failure.message}), recorded as {failure.listed}, "
        f"but {why}. Classes can move between modules, but must keep their names and stay in raises= while instances "
        "that recorded them are running: put it back",
        recorded=failure.listed or failure.error_type,
        asked=why,
    )
