"""Schedules over HTTP and with the clients."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from romancy import Client, InvalidInput, Schedule, ScheduleNotFound, WorkflowContext, workflow
from romancy.sync import Client as SyncClient
from tests.http.conftest import Live, Order, assert_error, buy, nap
from tests.http.flaky import LOST, proxy

DAILY = {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "workflow": "buy", "args": [{"sku": "tea"}]}


def test_the_life_of_a_schedule(live: Live) -> None:
    http = live.client
    assert http.get("/api/schedules").json() == {"items": []}
    set_ = http.post("/api/schedules/morning%2Ftea/set", json=DAILY)
    assert set_.status_code == 200, set_.text
    item = set_.json()
    assert (item["name"], item["workflow"], item["cron"], item["is_paused"]) == (
        "morning/tea",
        "buy",
        DAILY["cron"],
        False,
    )
    assert http.get("/api/schedules").json() == {"items": [item]}
    assert http.post("/api/schedules/morning%2Ftea/pause").json()["is_paused"] is True
    assert http.post("/api/schedules/morning%2Ftea/resume").json()["is_paused"] is False
    started = http.post("/api/schedules/morning%2Ftea/trigger", json={})
    assert started.status_code == 201
    id = started.json()["instance_id"]
    path = f"/api/instances/{id.replace('/', '%2F')}"
    assert http.get(f"{path}/result?timeout=10").json()["output"] == "1 tea"
    assert http.get(path).json()["schedule"] == "morning/tea"
    assert http.post("/api/schedules/morning%2Ftea/delete").json() == {"name": "morning/tea"}
    assert http.get("/api/schedules").json() == {"items": []}


def test_what_is_refused(live: Live) -> None:
    http = live.client
    for verb in ("pause", "resume", "trigger"):
        assert_error(http.post(f"/api/schedules/nothing/{verb}", json={}), 404, "ScheduleNotFound")
    assert_error(http.post("/api/schedules/nothing/delete"), 404, "ScheduleNotFound")
    for wrong in (
        {"cron": "nonsense", "workflow": "buy"},
        {"cron": "@daily", "every": 5, "workflow": "nap"},
        {"workflow": "nap"},
        {"every": 60, "timezone": "Europe/Berlin", "workflow": "nap"},
        {"cron": "@daily", "timezone": "Moon/Sea", "workflow": "nap"},
        {"cron": "@daily", "workflow": "buy"},  # an argument is missing
        {"cron": "@daily", "workflow": "placed"},  # started by events
        {"cron": "@daily", "workflow": "nap", "overlap": "perhaps"},
        {"cron": "@daily", "workflow": "nap", "starts_at": "2027-01-02T00:00:00Z", "ends_at": "2027-01-01T00:00:00Z"},
    ):
        assert_error(http.post("/api/schedules/s/set", json=wrong), 400, "InvalidInput")
    assert http.get("/api/schedules").json() == {"items": []}


def test_an_unknown_workflow_can_be_scheduled(live: Live) -> None:
    body = {"every": 3600, "workflow": "elsewhere", "kwargs": {"region": "eu"}}
    assert live.client.post("/api/schedules/s/set", json=body).json()["workflow"] == "elsewhere"


def test_the_blocking_client_has_the_same_verbs(live: Live) -> None:
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    with SyncClient(live.url) as client:
        client.set_schedule(
            "s", Schedule(every=3600, spread=60, overlap="queue", starts_at=begin), buy, Order("tea", 2)
        )
        [found] = client.list_schedules()
        assert (found.name, found.every, found.next_at, found.is_declared) == ("s", 3600.0, begin, False)
        client.pause_schedule("s")
        assert client.list_schedules()[0].is_paused
        client.resume_schedule("s")
        assert client.trigger_schedule("s").result(10) == "2 tea"
        assert client.list_schedules()[0].started == 1
        client.delete_schedule("s")
        for verb in ("pause_schedule", "resume_schedule", "trigger_schedule", "delete_schedule"):
            with pytest.raises(ScheduleNotFound) as raised:
                getattr(client, verb)("s")
            assert raised.value.name == "s"
        with pytest.raises(InvalidInput, match="200 printable"):
            client.set_schedule("x" * 300, "@daily", nap)


async def test_a_lost_answer_starts_nothing_twice(live: Live) -> None:
    async with Client(live.url) as client:
        await client.set_schedule("s", "@daily", nap)
    with proxy(live.url, LOST) as between:
        async with Client(between.url) as client:
            handle = await client.trigger_schedule("s")
            assert await handle.status() in ("running", "waiting_for_timer")
            assert [record.started for record in await client.list_schedules()] == [1]
    with proxy(live.url, LOST) as between:
        async with Client(between.url) as client:
            await client.delete_schedule("s")


def test_a_declared_schedule_is_changed_in_code(serve: Any) -> None:
    @workflow(schedule="@daily")
    async def daily(ctx: WorkflowContext) -> None: ...

    live = serve(workflows=[daily])
    assert live.client.get("/api/schedules").json()["items"]
    assert_error(
        live.client.post("/api/schedules/daily/set", json={"every": 5, "workflow": "daily"}), 400, "InvalidInput"
    )
    assert_error(live.client.post("/api/schedules/daily/delete"), 400, "InvalidInput")


def test_the_options_of_a_schedule_are_shown(live: Live) -> None:
    http = live.client
    plain = http.post("/api/schedules/plain/set", json={"cron": "@daily", "workflow": "nap"}).json()
    assert (plain["overlap"], plain["catch_up"], plain["spread"]) == ("skip", "one", 0)
    assert plain["due_at"] == plain["next_at"]
    given = {"overlap": "queue", "catch_up": "all", "spread": 600}
    item = http.post("/api/schedules/spread/set", json={"every": 3600, "workflow": "nap", **given}).json()
    assert {name: item[name] for name in given} == given
    assert item["next_at"] < item["due_at"]
    with SyncClient(live.url) as client:
        record = next(record for record in client.list_schedules() if record.name == "spread")
    assert (record.overlap, record.catch_up, record.spread) == ("queue", "all", 600.0)
    assert record.next_at is not None
    assert record.due_at is not None
    assert 0 < (record.due_at - record.next_at).total_seconds() <= 600
