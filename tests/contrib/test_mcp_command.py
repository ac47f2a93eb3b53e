"""`romancy mcp`: real processes over pipes and sockets, also killed ones."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from romancy import WorkflowContext, workflow
from romancy.cli.group import main
from romancy.contrib.mcp import tool
from tests import pg_server
from tests.contrib.mcp_kit import _Claims, call, client, task

SHOP = """
import os
from romancy import App, WorkflowContext, sleep, workflow
from romancy.contrib.mcp import tool

@tool
@workflow
async def add(ctx: WorkflowContext, a: int, b: int = 2) -> int:
    "Add two numbers."
    print("this must not reach the client")
    return a + b

@tool(name="long", description="Takes long.", answer_within=0)
@workflow
async def late(ctx: WorkflowContext) -> str:
    await sleep(ctx, 0.5)
    return "at last"

@workflow
async def other(ctx: WorkflowContext) -> None: ...

app = App("own.db", workflows=[add, late, other])
"""
ROMANCY = [sys.executable, "-m", "romancy", "mcp"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mcp_shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@asynccontextmanager
async def _stdio(folder: Path, *words: str) -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=ROMANCY[0], args=[*ROMANCY[1:], "mcp_shop:app", *words], cwd=folder, env=dict(os.environ)
    )
    with open(folder / "errors", "w") as errors:
        async with Client(stdio_client(command, errlog=errors), extensions=[_Claims()]) as found:
            yield found


async def test_coding_agents_start_it_and_talk_over_pipes(folder: Path) -> None:
    async with _stdio(folder) as found:
        listed = {tool.name: tool.description for tool in (await found.list_tools()).tools}
        assert list(listed) == ["add", "long", "get_result", "cancel"]
        assert (listed["add"], listed["long"]) == ("Add two numbers.", "Takes long.")
        assert (await call(found, "add", {"a": 1})).structured_content == {"result": 3}
        id = (await call(found, "long")).taskId
    assert "must not reach" in (folder / "errors").read_text()
    async with _stdio(folder, "--operations") as found:
        shown = (await call(found, "show_instance", {"instance_id": id})).structured_content
        assert (shown["workflow"], shown["acts"][0]["who"]) == ("late", "mcp")
        assert (await call(found, "replay", {"instance_id": id})).structured_content["follows"]
        await asyncio.sleep(0.6)  # its timer is due; this process runs nothing
        assert (await call(found, "show_instance", {"instance_id": id})).structured_content["finished_at"] is None


def test_a_signal_ends_it_although_the_input_is_open(folder: Path) -> None:
    (folder / "loud.py").write_text("print('begins')\nfrom mcp_shop import *\nprint('has begun', flush=True)\n")
    with subprocess.Popen([*ROMANCY, "loud:app"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}\n')
        process.stdin.flush()
        assert b'"id":1' in process.stdout.readline(), "the first line is the answer, not what the module prints"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


async def _serve(database: list[str]) -> tuple[asyncio.subprocess.Process, str]:
    words = [*ROMANCY, "mcp_shop:app", "--http", "127.0.0.1:0", *database]
    process = await asyncio.create_subprocess_exec(*words, stderr=subprocess.PIPE)
    assert process.stderr
    while line := (await process.stderr.readline()).decode():
        if found := re.search(r"serves (http://\S+)/mcp", line):
            return process, found[1]
    raise AssertionError("it did not start")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.play
async def test_a_server_that_is_killed_loses_no_task(folder: Path, kind: str) -> None:
    async with pg_server.schema() if kind == "postgres" else _nothing() as schema:
        database = ["-d", pg_server.url(), "--schema", schema] if schema else []
        process, url = await _serve(database)
        async with client(f"{url}/mcp", tasks=True) as found:
            id = (await call(found, "long")).taskId
            process.kill()
        await process.wait()
        process, url = await _serve(database)
        async with client(f"{url}/mcp", tasks=True) as found, asyncio.timeout(60):
            while (state := await task(found, "get", id))["status"] == "working":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert state["result"]["structuredContent"] == {"result": "at last"}
        async with client(f"{url}/operations") as found:
            assert len((await call(found, "list_instances")).structured_content["items"]) == 1
        process.terminate()
        assert await process.wait() == 0


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["unmarked.py"], "no workflow in 'unmarked.py' is marked as a tool; put @tool of romancy.contrib.mcp above"),
        (["nowhere:app"], "can't find module 'nowhere'"),
        (["mcp_shop:app", "--http", "x"], "--http takes HOST:PORT"),
        (["mcp_shop:app", "--http", "0.0.0.0:0"], "without tokens, anyone who can reach"),
        (["mcp_shop:app", "--http", "127.0.0.1:0", "--operations"], "--http serves both"),
        (["mcp_shop:app", "--http", "127.0.0.1:0", "--as", "ann"], "--as can't be used with --http"),
        (["mcp_shop:app", "--insecure"], "--insecure requires --http"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, words: list[str], says: str) -> None:
    (folder / "unmarked.py").write_text("from romancy import *\n@workflow\nasync def w(ctx: WorkflowContext): ...\n")
    result = CliRunner().invoke(main, ["mcp", *words], prog_name="romancy")
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert result.stderr.startswith(f"romancy: {says}"), result.stderr
    assert result.stderr.count("\n") == 1


def test_without_the_package_it_says_what_to_install(folder: Path) -> None:
    program = "import sys; sys.modules['mcp'] = None; import romancy.cli; romancy.cli.main()"
    words = [sys.executable, "-c", program, "mcp", "mcp_shop:app"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'romancy: romancy.contrib.mcp needs the package "mcp": pip install "romancy[mcp]"\n'


# --- @tool ------------------------------------------------------------------------------------------------------------
def test_the_mark_changes_nothing_and_is_put_above_workflow() -> None:
    async def plain(ctx: WorkflowContext) -> None: ...

    marked = workflow(plain)
    assert tool(marked) is marked
    assert tool(name="x")(marked) is marked
    with pytest.raises(TypeError, match="put it above @workflow"):
        tool(plain)  # type: ignore[type-var]
    for name in ("a b", "", "x" * 129, "get_result"):
        with pytest.raises(ValueError, match="@tool"):
            tool(name=name)
    with pytest.raises(ValueError, match="answer_within"):
        tool(answer_within=-1)
