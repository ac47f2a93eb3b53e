"""Queues over HTTP, through the client, through blocking code, and on the command line."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from romancy import (
    App,
    Client,
    HooksBase,
    HTTPOptions,
    InvalidInput,
    Queue,
    QueueFull,
    Schedule,
    StorageError,
    WorkflowContext,
    WorkflowStartedInfo,
    sync,
    wait_event,
    workflow,
)
from romancy.cli.group import main
from romancy.hooks import WorkflowAdmittedInfo
from romancy.service import runtime_of
from romancy.testing import environment
from tests.http.conftest import Live
from tests.viewer.test_catalog import until

narrow = Queue("narrow", max_concurrent=1, max_waiting=2)


@workflow(queue=narrow, key="customer")
async def job(ctx: WorkflowContext, customer: str) -> str:
    await wait_event(ctx, "go")
    return customer


@workflow
async def plain(ctx: WorkflowContext) -> None: ...


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[App, Client, httpx2.AsyncClient]]:
    async with App(":memory:", workflows=[job, plain], http=HTTPOptions(open=True)) as app:
        transport = httpx2.ASGITransport(app)
        async with (
            Client("http://localhost", transport=transport, retry_for=0) as client,
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as raw,
        ):
            await client.start_workflow(job.options(instance_id="j0"), "a")
            await until(app, "j0", "waiting_for_event")
            yield app, client, raw


async def test_a_schedule_with_a_key_and_a_priority() -> None:
    async with serving() as (app, client, raw):
        await client.set_schedule("s", "@yearly", job.options(key="vip", priority=7), "b")
        handle = await client.trigger_schedule("s")
        found = await client.get_instance(handle.instance_id)
        assert (found.status, found.queue, found.key, found.priority) == ("queued", "narrow", "vip", 7)
        await client.set_schedule("s", "@yearly", job, "b")  # the same name again changes it
        found = await app.get_instance((await client.trigger_schedule("s")).instance_id)
        assert (found.queue, found.key, found.priority) == ("narrow", "b", 0)
        refused = await raw.post("/api/schedules/s/set", json={"workflow": "plain", "cron": "@yearly", "key": "vip"})
        assert refused.status_code == 400
        assert "with a queue" in refused.text


async def test_a_start_with_a_key_and_a_priority() -> None:
    async with serving() as (_, client, raw):
        await client.start_workflow(job.options(instance_id="j1", key="vip", priority=7), "b")
        found = await client.get_instance("j1")
        assert (found.status, found.queue, found.key, found.priority) == ("queued", "narrow", "vip", 7)
        assert [(wait.kind, wait.wait_id) for wait in found.waits] == [("queue", "narrow")]
        assert [item.instance_id for item in (await client.list_instances(queue="narrow", key="vip")).items] == ["j1"]
        assert await client.count_instances(queue="narrow", key="a") == 1
        [queue] = await client.list_queues()
        assert (queue.name, queue.running, queue.waiting, queue.oldest_at) == ("narrow", 1, 1, found.started_at)
        assert (await raw.get("/api/queues")).json()["items"][0]["name"] == "narrow"
        answer = await raw.post("/api/workflows/plain/start", json={"key": "x"})
        assert answer.status_code == 400
        assert "queue" in answer.json()["error"]
        with pytest.raises(InvalidInput):
            await client.start_workflow(job.options(key="\n"), "b")


async def test_a_full_queue_is_429() -> None:
    async with serving() as (_, client, raw):
        for n in (1, 2):
            await client.start_workflow(job.options(instance_id=f"j{n}"), "b")
        answer = await raw.post("/api/workflows/job/start", json={"args": ["c"]})
        assert (answer.status_code, answer.json()["error_type"], answer.json()["queue"]) == (429, "QueueFull", "narrow")
        assert answer.headers["retry-after"]
        with pytest.raises(QueueFull, match="'narrow' is full") as refused:
            await client.start_workflow(job, "c")
        assert refused.value.queue == "narrow"


def test_blocking_code_sees_queues(tmp_path: Path) -> None:
    with sync.App(str(tmp_path / "romancy.db"), workflows=[job]) as app:
        app.start_workflow(job, "a")
        [queue] = app.list_queues()
        assert (queue.name, queue.running + queue.waiting) == ("narrow", 1)


async def test_who_is_refused_by_a_full_queue(tmp_path: Path) -> None:
    """Calls that hear of it. Transactions of callers have committed, and schedules have nobody to tell."""
    narrow = Queue("narrow", max_concurrent=1, max_waiting=1)

    @workflow(queue=narrow)
    async def few(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")

    database = str(tmp_path / "romancy.db")
    async with App(database, workflows=[few], worker=False) as app:
        await app.start_workflow(few)  # for the free slot
        await app.start_workflow(few)
        with pytest.raises(QueueFull, match="is full: 1 instance waits "):
            await app.start_workflow(few)
        connection = sqlite3.connect(database, isolation_level=None)
        connection.execute("BEGIN")
        await app.within(connection).start_workflow(few, instance_id="within")
        connection.execute("COMMIT")
        connection.close()
        await app.set_schedule("s", Schedule(every=3600), few)
        await app.trigger_schedule("s")
        await runtime_of(app).engine.take_in()  # as a worker does
        assert await app.count_instances(status="queued") == 4


async def three_jobs(database: str) -> None:
    async with environment(database=database, workflows=[job]) as env:
        for n in range(3):
            await env.app.start_workflow(job.options(instance_id=f"j{n}"), "c-7")
            await env.settle()


def test_a_start_on_the_command_line_with_a_key_and_a_priority(tmp_path: Path) -> None:
    database, runner = str(tmp_path / "romancy.db"), CliRunner()
    place = ["--key", "vip", "--priority", "-7", "-d", database]
    module = ["--module", "tests.http.test_queues"]
    started = runner.invoke(main, ["start", "job", "a", "--id", "j1", *place, *module])
    assert started.exit_code == 0, started.output
    [found] = json.loads(runner.invoke(main, ["list", "-d", database, "--json"]).output)["items"]
    assert (found["status"], found["queue"], found["key"], found["priority"]) == ("queued", "narrow", "vip", -7)
    refused = runner.invoke(main, ["start", "job", "a", *place])
    assert (refused.exit_code, "pass --module" in refused.output) == (2, True)
    refused = runner.invoke(main, ["start", "plain", *place, *module])
    assert (refused.exit_code, "has no queue" in refused.output) == (2, True)
    refused = runner.invoke(main, ["start", "job", "a", "--key", "x" * 300, "-d", database, *module])
    assert (refused.exit_code, "255" in refused.output) == (2, True)


def test_a_start_on_a_server_from_the_command_line(serve: Callable[..., Live]) -> None:
    live, runner = serve(workflows=[job, plain]), CliRunner()
    for id, more in (("j0", []), ("j1", ["--key", "vip", "--priority", "7"])):
        started = runner.invoke(main, ["start", "job", "a", "--id", id, *more, "--url", live.url])
        assert (started.exit_code, started.output) == (0, f"{id}\n")
        live.until(id, "queued" if more else "waiting_for_event")
    found = live.client.get("/api/instances/j1").json()
    assert (found["key"], found["priority"]) == ("vip", 7)
    again = runner.invoke(main, ["start", "job", "a", "--id", "j1", "--key", "vip", "--url", live.url])
    assert again.output == "j1 (already exists)\n"
    refused = runner.invoke(main, ["start", "plain", "--key", "vip", "--url", live.url])
    assert (refused.exit_code, "with a queue" in refused.output) == (2, True)
    metrics = live.client.get("/metrics").text
    assert 'romancy_queue_running{queue="narrow"} 1.0' in metrics
    assert 'romancy_queue_waiting{queue="narrow"} 1.0' in metrics
    assert 'romancy_instances_admitted_total{queue="narrow"} 1.0' in metrics


def test_metrics_of_a_queue_that_left_the_code(
    tmp_path: Path, serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = str(tmp_path / "romancy.db")
    asyncio.run(three_jobs(database))
    monkeypatch.setattr("tests.http.conftest.App", lambda _, **options: App(database, **options))
    metrics = serve(workflows=[plain]).client.get("/metrics").text
    assert 'romancy_queue_waiting{queue="narrow"} 2.0' in metrics


async def test_all_of_many_queues_are_listed(tmp_path: Path) -> None:
    """A page has up to 1,000."""

    async def work(ctx: WorkflowContext) -> None: ...

    names = [f"q{n:04}" for n in range(1001)]
    many = [workflow(work, name=name, queue=Queue(name, max_concurrent=1)) for name in names]
    app = App(str(tmp_path / "romancy.db"), workflows=many, http=HTTPOptions(open=True))
    async with app:
        assert [queue.name for queue in await app.list_queues()] == names
        async with (
            Client("http://localhost", transport=httpx2.ASGITransport(app)) as client,
            httpx2.AsyncClient(base_url="http://localhost", transport=httpx2.ASGITransport(app)) as raw,
        ):
            assert [queue.name for queue in await client.list_queues()] == names
            first = (await raw.get("/api/queues?limit=2")).json()
            assert [item["name"] for item in first["items"]] == names[:2]
            second = (await raw.get(f"/api/queues?limit=2&cursor={first['cursor']}")).json()
            assert [item["name"] for item in second["items"]] == names[2:4]
            last = (await raw.get("/api/queues?limit=1000&cursor=" + first["cursor"])).json()
            assert (len(last["items"]), last["cursor"]) == (999, None)


def test_metrics_without_the_database(serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch) -> None:
    live = serve(workflows=[job])

    async def fail(_: object) -> list[object]:
        raise StorageError("no disk")

    monkeypatch.setattr("romancy.service.Service.list_queues", fail)
    answer = live.client.get("/metrics")
    assert answer.status_code == 200
    assert "romancy_commit_queue" in answer.text
    assert "romancy_queue_running{" not in answer.text


def test_top_shows_queues(tmp_path: Path) -> None:
    database, runner = str(tmp_path / "romancy.db"), CliRunner()
    asyncio.run(three_jobs(database))
    shown = runner.invoke(main, ["top", "--once", "-d", database]).output
    assert re.search(r"queue +running +waiting +oldest\nnarrow +1 +2 ", shown)
    [queue] = json.loads(runner.invoke(main, ["top", "--json", "-d", database]).output)["queues"]
    assert (queue["name"], queue["running"], queue["waiting"]) == ("narrow", 1, 2)


async def test_a_hook_hears_of_admissions() -> None:
    class Hears(HooksBase):
        def __init__(self) -> None:
            self.heard: list[tuple[str, ...]] = []

        def on_workflow_admitted(self, info: WorkflowAdmittedInfo) -> None:
            assert info.at.tzinfo is not None
            self.heard.append(("admitted", info.instance_id, info.workflow, info.queue))

        def on_workflow_started(self, info: WorkflowStartedInfo) -> None:
            self.heard.append(("started", info.instance_id))

    hooks = Hears()
    async with environment(workflows=[job], hooks=hooks) as env:
        for n in range(2):
            await env.app.start_workflow(job.options(instance_id=f"j{n}"), "c-7")
        await env.settle()
        assert hooks.heard == [("admitted", "j0", "job", "narrow"), ("started", "j0")]
        await env.send_event("go", "test")
        await env.settle()
        assert hooks.heard[2:] == [("admitted", "j1", "job", "narrow"), ("started", "j1")]


def test_the_command_line_says_behind_how_many(tmp_path: Path) -> None:
    database = str(tmp_path / "romancy.db")
    asyncio.run(three_jobs(database))
    runner = CliRunner()
    listed = runner.invoke(main, ["queues", "-d", database, "--json"])
    assert [(q["name"], q["running"], q["waiting"]) for q in json.loads(listed.output)["items"]] == [("narrow", 1, 2)]
    assert "narrow" in runner.invoke(main, ["queues", "-d", database]).output
    said = runner.invoke(main, ["why", "j2", "-d", database]).output
    assert "queued behind 1 other of key c-7 in queue narrow" in said
    assert "the next one of key c-7" in runner.invoke(main, ["why", "j1", "-d", database]).output
    assert "j2" in runner.invoke(main, ["list", "-d", database, "--queue", "narrow", "--status", "queued"]).output
