"""Lists over several places of an index come out as one."""

from __future__ import annotations

from romancy.storage.catalog import Search
from tests.postgres.conftest import Place


async def test_several_statuses_are_one_list_newest_first(place: Place) -> None:
    db = await place.worker("me", listen=False)
    for n in range(6):
        place.clock.turn_to(place.clock.now() + 1)
        await db.start(f"i{n}", "me")
        await db.step(f"i{n}", "me", 0, status="completed" if n % 2 else "failed")
    await db.start("i6", "me")
    rows = await db.storage.catalog.instances(Search(status=("completed", "failed", "completed")), limit=4)
    assert [row.id for row in rows] == ["i5", "i4", "i3", "i2"]
    last = rows[-1].created_at, rows[-1].id
    rest = await db.storage.catalog.instances(Search(status=("completed", "failed")), cursor=last)
    assert [row.id for row in rest] == ["i1", "i0"]
