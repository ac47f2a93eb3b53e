"""An app with webhooks on a real socket, and how tests deliver to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from romancy import Webhook
from romancy.webhooks.schemes import SCHEMES
from tests.http.conftest import Live, serve  # noqa: F401 - a fixture
from tests.webhooks.deliveries import SECRET, SECRETS, Delivery

Serve = Callable[..., Live]


def hooks(*schemes: str, **more: Any) -> list[Webhook]:
    return [Webhook(s, scheme=s, secrets=[SECRETS.get(s, SECRET)], **more) for s in schemes]  # type: ignore[call-overload]


def deliver(live: Live, delivery: Delivery, **changes: Any) -> httpx2.Response:
    headers = {**delivery.headers, **changes.pop("headers", {})}
    body = changes.pop("body", delivery.body)
    return live.client.post(f"/webhooks/{delivery.scheme}", content=body, headers=headers)


def stored(live: Live) -> list[Any]:
    """All events, oldest first."""
    page = live.on_loop(lambda: live.app.list_events(limit=100))
    return [record.event for record in reversed(page.items)]


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "romancy")  # whatever tests before this one have set


@pytest.fixture
def live(serve: Serve) -> Live:  # noqa: F811
    """Has a webhook of each scheme."""
    return serve(webhooks=hooks(*SCHEMES))
