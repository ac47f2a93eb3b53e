"""The same app for code that does not use asyncio: Flask, Django, threads, scripts. Every verb blocks.

>>> from romancy.sync import App
>>> with App("workflow.db", workflows=[payment]) as app:
...     handle = app.start_workflow(payment, "ORD-1", instance_id="order-1")
...     app.send_event("payment.completed.ORD-1", "bank", {"status": "success"})
...     print(handle.result(timeout=10))

The engine runs on an event loop in its own thread. Workflows are still `async def`; activities can also be `def`.
"""

from romancy.sync.app import App
from romancy.sync.client import Client
from romancy.sync.verbs import WorkflowHandle
from romancy.sync.within import PendingHandle, Within

__all__ = ["App", "Client", "PendingHandle", "Within", "WorkflowHandle"]
