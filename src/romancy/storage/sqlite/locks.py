"""One lock file per worker: a process that can take the lock knows that the worker is dead. Pids are never used.

The lock belongs to the open file, which a forked child shares with its parent. The child would hold the lock for as
long as it lives. So a child closes the files that it inherited before any of its own code runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from pathlib import Path

from romancy.errors import StorageError
from romancy.storage.errors import TransientError

try:
    import fcntl
except ImportError:  # Windows: only the lease decides
    fcntl = None


_steady = threading.RLock()
"""Held while a file is open that no `WorkerLocks` knows of. It prevents forks, as a child could not close the file."""


class WorkerLocks:
    """The locks beside one database file."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder if fcntl is not None else None
        self._mine: dict[str, int] = {}
        _all.add(self)

    def hold(self, worker: str) -> None:
        """Take this worker's own lock, for as long as the process lives."""
        if self._folder is None or fcntl is None:
            return
        with _steady:
            try:
                handle = self._create(self._folder / worker)
            except OSError as error:
                raise self._refusal(error) from error
            self._mine[worker] = handle
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _refusal(self, error: OSError) -> StorageError:
        where = f"the folder {str(self._folder)!r} for worker locks"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return TransientError(f"{where} is on a disk that is full; work continues when there is space again")
        return StorageError(f"{where} can't be used ({error}); allow writing beside the database")

    def _create(self, path: Path) -> int:
        while True:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # the last worker of another process has just removed the folder

    def is_dead(self, worker: str) -> bool:
        """Return True only if it is certain; a missing file proves nothing (another host, another mount)."""
        return self._is_held(worker) is False

    def is_alive(self, worker: str) -> bool:
        """Return True only if it is certain: its process holds the lock, though it may be paused."""
        return self._is_held(worker) is True

    def _is_held(self, worker: str) -> bool | None:
        if self._folder is None or fcntl is None:
            return None
        if worker in self._mine:
            return True
        with _steady:
            try:
                handle = os.open(self._folder / worker, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                return None
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(handle)
        return False

    def forget(self, worker: str) -> None:
        """Remove the lock of a worker that is gone for good."""
        handle = self._mine.pop(worker, None)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._folder / worker)
                self._folder.rmdir()  # succeeds only for the last one
        if handle is not None:
            os.close(handle)

    def drop(self) -> None:
        """Release all locks without removing their files, as a crash would."""
        for handle in self._mine.values():
            os.close(handle)
        self._mine.clear()


_all: weakref.WeakSet[WorkerLocks] = weakref.WeakSet()


def _begin_child() -> None:
    _steady.release()
    for locks in list(_all):
        locks.drop()


if fcntl is not None:
    os.register_at_fork(before=_steady.acquire, after_in_parent=_steady.release, after_in_child=_begin_child)
