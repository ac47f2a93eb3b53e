"""Who may use the MCP servers, what is refused, and where they can be mounted."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from romancy import App, HTTPOptions, WorkflowContext, workflow
from romancy.contrib.mcp import operations, tools
from tests.contrib.mcp_kit import call, client, served

CONTROL, READ = "bot=control:SECRET-OF-BOT-0123456789", "eve=read,events:SECRET-OF-EVE-0123456789"
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@workflow
async def add(ctx: WorkflowContext, a: int, b: int = 2) -> int:
    return a + b


async def _post(asgi: Any, body: Any = None, path: str = "/mcp", peer: str = "127.0.0.1", **headers: str) -> Any:
    transport = httpx2.ASGITransport(asgi, client=(peer, 1))
    raw = body if isinstance(body, bytes) else json.dumps(LIST if body is None else body).encode()
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        return await http.post(path, content=raw, headers={**ACCEPT, **headers})


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token.rpartition(':')[2]}"}


async def test_tokens_need_the_scope_and_their_name_is_recorded() -> None:
    app = App(":memory:", workflows=[add], tokens=[CONTROL, READ])
    async with app:
        write, look = tools(app, [add]), operations(app)
        for face, right, wrong in ((write, CONTROL, READ), (look, READ, CONTROL)):
            assert (await _post(face)).status_code == 401
            assert (await _post(face, **_bearer("nope"))).status_code == 401
            refused = await _post(face, **_bearer(wrong))
            assert refused.status_code == 403
            assert "does not have the scope" in refused.json()["error"]
            assert (await _post(face, **_bearer(right))).status_code == 200
        request = {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}
        answer = await _post(write, {**LIST, **request}, **_bearer(CONTROL))
        assert answer.json()["result"]["structuredContent"] == {"result": 3}
        (one,) = (await app.list_instances()).items
        assert [(act.verb, act.who) for act in (await app.get_instance(one.instance_id)).acts] == [("start", "bot")]


async def test_without_tokens_only_this_machine_and_no_pages_of_other_sites() -> None:
    app = App(":memory:", workflows=[add])
    async with app:
        for face in (tools(app, [add]), operations(app)):
            assert (await _post(face)).status_code == 200
            assert (await _post(face, peer="10.0.0.7")).status_code == 403
            assert (await _post(face, **{"x-forwarded-for": "10.0.0.7"})).status_code == 403
            assert (await _post(face, origin="https://evil.example")).status_code == 403
            assert (await _post(face, host="rebound.example")).status_code == 403


async def test_garbage_is_refused_and_harms_nothing() -> None:
    app = App(":memory:", workflows=[add], http=HTTPOptions(max_body=10_000))
    async with app:
        face = tools(app, [add])
        statuses = [
            (await _post(face, b"{")).status_code,
            (await _post(face, b"\xff\xfe")).status_code,
            (await _post(face, [])).status_code,
            (await _post(face, {"jsonrpc": "2.0", "id": 1})).status_code,
            (await _post(face, b"x" * 20_000)).status_code,
            (await _post(face, path="/.well-known/oauth-protected-resource")).status_code,
        ]
        assert statuses[4:] == [413, 404]
        assert all(status == 400 for status in statuses[:4]), statuses
        for arguments in ({"a": "x"}, {"a": None}, {}, {"a": 1, "c": 2}, {"a": 1.5}, {"a": [[]]}, {"instance_id": "x"}):
            body = {**LIST, "method": "tools/call", "params": {"name": "add", "arguments": arguments}}
            result = (await _post(face, body)).json()["result"]
            assert result["isError"], arguments
            assert "Traceback" not in str(result)
        assert await app.count_instances() == 0
        assert (await _post(face)).status_code == 200


@pytest.mark.parametrize("kind", ["starlette", "fastapi"])
async def test_mounted_beside_other_pages(kind: str) -> None:
    app = App(":memory:", workflows=[add])
    if kind == "starlette":
        mounts = [Mount("/mcp", tools(app, [add])), Mount("/operations", operations(app))]
        site: Any = Starlette(routes=mounts, lifespan=app.lifespan)
    else:
        site = FastAPI(lifespan=app.lifespan)
        site.mount("/mcp", tools(app, [add]))
        site.mount("/operations", operations(app))
    async with served(site) as url:
        async with client(f"{url}/mcp") as found:  # redirected to /mcp/
            assert (await call(found, "add", {"a": 1})).structured_content == {"result": 3}
        async with client(f"{url}/operations/", mode="legacy") as found:
            assert len((await call(found, "list_instances")).structured_content["items"]) == 1
    assert not app.is_running


async def test_an_app_that_does_not_run_says_so() -> None:
    app = App(":memory:", workflows=[add])
    async with client(tools(app, [add]).server) as found:
        refused = await call(found, "add", {"a": 1})
        assert refused.is_error
        assert refused.structured_content["error_type"] == "AppNotRunning"


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_no_stream_is_held_open_in_which_nothing_would_come(version: str) -> None:
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version}
    async with served(tools(App(":memory:", workflows=[add]), [add])) as url, httpx2.AsyncClient(timeout=3) as http:
        for method in ("GET", "DELETE"):
            answer = await http.request(method, f"{url}/mcp", headers=headers)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
