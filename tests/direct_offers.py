"""Events that are offered as soon as they are accepted, held against a look: it must find the same event.

In every test, and in the processes that tests start by fork. An offer that overtakes an older event that its wait can
take would be found here, whatever a test is about.
"""

from __future__ import annotations

from typing import Any

from romancy.storage.batch import Offer
from romancy.storage.sqlite.batches import BatchWriter

made = 0
"""How many such offers were made."""
wrong: list[str] = []
_deliver = BatchWriter._deliver


def _checked(self: Any, event: Any, seq: int, matched: Any, batch: Any, fenced: bool, looks: Any) -> list[Offer]:
    global made
    offers = _deliver(self, event, seq, matched, batch, fenced, looks)
    made += len(offers)
    for offer in offers:
        found = self._looker.look(offer.instance, offer.op, batch.worker, event.accepted_at)
        if found != [offer]:
            wrong.append(f"{offer} was offered; a look finds {found}")
    return offers


def watch() -> None:
    """Check all offers from now on."""
    BatchWriter._deliver = _checked  # type: ignore[method-assign]
