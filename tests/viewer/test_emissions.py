"""What an instance emits, on its page: live, folded when an activity begins again, and also for those who come late."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from romancy import ActivityContext, RetryPolicy, WorkflowContext, activity, emit, wait_event, workflow
from tests.viewer.conftest import Live, visiting


@activity(retry=RetryPolicy(initial=timedelta(milliseconds=10)))
async def recite(ctx: ActivityContext) -> None:
    for word in ("durable", " ", "words"):
        await emit(ctx, word, topic="poem")
        if ctx.attempt == 1 and word == " ":
            raise ConnectionError("the line broke")


@workflow
async def poet(ctx: WorkflowContext) -> None:
    await emit(ctx, {"step": 1}, topic="<b>notes</b>")
    await recite(ctx)
    await wait_event(ctx, "go")
    await emit(ctx, {"step": 2}, topic="<b>notes</b>")


@pytest.fixture
def live(serve: Callable[..., Live]) -> Live:
    return serve(workflows=[poet])


@pytest.fixture
def look(browser: Browser, live: Live) -> Iterator[Page]:
    yield from visiting(browser, live)


def test_a_page_shows_what_is_emitted(live: Live, look: Page) -> None:
    live.start("poet", id="p")
    live.until("p", "waiting_for_event")
    look.goto("/viewer/instances/p")
    panel = look.locator("#emissions")
    poem, notes = panel.locator("[data-topic=poem] .values"), panel.locator(".topic-box").nth(0).locator(".values")
    expect(poem).to_have_text("durable words")
    expect(panel.locator("[data-topic=poem] .restarts")).to_have_text("recite:1 began again, run 2")
    expect(panel.locator(".topic").nth(0)).to_have_text("<b>notes</b>")
    expect(notes).to_have_text('{"step":1}\n')
    live.send("e", "go")
    expect(notes).to_have_text('{"step":1}\n{"step":2}\n')
    look.reload()
    expect(notes).to_have_text('{"step":1}\n{"step":2}\n')


def tail(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "romancy", "tail", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_line_follows_it_over_http(live: Live) -> None:
    live.start("poet", id="p")
    live.until("p", "waiting_for_event")
    live.send("e", "go")
    live.until("p", "completed")
    shown = tail(["p", "poem", "--url", live.url])
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == "durable \n--- recite:1 begins again ---\ndurable words\n"
    late = tail(["p", "poem", "--after", "3", "--json", "--url", live.url])
    assert [line.split('"value": ')[1].split(",")[0] for line in late.stdout.splitlines()] == [
        '"durable"', '" "', '"words"'
    ]  # fmt: skip
    unknown = tail(["nobody", "--url", live.url])
    assert unknown.returncode != 0
    assert "nobody" in unknown.stderr
