"""The pages with forms. The browser sends what is filled in to the control API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from romancy.core.codec import Codec
from romancy.core.history import is_json, showable
from romancy.core.redaction import is_redacting
from romancy.core.versions import SIGN, bare_name
from romancy.errors import UnknownWorkflow
from romancy.http.responses import Response
from romancy.http.routes import Request
from romancy.records import Wait
from romancy.storage.catalog import WHOLE
from romancy.viewer.catalog import Catalog, EventLine
from romancy.viewer.forms import fields_of, schema_of, skeleton
from romancy.viewer.html import page
from romancy.viewer.pages import Nothing, Query

DEFAULT_SOURCE = "viewer"


class StartQuery(Nothing):
    again: str = ""
    """The instance whose input is filled in."""


class SendQuery(Query):
    type: str = ""
    instance: str = ""
    wait: str = ""
    source: str = ""
    id: str = ""


async def workflows(request: Request) -> Response:
    """The workflows of this process, with links to start them."""
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


async def start(request: Request) -> Response:
    """A form made from a workflow's signature, empty or with the input of another instance."""
    query: StartQuery = request.query
    name, catalog = request.path["name"], Catalog(request.app)
    known = catalog.workflows
    definition = known.get(name)
    if definition is None:
        raise UnknownWorkflow(
            f"no workflow named {name!r} is registered in this process; start it from one that has it"
        )
    fields = [] if definition.on_event else fields_of(definition)
    given = await catalog.arguments(definition, query.again) if query.again else None
    if given is not None and not _is_readable(given):
        given = None
    if given is not None:
        fields = [each | ({"default": given[each["name"]]} if each["name"] in given else {}) for each in fields]
    has_newer = any(bare_name(other) == name != other for other in known)
    start_as = f"{name}{SIGN}1" if has_newer else name  # the bare name would start the newest version
    described = {**_described(definition), "start_as": start_as}
    about: dict[str, Any] = {"again": query.again, "is_filled": given is not None}
    return page(request, "start.html", workflow=described, fields=json.dumps(fields), **about)


def _is_readable(given: Mapping[str, Any]) -> bool:
    """Whether a browser can read it as JSON."""
    try:
        json.dumps(given, allow_nan=False)
    except ValueError:
        return False
    return True


async def send(request: Request) -> Response:
    """A form for an event: empty, filled in for a wait or a workflow, or a copy of another event."""
    query: SendQuery = request.query
    catalog = Catalog(request.app)
    model = _started_by(catalog, query.type)
    filled: dict[str, Any] = {"type": query.type, "source": DEFAULT_SOURCE, "subject": "", "to": ""}
    filled["data"] = _text(_fields(model))
    wait = again = None
    if query.instance and query.wait:
        wait, model = await catalog.wait(query.instance, query.wait)
        filled |= {} if wait is None else _filled_for(wait, _fields(model))
    elif query.source and query.id:
        again = await catalog.event(query.source, query.id)
        filled |= {} if again is None else _copied(again)
    types = [group.type for group in await catalog.groups("", 50, 0)]
    has_model = model is not None and again is None
    return page(request, "send.html", filled=filled, wait=wait, again=again, types=types, has_model=has_model)


def _started_by(catalog: Catalog, type: str) -> Codec | None:
    """The model of a workflow that events of this type start."""
    return next((d.event_model for d in catalog.workflows.values() if type and type in (d.on_event or ())), None)


def _fields(model: Codec | None) -> Any:
    """The required fields of a model, empty."""
    return {} if model is None else skeleton(schema_of(model.annotation))


def _text(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2, default=str)


def _filled_for(wait: Wait, data: Any) -> dict[str, Any]:
    """Fields of an event that matches a wait."""
    if wait.where:
        data = (
            dict(cast("dict[str, Any]", data)) if isinstance(data, dict) else {}
        )  # a filter on fields needs an object
        for path, value in wait.where.items():
            _put(data, path.split("."), value)
    named = {"type": wait.types[0] if wait.types else "", "source": wait.source or DEFAULT_SOURCE}
    return {**named, "subject": wait.subject or "", "data": _text(data)}


def _put(data: dict[str, Any], steps: list[str], value: Any) -> None:
    first, *rest = steps
    if not rest:
        data[first] = value
    else:
        inner = data.get(first)
        data[first] = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
        _put(data[first], rest, value)


def _copied(line: EventLine) -> dict[str, Any]:
    event, text = line.shown.event, ""
    if event.data is not None and line.shown.size <= WHOLE and is_json(event.datacontenttype):
        text = json.dumps(showable(event.data)) if is_redacting() else event.data.decode("utf-8", "replace")
    named = {"type": event.type, "source": event.source, "subject": event.subject or "", "to": event.target or ""}
    return {**named, "data": text}
