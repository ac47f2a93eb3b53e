"""Tokens in recorded results: which count, how they add up, how they are written, and where people see them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from romancy import App, HTTPOptions, WorkflowContext, step, workflow
from romancy.cli.group import main
from romancy.core.token_usage import total_usage, usage_of


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"usage": {"input_tokens": 1200, "output_tokens": 30}}, "1,200 tokens in, 30 out"),
        ({"usage": {"input_tokens": 0, "output_tokens": 0, "cost": "0.0027"}}, "0 tokens in, 0 out, $0.0027"),
        ({"usage": {"input_tokens": 1, "output_tokens": 2, "cost": 12.346}}, "1 tokens in, 2 out, $12.35"),
        ({"usage": {"input_tokens": 1, "output_tokens": 2, "cost": 0.0000123}}, "1 tokens in, 2 out, $0.000012"),
        ({"usage": {"input_tokens": 1, "output_tokens": 2, "cost": "free"}}, "1 tokens in, 2 out"),
        ({"usage": {"input_tokens": 1, "output_tokens": 2, "cost": "nan"}}, "1 tokens in, 2 out"),
        ({"usage_metadata": {"input_tokens": 1, "output_tokens": 2}}, "1 tokens in, 2 out"),
        ({"response": {"usage": {"input_tokens": 1, "output_tokens": 2}}}, "1 tokens in, 2 out"),
        ({"usage": {"input_tokens": True, "output_tokens": 2}}, None),
        ({"usage": {"input_tokens": -1, "output_tokens": 2}}, None),
        ({"usage": {"input_tokens": 1}}, None),
        ({"usage": 7}, None),
        ({"response": "yes"}, None),
        ([{"usage": {"input_tokens": 1, "output_tokens": 2}}], None),
        (None, None),
    ],
)
def test_what_counts_and_how_it_is_written(result: Any, words: str | None) -> None:
    used = usage_of(result)
    assert (used and str(used)) == words


def test_sums_leave_out_what_is_unknown() -> None:
    known = {"usage": {"input_tokens": 1, "output_tokens": 2, "cost": "0.5"}}
    unknown = {"usage": {"input_tokens": 10, "output_tokens": 20}}
    assert str(total_usage([known, None, unknown, "text", known])) == "12 tokens in, 24 out, $1.00"
    assert total_usage([None, 1]) is None


@workflow
async def thinking(ctx: WorkflowContext) -> None:
    for n in (1000, 200):
        usage = {"usage": {"input_tokens": n, "output_tokens": 3, "cost": "0.01"}}
        await step(ctx, "model", lambda usage=usage: usage, result=dict[str, Any])


def test_people_see_them_for_each_step_and_in_all(tmp_path: Path) -> None:
    database = str(tmp_path / "romancy.db")

    async def run() -> str:
        async with App(database, workflows=[thinking], http=HTTPOptions(open=True)) as app:
            handle = await app.start_workflow(thinking.options(instance_id="t"))
            await handle.result(timeout=10)
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/viewer") as client:
                return (await client.get("/instances/t")).text

    page = asyncio.run(run())
    assert '<span class="used">200 tokens in, 3 out, $0.010</span>' in page
    assert '<dt>used</dt><dd class="used">1,200 tokens in, 6 out, $0.020</dd>' in page
    shown = " ".join(CliRunner().invoke(main, ["show", "t", "-d", database]).stdout.split())
    assert "used 1,200 tokens in, 6 out, $0.020" in shown
    assert "(200 tokens in, 3 out, $0.010)" in shown
