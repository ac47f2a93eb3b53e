"""Contrast in both themes, narrow screens, and what a page weighs; screenshots to look at."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from playwright.sync_api import Browser, Page, expect

from romancy.core.durations import span
from romancy.core.model import Status
from romancy.viewer.html import version
from romancy.viewer.words import STATUS_WORDS
from tests.http.conftest import Live, eventually
from tests.viewer.conftest import shot, visiting
from tests.viewer.test_pages import stock

CSS = (files("romancy.viewer") / "static" / "viewer.css").read_text()
STATUSES = "running event timer child retrying queued blocked failed completed cancelled undo".split()
TEXT = [(text, back) for text in ("ink", "dim", "accent") for back in ("bg", "card", "sunk", "tint")]
TEXT += [("on-accent", "accent"), ("on-failed", "failed"), ("mark-text", "mark"), ("bg", "ink")]
TEXT += [(name, back) for name in STATUSES for back in (f"{name}-bg", "card", "bg", "sunk", "tint")]
SHAPES = [("edge", back) for back in ("bg", "card", "sunk")] + [("event", "line"), ("accent", "bg")]


def themes() -> list[dict[str, str]]:
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", CSS)
    return [{name: light for name, light, _ in pairs}, {name: dark for name, _, dark in pairs}]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark"])
def test_contrast_is_enough_for_text_and_shapes(theme: dict[str, str]) -> None:
    poor = [(f, b) for f, b in TEXT if contrast(theme[f], theme[b]) < 4.5]
    poor += [(f, b) for f, b in SHAPES if contrast(theme[f], theme[b]) < 3]
    assert poor == []


def test_every_status_has_words() -> None:
    assert set(STATUS_WORDS) == {*Status.__args__, "retrying"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.85, "850 ms"), (1, "1 s"), (59.9, "59 s"), (250, "4 min 10 s"), (3600, "1 h"), (172_800, "2 d")],
)
def test_spans_in_words(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_the_browser_has_the_same_words(live: Live, browser: Browser) -> None:
    lengths = [0, 0.85, 1, 59.9, 250, 3600, 100_000, 172_800, 300_000, 70_000_000]
    for look in visiting(browser, live):
        look.goto("/viewer/instances")
        said = look.evaluate(
            "async ([url, all]) => { const clock = await import(url); return all.map(clock.span); }",
            [f"{live.url}/viewer/static/{version()}/clock.js", lengths],
        )
        assert said == [span(seconds) for seconds in lengths]


PAGES = {
    "now": "/viewer/",
    "instances": "/viewer/instances",
    "instance": "/viewer/instances/order-1",
    "attempts": "/viewer/instances/stubborn-1",
    "waiting": "/viewer/waiting",
    "events": "/viewer/events",
    "unmatched": "/viewer/events?show=unmatched",
    "workflows": "/viewer/workflows",
    "start": "/viewer/start/buy",
    "send": "/viewer/send",
}


@pytest.mark.play
def test_no_page_scrolls_sideways(live: Live, browser: Browser) -> None:
    stock(live)
    live.start("stubborn", True, id="stubborn-1")
    live.send("wrong", "payment.completed", data={"order": {"id": "ORD-9"}})
    eventually(lambda: "hourly:1" in live.client.get("/viewer/instances/stubborn-1").text, 20)
    for scheme in ("light", "dark"):
        for look in visiting(browser, live, color_scheme=scheme):
            for width in (360, 1600):
                look.set_viewport_size({"width": width, "height": 800})
                for name, path in PAGES.items():
                    look.goto(path)
                    expect(look.locator("#live")).to_have_class(re.compile("on"))
                    shot(look, f"{name}-{scheme}-{width}")
                    wide = look.evaluate("document.documentElement.scrollWidth")
                    assert wide <= width, f"{name} is {wide} wide on {width}, {scheme}"


LONG = "0197f3a2-5c1d-7e44-9b1f-{:012}"
UNBROKEN = """all => all.filter(e => {
  const range = document.createRange();
  range.selectNodeContents(e);
  const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
  return lines.size > 1 && !/\\s/.test(e.textContent.trim());
}).map(e => e.textContent)"""


def test_tables_fit_and_no_short_word_is_broken(live: Live, browser: Browser) -> None:
    for n, (name, args) in enumerate({"approval": ["ORD-6"], "reminder": [], "payment": ["ORD-1"]}.items()):
        live.start(name, *args, id=LONG.format(n))
        live.until(LONG.format(n), "waiting_for_timer" if name == "reminder" else "waiting_for_event")
    live.start("payment", "ORD-7", id="order/" + "x" * 200)
    live.until("order%2F" + "x" * 200, "waiting_for_event")
    live.send(LONG.format(9), "payment.completed", data={"order": {"id": "ORD-9"}}, subject="ORD-9")
    live.send("e", "payment.complete.type." + "y" * 120)
    paths = {name: PAGES[name] for name in ("instances", "unmatched", "waiting", "events")}
    for look in visiting(browser, live):
        for width in (360, 800, 1400):
            look.set_viewport_size({"width": width, "height": 800})
            for name, path in paths.items():
                look.goto(path)
                expect(look.locator("#live")).to_have_class(re.compile("on"))
                shot(look, f"long-{name}-{width}")
                cut = look.locator(".scroller").evaluate_all("all => all.map(e => e.scrollWidth - e.clientWidth)")
                assert max(cut) <= 0, f"{name} at {width} is cut off by {cut}"
                short = look.locator("td bdi:not(.long)")
                assert short.evaluate_all(UNBROKEN) == [], f"{name} at {width}"
        look.goto("/viewer/instances")
        shortened = look.locator(f'tr[data-key="{LONG.format(0)}"] a.id')
        expect(shortened).to_have_text("0197f3a2-5c1…00000000")
        expect(shortened).to_have_attribute("title", LONG.format(0))


def test_the_theme_can_be_chosen_and_stays(live: Live, look: Page) -> None:
    look.goto("/viewer/instances")
    back = "getComputedStyle(document.body).backgroundColor"
    before = look.evaluate(back)
    look.locator("#theme").click()
    after = look.evaluate(back)
    assert before != after
    look.goto("/viewer/waiting")
    assert look.evaluate(back) == after


def test_focus_is_seen(live: Live, look: Page) -> None:
    stock(live)
    look.goto("/viewer/instances")
    for _ in range(12):
        look.keyboard.press("Tab")
        style = look.evaluate(
            "(e => [getComputedStyle(e).outlineStyle, getComputedStyle(e).outlineWidth])(document.activeElement)"
        )
        assert style[0] == "solid"
        assert style[1] == "2px"


def test_times_tick_without_moving_anything(live: Live, look: Page) -> None:
    live.start("payment", "ORD-1", id="order-1")
    look.goto("/viewer/instances")
    cell = look.locator('tr[data-key="order-1"] .left time')
    before = cell.inner_text()
    box = look.locator('tr[data-key="order-1"]').bounding_box()
    expect(cell).not_to_have_text(before)
    assert look.locator('tr[data-key="order-1"]').bounding_box() == box
