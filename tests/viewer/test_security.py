"""Whatever is shown is shown, never run; nobody acts in a visitor's name; no token is where it can be seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.http.conftest import CE, Live
from tests.http.flaky import proxy
from tests.viewer.conftest import log_in, shot, visiting

EVIL = """<script>alert(1)</script>"><img src=x onerror=alert(2)>'`{{7*7}}</pre></textarea></title>"""
RTL = "\u202eevil\u202c مرحبا 👩‍👩‍👧‍👦 ‮"
ID = "x<script>alert(1)</script>\"'&/..%2F?#😀"


def stock(live: Live) -> None:
    big = "A<b>" * 250_000
    live.start("echo", {EVIL: [EVIL, RTL, big[:300_000]]}, id=ID)
    live.start("fails", EVIL + RTL, id="fails-" + "y" * 240)
    live.start("approval", EVIL, id=f"wait-{EVIL}"[:255])
    live.send(EVIL, EVIL, data={EVIL: EVIL}, subject=EVIL)
    live.send("big", "big", data=big)
    live.until(f"fails-{'y' * 240}", "failed")


@pytest.fixture
def stocked(live: Live) -> Live:
    body = {"args": ["A" * 900_000], "instance_id": "huge"}
    assert live.client.post("/api/workflows/echo/start", json=body).status_code == 201
    stock(live)
    return live


def test_nothing_that_is_shown_is_run(stocked: Live, look: Page) -> None:
    quoted = "/viewer/instances/" + _part(ID)
    waiting = "/viewer/instances/" + _part(f"wait-{EVIL}"[:255])
    event = f"/viewer/event?source=bank&id={_part(EVIL)}"
    paths = ["/viewer/", quoted, waiting, "/viewer/instances/huge", "/viewer/waiting", "/viewer/events", event]
    paths += [
        "/viewer/events?show=unmatched",
        "/viewer/event?source=bank&id=big",
        f"/viewer/instances?text={_part(EVIL)}",
        f"/viewer/instances?workflow={_part(EVIL)}",
        f"/viewer/events?type={_part(EVIL)}",
        f"/viewer/waits?type={_part(EVIL)}",
        f"/viewer/send?type={_part(EVIL)}",
        f"/viewer/send?source=bank&id={_part(EVIL)}",
        f"/viewer/send?instance={_part(f'wait-{EVIL}'[:255])}&wait=approved%3A1",
    ]
    for path in paths:
        look.goto(path)
        look.wait_for_load_state("load")
        assert look.locator("main img, main script").count() == 0, path
    look.goto(quoted)
    expect(look.locator("h1")).to_have_text(ID)
    shot(look, "evil-instance")
    look.goto("/viewer/instances")
    shot(look, "evil-list")
    expect(look.locator("#live")).to_have_text("live")
    stocked.send("again", "approved", subject=EVIL, data=EVIL)
    expect(look.locator("tr", has_text="wait-").locator(".badge")).to_have_text("completed")
    assert look.locator("main img, main script").count() == 0


def test_long_values_are_cut_and_lists_stay_small(stocked: Live) -> None:
    assert len(stocked.client.get("/viewer/").text) < 60_000
    page = stocked.client.get("/viewer/instances/huge").text
    assert len(page) < 60_000
    assert "The first 4 KB of 900," in page
    assert len(stocked.client.get("/viewer/events").text) < 60_000
    assert len(stocked.client.get("/viewer/event?source=bank&id=big").text) < 60_000


PAGES = [
    "/viewer/",
    "/viewer/waiting",
    "/viewer/events",
    "/viewer/workflows",
    "/viewer/send",
    "/viewer/login",
    "/viewer/no",
]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_a_policy_without_anything_inline(live: Live, path: str) -> None:
    answer = live.client.get(path)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    for inline in (" style=", " onclick=", " onload=", "<style", "javascript:"):
        assert inline not in answer.text


def test_no_page_acts_by_get(live: Live) -> None:
    live.start("reminder", id="nap")
    for path in ("/cancel/nap", "/api/instances/nap/resume", "/api/workflows/echo/start", "/viewer/logout"):
        assert live.client.get(path).status_code in (404, 405)
    assert live.client.get("/api/instances/nap").json()["status"] != "cancelled"


# --- tokens and cookies ---------------------------------------------------------------------------------------------
@pytest.fixture
def guarded(serve: Callable[..., Live]) -> Live:
    live = serve(tokens=["secret-token", "events:only-events"])
    live.client.headers["authorization"] = "Bearer secret-token"
    live.start("reminder", id="nap")
    del live.client.headers["authorization"]
    return live


def login(live: Live, token: str = "secret-token", **more: Any) -> httpx2.Response:
    headers = {"origin": live.url, "content-type": "application/x-www-form-urlencoded"}
    return live.client.post("/viewer/login", data={"token": token, **more}, headers=headers)


def test_without_a_token_every_page_is_the_form(guarded: Live) -> None:
    for path in ("/viewer/", "/viewer/instances/nap", "/viewer/events?type=x", "/viewer/nothing"):
        answer = guarded.client.get(path)
        assert answer.status_code == 401
        assert f'name="next" value="{path}"' in answer.text
        assert "waiting for" not in answer.text
    assert guarded.client.get("/api/stream").status_code == 401
    assert guarded.client.get("/viewer/login").status_code == 200


def test_the_cookie_is_closed_to_scripts_and_other_sites(guarded: Live) -> None:
    answer = login(guarded, next="/viewer/instances/nap")
    assert (answer.status_code, answer.headers["location"]) == (303, "/viewer/instances/nap")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "secret-token" not in cookie
    assert guarded.client.get("/viewer/instances/nap").status_code == 200
    assert "secret-token" not in guarded.client.get("/viewer/instances/nap").text


def test_on_https_the_cookie_is_for_https_only(guarded: Live) -> None:
    from romancy.app import http_app

    async def ask() -> Any:
        transport = httpx2.ASGITransport(http_app(guarded.app))
        async with httpx2.AsyncClient(transport=transport, base_url="https://shop.example") as client:
            headers = {"origin": "https://shop.example"}
            return await client.post("/viewer/login", data={"token": "secret-token"}, headers=headers)

    assert "Secure" in guarded.on_loop(ask).headers["set-cookie"].split("; ")


@pytest.mark.parametrize("evil", ["https://evil.example", "//evil.example", "/\\evil.example", "/viewer//evil", "/x"])
def test_login_leads_nowhere_else(guarded: Live, evil: str) -> None:
    assert login(guarded, next=evil).headers["location"] == "/viewer/"


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
    {},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_forged_posts_are_refused(guarded: Live, headers: dict[str, str]) -> None:
    login(guarded)
    event = json.dumps({"specversion": "1.0", "id": "1", "source": "evil", "type": "evil"})
    for path, body, kind in (
        ("/cancel/nap", "{}", "application/json"),
        ("/api/workflows/echo/start", "{}", "application/json"),
        ("/", event, CE["content-type"]),
        ("/viewer/login", "token=secret-token", "application/x-www-form-urlencoded"),
        ("/viewer/logout", "", "application/x-www-form-urlencoded"),
    ):
        answer = guarded.client.post(path, content=body, headers={"content-type": kind, **headers})
        assert answer.status_code == 403, path
        assert "set-cookie" not in answer.headers
    items = guarded.client.get("/api/events").json()["items"]
    assert items == []


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "same-origin"}, "origin"])
def test_our_own_pages_may_act(guarded: Live, headers: Any) -> None:
    login(guarded)
    given = {"origin": guarded.url} if headers == "origin" else headers
    assert guarded.client.post("/cancel/nap", json={}, headers=given).status_code == 200


def test_a_token_in_a_header_needs_no_page(guarded: Live) -> None:
    login(guarded)
    headers = {"authorization": "Bearer secret-token", "origin": "https://other.example"}
    assert guarded.client.post("/cancel/nap", json={}, headers=headers).status_code == 200


@pytest.mark.parametrize("value", ["", "!!!", "c2VjcmV0", "=", "x" * 5000])
def test_a_cookie_that_is_none_is_no_token(guarded: Live, value: str) -> None:
    assert guarded.client.get("/api/instances", headers={"cookie": f"romancy={value}"}).status_code == 401


def test_a_token_without_read_is_told_so(guarded: Live) -> None:
    assert login(guarded, "only-events").status_code == 303
    answer = guarded.client.get("/viewer/")
    assert answer.status_code == 403
    assert "read" in answer.text
    assert "nap" not in answer.text


def test_static_files_are_the_only_files(live: Live) -> None:
    from romancy.viewer.html import version

    assert live.client.get(f"/viewer/static/{version()}/viewer.css").headers["content-type"].startswith("text/css")
    for name in ("../pages.py", "..%2Fpages.py", "%2Fetc%2Fpasswd", "nosuch.js", ""):
        assert live.client.get(f"/viewer/static/{version()}/{name}").status_code == 404


def test_a_page_of_another_site_can_not_frame_or_read(serve: Callable[..., Live], browser: Browser) -> None:
    live = serve(tokens=["secret-token"])
    for look in visiting(browser, live):
        look.goto("/viewer/instances")
        log_in(look, "secret-token")
        look.goto("about:blank")
        found = look.evaluate(
            f"fetch('{live.url}/api/instances', {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
        )
        assert found == "refused"
        look.complaints.clear()  # type: ignore[attr-defined] - the browser says what it refused


def test_behind_a_proxy_that_changes_the_host(serve: Callable[..., Live], browser: Browser) -> None:
    """A real browser at a proxy that asks us by another name: refused with words, fine with the public URL."""
    with proxy("") as between:
        for public_url in (None, between.url):
            live = serve(tokens=["secret-token"], public_url=public_url)
            between.upstream = live.url
            for look in visiting(browser, live):
                look.goto(f"{between.url}/viewer/waiting")
                look.get_by_label("Token").fill("secret-token")
                look.get_by_role("button", name="Log in").click()
                if public_url is None:
                    expect(look.locator("main")).to_contain_text("a proxy in between changes the Host")
                    expect(look.locator("main")).to_contain_text("public_url")
                    shot(look, "proxy-host")
                    look.complaints.clear()  # type: ignore[attr-defined] - the browser notes the 403
                else:
                    expect(look).to_have_url(f"{between.url}/viewer/waiting")
                    expect(look.locator("h1")).to_have_text("Waiting")
                    look.complaints.clear()  # type: ignore[attr-defined] - no stream gets through that proxy


def _part(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
