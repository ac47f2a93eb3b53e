"""What the interfaces say of an instance that some builds of the code could not follow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from romancy import App, Client, HTTPOptions, WorkerOptions, WorkflowBlocked, WorkflowContext, wait_event, workflow
from romancy.cli.group import main
from romancy.codecs import Encrypted
from romancy.errors import NonDeterminismError


@workflow
async def wf(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


@pytest.mark.parametrize(
    ("codec", "name", "on_page"),
    [
        (None, "<v7>", "&lt;v7&gt;"),
        (Encrypted({"k2": b"2" * 32}), "<v7> (codec key k2)", "&lt;v7&gt; (codec key k2)"),
    ],
    ids=["plain", "sealed"],
)
async def test_the_interfaces_name_the_builds(tmp_path: Path, codec: Encrypted | None, name: str, on_page: str) -> None:
    database = str(tmp_path / "romancy.db")
    worker = WorkerOptions(build="<v7>")
    async with App(database, workflows=[wf], worker=worker, http=HTTPOptions(open=True), codec=codec) as app:
        await app.start_workflow(wf.options(instance_id="x"))
        while (await app.get_instance("x")).status == "running":  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        engine = app._runtime.engine
        engine.exits.block(engine.residents["x"], NonDeterminismError("it differs"))
        with pytest.raises(WorkflowBlocked):
            await app.handle("x").result(timeout=30)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            page = (await client.get("/viewer/instances/x")).text
            assert f"Could not be followed by build <bdi>{on_page}</bdi>. A worker of another build tries it" in page
            assert (await client.get("/api/instances/x")).json()["builds"] == [name]
        async with Client("http://localhost", transport=transport) as remote:
            assert await remote.get_instance("x") == await app.get_instance("x")
        assert (await app.get_instance("x")).builds == (name,)

    def say(command: str) -> str:
        return CliRunner().invoke(main, [command, "x", "-d", database]).stdout

    text = await asyncio.to_thread(say, "why")
    assert f"it does nothing until a worker has code that follows its history (build {name} could not)\n" in text
    assert (
        "deploy it: a worker of another build tries it by itself; `romancy resume x` lets any worker try at once"
        in text
    )
    assert "and resume it" not in text
    assert f"by build {name}" in await asyncio.to_thread(say, "show")
