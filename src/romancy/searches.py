"""Filters for instances as users give them, checked and turned into a search of the catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from romancy.core.attributes import encode_where
from romancy.core.model import Scalar, Status, to_us
from romancy.errors import InvalidInput
from romancy.records import InstanceFilter
from romancy.storage.batch import STATUS_CODES
from romancy.storage.catalog import Search

FILTERS: tuple[str, ...] = tuple(InstanceFilter.__annotations__)
"""The names of all filters."""
_TEXTS = ("workflow", "text", "error_type", "parent", "queue", "key")


def given(which: InstanceFilter) -> InstanceFilter:
    """Return only the filters that filter. `status` becomes a list."""
    for name in which:
        if name not in FILTERS:
            raise TypeError(f"{name!r} is not a filter for instances; use {', '.join(FILTERS)}")
    found: dict[str, Any] = {name: value for name, value in which.items() if value is not None}
    if "where" in found:
        encode_where(found["where"])  # refuses what no attribute can be
    if "status" in found:
        found["status"] = _statuses(found["status"])
    for name in _TEXTS:
        if not isinstance(found.get(name, ""), str):
            raise InvalidInput(f"{name} must be a string, got {found[name]!r}")
    return cast("InstanceFilter", {name: value for name, value in found.items() if _filters(name, value)})


def _filters(name: str, value: object) -> bool:
    """Whether a filter leaves anything out: every instance contains the empty text."""
    return value not in ([], {}) and (name, value) != ("text", "")


def some(which: InstanceFilter, verb: str) -> InstanceFilter:
    """Return the filters given. Raise `ValueError` if there are none: nothing happens to all instances by mistake."""
    found = given(which)
    if not found:
        raise InvalidInput(f"{verb} needs at least one filter: {', '.join(FILTERS)}; e.g. workflow='order'")
    return found


def to_search(which: InstanceFilter) -> Search:
    """Return the search for the instances that match. Both times are excluded."""
    found = cast("Mapping[str, Any]", given(which))
    after, before = _moment(found.get("started_after")), _moment(found.get("started_before"))
    return Search(
        status=found.get("status", ()),
        workflow=found.get("workflow"),
        text=found.get("text"),
        started_after=after,
        started_before=None if before is None else before - 1,
        error_type=found.get("error_type"),
        parent=found.get("parent"),
        queue=found.get("queue"),
        key=found.get("key"),
        where=found.get("where", {}) and encode_where(found["where"]),
    )


def to_json(which: InstanceFilter) -> dict[str, Any]:
    """Return the filters given as JSON values, for a server."""
    to_search(which)  # refuses now what the server would refuse
    found = cast("dict[str, Any]", given(which))
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()}


def to_query(which: InstanceFilter) -> dict[str, Any]:
    """Return the filters given as query parameters: `where.tier="gold"`."""
    found = to_json(which)
    where: Mapping[str, Scalar] = found.pop("where", {})
    return {**found, **{f"where.{name}": json.dumps(value) for name, value in where.items()}}


def _statuses(status: Any) -> list[Status]:
    names = cast("list[Status]", [status] if isinstance(status, str) else list(status))
    for name in names:
        if name not in STATUS_CODES:
            raise InvalidInput(f"unknown status {name!r}; use one of {', '.join(STATUS_CODES)}")
    return names


def _moment(moment: datetime | None) -> int | None:
    return None if moment is None else to_us(moment)
