"""Agents of other frameworks in workflows: restarted in the middle, and replayed under another hash seed.

Their packages take seconds to import, so only the tests do that.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from romancy.testing import dump, environment, replay

ROOT = Path(__file__).parents[2]


async def record(wf: Any) -> tuple[list[str], str]:
    async with environment(workflows=[wf]) as env:
        handle = await env.start(wf)
        await env.restart()
        for n in range(6):
            await env.send_event("go", "test", subject="0", id=f"{n}")
        result: list[str] = await handle.result()
        return result, dump(await env.app.get_history(handle.instance_id))


@pytest.mark.play
async def test_they_run_unpatched_and_replay_alike() -> None:
    from tests.docs.agent_recipes import many_tools, wide_graph

    graph_result, graph_history = await record(wide_graph)
    assert graph_result == [*(f"node {n}" for n in range(8)), "went on", "node 9"]
    tools_result, tools_history = await record(many_tools)
    assert tools_result == [f"number {n}" for n in range(6)]
    histories = {wide_graph.name: graph_history, many_tools.name: tools_history}
    done = await asyncio.to_thread(replay_elsewhere, histories)
    assert done.stdout.split() == ["completed", "completed"], done.stderr


def replay_elsewhere(histories: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.docs.agent_recipes"],
        cwd=ROOT,
        input=json.dumps(histories),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
    )


async def test_the_examples_go_on_after_a_restart() -> None:
    from examples import langgraph_agent, openai_agents

    async with environment(workflows=[*langgraph_agent.WORKFLOWS, *openai_agents.WORKFLOWS]) as env:
        handle = await env.start(langgraph_agent.article, "bees")
        await env.restart()
        env.replace_step("write", lambda: "repeated")
        await env.answer(handle, "ann", {"approved": True})
        assert await handle.result() == "BEES IN BOOKS AND BEES IN PAPERS"
        report = await env.start(openai_agents.report, "weather?")
        assert await report.result() == "Today: sun in Rome"
        assert replay(openai_agents.report, await env.app.get_history(report.instance_id)) == "completed"
