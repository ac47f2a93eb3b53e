"""Workers, leases and claims. Each function is one transaction."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from romancy.core.admission import Admission
from romancy.core.versions import bare_name
from romancy.errors import Outdated
from romancy.storage.batch import RETRY
from romancy.storage.forks import Fork
from romancy.storage.instances import Admitted
from romancy.storage.opener import SEALED, can_read
from romancy.storage.protocol import TAKEN_BACK, Trigger
from romancy.storage.records import MOST_COUNTED, Claimed, Shares, Unfit
from romancy.storage.rows import entry_values
from romancy.storage.sqlite import migrations
from romancy.storage.sqlite.connection import Connection
from romancy.storage.sqlite.expiry import Leases
from romancy.storage.sqlite.locks import WorkerLocks
from romancy.storage.sqlite.statements import SQL


def register(
    c: sqlite3.Connection,
    worker: str,
    now: int,
    lease: int,
    triggers: Sequence[Trigger],
    workflows: Collection[str],
    about: str | None = None,
) -> None:
    check_version(c)
    c.execute(SQL["insert_worker"], (worker, socket.gethostname(), now + lease, now, about))
    announce(c, triggers, workflows)


def announce(c: sqlite3.Connection, triggers: Sequence[Trigger], workflows: Collection[str]) -> None:
    """Store which events start which workflows, for every process that accepts events."""
    check_version(c)
    ours = {bare_name(name) for name in workflows}
    stored = [(type, name) for type, name in c.execute(SQL["triggers"]) if bare_name(name) in ours]
    c.executemany(SQL["delete_triggers"], [(name,) for name in {name for _, name in stored}])
    c.executemany(SQL["insert_trigger"], triggers)
    taken_back = _types(stored) - _types(triggers)
    c.executemany(SQL["insert_trigger"], [(TAKEN_BACK + type, name, None) for type, name in taken_back])


def propose(c: sqlite3.Connection, triggers: Sequence[Trigger]) -> None:
    """Add the triggers whose type no version of the workflow has, and that was not taken back from it."""
    check_version(c)
    known = _types(c.execute(SQL["triggers"]))
    c.executemany(SQL["insert_trigger"], [t for t in triggers if (t[0], bare_name(t[1])) not in known])


def _types(triggers: Iterable[Sequence[Any]]) -> set[tuple[str, str]]:
    """Return the types, also those taken back, each with the bare name of its workflow."""
    return {(type.removeprefix(TAKEN_BACK), bare_name(workflow)) for type, workflow, *_ in triggers}


def renew(c: sqlite3.Connection, worker: str, until: int, load: int, about: str | None) -> bool:
    check_version(c)
    return c.execute(SQL["renew_worker"], (until, load, about, worker)).rowcount == 1


def check_version(c: sqlite3.Connection) -> None:
    """Raise `Outdated` if the file was migrated meanwhile to a version that is too new."""
    version, min_reader = c.execute(SQL["schema_version"]).fetchone()
    level = c.level if isinstance(c, Connection) else 0
    if not can_read(min_reader, migrations.LIBRARY_VERSION, level):
        raise Outdated(version, migrations.LIBRARY_VERSION, sealed=min_reader > SEALED and not level)


def release(c: sqlite3.Connection, worker: str, now: int) -> None:
    """Give up all instances at once, however many there are; others claim what they need when they need it."""
    _bury(c, worker, clean=True, now=now)


def leave(c: sqlite3.Connection, worker: str) -> None:
    c.execute(SQL["leave_worker"], (worker,))


def _bury(c: sqlite3.Connection, worker: str, *, clean: bool, now: int, by: str = "", lease: int = 0) -> bool:
    row = None if clean else c.execute(SQL["leaving_worker"], (worker,)).fetchone()
    if row is not None:
        leaving, since, until = row
        clean = bool(leaving)
        if not clean:
            seen = c.execute(SQL["last_sign"], (until - lease, worker, now, by)).fetchone()[0]
            c.execute(SQL["insert_death"], (worker, since, max(since, min(now, until, seen))))
    gone = c.execute(SQL["delete_worker"], (worker,)).rowcount == 1
    if gone:
        c.execute(SQL["insert_orphan"], (worker, now, clean))
    return gone


def dead_workers(c: sqlite3.Connection, me: str, now: int, locks: WorkerLocks, leases: Leases) -> dict[str, bool]:
    """Return workers whose lease has ended or whose lock is free. True: only paused, so nothing it ran is to blame."""
    rows: list[tuple[str, int]] = c.execute(SQL["workers"]).fetchall()
    ended = leases.ended(rows, now)
    return {id: locks.is_alive(id) for id, _ in rows if id != me and (id in ended or locks.is_dead(id))}


def take_over(c: sqlite3.Connection, by: str, lease: int, dead: Mapping[str, bool], now: int) -> list[str]:
    """Fence the dead workers: from now on, nothing they submit is accepted, and their instances are free."""
    gone = [worker for worker, paused in dead.items() if _bury(c, worker, clean=paused, now=now, by=by, lease=lease)]
    c.execute(SQL["delete_spent_orphans"])
    return gone


def claimable(c: sqlite3.Connection, workflows: Collection[str], limit: int, due_before: int) -> list[Claimed]:
    """Return what needs to run: running instances, waiting ones with mail or a request, and those due soon."""
    names = json.dumps(sorted(workflows))
    share = max(1, limit // max(1, len(workflows)))
    clean = {id for (id,) in c.execute(SQL["clean_orphans"])}
    found: dict[str, Claimed] = {}
    for query, values in (
        ("free_with_request", (names, limit)),
        ("free_with_mail", (names, limit)),
        *(("free_running", (name, share)) for name in workflows),
        ("orphaned_running", (names, limit)),
        ("free_due", (due_before, names, limit)),
    ):
        for id, owner in _rows(c, query, values):
            crashed = owner is not None and owner not in clean
            found.setdefault(id, Claimed(id, crashed, query == "free_due"))
    return list(found.values())[:limit]


def claim(c: sqlite3.Connection, worker: str, wanted: list[Claimed]) -> list[Claimed]:
    """Claim those of the wanted instances that are still free."""
    if c.execute(SQL["fence"], (worker,)).fetchone() is None:
        return []
    return [item for item in wanted if c.execute(SQL["claim"], (worker, item.id)).rowcount == 1]


def admit(
    c: sqlite3.Connection, admission: Admission, worker: str, at: int, workflows: Collection[str]
) -> list[Admitted] | None:
    """Admit instances, unless another admission of their queue came first. Own those whose workflows are given."""
    turned = admission.turn, admission.reserved, admission.queue, admission.version
    if c.execute(SQL["fence"], (worker,)).fetchone() is None or c.execute(SQL["turn_queue"], turned).rowcount != 1:
        return None
    c.executemany(SQL["reserve_key"], [(admission.queue, *reserved) for reserved in admission.keys.items()])
    admitted: list[Admitted] = []
    for id in admission.ids:
        for _, workflow in c.execute(SQL["admit"], (at, id)).fetchall():
            is_mine = workflow in workflows and c.execute(SQL["claim"], (worker, id)).rowcount == 1
            admitted.append(Admitted(id, workflow, is_mine))
    return admitted


def unfit(c: sqlite3.Connection, workflows: Collection[str], after: tuple[str, str], limit: int) -> list[Unfit]:
    """Return a page of the instances that some builds of their code could not follow, in order."""
    found: list[Unfit] = []
    for name in sorted(name for name in workflows if name >= after[0]):
        if len(found) < limit:
            values = (name, after[1] if name == after[0] else "", limit - len(found))
            found += [Unfit(*row) for row in c.execute(SQL["unfit"], values)]
    return found


def claim_unfit(c: sqlite3.Connection, worker: str, wanted: Sequence[Unfit]) -> set[str]:
    """Claim the wanted instances, except any that were taken, resumed or cancelled since they were listed."""
    if c.execute(SQL["fence"], (worker,)).fetchone() is None:
        return set()
    return {one.id for one in wanted if c.execute(SQL["claim_unfit"], (worker, one.id, one.builds)).rowcount == 1}


def shares(c: sqlite3.Connection, workflows: Collection[str], now: int, limit: int) -> Shares:
    owned: dict[str, int] = dict(c.execute(SQL["shares"], (MOST_COUNTED, now)).fetchall())
    return Shares(owned, len(_free(c, workflows, limit)) if owned else 0)


def _free(c: sqlite3.Connection, workflows: Collection[str], limit: int) -> list[str]:
    found = [id for name in workflows for (id,) in c.execute(SQL["free_waiting"], (name, limit))]
    return found[:limit]


def claim_idle(c: sqlite3.Connection, worker: str, workflows: Collection[str], limit: int) -> int:
    """Claim free instances that only wait."""
    return len(claim(c, worker, [Claimed(id, False, True) for id in _free(c, workflows, limit)]))


def _rows(c: sqlite3.Connection, query: str, values: tuple[Any, ...]) -> list[tuple[str, str | None]]:
    return c.execute(SQL[query], values).fetchall()


def resume(c: sqlite3.Connection, instances: Collection[str], at: int, who: str | None) -> set[str]:
    """Let those of these instances that are blocked run again, and forget what they were suspected of."""
    check_version(c)
    resumed = {id for id in instances if c.execute(SQL["resume_blocked"], (id,)).rowcount}
    for name in ("forget_suspected_body", "forget_suspected_calls"):
        c.executemany(SQL[name], [(id,) for id in resumed])
    record(c, resumed, at, "resume", who)
    return resumed


def record(c: sqlite3.Connection, instances: Collection[str], at: int, verb: str, who: str | None) -> None:
    """Record who did something to these instances, if that is known."""
    if who is not None:
        c.executemany(SQL["insert_act"], [(at, verb, who, id) for id in instances])


def reopen(c: sqlite3.Connection, instances: Collection[str], at: int, head: bytes, who: str | None) -> set[str]:
    """Let those of these instances that failed or were cancelled run again."""
    check_version(c)
    reopened = {id for id in instances if reopen_one(c, id, at, head)}
    record(c, reopened, at, "retry", who)
    return reopened


def reopen_one(c: sqlite3.Connection, instance: str, at: int, head: bytes) -> bool:
    """Let an instance that failed or was cancelled run again. Return whether that was possible."""
    row = c.execute(SQL["reopenable"], (instance,)).fetchone()
    if row is None:
        return False
    c.execute(SQL["reopen_instance"], (at, instance))
    c.execute(SQL["delete_requests"], (instance,))
    c.execute(SQL["insert_request"], (instance, RETRY, head + (row[0] or b""), at))
    return True


def fork(c: sqlite3.Connection, fork: Fork) -> bool:
    """Copy an instance, with a part of its history."""
    check_version(c)
    id, origin = fork.id, fork.origin
    values = id, fork.token, fork.input, fork.at, fork.cut, fork.seed, origin, fork.generation
    if c.execute(SQL["insert_fork"], values).rowcount != 1:
        return False
    if fork.is_sealed:
        c.executemany(SQL["insert_entry"], [(id, *entry_values(entry)) for entry in fork.entries])
    else:
        c.executemany(SQL["copy_entry"], [(id, origin, n) for n in fork.numbers])
    c.execute(SQL["copy_consumed"], (id, origin, fork.cut))
    c.execute(SQL["copy_headers"], (id, origin))
    if fork.entries:
        c.execute(SQL["insert_request"], (id, RETRY, fork.ask, fork.at))
    record(c, [id], fork.at, "fork", fork.who)
    return True
