"""All errors that users can see. A message says what happened, to which id, and what to do; fields hold the data."""

from __future__ import annotations


class RomancyError(Exception):
    """Something went wrong in Romancy."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().partition("\n")[0])


class WaitTimeout(RomancyError, TimeoutError):
    """The awaited event did not arrive in time."""

    def __init__(self, message: str | None = None, *, types: tuple[str, ...] = (), wait_id: str = "") -> None:
        super().__init__(message)
        self.types = types
        self.wait_id = wait_id


class ActivityError(RomancyError):
    """An activity failed for good: its retries are used up, or its error is not retryable."""

    def __init__(
        self,
        message: str | None = None,
        *,
        activity: str = "",
        error_type: str = "",
        traceback: str = "",
        attempts: int = 1,
    ) -> None:
        self.message = message or ""
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"activity {activity!r} failed after {times}: {error_type}: {self.message}")
        self.activity = activity
        self.error_type = error_type
        self.traceback = traceback
        self.attempts = attempts


class ActivityTimeout(ActivityError, TimeoutError):
    """Every attempt of an activity ran longer than its timeout."""


class WorkflowFailed(RomancyError):
    """The workflow ended with an error. `traceback` is the original traceback, also attached as a note."""

    def __init__(
        self,
        message: str | None = None,
        *,
        instance_id: str = "",
        error_type: str = "",
        traceback: str = "",
    ) -> None:
        self.message = message or ""
        super().__init__(f"instance {instance_id!r} failed: {error_type}: {self.message}")
        self.instance_id = instance_id
        self.error_type = error_type
        self.traceback = traceback
        if traceback:
            self.add_note(f"Inside the workflow:\n{traceback.rstrip()}")


class WorkflowCancelled(RomancyError):
    """The workflow was cancelled."""

    def __init__(self, message: str | None = None, *, instance_id: str = "", reason: str | None = None) -> None:
        super().__init__(message or f"instance {instance_id!r} was cancelled" + (f": {reason}" if reason else ""))
        self.instance_id = instance_id
        self.reason = reason


class WorkflowBlocked(RomancyError):
    """The instance can't continue until you fix its code and resume it.

    `not_undone`: if that is because undos failed for good, the operations that are not undone: those of the undos
    that failed, and those whose undos have not been tried yet.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        instance_id: str = "",
        reason: str = "",
        not_undone: tuple[str, ...] = (),
    ) -> None:
        fix, otherwise = ("cause", ", or cancel it to leave that as it is") if not_undone else ("code", "")
        super().__init__(
            message
            or f"instance {instance_id!r} is blocked: {reason}; fix the {fix}, then resume it "
            f"(app.resume_workflow({instance_id!r})){otherwise}"
        )
        self.instance_id = instance_id
        self.reason = reason
        self.not_undone = not_undone


class KillsWorkers(RomancyError):
    """Part of the workflow appears to kill the worker that runs it."""


class CompensationFailed(RomancyError):
    """Undos failed for good, so that some of what the workflow did is not undone."""


class WorkflowStuck(RomancyError):
    """The workflow waits for something that can never happen."""


class IOInWorkflow(RomancyError, RuntimeError):
    """Workflow code used something outside the workflow; move this into an activity."""


class NonDeterminismError(RomancyError):
    """The code asked for something other than what its history records."""

    def __init__(self, message: str | None = None, *, recorded: str = "", asked: str = "") -> None:
        super().__init__(message)
        self.recorded = recorded
        self.asked = asked


class InstanceNotFound(RomancyError, LookupError):
    """No instance has this id."""

    def __init__(self, message: str | None = None, *, instance_id: str = "") -> None:
        super().__init__(message or f"no instance has the id {instance_id!r}; list_instances() shows all instances")
        self.instance_id = instance_id


class InstanceExists(RomancyError):
    """Another instance already has this id."""

    def __init__(self, message: str | None = None, *, instance_id: str = "", advice: str = "") -> None:
        super().__init__(f"{message}; {advice}" if advice else message)
        self.instance_id = instance_id
        self.problem = message or str(self)
        """The message without `advice`."""
        self.advice = advice


class ScheduleNotFound(RomancyError, LookupError):
    """There is no schedule with this name."""

    def __init__(self, message: str | None = None, *, name: str = "") -> None:
        super().__init__(message or f"there is no schedule named {name!r}; list_schedules() shows those there are")
        self.name = name


class QueueFull(RomancyError):
    """Too many instances wait in the queue; start it again later."""

    def __init__(self, message: str | None = None, *, queue: str = "", max_waiting: int | None = None) -> None:
        wait = "instance waits" if max_waiting == 1 else "instances wait"
        most = "" if max_waiting is None else f": {max_waiting:,} {wait} (max_waiting)"
        super().__init__(message or f"queue {queue!r} is full{most}; nothing was started, try again later")
        self.queue = queue


class NotRetryable(RomancyError):
    """Only instances that failed or were cancelled can be retried, unless they have undone their steps.

    One that has undone its steps can only be forked from its beginning.
    """

    def __init__(self, message: str | None = None, *, instance_id: str = "", status: str = "") -> None:
        super().__init__(message or f"instance {instance_id!r} can't be retried: {_ADVICE.get(status, _IS_OPEN)}")
        self.instance_id = instance_id
        self.status = status


_IS_OPEN = "it has not ended; wait for it, or cancel it first"
_ADVICE = {
    "completed": "it has completed; fork it to run it again",
    "blocked": "it is blocked; fix its code, then resume it",
    "compensating": "it is undoing its steps; once it has ended, fork it from its beginning",
    "failed": "it has undone its steps; fork it from its beginning",
    "cancelled": "it has undone its steps; fork it from its beginning",
}


class NotInTransaction(RomancyError):
    """`app.within(connection)` needs a connection to the app's database, with a transaction open."""


class InvalidInput(RomancyError, ValueError):
    """An argument is invalid or does not fit the function's signature."""


class InvalidEvent(RomancyError, ValueError):
    """The event is invalid and can't be accepted."""


class TerminalError(RomancyError):
    """Raise this in an activity to fail immediately, without further attempts."""


class EmissionsFull(TerminalError):
    """An instance has emitted as much as it may. An activity that does not catch this fails without a retry."""

    def __init__(self, message: str | None = None, *, instance_id: str = "", topic: str = "") -> None:
        super().__init__(message)
        self.instance_id = instance_id
        self.topic = topic


class UnknownWorkflow(RomancyError, LookupError):
    """No workflow with this name is registered here."""


class NotStorable(RomancyError, TypeError):
    """A value can't be stored and restored unchanged."""


class StorageError(RomancyError):
    """The database can't be used."""


class Outdated(StorageError):
    """The schema was migrated while this process was running, to a version it must not write to."""

    def __init__(self, version: int, known: int, *, sealed: bool = False) -> None:
        super().__init__(
            "another process has sealed the values in the database, and this one has no codec; start again with "
            "App(codec=...)"
            if sealed
            else f"the database was migrated to schema version {version}, which needs a newer romancy (this one knows "
            f"version {known}); upgrade the package and start again"
        )


class CodecError(RomancyError):
    """A stored value can't be decoded, or a value can't be encoded."""

    def __init__(self, message: str | None = None, *, missing: str | None = None) -> None:
        super().__init__(message)
        self.missing = missing
        """The name of the key or codec that is needed and is not there. None: the value itself is at fault."""


class Overloaded(RomancyError):
    """Too much is waiting to be stored; try again in a moment."""


class AppNotRunning(RomancyError):
    """The app is not started; wrap the call in `async with app:` (mounted: `FastAPI(lifespan=app.lifespan)`)."""


class ServerUnreachable(RomancyError, ConnectionError):
    """The server can't be reached; is it running, and is the address right?"""


class AccessDenied(RomancyError, PermissionError):
    """The server requires a token that allows this; pass token=... or set ROMANCY_TOKEN."""

    def __init__(self, message: str | None = None, *, status: int = 401, advice: str = "") -> None:
        super().__init__(f"{message}; {advice}" if advice else message)
        self.status = status
        """401: no valid token; 403: a token that does not allow this."""
        self.problem = message or str(self)
        """The message without `advice`."""
        self.advice = advice


class UnexpectedAnswer(RomancyError):
    """The response did not come from a Romancy server, or the server failed."""
