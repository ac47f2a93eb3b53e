"""Answers of a server as the records and errors of an app."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, cast

from romancy.core.history import is_json
from romancy.core.model import Event, to_us
from romancy.core.timestamps import parse_time
from romancy.desk import WorkerRecord
from romancy.errors import (
    AccessDenied,
    AppNotRunning,
    InstanceExists,
    InstanceNotFound,
    InvalidEvent,
    InvalidInput,
    NotRetryable,
    NotStorable,
    Overloaded,
    QueueFull,
    RomancyError,
    ScheduleNotFound,
    ServerUnreachable,
    StorageError,
    UnexpectedAnswer,
    UnknownWorkflow,
)
from romancy.http.cloudevents import InvalidBatch
from romancy.question_verbs import QuestionRecord
from romancy.records import (
    Act,
    BulkResult,
    EventRecord,
    HeldEvents,
    HistoryEntry,
    InboxRecord,
    Instance,
    Page,
    QueueRecord,
    QueueWait,
    Receipt,
    ScheduleRecord,
    Wait,
)
from romancy.sink_records import DeadLetter, SinkRecord

T = TypeVar("T")
_SAME: Mapping[str, type[RomancyError]] = {
    kind.__name__: kind
    for kind in (AppNotRunning, InvalidEvent, InvalidInput, NotStorable, Overloaded, StorageError, UnknownWorkflow)
}
_BY_STATUS: Mapping[int, type[RomancyError]] = {429: Overloaded, 503: StorageError}
_INVALID = frozenset({400, 413, 431})


@dataclass(frozen=True)
class About:
    """What a request is about, for error messages."""

    instance_id: str = ""
    event_id: str = ""
    events: int = 0
    """How many events it sends."""
    schedule: str = ""

    def __str__(self) -> str:
        if self.schedule:
            return f" (schedule {self.schedule!r})"
        if self.event_id:
            return f" (event {self.event_id!r})"
        return f" (instance {self.instance_id!r})" if self.instance_id else ""


# --- errors ---------------------------------------------------------------------------------------------------------
def to_error(url: str, status: int, content: object, about: About, *, with_token: bool) -> RomancyError:
    """The error that an answer stands for."""
    found = cast("dict[str, Any]", content) if isinstance(content, dict) else dict[str, Any]()
    text, kind = found.get("error"), found.get("error_type")
    is_ours = isinstance(text, str) and isinstance(kind, str)
    if status in (401, 403):
        return _denied(url, status, str(text) if is_ours else "", with_token)
    if not is_ours:
        return _foreign(url, status)
    if kind == "InstanceNotFound":
        return InstanceNotFound(instance_id=about.instance_id)
    if kind == "ScheduleNotFound":
        return ScheduleNotFound(name=about.schedule)
    if kind == "InstanceExists":
        problem = str(found.get("problem") or text)
        return InstanceExists(problem, instance_id=about.instance_id, advice=str(found.get("advice", "")))
    if kind == "NotRetryable":
        return NotRetryable(str(text), instance_id=about.instance_id, status=str(found.get("status", "")))
    if kind == "QueueFull":
        return QueueFull(str(text), queue=str(found.get("queue", "")))
    if kind == "InvalidBatch":
        return InvalidBatch(read(url, found.get("failures", ()), _to_failures), about.events)
    if known := _SAME.get(str(kind)) or _BY_STATUS.get(status):
        return known(str(text))
    if status in _INVALID:
        return (InvalidEvent if about.events else InvalidInput)(str(text))
    return UnexpectedAnswer(f"the server at {url} answered {status} ({kind}): {text}{about}")


def _denied(url: str, status: int, text: str, with_token: bool) -> AccessDenied:
    if status == 401:
        problem = "does not accept this token" if with_token else "requires a token"
        advice = "pass token=..., or set ROMANCY_TOKEN"
        return AccessDenied(f"the server at {url} {problem}", status=401, advice=advice)
    return AccessDenied(f"the server at {url} does not allow this: {text or 'it answered 403'}", status=403)


def _foreign(url: str, status: int) -> RomancyError:
    """An answer that does not come from a Romancy server, but from a proxy or another program."""
    if status == 429:
        return Overloaded(f"too many requests to {url} (it answered 429); try again later")
    if status in (502, 503, 504):
        return ServerUnreachable(f"the server at {url} can't be reached: a proxy in front of it answered {status}")
    return not_romancy(url, f"it answered {status}")


def not_romancy(url: str, why: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(f"there is no Romancy server at {url}, or not at this path: {why}; check the URL")


def read(url: str, content: object, reader: Callable[[Any], T]) -> T:
    """Read a record from an answer."""
    try:
        return reader(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise not_romancy(url, f"its answer is not valid ({type(error).__name__}: {error})") from error


def _to_failures(items: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """The index and reason of each invalid event of a batch."""
    return [(int(item["index"]), str(item["error"])) for item in items]


# --- records --------------------------------------------------------------------------------------------------------
def to_receipt(item: Mapping[str, Any] | None) -> Receipt:
    """A receipt; `item` is None if the server sends no receipts."""
    if item is None:
        return Receipt()
    counts = (int(item["delivered"]), int(item["started"]), int(item["mismatched"]))
    return Receipt("accepted", bool(item["duplicate"]), *counts, differs=bool(item.get("differs", False)))


def to_ending(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of an instance, as far as a handle needs it."""
    return {name: item[name] for name in ("status", "output", "error")}


def to_part(item: Mapping[str, Any]) -> tuple[BulkResult, str | None]:
    """What became of a part of many instances, and the cursor of the next part."""
    return BulkResult(int(item["matched"]), int(item["changed"]), dict(item["errors"])), item["cursor"]


def to_page(item: Callable[[Any], T]) -> Callable[[Mapping[str, Any]], Page[T]]:
    return lambda page: Page([item(found) for found in page["items"]], page["cursor"])


def to_instance(item: Mapping[str, Any]) -> Instance:
    return Instance(
        instance_id=item["instance_id"],
        workflow=item["workflow"],
        status=item["status"],
        input=item["input"],
        output=item["output"],
        error=item["error"],
        started_at=_time(item["started_at"]),
        finished_at=_maybe_time(item["finished_at"]),
        waits=list(map(to_wait, item["waits"])) if "waits" in item else (),
        description=item["description"],
        parent=item.get("parent"),  # older servers don't send these
        run_number=item.get("run_number", 1),
        run_started_at=_maybe_time(item.get("run_started_at")),
        version=item.get("version", 1),
        attributes=item.get("attributes", {}),
        view=item.get("view"),
        builds=tuple(item.get("builds", ())),
        forked_from=item.get("forked_from"),
        schedule=item.get("schedule"),
        queue=item.get("queue"),
        key=item.get("key"),
        priority=item.get("priority", 0),
        headers=item.get("headers", {}),
        acts=tuple(Act(a["verb"], a["who"], _time(a["at"])) for a in item.get("acts", ())),  # not in lists
    )


def to_queue(item: Mapping[str, Any]) -> QueueRecord:
    return QueueRecord(item["name"], item["running"], item["waiting"], _maybe_time(item["oldest_at"]))


def to_wait(item: Mapping[str, Any]) -> Wait:
    return Wait(
        instance_id=item["instance_id"],
        wait_id=item["wait_id"],
        kind=item["kind"],
        types=tuple(item["types"]),
        where=item["where"],
        since=_time(item["since"]),
        due_at=_maybe_time(item["due_at"]),
        location=item["location"],
        subject=item["subject"],
        source=item["source"],
        error=item["error"],
        workflow=item["workflow"],
        child=item.get("child"),  # older servers don't send it
        is_free=item.get("is_free", False),
        slot=item.get("slot"),
        cut_at=_maybe_time(item.get("cut_at")),
        queue=to_queue_wait(item["queue"]) if "queue" in item else None,
    )


def to_queue_wait(item: Mapping[str, Any]) -> QueueWait:
    return QueueWait(
        reason=item["reason"],
        limit=item["limit"],
        is_known=item["is_known"],
        ahead=item["ahead"],
        running=item["running"],
        running_of_key=item["running_of_key"],
        holders=tuple(item["holders"]),
        opens_at=_maybe_time(item["opens_at"]),
    )


def to_schedule(item: Mapping[str, Any]) -> ScheduleRecord:
    return ScheduleRecord(
        name=item["name"],
        workflow=item["workflow"],
        cron=item["cron"],
        every=item["every"],
        timezone=item["timezone"],
        next_at=_maybe_time(item["next_at"]),
        last_at=_maybe_time(item["last_at"]),
        last_instance=item["last_instance"],
        is_paused=item["is_paused"],
        is_declared=item["is_declared"],
        started=item["started"],
        skipped=item["skipped"],
        error=item["error"],
        due_at=_maybe_time(item["due_at"]),
        spread=item["spread"],
        catch_up=item["catch_up"],
        overlap=item["overlap"],
    )


def to_inbox_record(item: Mapping[str, Any]) -> InboxRecord:
    return InboxRecord(
        number=item["number"],
        kind=item["kind"],
        at=_time(item["at"]),
        instance_id=item["instance_id"],
        workflow=item["workflow"],
        type=item["type"],
        source=item["source"],
        id=item["id"],
        refused=item["refused"],
    )


def to_all_held(found: Mapping[str, Any]) -> list[HeldEvents]:
    return [
        HeldEvents(
            type=item["type"],
            count=item["count"],
            oldest_at=_time(item["oldest_at"]),
            workflow=item["workflow"],
            instance_id=item["instance_id"],
            is_addressed=item.get("is_addressed", False),  # older servers don't send it
        )
        for item in found["items"]
    ]


def to_entry(item: Mapping[str, Any]) -> HistoryEntry:
    return HistoryEntry(
        n=item["n"],
        kind=item["kind"],
        operation=item["operation"],
        at=_time(item["at"]),
        input=item["input"],
        result=item["result"],
        error=item["error"],
        event=item["event"],
        dropped=item.get("dropped", False),  # older servers don't send these
        transactional=item.get("transactional", False),
    )


def to_question(item: Mapping[str, Any]) -> QuestionRecord:
    expires_at = None if item["expires_at"] is None else _time(item["expires_at"])
    about = item["title"], item["text"], tuple(item["people"]), _time(item["asked_at"]), expires_at
    form = item.get("schema", {}), item.get("needed"), tuple(item.get("answered", ()))  # older servers don't send these
    return QuestionRecord(item["instance_id"], item["workflow"], item["ask_id"], *about, *form)


def to_worker(item: Mapping[str, Any]) -> WorkerRecord:
    times = {name: _time(item[name]) for name in ("started_at", "until")}
    known = {name: item[name] for name in ("id", "host", "pid", "version", "build", "slots", "load")}
    counted = {"is_alive": item["is_alive"], "instances": item["instances"]}
    return WorkerRecord(**known, **times, **counted, workflows=tuple(item["workflows"]))


def to_sink(item: Mapping[str, Any]) -> SinkRecord:
    counts = item["parked"], item["dead"]
    return SinkRecord(item["name"], tuple(item["types"]), item["worker_id"], *counts, item.get("last_error"))


def to_dead_letter(item: Mapping[str, Any]) -> DeadLetter:
    event = to_event_record(item["event"])
    return DeadLetter(item["sink"], event, item["attempts"], item["error"], _time(item["since"]))


def to_event_record(item: Mapping[str, Any]) -> EventRecord:
    accepted_at = _time(item["accepted_at"])
    extensions: Mapping[str, Any] = item["extensions"]
    expiry = extensions.get("expirytime")
    event = Event(
        id=item["id"],
        source=item["source"],
        type=item["type"],
        data=_data(item),
        subject=item["subject"],
        time=None if item["time"] is None else to_us(_time(item["time"])),
        datacontenttype=item["datacontenttype"],
        dataschema=item["dataschema"],
        extensions=dict(extensions) or None,
        target=item["to"],
        accepted_at=to_us(accepted_at),
        expires_at=None if expiry is None else parse_time("expirytime", expiry),
    )
    receivers = tuple((receiver["instance_id"], receiver["wait_id"]) for receiver in item["received_by"])
    differed_at, sent_by = item.get("differed_at"), item.get("sent_by")  # older servers don't send them
    return EventRecord(event, accepted_at, receivers, None if differed_at is None else _time(differed_at), sent_by)


def _data(item: Mapping[str, Any]) -> bytes | None:
    """The bytes of an event's data. JSON is encoded again, and null means no data."""
    if item["data_base64"] is not None:
        return base64.b64decode(item["data_base64"])
    data = item["data"]
    if data is None:
        return None
    if is_json(item["datacontenttype"]):
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return str(data).encode()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _maybe_time(text: str | None) -> datetime | None:
    return None if text is None else _time(text)
