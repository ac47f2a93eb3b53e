"""URLs of requests, and a workflow's arguments as JSON."""

from __future__ import annotations

import inspect
import json
from typing import Any, cast
from urllib.parse import quote, urlsplit

from pydantic_core import to_jsonable_python

from romancy.api.workflow import Workflow, definition_of, queue_options, start_options
from romancy.core.ids import check_lookup, is_text
from romancy.core.model import SECOND
from romancy.core.schedules import Schedule
from romancy.core.timestamps import format_time
from romancy.errors import InstanceNotFound, InvalidInput


def check_url(url: str) -> str:
    """Check the URL of a server, which can include the path the app is mounted at."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not the URL of a server; use one like http://localhost:8001")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"the URL of {parts.hostname!r} contains a user or password; use token=... instead")
    if parts.query or parts.fragment:
        raise ValueError(f"the URL of a server can't have a query or fragment, got {url!r}")
    return url.rstrip("/")


def check_token(token: str | None) -> str | None:
    if token is not None and (not token.isprintable() or " " in token):
        raise ValueError("a token must consist of printable characters without spaces")
    return token


def looked_up(instance_id: str) -> str:
    """An instance id as a segment of a path."""
    check_lookup(instance_id)
    if not instance_id:
        raise InstanceNotFound(instance_id=instance_id)
    return quoted(instance_id)


def quoted(part: str) -> str:
    """Quote any text as one segment of a path. Plain `.` and `..` would be folders."""
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")


def start_of(wf: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a workflow, and its arguments as JSON."""
    if isinstance(wf, Workflow):
        return _encoded(cast("Workflow[..., Any]", wf), args, kwargs)
    if not isinstance(wf, str):
        raise TypeError(f"start_workflow takes a workflow or its name, not {wf!r}; is @workflow missing?")
    if not (wf and is_text(wf)):
        raise InvalidInput(f"the name of a workflow must be a non-empty string, got {wf!r}")
    content = {"args": list(args), "kwargs": kwargs}
    try:
        json.dumps(content, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"workflow {wf!r} is given by name, so its arguments must be plain JSON: {error}; "
            "pass the workflow itself to convert them by its annotations"
        ) from None
    return wf, content


def _encoded(wf: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    definition, (_, timeout) = definition_of(wf), start_options(wf)
    if timeout != definition.timeout:
        raise InvalidInput(
            f"workflow {wf.name!r}: options(timeout=...) can't be sent to a server; set it in @workflow(timeout=...)"
        )
    signature = definition.signature
    values: dict[str, Any] = json.loads(signature.encode_call(args, kwargs))
    _, *parameters = inspect.signature(wf.fn).parameters.values()
    bound = inspect.BoundArguments(inspect.Signature(parameters), cast("Any", values))
    key, priority = queue_options(wf)
    place = {name: value for name, value in (("key", key), ("priority", priority)) if value is not None}
    return wf.name, {"args": list(bound.args), "kwargs": bound.kwargs, **place}


def schedule_content(schedule: Schedule) -> dict[str, Any]:
    """A schedule as JSON."""
    times = schedule.times
    moments = {"starts_at": times.starts_at, "ends_at": times.ends_at}
    return {
        "cron": schedule.cron,
        "every": schedule.every,
        "timezone": schedule.timezone,
        "spread": schedule.spread / SECOND,
        "catch_up": schedule.catch_up,
        "overlap": schedule.overlap,
        **{name: None if at is None else format_time(at) for name, at in moments.items()},
    }


def answer_content(person: str, data: object, ask_id: str | None, by: str | None) -> dict[str, Any]:
    """An answer as JSON."""
    return {"person": person, "data": to_jsonable_python(data), "ask_id": ask_id, "by": by}
