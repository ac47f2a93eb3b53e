"""The part of `romancy doctor` that reads a database or a server: workers, and what can't go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from shlex import quote
from typing import Any

from romancy import __version__
from romancy.cli.findings import Finding, ok, problem, warning
from romancy.cli.place_checks import OFF
from romancy.cli.words import one_line, plural, relative
from romancy.core.durations import span
from romancy.core.model import WAITING, WORKING, Status
from romancy.core.versions import stored_name
from romancy.desk import OperatorsDesk, WorkerRecord
from romancy.errors import CodecError, CompensationFailed, KillsWorkers
from romancy.records import Instance
from romancy.verbs import Verbs

MOST = 200
"""How many instances or entries are looked at."""
NAMED = 3
_UNFINISHED: tuple[Status, ...] = ("queued", *sorted(WORKING | WAITING))
STILL = timedelta(minutes=1)
"""A queue that has let nothing begin for so long, although nothing runs, stands still."""


async def check_workers(verbs: Verbs, workers: Sequence[WorkerRecord], now: datetime) -> list[Finding]:
    """Check that workers are there, of one version, with free slots, and with right clocks."""
    alive = [worker for worker in workers if worker.is_alive]
    if not alive:
        unfinished = await verbs.list_instances(status=_UNFINISHED, limit=1)
        advice = "start one: romancy worker MODULE"
        if unfinished.items:
            id = unfinished.items[0].instance_id
            return [problem("workers", f"no worker is alive, but instances are open, such as {id}", advice, [id])]
        return [warning("workers", "no worker is alive", advice)]
    found = [ok("workers", f"{len(alive)} alive")]
    versions = sorted({worker.version or "older" for worker in alive} | {__version__})
    if len(versions) > 1:
        ids = [worker.id for worker in alive if worker.version != __version__]
        says = f"the workers and this command are of several versions: {', '.join(versions)}"
        found.append(warning("versions", says, "finish the deployment, or upgrade those left behind", ids[:NAMED]))
    for worker in alive:
        if worker.started_at > now + timedelta(seconds=OFF):
            ahead = span((worker.started_at - now).total_seconds())
            says = f"worker {worker.id} on {worker.host} began {ahead} in the future"
            advice = "its clock or this machine's is wrong, or was set back: timers are late by that much; run NTP"
            found.append(problem("clock", says, advice, [worker.id]))
        if worker.slots and worker.load is not None and worker.load >= worker.slots:
            says = f"all {plural(worker.slots, 'slot')} of worker {worker.id} on {worker.host} are taken"
            advice = "if this lasts, run more workers, or raise App(max_activities=...)"
            found.append(warning("slots", says, advice, [worker.id]))
    return found


async def check_stranded(desk: OperatorsDesk, workers: Sequence[WorkerRecord], now: datetime) -> list[Finding]:
    """Find workflows that no live worker has. Without any worker, that one is the finding."""
    if not any(worker.is_alive for worker in workers):
        return []
    return [
        problem(
            "workflows",
            f"no live worker has workflow {stranded.workflow!r}, of which {plural(stranded.instances, 'instance')} "
            f"{'is' if stranded.instances == 1 else 'are'} open, the oldest started {relative(stranded.oldest, now)}",
            f"start a worker whose module defines it, or `romancy cancel --workflow {quote(stranded.workflow)}`",
            [stranded.workflow],
        )
        for stranded in await desk.stranded(workers)
    ]


async def check_overdue(desk: OperatorsDesk, workers: Sequence[WorkerRecord], now: datetime) -> list[Finding]:
    """Find timers, timeouts and retries that should have happened."""
    page = await desk.overdue(limit=MOST)
    if not page.items:
        return [ok("timers", "none is overdue")]
    first, n = page.items[0], f"{len(page.items)}{'+' if page.cursor else ''}"
    says = f"{n} overdue, first the {first.kind} of {first.instance_id}, which was due {relative(first.due, now)}"
    has_workers = any(worker.is_alive for worker in workers)
    advice = f"`romancy why {quote(first.instance_id)}` says which worker it needs" if has_workers else "start a worker"
    return [problem("timers", says, advice, [item.instance_id for item in page.items[:NAMED]])]


async def check_blocked(verbs: Verbs) -> list[Finding]:
    """Find blocked instances, by workflow and by what is wrong with them."""
    page = await verbs.list_instances(status="blocked", limit=MOST)
    if not page.items:
        return [ok("instances", "none is blocked")]
    alike: dict[tuple[str, str], list[Instance]] = {}
    for instance in page.items:
        kind = _error(instance).get("type", "")
        alike.setdefault((stored_name(instance.workflow, instance.version), kind), []).append(instance)
    more = "+" if page.cursor else ""
    found = list[Finding]()
    for (name, _), instances in alike.items():
        newest = instances[0]
        n = f"{len(instances)}{more} instance{'' if len(instances) == 1 and not more else 's'}"
        says = f"{n} of workflow {name!r} blocked, such as {newest.instance_id}: {_first_line(newest)}"
        ids = [instance.instance_id for instance in instances[:NAMED]]
        found.append(problem("instances", says, _way_on(newest), ids))
    return found


def _way_on(instance: Instance) -> str:
    id, kind = quote(instance.instance_id), _error(instance).get("type")
    if "missing" in _error(instance):
        return "add the missing key to the codec of the workers, and restart them: they continue it by themselves"
    if kind == KillsWorkers.__name__:
        return (
            f"it seems to kill its worker: `romancy why {id}` shows the evidence; fix that, then `romancy resume {id}`"
        )
    if kind == CompensationFailed.__name__:
        return f"undos failed: remove the cause, then `romancy resume {id}` tries them again"
    if kind == CodecError.__name__:
        return f"restore the value that can't be read (`romancy why {id}` names it), then `romancy resume {id}`"
    return f"fix the code, test it with `romancy replay {id} --module MODULE`, then `romancy resume {id}`"


def _first_line(instance: Instance) -> str:
    error = _error(instance)
    return one_line(f"{error.get('type', '')}: {error.get('message', '')}".split("\n")[0].rstrip(":"), 160)


def _error(instance: Instance) -> Mapping[str, Any]:
    return {} if instance.error is None else instance.error


async def check_queues(verbs: Verbs, now: datetime) -> list[Finding]:
    """Find queues in which instances wait although none runs. One that no worker ever had is not listed."""
    queues = await verbs.list_queues()
    found = list[Finding]()
    for queue in queues:
        if queue.running or not queue.waiting or queue.oldest_at is None or now - queue.oldest_at < STILL:
            continue
        page = await verbs.list_instances(status="queued", queue=queue.name, limit=1)
        if not page.items:
            continue
        id = page.items[0].instance_id
        since = relative(queue.oldest_at, now)
        says = f"queue {queue.name!r} stands still: {queue.waiting:,} waiting, the first since {since}, and none runs"
        advice = (
            f"`romancy why {quote(id)}` says what holds it: no worker, a rate, or a queue that the code has no more"
        )
        found.append(warning("queues", says, advice, [queue.name]))
    return found or ([ok("queues", f"{plural(len(queues), 'queue')} moving or empty")] if queues else [])


async def check_sinks(verbs: Verbs) -> list[Finding]:
    """Find sinks that fail, gave up events, or that no worker runs."""
    sinks = await verbs.list_sinks()
    found = list[Finding]()
    for sink in sinks:
        name = quote(sink.name)
        if sink.dead:
            says = f"sink {sink.name!r} gave up {plural(sink.dead, 'event')}"
            advice = f"see `romancy sinks dead {name}`, then `romancy sinks retry {name}`"
            found.append(problem("sinks", says, advice, [sink.name]))
        if sink.parked and sink.last_error:
            says = f"sink {sink.name!r} fails, {plural(sink.parked, 'event')} parked: {one_line(sink.last_error, 160)}"
            found.append(warning("sinks", says, "it tries again by itself: check where it delivers to", [sink.name]))
        if sink.worker_id is None:
            advice = "start a worker whose App has it, or remove the sink from the code of all"
            found.append(warning("sinks", f"no live worker runs sink {sink.name!r}", advice, [sink.name]))
    return found or ([ok("sinks", f"{plural(len(sinks), 'sink')} delivering")] if sinks else [])


async def check_inbox(verbs: Verbs) -> list[Finding]:
    """Find starts and events that were refused when they were taken in."""
    refused = [item for item in (await verbs.list_inbox(limit=MOST)).items if item.refused]
    if not refused:
        return []
    reasons = Counter(item.refused or "" for item in refused)
    says = f"{len(refused)} refused, such as number {refused[0].number} ({one_line(reasons.most_common(1)[0][0], 160)})"
    advice = "`romancy inbox` lists them, `romancy inbox --forget NUMBER` removes one"
    return [warning("inbox", says, advice, [str(item.number) for item in refused[:NAMED]])]
