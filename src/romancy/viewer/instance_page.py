"""The page of one instance, and the download of its history."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from pydantic import Field

from romancy.acts import Act, to_act
from romancy.core.registry import WorkflowDefinition
from romancy.core.token_usage import total_usage
from romancy.errors import InstanceNotFound
from romancy.http import serialize
from romancy.http.responses import HTTPError, Response, to_json
from romancy.http.routes import Request
from romancy.records import Instance
from romancy.standings import asked_by
from romancy.storage.catalog import MOST_IN_QUEUE, WHOLE
from romancy.viewer.catalog import ENTRIES, Catalog, Detail
from romancy.viewer.forms import source_of
from romancy.viewer.frames import Raised, exceptions_of, line_in, own_files
from romancy.viewer.html import guarded, page
from romancy.viewer.pages import Query

MOST_DOWNLOADED = 50_000
"""Maximum entries of a history that is downloaded as one file."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class InstanceQuery(Query):
    after: int | None = Field(None, ge=0)
    scale: bool = False
    """Draw the timeline to scale."""

    def link(self, **changes: Any) -> str:
        """The query string of this page, with changes."""
        kept = self.model_dump(exclude={"cursor"}) | changes
        if not kept["scale"]:
            del kept["scale"]
        return "?" + urlencode({name: str(value).lower() for name, value in kept.items() if value is not None})


async def instance(request: Request) -> Response:
    """One instance: its state, what it waits for, its timeline and its history."""
    catalog, query = Catalog(request.app), request.query
    detail = await catalog.instance(request.path["instance_id"], query.after, is_squeezed=not query.scale)
    definition = catalog.workflows.get(detail.whole.row.workflow)
    raised = _raised(detail.instance, definition)
    source = None
    if definition is not None:
        locations = [wait.location for wait in detail.instance.waits]
        source = source_of(definition, locations, line_in(raised, definition))
    numbers: dict[str, Any] = {"limit": ENTRIES, "whole": WHOLE, "now": catalog.now, "ahead_cap": MOST_IN_QUEUE}
    keys = {wait.subject or "" for wait in detail.instance.waits if wait.kind == "answer"}
    asked = {key: await asked_by(request.runtime, detail.instance.instance_id, key) for key in sorted(keys)}
    acts = [to_act(row) for row in await request.runtime.engine.storage.acts.of(detail.instance.instance_id)]
    about: dict[str, Any] = {
        "topics": await request.runtime.engine.storage.emissions.topics(detail.instance.instance_id),
        "source": source,
        "raised": raised,
        "query": query,
        "has_code": definition is not None,
        "asked": asked,
        "used": total_usage(entry.result for entry, _ in detail.history),
    }
    return page(
        request,
        "instance.html",
        detail=detail,
        instance=detail.instance,
        acts=acts,
        among=_among(acts, detail),
        **about,
        **numbers,
    )


def _among(acts: Sequence[Act], detail: Detail) -> Mapping[int, Sequence[Act]]:
    """Who did what, by the entry of the shown history that comes next; under 0 what comes after all of them."""
    found: dict[int, list[Act]] = {}
    entries = [entry for entry, _ in detail.history]
    is_first = detail.part.after == detail.part.base
    is_last = detail.part.is_current and detail.part.after + len(entries) == detail.part.end
    began = detail.instance.run_started_at if detail.part.is_current else None
    for act in acts if began is None else [act for act in acts if act.at >= began]:
        following = next((entry for entry in entries if entry.at >= act.at), None)
        is_earlier = following is not None and following is entries[0] and not is_first
        if not is_earlier and (following is not None or is_last):
            found.setdefault(following.n if following else 0, []).append(act)
    return found


def _raised(instance: Instance, definition: WorkflowDefinition | None) -> list[Raised]:
    text: str = instance.error.get("traceback", "") if instance.error else ""
    return exceptions_of(text, own_files(definition) if definition else ()) if text else []


async def history(request: Request) -> Response:
    """The whole history of an instance, as a file."""
    id = request.path["instance_id"]
    whole = await Catalog(request.app).whole(id)
    if whole is None:
        raise InstanceNotFound(instance_id=id)
    length = whole.length - whole.row.base
    if length > MOST_DOWNLOADED:
        text = (
            f"the history has {length:,} entries, and only {MOST_DOWNLOADED:,} can be downloaded; use the API instead"
        )
        raise HTTPError(413, text, kind="TooLarge")
    entries = await request.app.get_history(id)
    body = to_json({"instance_id": id, "entries": list(map(serialize.entry_item, entries))})
    name = _UNSAFE.sub("-", id)[:100].strip("-.") or "instance"
    kept = f'attachment; filename="{name}-history.json"'
    return Response(200, body, guarded(b"application/json", (b"content-disposition", kept.encode())))
