"""`answer_question`: a program passes on what a person decided elsewhere, as with a button in a chat.

The program has to know who it was: check the signature of the chat's webhook first (webhooks.py). `by` says
how the answer came. The first answer decides, and later ones are refused.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import App, WorkflowContext, ask, workflow
from romancy.errors import InvalidInput

ANN, BOB = "ann@shop.example", "bob@shop.example"


@dataclass
class Approval:
    approved: bool
    note: str = ""


@dataclass
class Button:
    """What the chat tells when someone presses a button."""

    instance_id: str
    person: str
    approved: bool


@workflow
async def refund(ctx: WorkflowContext, order: str) -> str:
    question = await ask(ctx, Approval, title=f"Refund {order}?", people=[ANN, BOB], expires_in=timedelta(days=3))
    answer = await question.answer()
    return f"{'refunded' if answer.data.approved else 'refused'} by {answer.by}"


async def on_button(app: App, button: Button) -> None:
    decision = Approval(button.approved)
    name = button.person.partition("@")[0]
    try:
        await app.answer_question(button.instance_id, button.person, decision, by=f"{name}, in the chat")
    except InvalidInput as error:
        print(error)


WORKFLOWS = [refund]


async def main() -> None:
    keys = ["change-me-32-characters-or-more-from-the-environment"]
    async with App(":memory:", workflows=WORKFLOWS, signing_keys=keys) as app:
        handle = await app.start_workflow(refund, "ORD-1", instance_id="refund-1")
        while not (questions := (await app.list_questions()).items):  # noqa: ASYNC110 - asked in a moment
            await asyncio.sleep(0.01)
        for question in questions:
            print(question.title, *question.people)
        await on_button(app, Button("refund-1", ANN, approved=True))
        print(await handle.result(timeout=10))
        await on_button(app, Button("refund-1", BOB, approved=False))


if __name__ == "__main__":
    asyncio.run(main())

# expect: Refund ORD-1? ann@shop.example bob@shop.example
# expect: refunded by ann, in the chat
# expect: instance 'refund-1': 'bob@shop.example' can't answer 'Refund ORD-1?': it is closed
