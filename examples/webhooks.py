"""Webhooks: deliveries of other systems become events.

The payment provider signs as in Standard Webhooks; two functions check and read what the carrier sends.
"""

import asyncio
import base64
import hmac
import json
import time

import httpx2

from romancy import App, Event, Webhook, WebhookRequest, WorkflowContext, wait_event, workflow

PAYMENTS_SECRET = "whsec_" + base64.b64encode(b"shared with the payment provider").decode()
CARRIER_KEY = b"shared with the carrier"


@workflow
async def fulfil(ctx: WorkflowContext, order_id: str) -> str:
    paid = await wait_event(ctx, "payments.invoice.paid", where={"data.order": order_id})
    parcel = await wait_event(ctx, "parcel.delivered", subject=order_id)
    return f"{order_id}: paid {paid.data['data']['amount']}, delivered to {parcel.data['to']}"


def is_from_carrier(request: WebhookRequest) -> bool:
    expected = hmac.digest(CARRIER_KEY, request.body, "sha256").hex()
    return hmac.compare_digest(request.headers["x-signature"], expected)


def to_event(request: WebhookRequest) -> Event:
    scan = request.json()
    return Event(f"parcel.{scan['status']}", "carrier", scan, subject=scan["order"], id=scan["scan_id"])


WORKFLOWS = [fulfil]
WEBHOOKS = [
    Webhook("payments", scheme="standard", secrets=[PAYMENTS_SECRET], types=["invoice.*"]),
    Webhook("carrier", verify=is_from_carrier, to_event=to_event),
]


# --- what the others do ----------------------------------------------------------------------------------------------
async def payment_provider(client: httpx2.AsyncClient, order_id: str) -> httpx2.Response:
    body = json.dumps({"type": "invoice.paid", "data": {"order": order_id, "amount": 42}})
    id, now = "msg_1", str(int(time.time()))
    key = base64.b64decode(PAYMENTS_SECRET.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"{id}.{now}.{body}".encode(), "sha256")).decode()
    headers = {"webhook-id": id, "webhook-timestamp": now, "webhook-signature": f"v1,{signature}"}
    return await client.post("/webhooks/payments", content=body, headers=headers)


async def carrier(client: httpx2.AsyncClient, order_id: str, key: bytes = CARRIER_KEY) -> httpx2.Response:
    body = json.dumps({"status": "delivered", "order": order_id, "scan_id": "scan-9", "to": "Ann"}).encode()
    headers = {"x-signature": hmac.digest(key, body, "sha256").hex()}
    return await client.post("/webhooks/carrier", content=body, headers=headers)


async def main() -> None:
    app = App(":memory:", workflows=WORKFLOWS, webhooks=WEBHOOKS)
    async with app, httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://shop") as client:
        handle = await app.start_workflow(fulfil, "ORD-1")
        print("a stranger is answered", (await carrier(client, "ORD-1", b"a guess")).status_code)
        print("the payment provider is answered", (await payment_provider(client, "ORD-1")).status_code)
        print("the carrier is answered", (await carrier(client, "ORD-1")).status_code)
        print(await handle.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())

# expect: a stranger is answered 401
# expect: the payment provider is answered 200
# expect: the carrier is answered 200
# expect: ORD-1: paid 42, delivered to Ann
