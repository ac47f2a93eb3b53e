"""Start a workflow inside a transaction of your own: the order is stored and its workflow starts, or neither.

`app.within(connection)` takes a connection of your own to the database of the app. With PostgreSQL it is one of
asyncpg, psycopg, SQLAlchemy or Django.
"""

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from romancy import App, InstanceNotFound, PendingHandle, WorkflowContext, workflow


@workflow
async def fulfil(ctx: WorkflowContext, order: str) -> str:
    return f"{order} is on its way"


WORKFLOWS = [fulfil]


async def place_order(app: App, db: sqlite3.Connection, order: str, *, paid: bool) -> PendingHandle[str]:
    with db:  # commits at the end, or rolls back after an error
        db.execute("INSERT INTO orders VALUES (?)", (order,))
        pending = await app.within(db).start_workflow(fulfil, order, instance_id=order)
        if not paid:
            raise ValueError(f"{order} is not paid")
    return pending


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "shop.db"))
        async with App(path, workflows=WORKFLOWS) as app:
            with closing(sqlite3.connect(path)) as db:
                db.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
                pending = await place_order(app, db, "ORD-1", paid=True)
                print(await pending.handle().result())
                try:
                    await place_order(app, db, "ORD-2", paid=False)
                except ValueError as error:
                    print(error)
                print("orders:", [order for (order,) in db.execute("SELECT id FROM orders")])
            try:
                await app.handle("ORD-2").result()
            except InstanceNotFound:
                print("ORD-2 was never started")


if __name__ == "__main__":
    asyncio.run(main())

# expect: ORD-1 is on its way
# expect: ORD-2 is not paid
# expect: orders: ['ORD-1']
# expect: ORD-2 was never started
