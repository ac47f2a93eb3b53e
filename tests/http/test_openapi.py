"""`/openapi.json` describes every route, and what the routes do is within it, whatever is sent to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from romancy import InstanceFilter
from romancy.http.openapi import describe
from romancy.options import HTTPOptions
from tests.http.conftest import CE, Live, assert_error

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
CHECKS += ",response_headers_conformance,unsupported_method"


def test_every_route_is_described(live: Live) -> None:
    found = live.client.get("/openapi.json").json()
    assert found == json.loads(json.dumps(describe(live.face.routes, found["info"]["version"])))
    described = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in live.face.routes}
    assert all(operation["summary"] for methods in found["paths"].values() for operation in methods.values())
    ids = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


def test_filters_are_described(live: Live) -> None:
    found = live.client.get("/openapi.json").json()["paths"]["/api/instances"]["get"]["parameters"]
    by_name = {parameter["name"]: parameter["schema"] for parameter in found}
    assert set(by_name) == {"limit", "cursor", *InstanceFilter.__annotations__}
    assert by_name["limit"]["maximum"] == 1000
    assert by_name["status"]["type"] == "array"
    assert by_name["started_after"]["format"] == "date-time"


def test_the_accepted_status_is_described(serve: Any) -> None:
    live = serve(http=HTTPOptions(accepted_status=204))
    assert "204" in live.client.get("/openapi.json").json()["paths"]["/"]["post"]["responses"]


# --- the document asks for what the server asks for -------------------------------------------------------------------
def schema_of(live: Live, *path: str) -> Any:
    """A validator for a part of the document."""
    document = live.client.get("/openapi.json").json()
    found = document["paths"]
    for step in path:
        found = found[step]
    found = found.get("schema", found)
    whole = {**found, "components": document["components"]}
    return jsonschema_rs.validator_for(whole, validate_formats=True)


GOOD_EVENTS: list[dict[str, Any]] = [
    {},
    {"subject": "s", "time": "2026-01-31T12:00:00Z", "datacontenttype": "text/plain; charset=x", "data": "text"},
    {"datacontenttype": "application/x+json", "data": {"a": [1, None]}, "dataschema": "https://example.com/x#y"},
    {"data_base64": "aGk=", "datacontenttype": "image/png"},
    {"data": None, "data_base64": None, "subject": None, "time": None, "dataschema": None, "datacontenttype": None},
    {"anext1": "text", "count": -(2**31), "flag": True, "none": None, "romancyinstanceid": "i"},
    {"expirytime": "2126-01-31T12:00:00+01:00", "id": "\u00e4\u4e2d" * 100, "type": "x" * 1024},
    {"source": "/relative#part", "datacontenttype": "text/plain", "data": None},
]
BAD_EVENTS: list[dict[str, Any]] = [
    {"id": ""},
    {"id": None},
    {"id": 7},
    {"type": ""},
    {"source": ""},
    {"subject": ""},
    {"specversion": "0.3"},
    {"id": "x" * 1025},
    {"type": "\u4e2d" * 1024},
    {"id": "a\u0000"},
    {"type": "a\u007f"},
    {"subject": "a\ufdd0"},
    {"id": "a\U0001ffff"},
    {"source": "a b"},
    {"source": 'a"b'},
    {"time": "yesterday"},
    {"time": "2026-01-31"},
    {"time": 5},
    {"datacontenttype": "json"},
    {"datacontenttype": "text/plain", "data": {"a": 1}},
    {"datacontenttype": "text/plain", "data": 1},
    {"dataschema": "relative"},
    {"dataschema": "https://a b"},
    {"data_base64": "***"},
    {"data_base64": "aGk"},
    {"data_base64": 7},
    {"data": 1, "data_base64": "aGk="},
    {"data": None, "data_base64": "aGk="},
    {"UPPER": "x"},
    {"with-dash": "x"},
    {"ext": 1.5},
    {"ext": 2**31},
    {"ext": {"a": 1}},
    {"ext": ["a"]},
    {"ext": "a\u0001"},
    {"romancyinstanceid": ""},
    {"romancyinstanceid": 7},
    {"expirytime": "soon"},
]
MAKE = {"specversion": "1.0", "id": "1", "source": "bank", "type": "t"}


def test_events_are_described_as_strictly_as_they_are_read(live: Live) -> None:
    one = schema_of(live, "/", "post", "requestBody", "content", "application/cloudevents+json")
    for n, (given, fits) in enumerate([*((e, True) for e in GOOD_EVENTS), *((e, False) for e in BAD_EVENTS)]):
        event = {**MAKE, "id": f"e-{n}", **given}
        answer = live.client.post("/", content=json.dumps(event), headers=CE)
        assert (answer.status_code == 202) is fits, (given, answer.text)
        assert one.is_valid(event) is fits, given
    for name in MAKE:
        missing = {key: value for key, value in MAKE.items() if key != name}
        assert live.client.post("/", content=json.dumps(missing), headers=CE).status_code == 400
        assert not one.is_valid(missing)


def test_batches_are_described_with_their_limit(serve: Any) -> None:
    live = serve(http=HTTPOptions(max_batch=3))
    content = "application/cloudevents-batch+json"
    batch = schema_of(live, "/", "post", "requestBody", "content", content)
    for size, fits in ((0, True), (3, True), (4, False)):
        events = [{**MAKE, "id": str(n)} for n in range(size)]
        answer = live.client.post("/", content=json.dumps(events), headers={"content-type": content})
        assert (answer.status_code == 202) is fits
        assert batch.is_valid(events) is fits
    contents = live.client.get("/openapi.json").json()["paths"]["/"]["post"]["requestBody"]["content"]
    assert set(contents) == {CE["content-type"], content}, (
        "what the server takes only with ce- headers is said in words"
    )


BODIES = [
    ({}, True),
    ({"instance_id": "a b\u00e4/\U0001f600", "args": [], "kwargs": {}}, True),
    ({"instance_id": None}, True),
    ({"instance_id": ""}, False),
    ({"instance_id": "x" * 256}, False),
    ({"instance_id": "a\nb"}, False),
    ({"instance_id": "a\u202eb"}, False),
    ({"instance_id": "a\u00a0b"}, False),
    ({"instance_id": 7}, False),
    ({"kwargs": {"instance_id": "x"}}, False),
    ({"args": {}}, False),
    ({"kwargs": []}, False),
    ({"other": 1}, False),
]


def test_starts_are_described_as_strictly_as_they_are_read(live: Live) -> None:
    start = schema_of(live, "/api/workflows/{name}/start", "post", "requestBody", "content", "application/json")
    for body, fits in BODIES:
        answer = live.client.post("/api/workflows/elsewhere/start", json=body)
        assert (answer.status_code == 201) is fits, (body, answer.text)
        assert start.is_valid(body) is fits, body


def test_filters_are_described_as_strictly_as_they_are_read(live: Live) -> None:
    for n in range(3):
        live.start("nap", id=f'{n} "\\\u00e4\U0001f600')
        live.send(f"e{n}")
    for n in range(3):
        live.until(f'{n} "\\\u00e4\U0001f600'.replace('"', "%22").replace("\\", "%5C"), "waiting_for_timer")
    wrong = ["", "x", "5b", "5b5d", "7b7d", "5b315d5d", "[1]", json.dumps([1, 2]).encode().hex()]
    for path in ("/api/instances", "/api/waits", "/api/events"):
        described = live.client.get("/openapi.json").json()["paths"][path]["get"]["parameters"]
        schema = next(item["schema"] for item in described if item["name"] == "cursor")
        known = jsonschema_rs.validator_for(schema)
        given = live.client.get(path, params={"limit": 2}).json()["cursor"]
        assert known.is_valid(given), given
        assert live.client.get(path, params={"cursor": given}).status_code == 200
        for cursor in wrong:
            assert live.client.get(path, params={"cursor": cursor}).status_code == 400
            assert not known.is_valid(cursor), (path, cursor)
    answers = [live.client.get("/api/instances", params={"status": ["failed"] * n}).status_code for n in (50, 51)]
    assert answers == [200, 400]


@pytest.mark.parametrize("moment", ["0.5", "5", "1700000000", "2026-01-31", "yesterday", "2026-01-31T12:00:00"])
def test_times_are_written_out(live: Live, moment: str) -> None:
    assert_error(live.client.get("/api/instances", params={"started_after": moment}), 400)


def test_tokens_are_described_where_there_are_some(serve: Any, live: Live) -> None:
    guarded = serve(tokens=["secret"])
    asked = guarded.client.get("/openapi.json", headers={"authorization": "Bearer secret"}).json()
    for path, methods in asked["paths"].items():
        for operation in methods.values():
            has_none = path.startswith("/health/")
            assert ("security" in operation) is not has_none, path
            if not has_none:
                assert {"token": []} in operation["security"]
                assert {} not in operation["security"]
                assert ({"token_in_url": []} in operation["security"]) is (path == "/")
    assert "security" not in json.dumps(live.client.get("/openapi.json").json()["paths"])


def fuzz(live: Live, folder: Path, *words: str) -> str:
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{live.url}/openapi.json", "--no-color"]
    command += ["--checks", CHECKS, "--phases", "coverage,fuzzing", "--generation-database", "none", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, cwd=folder, env=os.environ | {"COLUMNS": "120"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.play
def test_no_request_is_answered_outside_the_description(live: Live, tmp_path: Path) -> None:
    """Hundreds of requests, made from the description and against it."""
    waits = [
        "--include-operation-id",
        "get_result",
        "--max-examples",
        "10",
    ]  # apart and first: where there are instances it waits for them
    assert "Tested: 1\n" in fuzz(live, tmp_path, *waits)
    live.start("pay", id="p")
    live.send("e", data={"amount": 1})
    rest = ["--exclude-operation-id", "get_result", "--max-examples", "5"]  # OPTIONS is no operation to it
    assert f"Tested: {len(live.face.routes) - 2}\n" in fuzz(live, tmp_path, *rest)
    assert live.send("afterwards").status_code == 202
