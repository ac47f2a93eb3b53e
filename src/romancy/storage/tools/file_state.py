"""The state of a SQLite file for `romancy doctor`, read without changing it or starting an app."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from romancy.storage.sqlite.errors import explain
from romancy.storage.sqlite.migrations import stored_versions

MOUNTS = "/proc/self/mountinfo"
"""Where Linux lists its file systems; elsewhere they are unknown."""
REMOTE = frozenset("9p afs ceph cifs fuse.glusterfs fuse.s3fs fuse.sshfs glusterfs lustre nfs nfs4 smb3 smbfs".split())
"""File systems on which SQLite's locks or shared memory don't work between machines."""


@dataclass(frozen=True)
class FileState:
    """What a file says about itself."""

    version: int
    """Of the schema; 0 if the file has no tables of ours."""
    min_reader: int
    journal_mode: str
    damage: Sequence[str]
    """What is damaged; empty if nothing is, or if that was not checked."""


def read_file(path: str, *, deep: bool = False) -> FileState:
    """Read a file. `deep`: read all of it, to find damage."""
    try:
        connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
        try:
            version, min_reader = stored_versions(connection, path)
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            # Not quick_check: SQLite 3.40 takes columns of tables without rowids for NULL there.
            checked = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")] if deep else []
            return FileState(version, min_reader, mode, [line for line in checked if line != "ok"])
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise explain(error, path) from error


def unwritable(path: str) -> list[str]:
    """Return what this user can't write to: the file, those that SQLite keeps beside it, and their folder."""
    files = [path, f"{path}-wal", f"{path}-shm", str(Path(path).resolve().parent)]
    effective = os.access in os.supports_effective_ids
    return [file for file in files if os.path.exists(file) and not os.access(file, os.W_OK, effective_ids=effective)]


def is_readable_by_all(path: str) -> bool:
    """Return whether every user of this machine can read a file."""
    return os.name == "posix" and bool(os.stat(path).st_mode & stat.S_IROTH)


def free_bytes(path: str) -> int:
    """Return how many bytes can still be written beside a file."""
    return shutil.disk_usage(Path(path).resolve().parent).free


def remote_file_system(path: str, mounts: str | None = None) -> str | None:
    """Return the kind of network file system that holds a file; None if it is a local one, or unknown."""
    try:
        listed = Path(mounts or MOUNTS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    real = os.path.realpath(path)
    kind, longest = "", -1
    for line in listed:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
        if len(point) >= longest and (real == point or real.startswith(point.rstrip("/") + "/")):
            kind, longest = after.split(" ")[0], len(point)
    return kind if kind in REMOTE else None
