"""Encrypt what is stored, and change the key.

The file holds no card number. After the rotation, new values are written with the new key, and old
ones are still read with the old one. Filters work: their keys are hashed with a secret.
"""

import asyncio
import secrets
import tempfile
from pathlib import Path

from romancy import App, WorkflowContext, wait_event, workflow
from romancy.codecs import Encrypted

CARD = "4111-1111-1111-1111"


@workflow
async def payment(ctx: WorkflowContext, card: str) -> str:
    paid = await wait_event(ctx, "card.charged", where={"card": card})
    return f"paid {paid.data['amount']} with {card}"


WORKFLOWS = [payment]


def is_in(folder: Path, text: str) -> bool:
    return any(text.encode() in file.read_bytes() for file in folder.glob("shop.db*") if file.is_file())


async def main() -> None:
    old, new = secrets.token_bytes(32), secrets.token_bytes(32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with App(folder / "shop.db", workflows=WORKFLOWS, codec=Encrypted({"2025": old})) as app:
            await app.start_workflow(payment, CARD, instance_id="payment-1")
        async with App(folder / "shop.db", workflows=WORKFLOWS, codec=Encrypted({"2026": new, "2025": old})) as app:
            await app.send_event("card.charged", "bank", {"card": CARD, "amount": 42})
            print(await app.handle("payment-1").result(timeout=10))
            print("the card is in the file:", is_in(folder, CARD))


if __name__ == "__main__":
    asyncio.run(main())

# expect: paid 42 with 4111-1111-1111-1111
# expect: the card is in the file: False
