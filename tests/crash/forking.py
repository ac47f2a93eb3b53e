"""A process for tests that kill it while a child of its lives on: `python -m tests.crash.forking DATABASE HOW`.

It registers a worker with a lease of an hour, makes a child, prints the child's pid, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from romancy.storage.sqlite import SQLiteStorage, locks
from romancy.storage.sqlite.locks import WorkerLocks

HOUR = 3600 * 1_000_000


def make_child(how: str) -> int:
    """A child that lives on; returns its pid."""
    if how == "subprocess":
        return subprocess.Popen(["sleep", "600"], close_fds=False, stdout=subprocess.DEVNULL).pid
    if how == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        process.start()
        assert process.pid is not None
        return process.pid
    pid = os.fork()
    if not pid:
        time.sleep(600)
        os._exit(0)
    return pid


async def main(database: str, how: str) -> None:
    storage = SQLiteStorage(database)
    await storage.open()
    await storage.register("parent", HOUR, [], ["wf"])
    print(make_child(how), flush=True)
    await asyncio.sleep(600)


def fork_during_a_probe(folder: Path) -> int:
    """How many lock files a child has open that was forked while another thread was judging a dead worker."""
    assert locks.fcntl is not None
    flock, probing, forking = locks.fcntl.flock, threading.Event(), threading.Event()

    def slow_flock(handle: int, flags: int) -> None:
        flock(handle, flags)
        probing.set()
        forking.wait(0.2)  # long enough for a fork that does not wait

    locks.fcntl.flock = slow_flock
    (folder / "dead").touch()
    thread = threading.Thread(target=WorkerLocks(folder).is_dead, args=("dead",))
    thread.start()
    probing.wait()
    pid = os.fork()
    if not pid:
        names = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
        os._exit(sum(name.startswith(str(folder)) for name in names))
    forking.set()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    if sys.argv[2] == "probe":
        print(fork_during_a_probe(Path(sys.argv[1])))
    else:
        asyncio.run(main(sys.argv[1], sys.argv[2]))
