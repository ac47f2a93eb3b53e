"""Ids that are used twice, by instances and from outside."""

from __future__ import annotations

import logging

import pytest

from romancy import WorkflowContext, send_event, workflow
from romancy.testing import Environment


@workflow
async def tells(ctx: WorkflowContext, what: str) -> None:
    await send_event(ctx, "said", "me", what, id="fixed")


async def test_instances_that_send_different_events_under_one_id(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "romancy"):
        await (await env.start(tells, "one", instance_id="first")).result()
        await (await env.start(tells, "one", instance_id="same")).result()
        assert caplog.messages == []
        await (await env.start(tells, "two", instance_id="other")).result()
    [said] = caplog.messages
    assert said.startswith("instance 'other' sent event 'fixed' from source 'me' again with different content")
    [record] = (await env.app.list_events()).items
    assert (record.event.data, record.differed_at is not None) == (b'"one"', True)
    assert (await env.send_event("said", "me", "three", id="fixed")).differs
    assert not (await env.send_event("said", "me", "one", id="fixed")).differs
