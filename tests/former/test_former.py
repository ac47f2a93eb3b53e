"""A database of a former release is brought up to date when it is opened, and everything in it goes on."""

from __future__ import annotations

import pytest

from romancy import App, Retention, WorkflowCancelled, WorkflowFailed
from tests.former.workflows import WORKFLOWS, failing, impatient, order, persistent, sleepy

KEPT = Retention(instances=None, failed=None, events=None)


async def test_everything_goes_on(database: str) -> None:
    async with App(database, workflows=WORKFLOWS, retention=KEPT) as app:
        assert await app.handle("order-2", order).result(timeout=10) == ["reserved 2", "payment-2", "reserved 102"]
        assert await app.handle("order-4", order).result(timeout=10) == ["reserved 4", "payment-4", "reserved 104"]
        assert await app.handle("sleepy", sleepy).result(timeout=10) == "early"
        assert await app.handle("impatient", impatient).result(timeout=10) == "timed out"
        assert await app.handle("persistent", persistent).result(timeout=10) == 2
        with pytest.raises(WorkflowCancelled, match="not wanted"):
            await app.handle("order-3", order).result(timeout=10)
        for number in (1, 5, 9):
            await app.send_event("paid", "shop", {"order": number}, id=f"payment-{number}")
        for number in (1, 5):
            done = [f"reserved {number}", f"payment-{number}", f"reserved {number + 100}"]
            assert await app.handle(f"order-{number}", order).result(timeout=10) == done
        (reaction,) = (await app.list_instances(workflow="placed")).items
        assert await app.handle(reaction.instance_id).result(timeout=10) == "payment-9"
        again = await app.send_event("paid", "shop", {"order": 4}, id="payment-4")
        assert again.duplicate, "what was accepted before is known"


async def test_what_failed_before_is_retried_by_its_last_failure(database: str) -> None:
    async with App(database, workflows=WORKFLOWS, retention=KEPT) as app:
        with pytest.raises(WorkflowFailed, match="for good"):
            await app.handle("failed", failing).result(timeout=10)
        again = await app.retry_workflow("failed")
        with pytest.raises(WorkflowFailed, match="for good"):
            await again.result(timeout=10)
        dropped = [entry.operation for entry in await app.get_history("failed") if entry.dropped]
        assert dropped == ["broken:1"], "it ran once more"
