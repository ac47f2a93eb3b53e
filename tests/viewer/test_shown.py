"""What pages show of values that try to hide something, and the headers of answers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from tests.http.conftest import CE, Live

TRICK = "invoice\u202egpj.exe\u2066\u200b"
HIDDEN = "\u202e\u2066\u200b\u061c\ufeff"


def test_no_page_shows_a_character_that_hides_or_turns_the_text_around(live: Live) -> None:
    live.start("echo", {TRICK: [TRICK]}, id="e")
    live.start("fails", TRICK, id="f")
    live.start("approval", TRICK, id="w")
    live.send(f"id-{TRICK}", TRICK, data={"a": TRICK}, subject=TRICK)
    live.send(f"other-{TRICK}", "approved", data={"a": TRICK}, subject="x")
    for id, status in (("e", "completed"), ("f", "failed"), ("w", "waiting_for_event")):
        live.until(id, status)
    event = f"/viewer/event?source=bank&id={quote(f'id-{TRICK}')}"
    nothing = f"/viewer/instances/{quote(TRICK)}"
    unknown = f"/viewer/instances?{quote(TRICK)}=1"
    paths = ["/viewer/", "/viewer/instances/e", "/viewer/instances/f", "/viewer/instances/w", "/viewer/waiting"]
    paths += ["/viewer/events", "/viewer/events?show=unmatched", event, nothing, unknown]
    told = 0
    for path in paths:
        page = live.client.get(path).text
        assert [hex(ord(c)) for c in HIDDEN if c in page] == [], path
        told += "\\u202e" in page
    assert told >= 8, "they are not left out"


def test_a_form_sends_back_what_it_was_given(live: Live) -> None:
    live.send(f"id-{TRICK}", TRICK, data={"a": TRICK}, subject=TRICK)
    page = live.client.get(f"/viewer/send?source=bank&id={quote(f'id-{TRICK}')}").text
    assert page.count(f'value="{TRICK}"') == 2, "type and subject, exactly"
    assert "gpj.exe" in page
    assert f'value="{TRICK}"' in live.client.get(f"/viewer/instances?text={quote(TRICK)}").text


def test_every_answer_says_that_it_is_not_to_be_kept_or_guessed(live: Live) -> None:
    asked: list[Any] = [
        live.client.get(path)
        for path in (
            "/api/instances",
            "/api/workflows",
            "/openapi.json",
            "/health/live",
            "/metrics",
            "/nothing",
            "/viewer",
        )
    ]
    asked += [live.send(), live.client.post("/", content="{}", headers=CE), live.client.options("/")]
    asked += [live.client.put("/"), live.client.head("/api/instances"), live.client.get("/api/instances?limit=0")]
    asked += [live.client.get("/", headers={"accept": "text/html"}), live.client.get("/viewer/newer")]
    with live.client.stream("GET", "/api/stream") as stream:
        asked.append(stream)
    for answer in asked:
        assert answer.headers["x-content-type-options"] == "nosniff", answer.request.url
        assert answer.headers["cache-control"] == "no-store", answer.request.url
        assert len(answer.headers.get_list("cache-control")) == 1


def test_static_files_may_be_kept(live: Live) -> None:
    from romancy.viewer.html import version

    answer = live.client.get(f"/viewer/static/{version()}/viewer.css")
    assert answer.headers.get_list("cache-control") == ["public, max-age=31536000, immutable"]


def test_the_api_says_what_is_stored(live: Live) -> None:
    live.send(f"id-{TRICK}", TRICK, data={"a": TRICK})
    (item,) = live.client.get("/api/events").json()["items"]
    assert item["type"] == TRICK
    assert item["data"] == {"a": TRICK}
    assert json.dumps(item).isascii()
