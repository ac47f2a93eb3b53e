"""Exceptions as stored facts: recorded once, raised again the same on every replay."""

from __future__ import annotations

import json
import traceback
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from romancy.errors import ActivityError, ActivityTimeout

_TRACEBACK_LIMIT = 20_000
_NOTE_LIMIT = 10_000
"""Characters of an activity's traceback that go with the exception the workflow sees."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is kept of an exception."""

    error_type: str
    message: str
    traceback: str = ""
    attempts: int = 1
    timeout: bool = False
    answer: list[Any] | None = None
    """The `args` of an exception named in `raises=`, where they are plain JSON."""
    state: dict[str, Any] | None = None
    listed: str | None = None

    def encode(self) -> bytes:
        return json.dumps({k: v for k, v in asdict(self).items() if v not in (None, "", False)}).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Failure:
        stored: dict[str, Any] = json.loads(raw)
        fields: dict[str, Any] = {"error_type": "", "message": ""}
        return cls(**(fields | {k: v for k, v in stored.items() if k in cls.__slots__}))


def describe(error: BaseException) -> str:
    """The message of an exception, even of one whose `__str__` is broken."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except Exception as broken:
        return f"<the message can't be shown: {type(broken).__name__}>"


def capture(
    error: BaseException, *, attempts: int = 1, timeout: bool = False, raises: Collection[type[Exception]] = ()
) -> Failure:
    """Keep an exception; one of `raises` is kept so that it can come back as itself."""
    text = "".join(traceback.format_exception(error)).encode("utf-8", "backslashreplace").decode()[-_TRACEBACK_LIMIT:]
    failure = Failure(type(error).__qualname__, describe(error), text, attempts, timeout)
    listed = next((t for t in raises if isinstance(error, t)), None)
    if listed is None:
        return failure
    return Failure(
        failure.error_type,
        failure.message,
        text,
        attempts,
        answer=_plain(_arguments(error)),
        state=_plain(dict(vars(error))),
        listed=f"{listed.__module__}.{listed.__qualname__}",
    )


def _arguments(error: BaseException) -> list[Any]:
    """What the exception was made with; an OSError keeps its file names apart from its args."""
    if isinstance(error, OSError) and error.filename is not None:
        return [error.errno, error.strerror, error.filename, None, error.filename2]
    return list(error.args)


def _plain(value: Any) -> Any:
    try:
        return value if json.loads(json.dumps(value)) == value else None
    except (TypeError, ValueError):
        return None


def rebuild(failure: Failure, activity: str, raises: Collection[type[Exception]]) -> Exception:
    """The exception workflow code sees: itself if the activity lists it, else `ActivityError`.

    It brings the activity's traceback as a note: if it ends the workflow, that shows where it came from.
    """
    error = _rebuild(failure, activity, raises)
    if failure.traceback:
        error.add_note(f"Inside activity {activity!r}:\n{failure.traceback[-_NOTE_LIMIT:].rstrip()}")
    return error


def _rebuild(failure: Failure, activity: str, raises: Collection[type[Exception]]) -> Exception:
    base = next((t for t in raises if f"{t.__module__}.{t.__qualname__}" == failure.listed), None)
    if base is not None:
        answer = _as_itself(_find(base, failure.error_type), failure)
        if answer is not None:
            return answer
    kind = ActivityTimeout if failure.timeout else ActivityError
    return kind(
        failure.message,
        activity=activity,
        error_type=failure.error_type,
        traceback=failure.traceback,
        attempts=failure.attempts,
    )


def _as_itself(kind: type[Exception], failure: Failure) -> Exception | None:
    """The recorded exception without calling its `__init__`; None for built-in kinds that can't be made from JSON."""
    if failure.answer is None and kind.__new__ is not Exception.__new__:
        return None
    args = (failure.message,) if failure.answer is None else tuple(failure.answer)
    try:
        error = kind.__new__(kind, *args)  # built-in ones (OSError) fill their fields and args here
        if not isinstance(error, OSError):
            error.args = args
        error.__dict__.update(failure.state or {})
    except Exception:
        return None
    return error


def _find(base: type[Exception], name: str) -> type[Exception]:
    """The recorded subclass of a listed type, if it is still there; else the listed type."""
    todo = [base]
    while todo:
        kind = todo.pop()
        if kind.__qualname__ == name:
            return kind
        todo.extend(kind.__subclasses__())
    return base
