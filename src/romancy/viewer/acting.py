"""The pages with forms. What is filled in goes to the control API, from the browser."""

from __future__ import annotations

import json
from typing import Any, cast

from romancy.core.history import is_json
from romancy.errors import UnknownWorkflow
from romancy.http.answers import Answer
from romancy.http.routes import Request
from romancy.records import Wait
from romancy.storage.catalog import WHOLE
from romancy.viewer.catalog import Catalog, EventLine
from romancy.viewer.forms import fields_of
from romancy.viewer.pages import Query
from romancy.viewer.rendering import page

DEFAULT_SOURCE = "viewer"


class SendQuery(Query):
    type: str = ""
    instance: str = ""
    wait: str = ""
    source: str = ""
    id: str = ""


async def workflows(request: Request) -> Answer:
    """The workflows this process has, to be started."""
    known = Catalog(request.app).workflows
    return page(request, "workflows.html", workflows=[_described(known[name]) for name in sorted(known)])


def _described(definition: Any) -> dict[str, Any]:
    about = (definition.fn.__doc__ or "").strip().partition("\n")[0]
    return {
        "name": definition.name,
        "about": about,
        "on_event": definition.on_event,
        "names": definition.signature.names,
    }


async def start(request: Request) -> Answer:
    """A form made of a workflow's signature."""
    name = request.path["name"]
    definition = Catalog(request.app).workflows.get(name)
    if definition is None:
        raise UnknownWorkflow(f"no workflow named {name!r} is registered in this process; start it where it is")
    fields = [] if definition.on_event else fields_of(definition)
    return page(request, "start.html", workflow=_described(definition), fields=json.dumps(fields))


async def send(request: Request) -> Answer:
    """A form for an event: empty, as a wait would like it, or as an event was."""
    query: SendQuery = request.query
    catalog = Catalog(request.app)
    filled: dict[str, Any] = {"type": query.type, "source": DEFAULT_SOURCE, "subject": "", "to": "", "data": "{}"}
    wait = again = None
    if query.instance and query.wait:
        detail = await catalog.instance(query.instance, None)
        wait = next((w for w in detail.instance.waits if w.wait_id == query.wait), None)
        filled |= {} if wait is None else _wanted_by(wait)
    elif query.source and query.id:
        again = await catalog.event(query.source, query.id)
        filled |= {} if again is None else _as_before(again)
    types = [group.type for group in await catalog.groups("", 50, 0)]
    return page(request, "send.html", filled=filled, wait=wait, again=again, types=types)


def _wanted_by(wait: Wait) -> dict[str, Any]:
    """An event with all that a wait asks for."""
    data: dict[str, Any] = {}
    for path, value in wait.where.items():
        _put(data, path.split("."), value)
    named = {"type": wait.types[0] if wait.types else "", "source": wait.source or DEFAULT_SOURCE}
    return {**named, "subject": wait.subject or "", "data": json.dumps(data, ensure_ascii=False, indent=2, default=str)}


def _put(data: dict[str, Any], steps: list[str], value: Any) -> None:
    first, *rest = steps
    if not rest:
        data[first] = value
    elif isinstance(inner := data.setdefault(first, {}), dict):  # else two paths cross, and no event has both
        _put(cast("dict[str, Any]", inner), rest, value)


def _as_before(line: EventLine) -> dict[str, Any]:
    event, text = line.shown.event, ""
    if event.data is not None and line.shown.size <= WHOLE and is_json(event.datacontenttype):
        text = event.data.decode("utf-8", "replace")
    named = {"type": event.type, "source": event.source, "subject": event.subject or "", "to": event.target or ""}
    return {**named, "data": text}
