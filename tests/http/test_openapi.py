"""`/openapi.json` describes every route, and what the routes do is within it, whatever is sent to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from romancy.http.openapi import describe
from tests.http.conftest import Live

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
    assert set(by_name) == {"limit", "cursor", "status", "workflow", "text", "started_after"}
    assert by_name["limit"]["maximum"] == 1000
    assert by_name["status"]["type"] == "array"
    assert by_name["started_after"]["format"] == "date-time"


def test_the_accepted_status_is_described(serve: Any) -> None:
    from romancy.options import HTTPOptions

    live = serve(http=HTTPOptions(accepted_status=204))
    assert "204" in live.client.get("/openapi.json").json()["paths"]["/"]["post"]["responses"]


def fuzz(live: Live, folder: Path, *words: str) -> str:
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{live.url}/openapi.json", "--no-color"]
    command += ["--checks", CHECKS, "--phases", "coverage,fuzzing", "--generation-database", "none", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, cwd=folder, env=os.environ | {"COLUMNS": "120"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
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
