"""Emissions in a database whose values are sealed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from romancy.core.model import MAGIC
from romancy.errors import CodecError
from romancy.storage.emissions import EmissionRow, Emissions, Place, Standing, TopicRow, Wanted, Written, joined
from romancy.storage.errors import Unsealable
from romancy.storage.sealed.copies import clone
from romancy.storage.sealed.vault import Vault, json_form, label_of, name


class SealedEmissions:
    """The table of emissions, with opened values. What can't be opened is shown as "sealed (k2)"."""

    def __init__(self, inner: Emissions, vault: Vault) -> None:
        self._inner, self._vault = inner, vault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, worker: str, rows: Sequence[EmissionRow]) -> Written:
        try:
            sealed = [sealed_row(self._vault, row) for row in rows]
        except CodecError as error:
            raise Unsealable(str(error)) from error
        return await self._inner.write(worker, sealed)

    async def standings(self, instances: Collection[str]) -> dict[str, Standing]:
        return await self._inner.standings(instances)

    async def read(self, wanted: Sequence[Wanted], limit: int) -> list[list[EmissionRow]]:
        return [list(map(self._opened, rows)) for rows in await self._inner.read(wanted, limit)]

    async def topics(self, instance: str) -> list[TopicRow]:
        return await self._inner.topics(instance)

    async def remove(self, ended_before: int, after: Place, limit: int) -> tuple[Place, bool]:
        return await self._inner.remove(ended_before, after, limit)

    def _opened(self, row: EmissionRow) -> EmissionRow:
        if not row.data:
            return row
        opened, place = clone(row), _place(row)
        try:
            opened.data = self._vault.open(row.data, place)
        except CodecError:
            label = f"sealed ({label_of(row.data)})" if row.data.startswith(MAGIC) else "not sealed"
            opened.data = joined([json_form(label)] * row.count)
        return opened


def sealed_row(vault: Vault, row: EmissionRow) -> EmissionRow:
    """Return a row as it is stored."""
    if not row.data:
        return row
    sealed = clone(row)
    sealed.data = vault.seal(row.data, _place(row))
    return sealed


def _place(row: EmissionRow) -> str:
    return f"emissions/{name(row.instance)}/{row.seq}"
