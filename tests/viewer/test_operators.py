"""Answers that operators give in place of people."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from romancy import App, HTTPOptions, WorkflowContext, ask, wait_event, workflow
from romancy.viewer import approvals


@workflow
async def vote(ctx: WorkflowContext) -> bool:
    question = await ask(ctx, bool, title="Well?", people=["ann", "bob"], ask_id="well")
    await wait_event(ctx, "go on")
    return (await question.answer()).data


async def test_an_operator_is_told_that_another_was_first(monkeypatch: pytest.MonkeyPatch) -> None:
    find = approvals._standings

    async def late(request: Any) -> Any:
        found = await find(request)
        if found[0].state == "open":
            await app.answer_question("v", "ann", True)
        return found

    async with App(":memory:", workflows=[vote], http=HTTPOptions(open=True)) as app:
        await app.start_workflow(vote, instance_id="v")
        while not (await app.get_instance("v")).waits:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            [asked] = (await app.list_events(type="romancy.asked")).items
            page = f"/viewer/approvals/v?question={asked.event.subject}"
            monkeypatch.setattr(approvals, "_standings", late)
            answer = await client.post(page, data={"(person)": "0", "value": "false"})
    assert answer.status_code == 409, answer.text
    assert "ann was answered for meanwhile" in answer.text
