"""Log from a workflow without duplicate lines.

`ctx.logger` is silent during replay, and its records carry `instance_id` and `workflow`. Here
the app stops in the middle and a second one continues: each line appears once.
"""

import asyncio
import logging
import sys
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from romancy import App, WaitTimeout, WorkflowContext, wait_event, workflow


@workflow
async def logged(ctx: WorkflowContext, order_id: str, patience: timedelta = timedelta(minutes=5)) -> str:
    ctx.logger.info("waiting for the payment of %s", order_id)
    try:
        event = await wait_event(ctx, "payment.completed", subject=order_id, timeout=patience)
    except WaitTimeout:
        ctx.logger.warning("no payment within %s", patience)
        raise
    ctx.logger.info("received %s with %s", event.id, event.data)
    return event.id


WORKFLOWS = [logged]


def log_to_stdout() -> None:
    handler = logging.StreamHandler(sys.stdout)
    unset = {"instance_id": "-", "workflow": "-"}
    handler.setFormatter(logging.Formatter("%(levelname)s [%(workflow)s %(instance_id)s] %(message)s", defaults=unset))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


async def main() -> None:
    log_to_stdout()
    with TemporaryDirectory() as folder:
        database = str(Path(folder, "workflow.db"))
        async with App(database, workflows=WORKFLOWS) as app:
            await app.start_workflow(logged, "ORD-1", instance_id="order-1")
        print("-- stopped; a new app takes over")
        async with App(database, workflows=WORKFLOWS) as app:
            await app.send_event("payment.completed", "bank", {"amount": 12}, subject="ORD-1", id="evt-1")
            event_id = await app.handle("order-1", logged).result(timeout=10)
    print(f"order-1 ended with {event_id}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: order-1 ended with evt-1
