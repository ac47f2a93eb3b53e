"""Wait for exactly the event you mean: filter by fields of its data and by its source.

`where` compares fields as JSON values, including their type; dots descend into objects. An
event that does not match wakes no workflow, costs nothing and stays available for other waits.
"""

import asyncio
from datetime import timedelta

from typing_extensions import TypedDict  # since Python 3.12, typing.TypedDict works too

from romancy import ActivityContext, App, WorkflowContext, activity, wait_event, workflow


class User(TypedDict):
    id: int
    name: str


class UserAction(TypedDict):
    user: User
    action: str
    item: str


@activity
def process_purchase(ctx: ActivityContext, name: str, item: str) -> str:
    return f"{name} bought {item}"


@workflow
async def first_purchase(ctx: WorkflowContext, user_id: int, patience: timedelta = timedelta(minutes=5)) -> str:
    event = await wait_event(
        ctx,
        "user.action",
        model=UserAction,
        source="web-shop",
        where={"user.id": user_id, "action": "purchase"},
        timeout=patience,
    )
    return await process_purchase(ctx, event.data["user"]["name"], event.data["item"])


WORKFLOWS = [first_purchase]


async def main() -> None:
    ada: User = {"id": 7, "name": "Ada"}
    bob: User = {"id": 8, "name": "Bob"}
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(first_purchase, 7)
        for source, user, action, item in (
            ("web-shop", ada, "look", "a telescope"),  # not a purchase
            ("web-shop", bob, "purchase", "a hammer"),  # not Ada
            ("test-shop", ada, "purchase", "a test item"),  # not from the web shop
            ("web-shop", ada, "purchase", "an engine"),
        ):
            print(f"{source}: {user['name']}, {action}, {item}")
            await app.send_event("user.action", source, UserAction(user=user, action=action, item=item))
        print("The workflow saw:", await handle.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())

# expect: The workflow saw: Ada bought an engine
