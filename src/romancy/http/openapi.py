"""The OpenAPI description of the routes, made from the same declarations that serve them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import TypeAdapter

from romancy.http import schemas
from romancy.http.responses import RETRYABLE
from romancy.http.routes import Route

_REF = "#/components/schemas/{model}"
_ALWAYS = (400, 405, 431, 500, 503)
_GUARDED = (401, 403)
_WITH_BODY = (408, 413, 415, 429)
_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "token_in_url": {"type": "apiKey", "in": "query", "name": "access_token"},
}
_DESCRIPTIONS = {
    200: "OK.",
    201: "Started.",
    202: "Stored.",
    204: "Stored.",
    400: "The request is invalid.",
    401: "A valid token is required.",
    403: "The token lacks the scope. Without tokens: the request is from another machine or another site's web page.",
    404: "The instance or schedule does not exist.",
    405: "The method is not allowed.",
    408: "The body took too long to arrive.",
    409: "The state of the instance does not allow this.",
    413: "The body is too large.",
    415: "The format of the body is not supported.",
    429: "Too much is waiting to be stored, or a quota is used up.",
    431: "The headers are too large.",
    500: "An unexpected error.",
    503: "The database, the app or the server is temporarily unavailable.",
}
_SERVER_SENT = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}


def describe(routes: Sequence[Route], version: str, *, has_tokens: bool = False) -> dict[str, Any]:
    """The OpenAPI document. `has_tokens`: whether the app requires tokens."""
    types = [schemas.Error, *(t for route in routes for t in _types(route))]
    unique = list({id(t): t for t in types}.values())
    known, definitions = TypeAdapter.json_schemas(
        [(id(t), "serialization", TypeAdapter[Any](t)) for t in unique], ref_template=_REF
    )
    found = {key: schema for (key, _), schema in known.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, found, has_tokens)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Romancy", "version": version, "description": "Send events; read and control instances."},
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": _SCHEMES if has_tokens else {},
        },
    }


def _types(route: Route) -> Iterable[Any]:
    yield from (t for t in route.answers.values() if t is not None)
    yield from route.contents.values()
    if route.body is not None:
        yield route.body


def _operation(route: Route, found: dict[int, Any], has_tokens: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": _responses(route, found),
    }
    contents = route.contents or ({} if route.body is None else {"application/json": route.body})
    if contents:
        content = {kind: {"schema": found[id(t)]} for kind, t in contents.items()}
        operation["requestBody"] = {"required": bool(route.contents), "content": content}
    details = [route.details]
    if route.scope is not None and has_tokens:
        operation["security"] = [{"token": []}, *([{"token_in_url": []}] if route.path == "/" else [])]
        details.append(f"Requires a token with the scope `{route.scope}`.")
    if any(details):
        operation["description"] = " ".join(filter(None, details))
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", route.path)
    text = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": text} for name in names]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    properties: dict[str, dict[str, Any]] = route.query.model_json_schema()["properties"] if _has_any(route) else {}
    return [
        {"name": name, "in": "query", "description": schema.pop("description", ""), **_style(_one(schema))}
        for name, schema in properties.items()
    ]


def _style(schema: dict[str, Any]) -> dict[str, Any]:
    """Objects are written as `where[name]=value`."""
    is_object = schema.get("type") == "object"
    return {"schema": schema, **({"style": "deepObject", "explode": True} if is_object else {})}


def _has_any(route: Route) -> bool:
    return route.query is not None and bool(route.query.model_fields)


def _one(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from the choices: a query parameter is left out instead."""
    choices = [choice for choice in schema.pop("anyOf", []) if choice != {"type": "null"}]
    if choices:
        schema.pop("default", None)
    return {**schema, **(choices[0] if choices else {})}


def _responses(route: Route, found: dict[int, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in route.answers.items():
        responses[str(status)] = {"description": _DESCRIPTIONS[status]}
        if answer is not None:
            kind = "text/plain" if answer is str else "application/json"
            responses[str(status)]["content"] = {kind: {"schema": found[id(answer)]}}
            if route.is_stream:
                responses[str(status)]["content"]["text/event-stream"] = {"schema": _SERVER_SENT}
    error = {"application/json": {"schema": found[id(schemas.Error)]}}
    takes_body = bool(route.contents) or route.body is not None
    guarded = _GUARDED if route.scope is not None else ()
    for status in sorted({*_ALWAYS, *guarded, *(_WITH_BODY if takes_body else ()), *route.errors}):
        responses[str(status)] = {"description": _DESCRIPTIONS[status], "content": error}
        if status in RETRYABLE:
            seconds = {"description": "Seconds to wait.", "required": True, "schema": {"type": "integer"}}
            responses[str(status)]["headers"] = {"Retry-After": seconds}
    return responses
