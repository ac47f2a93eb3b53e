"""Every attempt of an activity is to be seen: on the timeline, and in the history with its error."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from romancy import ActivityContext, RetryPolicy, WorkflowContext, activity, workflow
from romancy.core.failure import Failure
from romancy.core.history import MARKED_ATTEMPTS, Entry, Kind, pack_attempt
from romancy.core.model import to_us
from romancy.core.replay import Opened
from romancy.records import Wait, to_history
from romancy.storage.catalog import WHOLE, ShownEntry
from romancy.viewer.spans import bars_of
from romancy.viewer.timeline import draw
from romancy.viewer.words import attempt_words
from tests.http.conftest import Live
from tests.viewer.conftest import shot

T0 = datetime(2026, 1, 1, tzinfo=UTC)
NO = Failure("ValueError", "no").encode()


def us(seconds: float) -> int:
    return to_us(T0 + timedelta(seconds=seconds))


def mark(n: int, attempt: int, began: float | None, failed: float, next: float, size: int = 0) -> ShownEntry:
    about = pack_attempt(attempt, None if began is None else us(began), us(next))
    payload = b'{"error_type": "cut sho' if size else NO
    return ShownEntry(Entry(n, Kind.ATTEMPT_FAILED, "a:1", us(failed), about, payload), len(about), size)


def end(n: int, kind: Kind, seconds: float) -> ShownEntry:
    return ShownEntry(Entry(n, kind, "a:1", us(seconds)), 0, 0)


def pieces(entries: list[ShownEntry], until: float, waits: list[Wait] | None = None, known: bool = True) -> list:
    opened = {"a:1": Opened("activity", us(0), None)} if known else None
    line = draw(bars_of(entries, waits or [], opened, T0), T0, T0 + timedelta(seconds=until), is_squeezed=False)
    [row] = line.rows
    return [(s.attempt.name, s.attempt.outcome, s.x, s.width, s.attempt.n) for s in row.segments if s.attempt]


RETRY = Wait("i", "a:1", "retry", (), {}, T0, T0 + timedelta(seconds=40), "")


# --- bars in pieces ---------------------------------------------------------------------------------------------------
def test_attempts_lie_in_proportion_to_time() -> None:
    entries = [mark(1, 1, 0, 10, 20), mark(2, 2, 20, 30, 40), end(3, Kind.ACTIVITY_COMPLETED, 100)]
    assert pieces(entries, 100) == [
        ("attempt 1", "failed", 0, 10, 1),
        ("attempt 2", "failed", 20, 10, 2),
        ("attempt 3", "completed", 40, 60, 3),
    ]


def test_while_it_rests_there_is_no_next_attempt_yet() -> None:
    entries = [mark(1, 1, 0, 10, 40)]
    assert [p[0] for p in pieces(entries, 39, [RETRY])] == ["attempt 1"]
    assert [p[:4] for p in pieces(entries, 80, [RETRY])] == [
        ("attempt 1", "failed", 0, 12.5),
        ("attempt 2", "open", 50, 50),
    ]


def test_one_that_was_withdrawn_while_it_rested_had_no_next_attempt() -> None:
    opened = {"a:1": Opened("activity", us(0), us(20))}
    [bar] = bars_of([mark(1, 1, 0, 10, 40)], [], opened, T0)
    assert (bar.outcome, [a.name for a in bar.attempts]) == ("withdrawn", ["attempt 1"])


def test_a_beginning_nobody_wrote_down_is_when_it_was_due() -> None:
    entries = [mark(1, 1, 0, 10, 20), mark(2, 2, None, 50, 60), end(3, Kind.ACTIVITY_FAILED, 100)]
    assert pieces(entries, 100)[1] == ("attempt 2", "failed", 20, 30, 2)


def test_only_of_a_first_attempt_is_it_known_when_it_began() -> None:
    """Of the others it is known when they were due; whether a worker was there then, nobody wrote down."""
    entries = [mark(1, 1, 0, 10, 20), mark(2, 2, 20, 67, 80), end(3, Kind.ACTIVITY_COMPLETED, 100)]
    [bar] = bars_of(entries, [], {"a:1": Opened("activity", us(0), None)}, T0)
    assert [attempt.is_known for attempt in bar.attempts] == [True, False, False]
    [bar] = bars_of([mark(1, 1, None, 10, 20)], [RETRY], None, T0)
    assert bar.attempts[0].is_known is False, "a worker died in it"


def test_words_do_not_claim_that_it_ran() -> None:
    def said(entry: ShownEntry) -> str:
        return attempt_words(to_history(entry.entry))

    assert said(mark(1, 1, 0, 10, 20)) == "ran for 10.00 s; the next was due 10.00 s later"
    assert said(mark(2, 2, 20, 67, 80)) == "failed 47.00 s after it was due; the next was due 13.00 s later"
    assert said(mark(1, 1, None, 10, 20)) == "the next was due 10.00 s later"


def test_the_first_mark_tells_when_it_began_without_the_code() -> None:
    earlier = ShownEntry(Entry(1, Kind.TIMER_FIRED, "t:1", us(5)), 0, 0)
    entries = [earlier, mark(2, 1, 0, 10, 20), end(3, Kind.ACTIVITY_COMPLETED, 100)]
    bars = {bar.label: bar for bar in bars_of(entries, [], None, T0)}
    assert (bars["a:1"].begin, bars["a:1"].is_guess, bars["t:1"].is_guess) == (T0, False, True)


def test_marks_alone_are_drawn_as_far_as_they_go() -> None:
    [bar] = bars_of([mark(1, 1, 0, 10, 20)], [], None, T0)
    assert (bar.kind, bar.outcome, bar.end) == ("activity", "tried", T0 + timedelta(seconds=10))


def test_beyond_those_that_leave_a_mark_the_rest_is_one_piece() -> None:
    entries = [mark(n, n, n, n + 0.5, n + 1) for n in range(1, MARKED_ATTEMPTS + 1)]
    found = pieces([*entries, end(MARKED_ATTEMPTS + 1, Kind.ACTIVITY_COMPLETED, 100)], 100)
    assert found[-1][0] == f"attempt {MARKED_ATTEMPTS + 1} and later"


def test_an_error_that_is_cut_short_can_be_drawn() -> None:
    [bar] = bars_of([mark(1, 1, 0, 10, 20, size=WHOLE + 1)], [RETRY], None, T0)
    assert bar.attempts[0].error == "cut sho: "


# --- on the page ------------------------------------------------------------------------------------------------------
def test_failed_attempts_are_on_the_timeline_and_in_the_history(live: Live, look: Page) -> None:
    live.start("stubborn", id="s")
    live.until("s", "completed")
    look.goto("/viewer/instances/s")
    failed = look.locator(".tl rect.try.failed")
    expect(failed).to_have_count(5)  # two of the first call, three of the second before its last
    assert failed.first.evaluate("e => getComputedStyle(e).fill") == 'url("#hatch")'
    expect(look.locator(".tl rect.bar:not(.try)")).to_have_count(3)
    expect(look.locator(".tl .label", has_text="reserve:2")).to_contain_text("4 tries")
    widths = failed.evaluate_all("all => all.map(e => e.getBoundingClientRect().width)")
    assert all(width > 1 for width in widths)
    expect(look.locator("summary.entry.attempt_failed")).to_have_count(5)
    shot(look, "attempts-light")
    later = look.locator(".tl .track a", has=look.locator("line.late"))
    expect(later).to_have_count(5)  # all but the three first ones, each a thin line with a mark at its end
    expect(later.first.locator("title")).to_contain_text("after it was due; its start is not recorded")
    ends = later.first.evaluate(
        "a => [a.querySelector('line.late'), a.querySelector('.try')].map(e => e.getBoundingClientRect().right)"
    )
    assert abs(ends[0] - ends[1]) < 2
    assert max(widths[1:2]) < 8
    expect(look.locator(".legend")).to_contain_text("due, start unknown")
    href = failed.first.locator("xpath=..").get_attribute("href")
    failed.first.click(force=True)
    entry = look.locator(f"li{href}")
    expect(entry.locator(".inside")).to_contain_text("ConnectionError: the warehouse is busy (1)")
    expect(entry.locator(".inside")).to_contain_text("Traceback")
    expect(entry.locator(".inside")).to_contain_text(re.compile(r"ran for \d+ ms; the next was due \d+ ms later"))
    expect(entry.locator(".what")).to_have_text("attempt 1 failed")


def test_a_retry_that_is_waited_for_is_drawn_and_told(live: Live, look: Page) -> None:
    look.goto("/viewer/start/stubborn")
    live.start("stubborn", True, id="s")
    look.goto("/viewer/instances/s")
    expect(look.locator("section[aria-label='Waiting for']")).to_contain_text("the bank does not answer")
    expect(look.locator(".tl line.rest.open")).to_have_count(1)
    expect(look.locator(".tl rect.try.failed")).to_have_count(6)
    expect(look.locator("#now")).to_contain_text(re.compile(r"attempt 2\s+begins in \d+ (min|s)"))
    expect(look.locator(".head .badge")).to_have_text("retrying")
    expect(look.locator("[data-act=retry-now]")).to_be_visible()
    expect(look.locator(".history")).to_contain_text("attempt 1 failed")
    shot(look, "attempts-waiting")


HUGE = "é" * 200_000


@activity(retry=RetryPolicy(max_attempts=2, initial=0))
async def long_winded(ctx: ActivityContext) -> None:
    raise ValueError(HUGE)


@workflow
async def wordy(ctx: WorkflowContext) -> None:
    """Its errors are longer than a page shows."""
    await long_winded(ctx)


def test_errors_longer_than_a_page_shows_do_not_break_it(serve: Callable[..., Live]) -> None:
    live = serve(workflows=[wordy])
    live.start("wordy", id="w")
    live.until("w", "failed")
    answer = live.client.get("/viewer/instances/w")
    assert answer.status_code == 200
    assert "attempt 1 failed" in answer.text
    assert len(answer.content) < 1_000_000
