"""Finds events for waits, after their commit: the oldest for each, with a hint for the next owner."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any

from romancy.storage.batch import Consumption, Offer
from romancy.storage.opener import Opener
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.dispatch import accepts
from romancy.storage.postgres.places import place_after
from romancy.storage.rows import content_type_of, to_event

_REMEMBERED = 100_000
_EVENT = slice(10, 21)
"""The columns of an event in a row of `look`."""


class Looker:
    """Finds events for waits."""

    def __init__(self, connections: Connections, opener: Opener) -> None:
        self._connections, self._opener = connections, opener
        self._settled: OrderedDict[tuple[str, int, bytes, str], int] = OrderedDict()

    def forget(self) -> None:
        self._settled.clear()

    async def look(
        self, asked: Collection[tuple[str, str | None]], fresh: Collection[str], worker: str, now: int
    ) -> tuple[bool, list[Offer]]:
        """Return whether the worker is still registered, and the oldest event that each wait of its instances can take.

        `fresh`: instances whose looks became due only with this commit. For other instances, an earlier commit may have
        stored looks that are still due; a look for a single wait must not count as those.
        """
        whole = {instance for instance, op in asked if op is None}.union(fresh)
        given = {"instances": [i for i, _ in asked], "ops": [op for _, op in asked], "worker": worker, "at": now}
        rows = await self._connections.do("look", **given, whole=sorted(whole))
        if not rows[0]["yes"]:
            return False, []
        offers: list[Offer] = []
        judged: list[Any] = []
        for row in rows:
            if row["pending"] or row["scans"]:
                judged.append(row)
            elif row["seq"] is not None:
                offers.append(self._offer(row, worker, row[_EVENT], row["xid"] if row["settled"] else None))
                if row["settled"]:
                    self._remember(row["instance"], row["seq"], row["spec"], row["model"], row["xid"])
        return True, _in_order(offers + await self._judge(judged, worker, now), asked)

    def _offer(self, row: Any, worker: str, event: tuple[Any, ...], settled: int | None = None) -> Offer:
        """`settled`: the xid of the event, if no earlier one can become visible any more."""
        if row["reaches_back"]:
            return Offer(row["instance"], row["op"], worker, to_event(event), (row["spec"], row["model"]))
        place = place_after(row["own_born"], row["since"], settled)
        return Offer(row["instance"], row["op"], worker, to_event(event), None, place)

    # --- marks ------------------------------------------------------------------------------------------------------
    def remember(self, offer: Offer, xid: int) -> None:
        """Remember that no earlier event can become visible any more: taking this one takes all up to it."""
        if offer.group is not None:
            self._remember(offer.instance, offer.event.seq, *offer.group, xid)

    def _remember(self, instance: str, seq: int, spec: bytes, model: str, xid: int) -> None:
        self._settled[instance, seq, spec, model] = xid
        if len(self._settled) > _REMEMBERED:
            self._settled.popitem(last=False)

    def settled(self, instance: str, taken: Consumption) -> int | None:
        """Return the xid of an event that was its wait's oldest, with no earlier one uncommitted; otherwise None."""
        return self._settled.get((instance, taken.event, taken.wait.spec, taken.wait.model))

    # --- waits that no index answers --------------------------------------------------------------------------------
    async def _judge(self, rows: list[Any], worker: str, now: int) -> list[Offer]:
        """Check the data of events whose keys are not written yet, or of all events if there is no index."""
        offers: list[Offer] = []
        for row in rows:
            best = await self._best(row, now)
            if best is not None:
                offers.append(self._offer(row, worker, best[1:]))
        if rows:
            due = {row["instance"]: row["due_xid"] for row in rows if row["due_xid"] is not None}
            await self._connections.do(
                "hint",
                found_instances=[offer.instance for offer in offers],
                found_events=[offer.event.seq for offer in offers],
                instances=list(due),
                due_xids=list(due.values()),
            )
        return offers

    async def _best(self, row: Any, now: int) -> tuple[Any, ...] | None:
        """Return (xid, event...) of the oldest event for one wait."""
        seqs: list[int] = [row["seq"]] if row["seq"] is not None else []
        seqs += row["pending"] or ()
        types: list[str] = list(row["scans"] or ())
        for event_type in types:
            found = await self._scan(row, event_type, now)
            seqs += [found] if found is not None else []
        events: list[Any] = await self._connections.ask("found_events", seqs=seqs) if seqs else []
        certain = row["seq"]
        fitting = [
            tuple(e)
            for e in events
            if e["seq"] == certain or accepts(self._opener, row["spec"], to_event(tuple(e)[1:]))
        ]
        return min(fitting, key=lambda event: event[:2], default=None)

    async def _scan(self, row: Any, event_type: str, now: int) -> int | None:
        narrow = self._opener.filter_of(row["spec"])
        after: dict[str, int] = {"xid": 0, "seq": 0}
        given = {"instance": row["instance"], "op": row["op"], "type": event_type, "at": now}
        while rows := await self._connections.ask("look_scan", **given, **after):
            for event in rows:
                data = self._opener.matchable_data(event["data"], content_type_of(event["attrs"]))
                if narrow.accepts(event["subject"], event["source"], data):
                    return event["seq"]
            after = {"xid": rows[-1]["xid"], "seq": rows[-1]["seq"]}
        return None


def _in_order(offers: list[Offer], asked: Collection[tuple[str, str | None]]) -> list[Offer]:
    """Order offers by instance as asked, then waits that reach back to the instance's beginning first.

    The waits of one instance arrive in the order of a query plan, which must not decide anything.
    """
    turns: dict[str, int] = {}
    for instance, _ in asked:
        turns.setdefault(instance, len(turns))

    def turn(offer: Offer) -> tuple[int, bool, tuple[bytes, str], str]:
        return turns[offer.instance], offer.group is None, offer.group or (b"", ""), offer.op

    return sorted(offers, key=turn)
