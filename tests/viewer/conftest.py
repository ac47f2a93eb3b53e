"""A shop with every kind of workflow behind the real server, and a real browser that looks at it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from romancy import (
    NO_RETRY,
    ActivityContext,
    App,
    ReceivedEvent,
    RetryPolicy,
    WaitTimeout,
    WorkerOptions,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.http import wrong_tokens
from tests.http.conftest import Live

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOTS = os.environ.get("ROMANCY_SHOTS")
"""The folder for pictures, if anybody wants to look at them: most of a page's time goes into its picture."""
CODE = {"version": 1}


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Address:
    street: str
    zip: str
    floor: int | None = None


@dataclass
class Order:
    sku: str
    count: int
    price: float
    size: Size
    to: Address
    tags: list[str]
    gift: bool = False
    when: date | None = None
    at: datetime | None = None


@activity(retry=NO_RETRY)
async def charge(ctx: ActivityContext, amount: float) -> str:
    if amount < 0:
        raise ValueError(f"can't charge {amount}")
    await asyncio.sleep(0.02)
    return f"charged {amount}"


@activity
async def slow(ctx: ActivityContext, name: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return name


@workflow
async def payment(ctx: WorkflowContext, order: str, minutes: float = 5) -> dict[str, Any]:
    """Charges, then waits for the bank."""
    ctx.describe(f"order {order}")
    await charge(ctx, 9.5)
    try:
        event = await wait_event(
            ctx, "payment.completed", where={"order.id": order}, timeout=timedelta(minutes=minutes)
        )
    except WaitTimeout:
        return {"status": "timeout"}
    await send_event(ctx, "receipt.sent", "shop", {"order": order})
    return {"status": "paid", "data": event.data}


@workflow
async def approval(ctx: WorkflowContext, name: str) -> str:
    """Waits for ever for somebody to approve."""
    event = await wait_event(ctx, "approved", subject=name)
    return str(event.data)


@workflow
async def reminder(ctx: WorkflowContext, seconds: float = 1800) -> str:
    """Sleeps."""
    await sleep(ctx, seconds)
    return "reminded"


@workflow
async def branches(ctx: WorkflowContext) -> list[str]:
    """Three things at a time."""
    found = await asyncio.gather(slow(ctx, "a", 0.15), slow(ctx, "b", 0.3), slow(ctx, "c", 0.05))
    await slow(ctx, "d", 0.05)
    return list(found)


@activity(retry=RetryPolicy(max_attempts=4, initial=0.2, backoff=2.0, jitter=0.0))
async def reserve(ctx: ActivityContext, good_from: int) -> str:
    await asyncio.sleep(0.08)
    if ctx.attempt < good_from:
        raise ConnectionError(f"the warehouse is busy ({ctx.attempt})")
    return f"reserved by attempt {ctx.attempt}"


@activity(retry=RetryPolicy(initial=3600))
async def hourly(ctx: ActivityContext) -> None:
    raise TimeoutError("the bank does not answer")


@workflow
async def stubborn(ctx: WorkflowContext, wait: bool = False) -> list[str]:
    """Tries until it works: side by side, one that gives up, one that works at last."""
    found = await asyncio.gather(reserve(ctx, 3), reserve(ctx, 9), slow(ctx, "a", 0.3), return_exceptions=True)
    if wait:
        await hourly(ctx)
    return list(map(str, found))


@workflow
async def fails(ctx: WorkflowContext, text: str = "no way") -> None:
    """Fails."""
    try:
        await charge(ctx, -1.0)
    except Exception:
        raise RuntimeError(text) from None


@workflow
async def echo(ctx: WorkflowContext, value: Any = None) -> Any:
    """Gives back what it got."""
    return value


@workflow
async def buy(ctx: WorkflowContext, order: Order, note: str = "") -> str:
    """Buys something."""
    return f"{order.count} {order.sku} {order.size.value} to {order.to.street} {order.when} {','.join(order.tags)}"


@workflow
async def fickle(ctx: WorkflowContext) -> str:
    """Its code changes under it."""
    await charge(ctx, float(CODE["version"]))
    await wait_event(ctx, "go.on")
    return "went on"


@workflow(on_event="order.placed")
async def placed(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> str:
    """Started by an event."""
    return str(event.data)


@dataclass
class Paid:
    amount: float
    currency: str
    by: Address
    note: str = ""


@workflow
async def invoice(ctx: WorkflowContext, number: int) -> float:
    """Waits for an event of a form of its own."""
    ctx.describe(f"waiting for money of {number}")
    event = await wait_event(ctx, "invoice.paid", where={"number": number}, model=Paid)
    return event.data.amount


WORKFLOWS = [payment, approval, reminder, branches, stubborn, fails, echo, buy, fickle, placed, invoice]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Live]]:
    """Starts a server with an app made of these arguments."""
    monkeypatch.delenv("ROMANCY_TOKENS", raising=False)
    monkeypatch.setattr(wrong_tokens, "LONGEST", 0.0)  # tests send many wrong tokens
    running: list[Live] = []

    def start(**options: Any) -> Live:
        app = App(tmp_path / "viewer.db", **{"workflows": WORKFLOWS, "worker": WorkerOptions(grace=1), **options})
        running.append(Live(app))
        return running[-1]

    yield start
    for live in running:
        if live.thread.is_alive():
            live.loop.call_soon_threadsafe(live.face.drain)  # streams end, so that the server can
            live.stop()


@pytest.fixture
def live(serve: Callable[..., Live]) -> Live:
    return serve()


@pytest.fixture
def blocked(serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch) -> Live:
    """A server with a blocked instance `f`, which an event fits: its code was changed."""
    live = serve()
    live.start("fickle", id="f")
    live.until("f", "waiting_for_event")
    live.stop()
    monkeypatch.setitem(CODE, "version", 2)
    live = serve()
    live.send("e", "go.on")
    live.until("f", "blocked")
    return live


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One a module: while it is open, an event loop runs in this thread, and no async test can."""
    if os.environ.get("ROMANCY_TEST_BROWSER") == "no":
        pytest.skip("ROMANCY_TEST_BROWSER=no")
    if CHROMIUM is None:
        text = "no chromium found: install Debian's package `chromium` to test the viewer in a browser"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(text)
    expect.set_options(timeout=30_000)  # the machine may be busy
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def look(browser: Browser, live: Live) -> Iterator[Page]:
    """A page of a browser; whatever it complains about fails the test."""
    yield from visiting(browser, live)


def visiting(browser: Browser, live: Live, **options: Any) -> Iterator[Page]:
    context = browser.new_context(base_url=live.url, viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(30_000)
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.complaints = complaints  # type: ignore[attr-defined]
    yield page
    context.close()
    expected = "the server responded with a status of 401"  # the form to log in, and the browser notes it
    assert [text for text in complaints if expected not in text] == []


def log_in(page: Page, token: str) -> None:
    """Log in, and wait until the scripts of the page run: a click before that does nothing."""
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#live")).to_have_text("live")


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)
