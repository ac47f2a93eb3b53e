"""How often JSON is parsed on its way in: once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.conftest import Live

MARK = "parsed-here"


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


def test_a_body_of_the_control_api_is_parsed_once(live: Live, parses: list[str]) -> None:
    live.start("buy", {"sku": MARK, "count": 2}, id="1")
    assert len(parses) == 1
