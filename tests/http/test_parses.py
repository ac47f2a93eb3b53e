"""How often the JSON of an event is parsed on its way in: once, whatever the mode, and however many waits it is held
against. (What a wait takes is read once more, by its model.)"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from romancy import WorkflowContext, wait_event, workflow
from tests.http.conftest import BATCH, CE, Live, event

MARK = "parsed-here"


@workflow
async def picky(ctx: WorkflowContext, field: str) -> None:
    await wait_event(ctx, "paid", where={field: 1})


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every JSON text with the mark that is parsed from now on."""
    found: list[str] = []
    parse = json.JSONDecoder.raw_decode

    def counting(self: json.JSONDecoder, s: str, idx: int = 0) -> tuple[Any, int]:
        value, end = parse(self, s, idx)
        if MARK in s[idx:end]:
            found.append(s[idx:end])
        return value, end

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counting)
    return found


DATA = {"order": 2, "customer": {"id": [1.0]}, "note": MARK}
PACKED = base64.b64encode(json.dumps(DATA).encode()).decode()
REQUESTS: dict[str, tuple[dict[str, str], Any]] = {
    "binary": ({"content-type": "application/json", **{f"ce-{k}": v for k, v in event().items() if v}}, DATA),
    "structured": (CE, event(data=DATA)),
    "batched": (BATCH, [event(data=DATA)]),
    "base64": (CE, event(data_base64=PACKED, datacontenttype="application/json")),
}
del REQUESTS["base64"][1]["data"]


@pytest.mark.parametrize("mode", REQUESTS)
def test_the_data_of_an_event_is_parsed_once(serve: Any, parses: list[str], mode: str) -> None:
    live = serve(workflows=[picky])
    for field in ("order", "customer.id", "kind"):  # each needs the data to be looked at
        live.until(live.start("picky", field), "waiting_for_event")
    headers, content = REQUESTS[mode]
    answer = live.client.post("/", content=json.dumps(content), headers=headers)
    assert answer.status_code == 202, answer.text
    [text] = [*parses]
    found = json.loads(text)
    assert found.get("data", found) == DATA, "alone, or with the attributes around it"


def test_a_body_of_the_control_api_is_parsed_once(live: Live, parses: list[str]) -> None:
    live.start("buy", {"sku": MARK, "count": 2}, id="1")
    assert len(parses) == 1
