"""The page of schedules: in words, with the next ten times; pause, resume and start now."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from tests.http.conftest import Live


def put(live: Live, name: str, **body: Any) -> None:
    answer = live.client.post(f"/api/schedules/{name}/set", json={"workflow": "echo", "args": ["hi"], **body})
    assert answer.status_code == 200, answer.text


def test_schedules_in_words_with_their_next_times(live: Live, look: Page) -> None:
    look.goto("/viewer/schedules")
    expect(look.locator("main")).to_contain_text("There are no schedules")
    put(live, "eu", cron="0 9 * * MON-FRI", timezone="Europe/Berlin")
    put(live, "once%3Cb%3E", every=86400, starts_at="2040-01-01T00:00:00Z", ends_at="2040-01-02T00:00:00Z")
    look.goto("/viewer/instances")
    look.get_by_role("link", name="Schedules").click()
    row = look.locator('tr[data-key="eu"]')
    expect(row).to_contain_text("At 09:00 on Monday through Friday (Europe/Berlin)")
    row.locator("summary").click()
    expect(row.locator("li")).to_have_count(10)
    assert all("09:00:00 CE" in text for text in row.locator("li").all_inner_texts())
    ending = look.locator("tr", has_text="once<b>")
    expect(ending.locator("li")).to_have_count(2)


def test_a_visitor_pauses_resumes_and_starts(live: Live, look: Page) -> None:
    put(live, "eu", cron="0 9 * * *")
    look.goto("/viewer/schedules")
    row = look.locator('tr[data-key="eu"]')
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    row.get_by_role("button", name="Start now").click()
    expect(row.locator("a.id")).to_be_visible()
    [record] = live.client.get("/api/schedules").json()["items"]
    assert (record["started"], record["is_paused"]) == (1, False)
