"""Many instances at once, over HTTP and with the clients."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from romancy import BulkResult, Client
from romancy import bulk as bulk_module
from romancy.http import control
from romancy.sync import Client as SyncClient
from tests.http.conftest import Live, assert_error


def sleeping(live: Live, n: int) -> list[str]:
    ids = [live.start("nap", id=f"n{i}") for i in range(n)]
    for id in ids:
        live.until(id, "waiting_for_timer")
    return ids


def post(live: Live, verb: str, **body: Any) -> Any:
    answer = live.client.post(f"/api/instances/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_preview_changes_nothing(live: Live) -> None:
    sleeping(live, 3)
    live.start("fails", id="f")
    live.until("f", "failed")
    moment = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    preview = post(live, "cancel", started_after=moment, dry_run=True)
    assert preview == {"matched": 4, "changed": 3, "errors": {}, "cursor": None}
    assert live.client.get("/api/instance-count?status=waiting_for_timer").json() == {"count": 3}
    assert post(live, "cancel", started_after=moment, reason="no") == preview
    for n in range(3):
        live.until(f"n{n}", "cancelled")
    assert "no" in live.client.get("/api/instances/n0").json()["error"]["message"]


def test_a_request_does_a_part_and_says_where_to_go_on(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_module, "PAGE", 2)
    monkeypatch.setattr(control, "_PARTS", 1)
    sleeping(live, 5)
    first = post(live, "cancel", workflow="nap")
    assert (first["matched"], first["changed"]) == (2, 2)
    second = post(live, "cancel", workflow="nap", cursor=first["cursor"])
    third = post(live, "cancel", workflow="nap", cursor=second["cursor"])
    assert (third["matched"], third["changed"], third["cursor"]) == (1, 1, None)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "needs at least one filter"),
        ({"limit": 3, "dry_run": True}, "needs at least one filter"),
        ({"workfow": "nap"}, "workfow"),
        ({"status": ["done"]}, "status"),
        ({"workflow": "nap", "limit": 0}, "limit"),
        ({"workflow": "nap", "cursor": "zz"}, "is not a cursor"),
        ({"started_before": "2026-01-01T00:00:00"}, "started_before"),
    ],
    ids=str,
)
def test_a_wrong_request_changes_nothing(live: Live, body: Any, words: str) -> None:
    for verb in ("cancel", "resume"):
        found = assert_error(live.client.post(f"/api/instances/{verb}", json=body), 400)
        assert words in found["error"]


def test_the_scope_control_is_needed(serve: Callable[..., Live]) -> None:
    live = serve(tokens=["read:LOOK"])
    headers = {"authorization": "Bearer LOOK"}
    body = {"workflow": "nap", "dry_run": True}
    assert_error(live.client.post("/api/instances/cancel", json=body, headers=headers), 403)
    assert live.client.get("/api/instance-count", headers=headers).json() == {"count": 0}


def test_an_instance_can_have_the_name_of_a_verb(live: Live) -> None:
    live.start("nap", id="cancel")
    live.until("cancel", "waiting_for_timer")
    assert live.client.get("/api/instances/cancel").json()["instance_id"] == "cancel"


async def test_the_client_adds_up_the_parts(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_module, "PAGE", 2)
    monkeypatch.setattr(control, "_PARTS", 1)
    sleeping(live, 7)
    later = datetime.now(UTC) + timedelta(hours=1)
    async with Client(live.url) as client:
        assert await client.count_instances(workflow="nap", started_before=later) == 7
        assert await client.cancel_workflows(workflow="nap", limit=3, reason="x") == BulkResult(3, 3, {})
        for n in (4, 5, 6):
            live.until(f"n{n}", "cancelled")
        assert await client.cancel_workflows(workflow="nap") == BulkResult(7, 4, {})
        assert await client.resume_workflows(status=["blocked", "failed"]) == BulkResult(0, 0, {})
        assert await client.count_instances() == 7
        page = await client.list_instances(error_type="CancelledError", parent=None, started_before=later)
        assert page == live.on_loop(lambda: live.app.list_instances(error_type="CancelledError"))


async def test_the_client_refuses_what_the_app_refuses(live: Live) -> None:
    which: Any = {"workfow": "nap"}
    wrong: Any = 1.5
    async with Client(live.url) as client:
        with pytest.raises(ValueError, match="needs at least one filter"):
            await client.cancel_workflows(reason="x")
        with pytest.raises(ValueError, match="needs at least one filter"):
            await client.resume_workflows(limit=3)
        with pytest.raises(TypeError, match="'workfow' is not a filter"):
            await client.count_instances(**which)
        with pytest.raises(ValueError, match="limit must be"):
            await client.resume_workflows(workflow="nap", limit=wrong)


def test_the_blocking_client(live: Live) -> None:
    sleeping(live, 2)
    with SyncClient(live.url) as client:
        assert client.count_instances(workflow="nap") == 2
        assert client.cancel_workflows(workflow="nap", limit=1) == BulkResult(1, 1, {})
        assert client.resume_workflows(workflow="nap") == BulkResult(2, 0, {})
