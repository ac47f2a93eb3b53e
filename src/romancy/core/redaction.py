"""What people do not see of values: `App(redact=...)`. It applies where values are shown, not where code gets them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

HIDDEN = "(redacted)"
Redact = Callable[[Any], Any]
"""Takes a value as JSON, and returns what people see of it."""
_active: ContextVar[Redact | None] = ContextVar("romancy_redact", default=None)


def choose_redaction(given: Sequence[str] | Redact | None) -> Redact | None:
    """Return the function for names of fields or paths, or a function of the user's own."""
    if given is None or callable(given):
        return given
    if isinstance(given, str) or not all(isinstance(name, str) and name for name in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"redact must be a list of field names or paths, or a function, not {given!r}")
    paths = [tuple(path.lower().split(".")) for path in given]
    return (lambda value: _hidden(value, (), paths)) if paths else None


def _hidden(value: Any, above: tuple[str, ...], paths: Sequence[tuple[str, ...]]) -> Any:
    if isinstance(value, list):
        return [_hidden(item, above, paths) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, item in cast("dict[str, Any]", value).items():
        here = (*above, *name.lower().split("."))
        is_hidden = any(here[-len(path) :] == path for path in paths)
        found[name] = HIDDEN if is_hidden else _hidden(item, here, paths)
    return found


@contextmanager
def redacting(redact: Redact | None) -> Generator[None]:
    """Redact what is shown in this block; with None, nothing."""
    token = _active.set(redact)
    try:
        yield
    finally:
        _active.reset(token)


def is_redacting() -> bool:
    return _active.get() is not None


def redacted(value: Any) -> Any:
    """Return what people see of a value. If the user's function fails, that is nothing of it."""
    redact = _active.get()
    if redact is None:
        return value
    try:
        return redact(value)
    except Exception as error:
        return f"{HIDDEN[:-1]}: {type(error).__name__})"


def redacted_at(path: Sequence[str | int], value: Any) -> Any:
    """Return what people see of a value that is at this path of a whole; `HIDDEN` if nothing."""
    if not is_redacting():
        return value
    shown = value
    for step in reversed(path):
        shown = {step: shown} if isinstance(step, str) else [shown]
    shown = redacted(shown)
    for step in path:
        if isinstance(step, str) and isinstance(shown, dict) and step in shown:
            shown = cast("dict[str, Any]", shown)[step]
        elif isinstance(step, int) and isinstance(shown, list) and shown:
            shown = cast("list[Any]", shown)[0]
        else:
            return HIDDEN
    return shown


def is_hidden(value: object) -> bool:
    """Return whether nothing is to be seen of a value, here or where it comes from."""
    return isinstance(value, str) and value.startswith(HIDDEN[:-1])


def with_redacted(members: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object in which the value of one member is what people see of it."""
    return {**members, name: redacted(members[name])} if name in members else members
