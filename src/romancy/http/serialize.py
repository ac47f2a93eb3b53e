"""The app's records as JSON."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from romancy.core.history import is_json, showable
from romancy.core.model import from_us
from romancy.http import schemas
from romancy.records import EventRecord, HistoryEntry, Instance, QueueRecord, QueueWait, ScheduleRecord, Wait


def time_text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else time_text(moment)


def queue_item(queue: QueueRecord) -> schemas.QueueItem:
    return {
        "name": queue.name,
        "running": queue.running,
        "waiting": queue.waiting,
        "oldest_at": _time(queue.oldest_at),
    }


def _plain(value: object) -> Any:
    """A filter can hold numbers that Python's JSON has no type for; they become text."""
    return value if value is None or isinstance(value, str | int) else str(value)


def wait_item(wait: Wait) -> schemas.WaitItem:
    item: schemas.WaitItem = {
        "instance_id": wait.instance_id,
        "workflow": wait.workflow,
        "wait_id": wait.wait_id,
        "kind": wait.kind,
        "types": list(wait.types),
        "where": {path: _plain(value) for path, value in wait.where.items()},
        "subject": wait.subject,
        "source": wait.source,
        "since": time_text(wait.since),
        "due_at": _time(wait.due_at),
        "location": wait.location,
        "error": wait.error,
        "child": wait.child,
    }
    if wait.is_free:
        item["is_free"] = True
    if wait.slot is not None:
        item["slot"] = wait.slot
    if wait.cut_at is not None:
        item["cut_at"] = time_text(wait.cut_at)
    if wait.queue is not None:
        item["queue"] = queue_wait_item(wait.queue)
    return item


def queue_wait_item(wait: QueueWait) -> schemas.QueueWaitItem:
    return {
        "reason": wait.reason,
        "limit": wait.limit,
        "is_known": wait.is_known,
        "ahead": wait.ahead,
        "running": wait.running,
        "running_of_key": wait.running_of_key,
        "holders": list(wait.holders),
        "opens_at": _time(wait.opens_at),
    }


def instance_item(instance: Instance) -> schemas.InstanceItem:
    return {
        "instance_id": instance.instance_id,
        "workflow": instance.workflow,
        "version": instance.version,
        "status": instance.status,
        "description": instance.description,
        "attributes": dict(instance.attributes),
        "view": instance.view,
        "parent": instance.parent,
        "forked_from": instance.forked_from,
        "run_number": instance.run_number,
        "run_started_at": _time(instance.run_started_at),
        "started_at": time_text(instance.started_at),
        "finished_at": _time(instance.finished_at),
        "input": instance.input,
        "output": instance.output,
        "error": instance.error,
        "builds": list(instance.builds),
        "schedule": instance.schedule,
        "queue": instance.queue,
        "key": instance.key,
        "priority": instance.priority,
        "headers": dict(instance.headers),
    }


def entry_item(entry: HistoryEntry) -> schemas.Entry:
    return {
        "n": entry.n,
        "kind": entry.kind,
        "operation": entry.operation,
        "at": time_text(entry.at),
        "input": entry.input,
        "result": entry.result,
        "error": entry.error,
        "event": entry.event,
        "dropped": entry.dropped,
        "transactional": entry.transactional,
    }


def event_item(record: EventRecord) -> schemas.EventItem:
    """Data as in the JSON format of CloudEvents: JSON as it is, text as text, anything else in base64."""
    event = record.event
    data, encoded = _shown_data(event.data, event.datacontenttype)
    return {
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": None if event.time is None else time_text(from_us(event.time)),
        "datacontenttype": event.datacontenttype,
        "dataschema": event.dataschema,
        "extensions": dict(event.extensions or {}),
        "to": event.target,
        "data": data,
        "data_base64": encoded,
        "accepted_at": time_text(record.accepted_at),
        "received_by": [{"instance_id": instance, "wait_id": wait} for instance, wait in record.received_by],
        "differed_at": _time(record.differed_at),
        "sent_by": record.sent_by,
    }


def _shown_data(data: bytes | None, content_type: str | None) -> tuple[Any, str | None]:
    if data is None:
        return None, None
    if not is_json(content_type):
        if content_type is not None and content_type.strip().lower().startswith("text/"):
            return data.decode("utf-8", "replace"), None
        return None, base64.b64encode(data).decode()
    return showable(data), None


def schedule_item(record: ScheduleRecord) -> schemas.ScheduleItem:
    return {
        "name": record.name,
        "workflow": record.workflow,
        "cron": record.cron,
        "every": record.every,
        "timezone": record.timezone,
        "next_at": _time(record.next_at),
        "last_at": _time(record.last_at),
        "last_instance": record.last_instance,
        "is_paused": record.is_paused,
        "is_declared": record.is_declared,
        "started": record.started,
        "skipped": record.skipped,
        "error": record.error,
        "due_at": _time(record.due_at),
        "spread": record.spread,
        "catch_up": record.catch_up,
        "overlap": record.overlap,
    }
