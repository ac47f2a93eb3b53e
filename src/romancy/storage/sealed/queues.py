"""Queues of a database whose values are sealed: the rows of instances that are admitted are opened."""

from __future__ import annotations

from collections.abc import Collection

from romancy.core.admission import Admission
from romancy.storage.instances import Admitted
from romancy.storage.queues import Queues
from romancy.storage.sealed.reads import Reader
from romancy.storage.sealed.vault import Vault


class SealedQueues(Queues):
    """Queues, with opened inputs."""

    def __init__(self, inner: Queues, vault: Vault) -> None:
        super().__init__(*inner.runs)
        self._reader = Reader(vault)

    async def admit(
        self, admission: Admission, worker: str, at: int, workflows: Collection[str]
    ) -> list[Admitted] | None:
        found = await super().admit(admission, worker, at, workflows)
        return None if found is None else list(map(self._reader.admitted, found))
