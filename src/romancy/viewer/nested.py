"""What the children of an instance did, as bars below the bars of their calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from romancy.core.model import from_us
from romancy.core.operations import child_id
from romancy.core.replay import Replay
from romancy.storage.catalog import Catalog, ShownEntry, Whole
from romancy.viewer.spans import Bar, bars_of

MOST_CHILDREN, MOST_ENTRIES = 6, 40
"""How many children are looked into, and how many of the newest entries of each."""


async def bars_below(
    stored: Catalog,
    parent: str,
    bars: Sequence[Bar],
    replayed: Callable[[Whole, Sequence[ShownEntry], int], Replay | None],
) -> Mapping[str, Sequence[Bar]]:
    """The bars of the newest children that instance `parent` called, by the label of the call."""
    calls = [bar for bar in bars if bar.kind == "child" and bar.retried is None][-MOST_CHILDREN:]
    found: dict[str, Sequence[Bar]] = {}
    for call in calls:
        id = child_id(parent, call.label)
        whole = await stored.whole(id)
        if whole is None:
            continue  # deleted meanwhile
        after = max(whole.row.base, whole.length - MOST_ENTRIES)
        entries = await stored.entries(id, after, MOST_ENTRIES)
        seen = replayed(whole, entries, after)
        began = from_us(entries[0].entry.at if entries and after > whole.row.base else whole.row.run.began_at)
        own = bars_of(entries, (), None if seen is None else seen.opened, began)
        found[call.label] = [replace(bar, instance=id) for bar in own]
    return found
