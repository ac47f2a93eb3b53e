"""Where a wait begins: a snapshot, which sees the events before it, or a time, or both.

A wait with a snapshot alone gets the events that the snapshot does not see. One with a time gets those accepted since
then; a snapshot only says where to search for them.

A place is a beginning as text, `<snapshot>@<time>`, without the part that is missing. It is recorded with an event that
was taken, and a later wait begins there. It must leave out no event that an uncommitted transaction may still add, and
let in none from before the beginning of the first wait. Events that were taken are recorded as such, so it may let
those in again; the fewer, the faster is the next look.
"""

from __future__ import annotations

from romancy.core.operations import After, Since


def beginning(since: Since) -> tuple[str | None, int | None]:
    """Return the columns `born` and `since` of a new wait."""
    if since is None or isinstance(since, int):
        return None, since
    if not isinstance(since, After):
        return since, None
    # A place lets in the event it comes from, so `again` makes no difference here.
    snapshot, at, time = since.place.partition("@")
    # A number in front means that the database was SQLite when the place was recorded: only the time counts here.
    return snapshot if ":" in snapshot else None, int(time) if at else None


def place_after(born: str | None, since: int | None, settled: int | None) -> str:
    """Return the place after an event that a wait with this beginning took.

    `settled`: the xid of the event, if no earlier one can become visible any more. Then the wait, which took the oldest
    first, has had all before it.
    """
    snapshot = born or ""
    if settled is not None:
        snapshot = _advanced(born, settled) if born else f"{settled}:{settled}:"
    return snapshot if since is None else f"{snapshot}@{since}"


def _advanced(born: str, xid: int) -> str:
    """Return a snapshot that sees what this one sees, and everything before `xid`."""
    _, end, listed = born.split(":")
    running = [other for other in map(int, filter(None, listed.split(","))) if other >= xid]
    last = max(int(end), xid)
    return f"{running[0] if running else last}:{last}:{','.join(map(str, running))}"
