"""A wait in another module than the workflow's, for test_kept_events."""

from typing import Any

from romancy import WorkflowContext, wait_event


async def wait_for_signature(ctx: WorkflowContext) -> Any:
    return await wait_event(ctx, "signed")
