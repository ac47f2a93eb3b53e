"""`romancy top`, in little room."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from romancy.cli.live import Glance, _drawn
from romancy.records import Wait
from romancy.viewer.catalog import Group

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "bulk-0123456789-abcdefghijklmnopqrstuvwxyz"


def drawn(width: int, id: str) -> str:
    where = {"customer.address.country": "Liechtenstein", "order.id": "ORD-123456789"}
    wait = Wait(id, "paid:1", "event", ("payment.completed.by.card",), where, NOW, NOW + timedelta(hours=5), "x.py:1")
    glance = Glance(NOW, {}, {}, [Group("payment.completed.by.card.or.by.transfer", 3, [wait])], [wait], [])
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(_drawn(glance, console.width))
    return captured.get()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_instances_are_shown_whole(width: int) -> None:
    text = drawn(width, LONG)
    assert text.count(LONG) == 2, text
    assert "in 5 h" in text
    assert "timeout" in text
    assert all(len(line) <= width for line in text.splitlines())


def test_one_that_is_too_long_is_folded() -> None:
    id = "x" * 200
    assert drawn(80, id).count("x") == 400
