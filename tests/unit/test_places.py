"""Where a wait on PostgreSQL goes on: snapshots as text, moved forward."""

import pytest

from romancy.core.operations import After
from romancy.storage.postgres.places import beginning, place_after


def sees(snapshot: str, xid: int) -> bool:
    """What pg_visible_in_snapshot says."""
    first, end, listed = snapshot.split(":")
    running = [int(other) for other in listed.split(",") if other]
    assert int(first) <= int(end)
    assert running == sorted(running)
    assert all(int(first) <= other < int(end) for other in running)
    return xid < int(first) or (xid < int(end) and xid not in running)


@pytest.mark.parametrize("born", ["10:10:", "10:20:10", "10:20:10,12,19", "5:30:5,6,7,29"])
@pytest.mark.parametrize("taken", [10, 12, 19, 20, 21, 29, 30, 31, 40])
def test_it_leaves_out_what_was_left_out_before_and_all_before_the_event(born: str, taken: int) -> None:
    if sees(born, taken):
        return  # an event that such a wait can't take
    place = place_after(born, None, taken)
    for xid in range(1, 50):
        assert sees(place, xid) == (sees(born, xid) or xid < taken), (place, xid)
    assert not sees(place, taken), "other events of the same transaction come next"


def test_an_unsettled_event_moves_nothing() -> None:
    assert place_after("10:20:10", None, None) == "10:20:10"
    assert place_after(None, 77, None) == "@77"
    assert place_after("10:20:10", 77, None) == "10:20:10@77"


def test_what_a_new_wait_begins_with() -> None:
    assert beginning(None) == (None, None)
    assert beginning("now") == ("now", None)
    assert beginning(77) == (None, 77)
    assert beginning(After(place_after("10:20:10", None, 25))) == ("25:25:", None)
    assert beginning(After(place_after(None, 77, 25))) == ("25:25:", 77)
    assert beginning(After("@77")) == (None, 77)
    assert beginning(After("123@77")) == (None, 77), "recorded when the database was a SQLite file"
