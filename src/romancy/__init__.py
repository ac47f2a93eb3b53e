"""Romancy: durable workflows on your own database. Plain `async def` functions that wait, sleep and survive crashes."""

from importlib.metadata import PackageNotFoundError, version

from romancy.api.activity import Activity, activity
from romancy.api.context import ActivityContext, Context, WorkflowContext, current_context
from romancy.api.sending import send_event
from romancy.api.waiting import sleep, sleep_until, wait_event
from romancy.api.workflow import Workflow, workflow
from romancy.app import App
from romancy.core.model import Duration, ReceivedEvent, Scalar, Status
from romancy.core.retry import NO_RETRY, RetryPolicy
from romancy.errors import (
    ActivityError,
    ActivityTimeout,
    AppNotRunning,
    InstanceExists,
    InstanceNotFound,
    InvalidEvent,
    InvalidInput,
    IOInWorkflow,
    NonDeterminismError,
    NotStorable,
    Overloaded,
    RomancyError,
    StorageError,
    TerminalError,
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
    ActivityRetryingInfo,
    ActivityStartedInfo,
    EventReceivedInfo,
    EventSentInfo,
    HooksBase,
    ReplayCompletedInfo,
    ReplayStartedInfo,
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
from romancy.records import EventRecord, HistoryEntry, Instance, Page, Receipt, Wait

try:
    __version__ = version("romancy")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "NO_RETRY",
    "Activity",
    "ActivityCompletedInfo",
    "ActivityContext",
    "ActivityError",
    "ActivityFailedInfo",
    "ActivityRetryingInfo",
    "ActivityStartedInfo",
    "ActivityTimeout",
    "App",
    "AppNotRunning",
    "Context",
    "Duration",
    "EventReceivedInfo",
    "EventRecord",
    "EventSentInfo",
    "HistoryEntry",
    "HooksBase",
    "IOInWorkflow",
    "Instance",
    "InstanceExists",
    "InstanceNotFound",
    "InvalidEvent",
    "InvalidInput",
    "NonDeterminismError",
    "NotStorable",
    "Overloaded",
    "Page",
    "Receipt",
    "ReceivedEvent",
    "ReplayCompletedInfo",
    "ReplayStartedInfo",
    "RetryPolicy",
    "RomancyError",
    "Scalar",
    "Status",
    "StorageError",
    "TerminalError",
    "TimerFiredInfo",
    "TimerStartedInfo",
    "UnknownWorkflow",
    "Wait",
    "WaitCompletedInfo",
    "WaitStartedInfo",
    "WaitTimedOutInfo",
    "WaitTimeout",
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
    "current_context",
    "send_event",
    "sleep",
    "sleep_until",
    "wait_event",
    "workflow",
]
