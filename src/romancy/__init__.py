"""Romancy: durable workflows on your own database. Plain `async def` functions that wait, sleep and survive crashes."""

from typing import TYPE_CHECKING, Any

from romancy.api.activity import Activity, activity
from romancy.api.approvals import Answer, Decision, Invitation, Question, Vote, ask
from romancy.api.children import ChildHandle, start_workflow
from romancy.api.context import ActivityContext, Context, TransactionContext, WorkflowContext, current_context
from romancy.api.emissions import emit
from romancy.api.saga import compensate, saga
from romancy.api.sending import send_event
from romancy.api.step import step
from romancy.api.streams import EventStream, events
from romancy.api.waiting import sleep, sleep_until, wait_event
from romancy.api.workflow import Workflow, workflow
from romancy.app import App
from romancy.core.model import Duration, ReceivedEvent, Scalar, Status
from romancy.core.payloads import PayloadCodec
from romancy.core.queues import Queue, Rate
from romancy.core.retry import NO_RETRY, RetryPolicy
from romancy.desk import WorkerRecord
from romancy.emission_records import Emission
from romancy.errors import (
    AccessDenied,
    ActivityError,
    ActivityTimeout,
    AppNotRunning,
    CodecError,
    EmissionsFull,
    InstanceExists,
    InstanceNotFound,
    InvalidEvent,
    InvalidInput,
    IOInWorkflow,
    NonDeterminismError,
    NotInTransaction,
    NotRetryable,
    NotStorable,
    Overloaded,
    QueueFull,
    RomancyError,
    ScheduleNotFound,
    ServerUnreachable,
    StorageError,
    TerminalError,
    UnexpectedAnswer,
    UnknownWorkflow,
    WaitTimeout,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowStuck,
)
from romancy.handle import WorkflowHandle
from romancy.hooks import (
    ActivityCompletedInfo,
    ActivityFailedInfo,
    ActivityLostInfo,
    ActivityRetryingInfo,
    ActivityStartedInfo,
    EventReceivedInfo,
    EventSentInfo,
    HooksBase,
    InboxRefusedInfo,
    ReplayCompletedInfo,
    ReplayStartedInfo,
    ScheduleFailedInfo,
    ScheduleFiredInfo,
    ScheduleSkippedInfo,
    TimerFiredInfo,
    TimerStartedInfo,
    WaitCompletedInfo,
    WaitStartedInfo,
    WaitTimedOutInfo,
    WorkflowBlockedInfo,
    WorkflowCancelledInfo,
    WorkflowCompletedInfo,
    WorkflowFailedInfo,
    WorkflowInfo,
    WorkflowStartedInfo,
)
from romancy.middleware import MiddlewareBase, StartRequest
from romancy.options import (
    Database,
    HTTPOptions,
    HTTPSink,
    Retention,
    Schedule,
    Sink,
    Token,
    Webhook,
    WebhookRequest,
    WorkerOptions,
)
from romancy.question_verbs import QuestionRecord
from romancy.records import (
    Act,
    BulkResult,
    Event,
    EventRecord,
    HeldEvents,
    HistoryEntry,
    InboxRecord,
    Instance,
    InstanceFilter,
    Page,
    QueueRecord,
    QueueWait,
    Receipt,
    ScheduleRecord,
    Wait,
)
from romancy.sink_records import DeadLetter, SinkRecord
from romancy.within import PendingHandle, Within

if TYPE_CHECKING:
    from romancy.client import Client, RemoteHandle

    __version__: str

__all__ = [
    "NO_RETRY",
    "AccessDenied",
    "Act",
    "Activity",
    "ActivityCompletedInfo",
    "ActivityContext",
    "ActivityError",
    "ActivityFailedInfo",
    "ActivityLostInfo",
    "ActivityRetryingInfo",
    "ActivityStartedInfo",
    "ActivityTimeout",
    "Answer",
    "App",
    "AppNotRunning",
    "BulkResult",
    "ChildHandle",
    "Client",
    "CodecError",
    "Context",
    "Database",
    "DeadLetter",
    "Decision",
    "Duration",
    "Emission",
    "EmissionsFull",
    "Event",
    "EventReceivedInfo",
    "EventRecord",
    "EventSentInfo",
    "EventStream",
    "HTTPOptions",
    "HTTPSink",
    "HeldEvents",
    "HistoryEntry",
    "HooksBase",
    "IOInWorkflow",
    "InboxRecord",
    "InboxRefusedInfo",
    "Instance",
    "InstanceExists",
    "InstanceFilter",
    "InstanceNotFound",
    "InvalidEvent",
    "InvalidInput",
    "Invitation",
    "MiddlewareBase",
    "NonDeterminismError",
    "NotInTransaction",
    "NotRetryable",
    "NotStorable",
    "Overloaded",
    "Page",
    "PayloadCodec",
    "PendingHandle",
    "Question",
    "QuestionRecord",
    "Queue",
    "QueueFull",
    "QueueRecord",
    "QueueWait",
    "Rate",
    "Receipt",
    "ReceivedEvent",
    "RemoteHandle",
    "ReplayCompletedInfo",
    "ReplayStartedInfo",
    "Retention",
    "RetryPolicy",
    "RomancyError",
    "Scalar",
    "Schedule",
    "ScheduleFailedInfo",
    "ScheduleFiredInfo",
    "ScheduleNotFound",
    "ScheduleRecord",
    "ScheduleSkippedInfo",
    "ServerUnreachable",
    "Sink",
    "SinkRecord",
    "StartRequest",
    "Status",
    "StorageError",
    "TerminalError",
    "TimerFiredInfo",
    "TimerStartedInfo",
    "Token",
    "TransactionContext",
    "UnexpectedAnswer",
    "UnknownWorkflow",
    "Vote",
    "Wait",
    "WaitCompletedInfo",
    "WaitStartedInfo",
    "WaitTimedOutInfo",
    "WaitTimeout",
    "Webhook",
    "WebhookRequest",
    "Within",
    "WorkerOptions",
    "WorkerRecord",
    "Workflow",
    "WorkflowBlocked",
    "WorkflowBlockedInfo",
    "WorkflowCancelled",
    "WorkflowCancelledInfo",
    "WorkflowCompletedInfo",
    "WorkflowContext",
    "WorkflowFailed",
    "WorkflowFailedInfo",
    "WorkflowHandle",
    "WorkflowInfo",
    "WorkflowStartedInfo",
    "WorkflowStuck",
    "__version__",
    "activity",
    "ask",
    "compensate",
    "current_context",
    "emit",
    "events",
    "saga",
    "send_event",
    "sleep",
    "sleep_until",
    "start_workflow",
    "step",
    "wait_event",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """Import lazily what running workflows does not need: the client with its HTTP library, the version."""
    if name == "__version__":
        return _version()
    if name not in ("Client", "RemoteHandle"):
        raise AttributeError(f"module 'romancy' has no attribute {name!r}")
    from romancy import client

    return getattr(client, name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("romancy")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
