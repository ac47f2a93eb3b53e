"""The activity runner: runs attempts in tasks and threads, limits, times and cancels them, and posts their outcomes."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import Any, cast

from romancy.api.context import ActivityContext, TransactionContext, staged_events
from romancy.core import failure as failures
from romancy.core.clock import Clock, stopwatch
from romancy.core.failure import Failure
from romancy.core.history import Kind
from romancy.core.instance import current
from romancy.core.logs import fields
from romancy.core.model import SECOND
from romancy.core.operations import ActivityCall
from romancy.core.retry import Policies, allows, next_due
from romancy.core.tasks import start_now
from romancy.core.tickets import NO_LINKS, Links
from romancy.engine.around import NOTHING, Around
from romancy.engine.attempt import Attempting
from romancy.engine.emissions import Emissions
from romancy.engine.hook_runner import HookRunner
from romancy.engine.inbox import Inboxes
from romancy.engine.metrics import Metrics
from romancy.engine.resident import Answered, AttemptChanged, Resident
from romancy.engine.slots import Slots
from romancy.engine.stages import ENDED, EXPIRED, RUNNING, STARTING, WAITING, WITHDRAWN, Stage
from romancy.engine.transactions import Transactions, is_conflict
from romancy.errors import InvalidInput
from romancy.storage.attempts import Attempt

_logger = logging.getLogger("romancy")

RECORDED = object()
"""In place of a result: a transaction has stored it."""


class Activities:
    """Runs attempts, at most `limit` at a time, and posts their outcomes."""

    def __init__(
        self,
        clock: Clock,
        limit: int,
        retry: Policies,
        state: Any,
        inboxes: Inboxes,
        hooks: HookRunner,
        metrics: Metrics,
        transactions: Transactions | None,
        emissions: Emissions,
        around: Around = NOTHING,
        links: Links = NO_LINKS,
    ) -> None:
        self._clock, self._limit, self._retry, self.state = clock, limit, retry, state
        self._post, self._rouse, self._around, self.links = inboxes.post, inboxes.residents.rouse, around, links
        self._variables = copy_context()  # every attempt begins with these, not with those of what it comes after
        self._hooks, self._metrics, self._transactions, self.emissions = hooks, metrics, transactions, emissions
        self._slots: Slots[Attempting] = Slots(limit)
        self._open: dict[tuple[str, str], Attempting] = {}
        self._reserved: dict[tuple[str, str], Attempting] = {}
        """Suspects that have a slot or wait for one, and have not begun."""
        self._launching = self._stopping = False
        self._threads: ThreadPoolExecutor | None = None
        self._ended = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.replacements: dict[Hashable, Callable[..., Any]] = {}
        """Fakes for tests: the function to call instead of an activity's own, by the key of its definition."""

    def __repr__(self) -> str:
        return f"<Activities {self._slots!r}>"

    @property
    def running(self) -> int:
        """How many attempts run or wait for a slot."""
        return self._slots.taken + self._slots.waiting

    @property
    def active(self) -> int:
        """How many attempts run."""
        return self._slots.taken

    def describe_wait(self, instance: str, op: str) -> str | None:
        """Return why a call waits for a slot here, or what its transaction does; None if there is neither."""
        attempting = self._open.get((instance, op)) or self._reserved.get((instance, op))
        slot = None if attempting is None else self._slots.describe(attempting)
        return self._transactions.describe(attempting) if slot is None and attempting and self._transactions else slot

    def start(self, resident: Resident, call: ActivityCall) -> None:
        """Begin the next attempt of a call as soon as a slot is free."""
        attempting = Attempting(self, resident, call, resident.attempts.get(call.id))
        self._open[resident.instance.id, call.id] = attempting
        if self._slots.take(attempting):
            self._launch(attempting)

    def retry_at(self, resident: Resident, call: ActivityCall, due: int) -> None:
        """Begin the next attempt at its recorded time."""
        attempting = Attempting(self, resident, call, resident.attempts[call.id])
        self._open[resident.instance.id, call.id] = attempting
        resident.begin_rest(call.id)
        attempting.alarm = self._clock.call_at(due, lambda: self._end_rest(attempting))

    def begin_now(self, instance: str, op: str) -> None:
        """Begin the next attempt of a call before its recorded time, if it waits for that."""
        attempting = self._open.get((instance, op))
        if attempting is not None and attempting.alarm is not None and op in attempting.resident.resting:
            attempting.alarm.cancel()
            self._end_rest(attempting)

    def _end_rest(self, attempting: Attempting) -> None:
        attempting.resident.end_rest(attempting.call.id)
        if attempting.stage is WAITING and not self._stopping:
            self._rouse(attempting.resident)
            if self._slots.take(attempting):
                self._launch(attempting)

    # --- suspects ---------------------------------------------------------------------------------------------------
    def reserve(self, resident: Resident, call: ActivityCall, granted: Callable[[], None]) -> bool:
        """Take a slot for a suspect, and return whether it has one. If not, `granted` is called when it gets one."""
        attempting = self._reserved[resident.instance.id, call.id] = Attempting(self, resident, call, None)
        attempting.granted = granted
        if self._slots.take(attempting):
            attempting.stage = STARTING
        return attempting.stage is STARTING

    def start_reserved(self, resident: Resident, call: ActivityCall) -> None:
        """Begin the next attempt of a suspect, in its slot."""
        attempting = self._reserved.pop((resident.instance.id, call.id), None)
        if attempting is None:
            self.start(resident, call)  # only while stopping: then it gets no slot
            return
        attempting.record = resident.attempts.get(call.id)
        self._open[resident.instance.id, call.id] = attempting
        self._launch(attempting)
        self._fill()  # it may have ended at once

    def give_back(self, resident: Resident, op: str) -> None:
        """Free the slot of a suspect that has not begun, or end its waiting for one."""
        attempting = self._reserved.get((resident.instance.id, op))
        if attempting is not None and attempting.resident is resident:
            self._release(attempting)

    def _release(self, attempting: Attempting) -> None:
        del self._reserved[attempting.instance_id, attempting.call.id]
        if attempting.stage is WAITING:
            self._slots.leave(attempting)
        elif self._slots.free(attempting) and not self._launching:
            self._fill()
        self._ended.set()

    # --- ending early -----------------------------------------------------------------------------------------------

    def withdraw(self, instance: str, op: str) -> None:
        """Cancel a call whose result is no longer needed. Nothing it still does is recorded."""
        attempting = self._open.pop((instance, op), None)
        if attempting is None:
            if self._reserved and (instance, op) in self._reserved:
                self._release(self._reserved[instance, op])
            return
        attempting.resident.end_rest(op)
        if attempting.alarm is not None:
            attempting.alarm.cancel()
        if attempting.stage is WAITING:
            self._slots.leave(attempting)
        self._cancel(attempting, WITHDRAWN)

    def give_up(self, resident: Resident, call: ActivityCall) -> None:
        """Tell a call that the code gave it up. Its outcome is still recorded, but a failed attempt is not retried."""
        attempting = self._open.get((resident.instance.id, call.id))
        if attempting is None:
            return  # it just ended; or it is a suspect, and runs when its turn comes: it may have done its work
        if attempting.context is not None:
            attempting.context.is_cancelled = True
            return
        self.withdraw(resident.instance.id, call.id)
        self.retry_no_more(resident, call)

    def retry_no_more(self, resident: Resident, call: ActivityCall) -> None:
        """Post that a call failed which was given up between two attempts, or before the first one."""
        record = resident.attempts.get(call.id)
        kind, unbegun = call.answer_unbegun()
        attempts, error = (0, None) if record is None else (record.n, record.error)
        self._post(resident, Answered(call.id, kind, error or unbegun, attempt=max(attempts, 1)))

    def withdraw_all(self, resident: Resident) -> None:
        for op in resident.instance.ops.values():
            if isinstance(op, ActivityCall):
                self.withdraw(resident.instance.id, op.id)
        if self.emissions.heads:
            self.emissions.forget(resident.instance.id)

    def _cancel(self, attempting: Attempting, stage: Stage) -> None:
        has_begun, attempting.stage = attempting.stage is not STARTING, stage
        if attempting.context is not None:
            attempting.context.is_cancelled = True
        if attempting.task is None or not attempting.is_on_loop:
            return
        attempting.task.cancel()
        if not has_begun:  # a task cancelled before its first step never runs, so it can't report its own end
            self._over(attempting, None, asyncio.CancelledError())

    # --- running ----------------------------------------------------------------------------------------------------
    def _fill(self) -> None:
        while (attempting := self._slots.next()) is not None:
            if attempting.granted is None:
                self._launch(attempting)
            else:
                self._grant(attempting, attempting.granted)

    def _grant(self, attempting: Attempting, granted: Callable[[], None]) -> None:
        attempting.stage, self._launching = STARTING, True  # if it gives the slot back, `_fill` goes on with the queue
        try:
            granted()
        finally:
            self._launching = False

    def _launch(self, attempting: Attempting) -> None:
        call = attempting.call
        is_transaction = call.activity.transactional
        context = attempting.context = (TransactionContext if is_transaction else ActivityContext)(attempting)
        context.is_cancelled = call.given_up
        attempting.stage, attempting.since = STARTING, stopwatch()
        if self._hooks.wanted:
            self._hooks.run(attempting.started_info(self._clock.now()))
        fn = self.replacements.get(call.activity.key, call.activity.fn)
        run = self._run_async if call.activity.is_async else self._run_in_thread
        run = self._run_around if self._around.has_attempts else run
        run = self._run_in_transaction if is_transaction else run
        self._launching = True
        try:
            task = start_now(self.loop, run(attempting, fn, context), self._variables.copy())
        finally:
            self._launching = False
        if attempting.stage is ENDED:
            return
        attempting.task = task
        if call.timeout is not None and not is_transaction:
            attempting.alarm = self._clock.call_at(self._clock.now() + call.timeout, lambda: self.expire(attempting))

    async def _run_async(self, attempting: Attempting, fn: Callable[..., Any], context: ActivityContext) -> None:
        attempting.stage = RUNNING
        current.set(context)
        try:
            outcome = await attempting.call.activity.invoke(fn, context, attempting.call.arguments), None
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit too: it ends the activity, not the worker
            outcome = None, error
        self._over(attempting, *(await attempting.settle(outcome) if attempting.must_settle else outcome))

    async def _run_around(self, attempting: Attempting, fn: Callable[..., Any], context: ActivityContext) -> None:
        """Run an attempt with middleware around it. While that runs, it can be cancelled, even if a thread can't."""
        attempting.stage, attempting.is_on_loop = RUNNING, True
        current.set(context)
        activity, arguments = attempting.call.activity, attempting.call.arguments

        async def call() -> Any:
            if attempting.stage is not RUNNING:
                raise asyncio.CancelledError  # middleware ignored that it was cancelled
            if activity.is_async:
                return await activity.invoke(fn, context, arguments)
            attempting.is_on_loop = False
            result, error = await self.begin_thread(attempting, fn, context)
            attempting.is_on_loop = True
            if attempting.stage is WITHDRAWN:
                raise attempting.timeout_error if attempting.is_expired else asyncio.CancelledError
            if error is not None:
                raise error
            return await result if activity.may_return_awaitable and inspect.isawaitable(result) else result

        try:
            outcome = await self._around.attempt(context, call), None
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit too, as above
            outcome = None, error
        self._over(attempting, *(await attempting.settle(outcome) if attempting.must_settle else outcome))

    async def _run_in_thread(self, attempting: Attempting, fn: Callable[..., Any], context: ActivityContext) -> None:
        """Keep the slot until the thread really ends, even if its result is no longer needed."""
        if attempting.stage is WITHDRAWN:
            self._over(attempting, None, None)
            return
        attempting.stage = RUNNING
        outcome = await self.begin_thread(attempting, fn, context)
        if attempting.call.activity.may_return_awaitable and inspect.isawaitable(outcome[0]):
            outcome = await self._await_on_loop(attempting, outcome[0], context)
        self._over(attempting, *(await attempting.settle(outcome) if attempting.must_settle else outcome))

    def begin_thread(
        self, attempting: Attempting, fn: Callable[..., Any], context: ActivityContext
    ) -> asyncio.Future[tuple[Any, BaseException | None]]:
        """Run the function in a thread. The result is its outcome, with the error that it raised."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._limit, "romancy-activity")

        def work() -> tuple[Any, BaseException | None]:
            try:
                return attempting.call.activity.invoke(fn, context, attempting.call.arguments), None
            except BaseException as error:
                return None, error

        variables = copy_context()
        variables.run(current.set, context)
        return asyncio.get_running_loop().run_in_executor(self._threads, lambda: variables.run(work))

    async def _run_in_transaction(
        self, attempting: Attempting, fn: Callable[..., Any], context: ActivityContext
    ) -> None:
        assert self._transactions is not None
        attempting.stage, attempting.is_on_loop = RUNNING, True
        current.set(context)
        ctx = cast("TransactionContext[Any]", context)

        def recorded() -> None:
            self._open.pop((attempting.resident.instance.id, attempting.call.id), None)

        error: BaseException | None = None
        try:
            await self._transactions.run(attempting, fn, ctx, recorded)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as raised:  # SystemExit too, as above
            error = raised
        if attempting.thread is not None and not attempting.thread.done():
            # It was cut off from its transaction. It counts as failed now, but its slot is freed when it ends.
            if attempting.stage is not WITHDRAWN and error is not None:
                self._conclude(attempting, None, error)
            attempting.stage = WITHDRAWN
            await asyncio.wait([attempting.thread])
        self._over(attempting, RECORDED, error)

    async def _await_on_loop(
        self, attempting: Attempting, returned: Awaitable[Any], context: ActivityContext
    ) -> tuple[Any, BaseException | None]:
        """Await what a step's function returned in its thread, such as the coroutine of `lambda: model.ask(prompt)`."""
        if attempting.stage is WITHDRAWN:
            if inspect.iscoroutine(returned):
                returned.close()  # it is not needed any more, and has not begun
            return None, None
        attempting.is_on_loop = True
        current.set(context)
        try:
            return await returned, None
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit too, as above
            return None, error

    def expire(self, attempting: Attempting) -> None:
        """End an attempt whose time is over."""
        if attempting.stage is WITHDRAWN or attempting.stage is ENDED:
            return
        self._cancel(attempting, EXPIRED)
        if not attempting.is_on_loop:
            # A thread can't be stopped: the attempt counts as timed out now, but its slot is freed when it ends.
            self._failed(attempting, attempting.timeout_error)
            attempting.stage, attempting.is_expired = WITHDRAWN, True

    def _over(self, attempting: Attempting, result: Any, error: BaseException | None) -> None:
        is_wanted = attempting.stage is not WITHDRAWN
        is_slot_wanted = self._slots.free(attempting)
        if attempting.alarm is not None:
            attempting.alarm.cancel()
        outcome = "withdrawn" if not is_wanted else "completed" if error is None else "failed"
        self._metrics.attempt_ended(attempting.call.activity.name, outcome, stopwatch() - attempting.since)
        if is_wanted:
            try:
                self._conclude(attempting, result, error)
            except Exception as unexpected:
                _logger.exception("the outcome of attempt %r can't be processed; the activity fails", attempting)
                self._fail_for_good(attempting, failures.capture(unexpected))
        attempting.stage = ENDED
        attempting.task = attempting.context = attempting.alarm = None  # they refer to it: avoid a reference cycle
        self._ended.set()
        if is_slot_wanted and not self._launching:  # otherwise the caller that launches continues with the queue
            self._fill()

    def _conclude(self, attempting: Attempting, result: Any, error: BaseException | None) -> None:
        if attempting.stage is EXPIRED and isinstance(error, asyncio.CancelledError):
            self._failed(attempting, attempting.timeout_error)
        elif error is None:
            if result is not RECORDED:
                self._completed(attempting, result)
        elif not (self._stopping and isinstance(error, asyncio.CancelledError)):
            self._failed(attempting, error, final=attempting.is_final)

    # --- outcomes ---------------------------------------------------------------------------------------------------
    def _completed(self, attempting: Attempting, result: Any) -> None:
        call = attempting.call
        try:
            payload = call.activity.encode(result)
        except Exception as error:
            self._failed(attempting, error, final=True)
            return
        self._open.pop((attempting.resident.instance.id, call.id), None)
        staged = staged_events(attempting.context) if attempting.context else []
        done = Answered(call.id, Kind.ACTIVITY_COMPLETED, payload, staged, attempting.attempt)
        self._post(attempting.resident, done)

    def _failed(self, attempting: Attempting, error: BaseException, *, final: bool = False) -> None:
        call, resident, attempts = attempting.call, attempting.resident, attempting.attempt
        policy = call.retry or (self._retry.calls if call.undo_of is None else self._retry.undos)
        self._open.pop((resident.instance.id, call.id), None)
        failure = failures.capture(
            error,
            attempts=attempts,
            timeout=attempting.stage is EXPIRED,
            raises=call.activity.raises,
            rolled_back=call.activity.transactional,
        )
        now = self._clock.now()
        retryable = (
            not (final or call.given_up or isinstance(error, InvalidInput))
            and failure.listed is None
            and (allows(policy, error) or (call.activity.transactional and is_conflict(error)))
        )
        due = next_due(policy, attempts, attempting.first_at, now) if retryable else None
        if failure.listed is None:
            _logger.warning(
                "attempt %d of activity %s of instance %r failed (%s: %s); %s",
                attempts,
                call.id,
                resident.instance.id,
                failure.error_type,
                failure.message,
                "no more attempts" if due is None else f"next in {max(0, due - now) / SECOND:.3g} s",
                extra=fields(resident.instance.id, attempting.workflow_name, attempting.headers),
            )
        if due is None:
            self._fail_for_good(attempting, failure)
            return
        progress = attempting.context.last_progress if attempting.context else None
        # No suspicion: it ended by itself.
        changed = Attempt(call.id, attempts, attempting.first_at, due, failure.encode(), _plain(progress))
        self._post(resident, AttemptChanged(changed, failure.error_type, failure.message))

    def _fail_for_good(self, attempting: Attempting, failure: Failure) -> None:
        """Post that a call failed for good."""
        failed = Answered(attempting.call.id, Kind.ACTIVITY_FAILED, failure.encode(), attempt=attempting.attempt)
        self._post(attempting.resident, failed)

    def progress(self, attempting: Attempting, value: object) -> None:
        """Keep the progress of an attempt. Called by the activity, perhaps from its thread."""
        self.loop.call_soon_threadsafe(self._keep_progress, attempting, json.dumps(value).encode())

    def _keep_progress(self, attempting: Attempting, raw: bytes) -> None:
        """Store progress at most once a second. The last value is stored with a failed attempt anyway."""
        now = self._clock.now()
        is_over = attempting.stage is WITHDRAWN or attempting.stage is ENDED
        if is_over or now - attempting.progress_at < SECOND:
            return
        attempting.progress_at = now
        latest = attempting.resident.attempts.get(attempting.call.id)
        if latest is None:
            latest = Attempt(attempting.call.id, attempting.attempt - 1, attempting.first_at)
        attempting.record = replace(latest, next_due=None, progress=raw, started=True)
        self._post(attempting.resident, AttemptChanged(attempting.record))

    # --- stopping ---------------------------------------------------------------------------------------------------
    async def stop(self, limit: float) -> None:
        """Start no more attempts. Give running ones `limit` seconds to finish, then abandon them unrecorded."""
        self._stopping = True
        for attempting in list(self._open.values()):
            if attempting.alarm is not None and attempting.task is None:
                attempting.alarm.cancel()
        self._slots.close()
        for reserved in list(self._reserved.values()):
            self._release(reserved)
        try:
            async with asyncio.timeout(limit):
                await self._drained()
        except TimeoutError:
            names = ", ".join(a.call.id for a in self._open.values() if a.task is not None)
            _logger.warning(
                "these activities are still running after %g s and will be repeated by another worker: %s",
                limit,
                names or f"{self._slots.taken} whose results are no longer needed",
            )
            for attempting in list(self._open.values()):
                self._cancel(attempting, WITHDRAWN)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _drained(self) -> None:
        while self._slots.taken:
            self._ended.clear()
            await self._ended.wait()


def _plain(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value).encode()
