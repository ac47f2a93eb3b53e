"""Input and output of the routes. Input is a model, which is validated; output is a typed dict.

Times are RFC 3339 in UTC. Values are JSON as stored; values that are not JSON are `{"base64": "..."}`. `serialize.py`
creates them from the app's records.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    with_config,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from romancy.core.model import Status
from romancy.core.queues import MOST_PRIORITY
from romancy.core.schedules import CatchUp, Overlap
from romancy.http import constraints
from romancy.reruns import STEPS

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")


def _check_moment(given: object) -> object:
    """Refuse plain numbers: they could be seconds or milliseconds."""
    if isinstance(given, str) and _MOMENT.match(given) is None:
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    return given


Moment = Annotated[AwareDatetime, BeforeValidator(_check_moment)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


# --- in -------------------------------------------------------------------------------------------------------------
class Closed(BaseModel, extra="forbid"):
    """Refuses unknown names, so that a typing error does not silently drop a filter."""


class Paged(Closed):
    limit: int = Field(50, ge=1, le=1000, description="Maximum number of items.")


def cursor_of(*parts: type) -> Any:
    return WithJsonSchema(constraints.cursor(*parts))


CURSOR: Any = Field(None, description="The `cursor` of the previous page, to continue there.")
_Attributes = dict[str, StrictStr | StrictInt | StrictBool | None]


class CountQuery(Closed):
    """Which instances are meant: the names are those of `InstanceFilter`."""

    status: list[Status] = Field([], max_length=50, description="Only instances with this status; repeatable.")
    workflow: str | None = Field(None, description="Only instances of this workflow; `name@2`: in this version.")
    where: Annotated[_Attributes, WithJsonSchema(constraints.ATTRIBUTES)] | None = Field(
        None,
        description="Only instances with all these attributes. In a query: `where.customer=c-7`, or `where[customer]`; "
        '`7`, `true` and `null` (no such attribute) mean that, `"7"` and everything else is a string.',
    )
    text: str | None = Field(None, description="Only instances with this text in their id, input or error.")
    error_type: str | None = Field(None, description="Only instances with an error of this type.")
    parent: str | None = Field(None, description="Only instances that this instance has started.")
    queue: str | None = Field(None, description="Only instances of this queue.")
    key: str | None = Field(None, description="Only instances with this key in their queue.")
    started_after: Moment | None = Field(None, description="Only instances started after this time.")
    started_before: Moment | None = Field(None, description="Only instances started before this time.")


class InstancesQuery(CountQuery, Paged):
    cursor: Annotated[str, cursor_of(int, str)] | None = CURSOR


class WaitsQuery(Paged):
    cursor: Annotated[str, cursor_of(str, str)] | None = CURSOR
    instance_id: str | None = Field(None, description="Only waits of this instance.")
    type: str | None = Field(None, description="Only waits for this event type.")


class EventsQuery(Paged):
    cursor: Annotated[str, cursor_of(int)] | None = CURSOR
    type: str | None = Field(None, description="Only events of this type.")
    instance_id: str | None = Field(None, description="Only events that this instance received.")
    unmatched: bool = Field(False, description="Only events that no instance has received; `romancy.*` only by `type`.")


class InboxQuery(Paged):
    cursor: Annotated[str, cursor_of(int)] | None = CURSOR


class QueuesQuery(Paged):
    cursor: Annotated[str, cursor_of(str)] | None = CURSOR


class ResultQuery(Closed):
    timeout: float = Field(0, ge=0, le=60, allow_inf_nan=False, description="Seconds to wait for the instance to end.")


class _Queued(Closed):
    key: str | None = Field(None, max_length=255, description="Its key in the queue of the workflow.")
    priority: Annotated[int, Field(strict=True, ge=-MOST_PRIORITY, le=MOST_PRIORITY)] | None = Field(
        None, description="Its priority in the queue of the workflow: higher ones come first."
    )


class _Called(_Queued):
    args: list[Any] = Field([], description="Positional arguments, as JSON.")
    kwargs: Annotated[dict[str, Any], WithJsonSchema(constraints.KWARGS)] = Field(
        {}, description="Keyword arguments, as JSON."
    )


class StartBody(_Called):
    instance_id: Annotated[str, WithJsonSchema(constraints.INSTANCE_ID)] | None = Field(
        None, description="If an instance with this id, workflow and input exists, it is returned."
    )


class CancelBody(Closed):
    reason: str | None = Field(None, description="The reason; it is recorded and shown.")


def _check_steps(steps: Any) -> Any:
    is_list = isinstance(steps, list) and all(isinstance(step, str) for step in cast("list[object]", steps))
    if steps is not None and steps != "failed" and not is_list:
        raise PydanticCustomError("steps", STEPS)
    return cast("Any", steps)


class RetryBody(Closed):
    steps: Annotated[Literal["failed"] | list[str] | None, BeforeValidator(_check_steps)] = Field(
        None,
        description="What runs again: what led to the end (null), everything that failed, or these operations.",
    )


class ForkBody(Closed):
    at: int = Field(0, ge=0, description="The number of the last history entry to keep; 0: start from the input.")
    new_id: Annotated[str, WithJsonSchema(constraints.INSTANCE_ID)] | None = Field(
        None, description="The id of the new instance. 409 if it exists."
    )


class BulkBody(CountQuery):
    """At least one filter is required."""

    limit: int | None = Field(None, ge=1, description="Maximum number of instances to change, newest first.")
    cursor: Annotated[str, cursor_of(int, str)] | None = Field(
        None, description="The `cursor` of the previous answer, to continue there."
    )
    dry_run: bool = Field(False, description="Change nothing; `changed` is what would be changed.")


class BulkCancelBody(BulkBody):
    reason: str | None = Field(None, description="The reason; it is recorded and shown.")


def _use_constraints(schema: dict[str, Any]) -> None:
    schema.clear()
    schema.update(constraints.CLOUD_EVENT)


@with_config(ConfigDict(json_schema_extra=_use_constraints))
class CloudEvent(TypedDict):
    """An event in the CloudEvents JSON format. Other attributes are kept as extensions."""

    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    subject: NotRequired[str | None]
    time: NotRequired[Time | None]
    datacontenttype: NotRequired[str | None]
    dataschema: NotRequired[str | None]
    data: NotRequired[Any]
    data_base64: NotRequired[str]


# --- out ------------------------------------------------------------------------------------------------------------
class Receipt(TypedDict):
    status: Literal["accepted"]
    duplicate: bool
    delivered: int
    started: int
    mismatched: int
    differs: NotRequired[Literal[True]]


class BatchReceipt(TypedDict):
    status: Literal["accepted"]
    events: list[Receipt]


class Failure(TypedDict):
    index: int
    error: str


class Error(TypedDict):
    error: str
    error_type: str
    retryable: bool
    status: NotRequired[Status]
    failures: NotRequired[list[Failure]]
    problem: NotRequired[str]
    advice: NotRequired[str]


class Problem(TypedDict):
    """How a workflow or activity failed."""

    type: str
    message: str
    traceback: str
    not_undone: NotRequired[list[str]]
    missing: NotRequired[str]


class QueueWaitItem(TypedDict):
    """Why a queued instance waits. `limit` is null if no limit holds it, or if this process does not know the queue."""

    reason: str
    limit: Literal["max_concurrent", "max_concurrent_per_key", "rate", "rate_per_key"] | None
    is_known: bool
    ahead: int
    running: int
    running_of_key: int
    holders: list[str]
    opens_at: Time | None


class WaitItem(TypedDict):
    instance_id: str
    workflow: str
    wait_id: str
    kind: Literal["event", "timer", "activity", "retry", "child", "queue", "answer"]
    types: list[str]
    where: dict[str, str | int | bool | None]
    subject: str | None
    source: str | None
    since: Time
    due_at: Time | None
    location: str
    error: str | None
    child: str | None
    is_free: NotRequired[bool]
    slot: NotRequired[str]
    cut_at: NotRequired[Time]
    queue: NotRequired[QueueWaitItem]


class InstanceItem(TypedDict):
    instance_id: str
    workflow: str
    version: int
    status: Status
    description: str | None
    attributes: dict[str, str | int | bool]
    view: Any
    parent: str | None
    forked_from: str | None
    run_number: int
    run_started_at: Time | None
    started_at: Time
    finished_at: Time | None
    input: Any
    output: Any
    error: Problem | None
    builds: list[str]
    schedule: str | None
    queue: str | None
    key: str | None
    priority: int
    headers: dict[str, str]


class QueueItem(TypedDict):
    """`running` instances hold a slot of the queue, `waiting` ones are queued; both are counted up to 100,000."""

    name: str
    running: int
    waiting: int
    oldest_at: Time | None


class Queues(TypedDict):
    items: list[QueueItem]
    cursor: str | None


class Entry(TypedDict):
    n: int
    kind: str
    operation: str
    at: Time
    input: Any
    result: Any
    error: Problem | None
    event: Any
    dropped: bool
    transactional: bool


class Receiver(TypedDict):
    instance_id: str
    wait_id: str


class EventItem(TypedDict):
    id: str
    source: str
    type: str
    subject: str | None
    time: Time | None
    datacontenttype: str | None
    dataschema: str | None
    extensions: dict[str, str | int | bool]
    to: str | None
    data: Any
    data_base64: str | None
    accepted_at: Time
    received_by: list[Receiver]
    differed_at: Time | None
    sent_by: str | None


class InstancePage(TypedDict):
    items: list[InstanceItem]
    cursor: str | None


class WaitPage(TypedDict):
    items: list[WaitItem]
    cursor: str | None


class EventPage(TypedDict):
    items: list[EventItem]
    cursor: str | None


class InboxEntry(TypedDict):
    number: int
    kind: Literal["start", "event", "unknown"]
    at: Time
    instance_id: str | None
    workflow: str | None
    type: str | None
    source: str | None
    id: str | None
    refused: str | None


class InboxPage(TypedDict):
    items: list[InboxEntry]
    cursor: str | None


class Forgotten(TypedDict):
    number: int


class HeldQuery(Closed):
    older_than: float = Field(
        7 * 86400, ge=0, le=1e9, allow_inf_nan=False, description="Only events that were accepted so many seconds ago."
    )


class HeldItem(TypedDict):
    type: str
    count: int
    oldest_at: Time
    workflow: str
    instance_id: str | None
    is_addressed: bool


class HeldEvents(TypedDict):
    items: list[HeldItem]


class History(TypedDict):
    instance_id: str
    entries: list[Entry]


class Started(TypedDict):
    instance_id: str


class Standing(TypedDict):
    instance_id: str
    status: Status


class Count(TypedDict):
    count: int


class BulkItem(TypedDict):
    """`matched` fit the filter, `changed` of them were changed; `errors` by id. `cursor` is null at the end."""

    matched: int
    changed: int
    errors: dict[str, str]
    cursor: str | None


class Result(TypedDict):
    """`output` is set if it completed, `error` if it failed, was cancelled or is blocked."""

    instance_id: str
    status: Status
    output: Any
    error: Problem | None


class WorkflowItem(TypedDict):
    name: str
    description: str
    parameters: list[str]
    on_event: list[str]


class Workflows(TypedDict):
    items: list[WorkflowItem]


class Described(TypedDict):
    """An OpenAPI document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]


class Health(TypedDict):
    status: Literal["alive", "ready"]


class ScheduleBody(_Called):
    """Either `cron` or `every` is required."""

    workflow: str = Field(min_length=1, description="The name of the workflow to start.")
    cron: str | None = Field(None, description="A cron expression such as `0 9 * * MON-FRI`, or `@daily`.")
    every: float | None = Field(None, ge=0.01, allow_inf_nan=False, description="Seconds between two starts.")
    timezone: str = Field("UTC", description="The time zone of the cron expression, such as `Europe/Berlin`.")
    spread: float = Field(0, ge=0, allow_inf_nan=False, description="Each start is later by up to so many seconds.")
    catch_up: CatchUp = Field("one", description="What becomes of ticks that were missed.")
    overlap: Overlap = Field("skip", description="What becomes of a tick if the instance before has not ended.")
    starts_at: Moment | None = Field(None, description="There are no ticks before this time.")
    ends_at: Moment | None = Field(None, description="There are no ticks after this time.")


class TriggerBody(Closed):
    instance_id: Annotated[str, WithJsonSchema(constraints.INSTANCE_ID)] | None = Field(
        None, description="The id of the new instance. If it exists, nothing is started."
    )


class ScheduleItem(TypedDict):
    name: str
    workflow: str
    cron: str | None
    every: float | None
    timezone: str
    next_at: Time | None
    last_at: Time | None
    last_instance: str | None
    is_paused: bool
    is_declared: bool
    started: int
    skipped: int
    error: str | None
    due_at: Time | None
    spread: float
    catch_up: CatchUp
    overlap: Overlap


class Schedules(TypedDict):
    items: list[ScheduleItem]


class Named(TypedDict):
    name: str
