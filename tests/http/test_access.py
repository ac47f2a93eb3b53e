"""Who may: tokens and scopes on every route, and web pages that try to reach an app without tokens."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import pytest

from romancy import App
from romancy.app import http_app
from romancy.http import wrong_tokens
from romancy.options import HTTPOptions
from tests.http.conftest import CE, Live, assert_error, event

TOKENS = ["all", "events:deliver", "read:look", "control:act", "events,read:both", "events,read,control:not:a-scope"]
TOKENS += ["metrics:scrape"]
SECRETS = {"events": "deliver", "read": "look", "control": "act", "metrics": "scrape"}
ROUTES = [(route.method, route.path, route.scope) for route in http_app(App(":memory:")).routes]
GUARDED = [route for route in ROUTES if route[2] is not None]
UNKNOWN = [("GET", "/nothing", None), ("PUT", "/", None), ("POST", "/api/instances", None), ("POST", "/metrics", None)]


def ask(live: Live, method: str, path: str, token: str | None, **more: Any) -> Any:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    if (method, path) == ("POST", "/"):
        more |= {"content": json.dumps(event())}
        headers |= CE
    return live.client.request(
        method, path.format(instance_id="x", name="nap", number=1, topic="t"), headers=headers, **more
    )


@pytest.fixture
def guarded(serve: Any, monkeypatch: pytest.MonkeyPatch) -> Live:
    monkeypatch.setattr(wrong_tokens, "LONGEST", 0.0)  # who shows many wrong tokens is made to wait
    return serve(tokens=TOKENS)


def test_there_are_routes_of_every_scope() -> None:
    assert {scope for _, _, scope in ROUTES} == {"events", "read", "control", "metrics", None}
    assert [path for _, path, scope in ROUTES if scope is None] == ["/health/live", "/health/ready"]


def test_every_route_needs_a_token_with_its_scope(guarded: Live) -> None:
    for method, path, scope in GUARDED:
        for wrong in (None, "wrong", "ALL", "all all", "events:deliver", "deliver,look"):
            answer = ask(guarded, method, path, wrong)
            assert_error(answer, 401, "Unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        for other, secret in SECRETS.items():
            answer = ask(guarded, method, path, secret)
            if other == scope or (other, scope) == ("read", "metrics"):
                assert answer.status_code not in (401, 403), (method, path)
            else:
                assert_error(answer, 403, "Forbidden")
        assert ask(guarded, method, path, "all").status_code not in (401, 403)
        assert ask(guarded, method, path, "not:a-scope").status_code not in (401, 403), "a secret with a colon"
        assert (ask(guarded, method, path, "both").status_code == 403) == (scope == "control")


def test_without_a_token_nothing_is_said_about_what_exists(guarded: Live) -> None:
    answers = {ask(guarded, method, path, "wrong").text for method, path, _ in (*GUARDED, *UNKNOWN)}
    assert len(answers) == 1
    assert ask(guarded, "GET", "/nothing", "look").status_code == 404
    assert ask(guarded, "PUT", "/", "look").status_code == 405


def test_health_needs_no_token(guarded: Live) -> None:
    assert guarded.client.get("/health/live").json() == {"status": "alive"}
    assert guarded.client.get("/health/ready").json() == {"status": "ready"}


def test_other_schemes_and_several_tokens_are_no_token(guarded: Live) -> None:
    for value in ("all", "Basic all", "Bearer", "bearer"):
        assert_error(guarded.client.get("/api/instances", headers={"authorization": value}), 401)
    twice = [("authorization", "Bearer all"), ("authorization", "Bearer all")]
    assert_error(guarded.client.get("/api/instances", headers=twice), 401)
    assert guarded.client.get("/api/instances", headers={"authorization": "bearer all"}).status_code == 200


def test_a_token_in_the_url_delivers_events_and_nothing_else(guarded: Live) -> None:
    token = {"access_token": "deliver"}
    answer = ask(guarded, "POST", "/", None, params=token)
    assert answer.status_code == 202
    assert answer.headers["cache-control"] == "private, no-store"
    assert ask(guarded, "OPTIONS", "/", None, params=token).status_code == 200
    assert_error(ask(guarded, "POST", "/", None, params={"access_token": "wrong"}), 401)
    assert_error(ask(guarded, "POST", "/", None, params={"access_token": "look"}), 403)
    assert_error(ask(guarded, "POST", "/", "wrong", params=token), 401)
    twice = {"access_token": ["deliver", "deliver"]}
    assert_error(ask(guarded, "POST", "/", None, params=twice), 401)
    for method, path, _ in GUARDED:
        if path != "/":
            assert_error(ask(guarded, method, path, None, params={"access_token": "all"}), 401)
    assert ask(guarded, "POST", "/", "deliver").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("tokens", [(), ("secret",)])
@pytest.mark.parametrize("path", ["/", "/api/instances", "/nothing"])
@pytest.mark.parametrize("headers", [[(b"host", b"localhost")], [], [(b"host", b"x" * 70_000)]])
async def test_a_token_in_the_url_is_hidden_from_access_logs(path: str, tokens: Any, headers: Any) -> None:
    """Servers write their access log from the scope, when the answer begins."""
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "headers": headers, "root_path": ""}
    scope |= {"query_string": b"a=1&access_token=secret&b=2", "http_version": "1.1"}
    logged: list[bytes] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        logged.append(scope["query_string"])

    await http_app(App(":memory:", tokens=tokens))(scope, receive, send)
    assert logged == [b"a=1&b=2"] * 2


def test_nothing_of_a_request_is_logged(guarded: Live, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ask(guarded, "POST", "/", None, params={"access_token": "deliver"})
        ask(guarded, "POST", "/", None, params={"access_token": "wrong"})
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("http")]
    assert [text for text in ours if "access_token" in text or "deliver" in text] == []


def test_tokens_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANCY_TOKENS", " one  events:two ")
    assert [sorted(token.scopes) for token in App(":memory:")._runtime.tokens] == [
        ["control", "events", "metrics", "read"],
        ["events"],
    ]
    assert len(App(":memory:", tokens=["mine"])._runtime.tokens) == 1


@pytest.mark.parametrize("wrong", ["", "events:", "events,read:", "a b", "a\n", None, b"secret", 5])
def test_tokens_that_are_none(wrong: Any) -> None:
    with pytest.raises(ValueError, match="a token is a secret"):
        App(":memory:", tokens=[wrong])


@pytest.mark.parametrize("slip", ["evnts:BANK", "events,raed:BANK", ":BANK", "Events:BANK"])
def test_a_slip_in_the_scopes_does_not_make_a_token_that_may_everything(slip: str) -> None:
    with pytest.raises(ValueError, match=r"must be scopes .events, read, control") as told:
        App(":memory:", tokens=[slip])
    assert "BANK" not in str(told.value)


def test_a_token_is_never_shown() -> None:
    app = App(":memory:", tokens=["SECRET"])
    assert "SECRET" not in repr(vars(app))
    with pytest.raises(ValueError, match="a token is a secret") as caught:
        App(":memory:", tokens=["events:SECRET WORD"])
    assert "SECRET WORD" not in str(caught.value)


def test_a_variable_that_is_not_set_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANCY_TOKENS", "one")
    with pytest.raises(ValueError, match=r"a token is a secret .*; got None: is the variable it comes from set"):
        App(":memory:", tokens=[os.environ.get("NOT_SET_ANYWHERE")])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="got bytes") as told:
        App(":memory:", tokens=[b"VERY-SECRET"])  # type: ignore[list-item]
    assert "VERY-SECRET" not in str(told.value)
    with pytest.raises(ValueError, match="tokens must be a list of strings, not None"):
        App(":memory:", tokens=None)  # type: ignore[arg-type]


def test_an_empty_list_is_as_none_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert App(":memory:", tokens=[])._runtime.tokens == ()
    monkeypatch.setenv("ROMANCY_TOKENS", "one two")
    assert len(App(":memory:", tokens=[])._runtime.tokens) == 2


def test_a_single_text_is_one_token() -> None:
    assert len(App(":memory:", tokens="secret")._runtime.tokens) == 1


# --- an app without tokens ------------------------------------------------------------------------------------------
def test_a_page_of_another_site_can_do_nothing(live: Live) -> None:
    live.start("nap", id="n")
    live.until("n", "waiting_for_timer")
    here = f"127.0.0.1:{live.port}"
    for origin in (
        "https://evil.example",
        "null",
        f"http://{here}.evil.example",
        "http://127.0.0.1:1",
        f"http://x@{here}",
    ):
        for method, path in (("POST", "/cancel/n"), ("POST", "/"), ("GET", "/api/instances"), ("OPTIONS", "/")):
            assert_error(live.client.request(method, path, headers={"origin": origin}), 403, "Forbidden")
    assert live.client.get("/api/instances/n").json()["status"] == "waiting_for_timer"
    assert live.client.post("/cancel/n", headers={"origin": f"http://{here}"}).status_code == 200, "its own page may"


def test_no_answer_allows_a_browser_to_read_it_elsewhere(live: Live) -> None:
    preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answers = [live.client.options("/", headers=preflight), live.client.options("/"), live.client.get("/api/instances")]
    assert not [name for answer in answers for name in answer.headers if name.startswith("access-control")]


def test_a_name_that_points_here_is_not_answered(live: Live) -> None:
    for host in (
        "evil.example",
        f"evil.example:{live.port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[::",
    ):
        found = assert_error(live.client.get("/api/instances", headers={"host": host}), 403, "Forbidden")
        assert "allowed_hosts" in found["error"]
        assert "or set App(public_url=...)" in found["error"]
    for host in ("localhost", f"localhost:{live.port}", "LOCALHOST", "127.0.0.1", "127.0.0.2:80", "[::1]:8001"):
        assert live.client.get("/api/instances", headers={"host": host}).status_code == 200
    assert live.client.get("/health/live", headers={"host": "probe"}).status_code == 200


@pytest.mark.parametrize("allowed", ["shop.example", "*"])
def test_names_that_are_allowed(serve: Any, allowed: str) -> None:
    live = serve(http=HTTPOptions(allowed_hosts=[allowed]))
    assert live.client.get("/api/instances", headers={"host": "Shop.Example:80"}).status_code == 200


def test_with_tokens_names_and_origins_do_not_matter(guarded: Live) -> None:
    headers = {"host": "shop.example", "origin": "https://other.example", "authorization": "Bearer all"}
    assert guarded.client.get("/api/instances", headers=headers).status_code == 200
