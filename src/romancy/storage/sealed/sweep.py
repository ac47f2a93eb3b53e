"""Removes files of values outside the database that nothing refers to.

Files are named after the day they were written, and only old ones are removed. Nothing begins to refer to an old file:
whoever stores a value again writes a new one (see `romancy/outside.py`). So it is enough to look first which files
there are, and then who refers to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from romancy.errors import CodecError
from romancy.outside import Files, Outside, old_files, owner_names, remove_folder
from romancy.storage.catalog import Catalog
from romancy.storage.sealed.vault import Vault, name

CHUNK = 500
"""How many folders are looked at together."""
Old = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""By folder: whose it is, and the paths of its old files."""


async def sweep(vault: Vault, catalog: Catalog) -> int:
    """Remove old files that nothing refers to; return how many. `catalog`: with values as they are stored."""
    outside = vault.outside
    if outside is None or not outside.sweep:
        return 0
    removed = 0
    for kind, needed in (("instances", _needed_by_instances), ("events", _needed_by_events)):
        root = f"{vault.folder}/{kind}"
        names = list(await asyncio.to_thread(outside.files.names, root))
        for start in range(0, len(names), CHUNK):
            folders = [f"{root}/{one}" for one in names[start : start + CHUNK]]
            old = await asyncio.to_thread(_old, outside.files, folders)
            kept = await needed(vault, catalog, old)
            removed += await asyncio.to_thread(_remove, outside, old, kept)
    return removed


def _old(files: Files, folders: Sequence[str]) -> Old:
    found: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
    for folder in folders:
        paths = old_files(files, folder)
        owner = owner_names(files, folder) if paths else None
        if owner is not None:
            found[folder] = owner, paths
    return found


def _remove(outside: Outside, old: Old, kept: set[str]) -> int:
    removed = 0
    for folder, (_, paths) in old.items():
        gone = [path for path in paths if path not in kept]
        for path in gone:
            outside.forget(path)
        if gone:
            remove_folder(outside.files, folder)
        removed += len(gone)
    return removed


async def _needed_by_instances(vault: Vault, catalog: Catalog, old: Old) -> set[str]:
    """Return the files that instances need. All of one that has not continued as new: what it left goes with it."""
    ids = [owner[0] for owner, _ in old.values()]
    present = {row.id for row in await catalog.summaries(ids)} if ids else set[str]()
    needed: set[str] = set()
    for owner, paths in old.values():
        if owner[0] in present:
            found = await _references(vault, catalog, owner[0])
            needed.update(paths if found is None else found)
    return needed


async def _references(vault: Vault, catalog: Catalog, id: str) -> set[str] | None:
    """Return the files that the current run of an instance refers to. None: any of them."""
    row = await catalog.instance(id)
    if row is None:
        return set()
    if row.generation == 0:
        return None
    values = [(row.input, f"instances/{name(id)}/input"), (row.output, f"instances/{name(id)}/output")]
    for entry in await catalog.history(id):
        place = f"history/{name(id)}/{entry.n}"
        values += [(entry.input, f"{place}/input"), (entry.payload, f"{place}/payload")]
    try:
        references = [vault.reference(value, place) for value, place in values]
    except CodecError:
        return None  # a key is missing here
    return {reference.path for reference in references if reference is not None}


async def _needed_by_events(vault: Vault, catalog: Catalog, old: Old) -> set[str]:
    needed: set[str] = set()
    for owner, paths in old.values():
        if len(owner) != 2 or await catalog.event(owner[0], owner[1]) is not None:
            needed.update(paths)
    return needed
