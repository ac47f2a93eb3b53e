"""Relays: one for each sink. Passes events on in the order of the log, several lines at a time.

A line is what has to stay in order: the events of one subject. If an event fails, it is parked, and with it those after
it in its line; all other lines go on. The sink's position moves to the last event before the first one that is neither
delivered nor parked, in the same transaction that parks events. After a crash, another worker begins there, and
delivers some events again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from romancy.core.clock import Alarm, Clock, stopwatch
from romancy.core.model import SECOND, Event, show
from romancy.core.patterns import Patterns
from romancy.core.retry import RetryPolicy, next_due
from romancy.core.sinks import NotDelivered, Outlet
from romancy.engine.breaker import Breaker
from romancy.engine.leases import Lease
from romancy.engine.metrics import Metrics
from romancy.engine.relay_window import AHEAD, POLL, Arrivals, Line, Window
from romancy.storage.protocol import Storage
from romancy.storage.sinks import Outgoing, Parked, Place
from romancy.storage.unopened import check

_logger = logging.getLogger("romancy")
DUE_LINES, EACH = 50, 20
"""How many parked lines are tried at a time, and how many events of each are read."""
BYTES = 8 * 1024 * 1024
"""About how much data of events is read at a time."""
SETTLED_EVERY = 0.05
"""Seconds between writes while events are delivered."""
TOUCHED_EVERY, MOVED_EVERY = 3600 * SECOND, 60 * SECOND
FORGOTTEN_AFTER = 30 * 24 * 3600 * SECOND
"""A sink that no process declares is forgotten after this, or when its events would be given up, if that is later."""
LONGEST_WISH = 3600.0
"""Seconds: a receiver can't ask for a later retry."""
ABANDONED = 1.0
"""Seconds that deliveries may take to end when they are cancelled."""
_AGAIN = RetryPolicy(max_attempts=None, maximum=3600.0)
_PAGE = 500


class Relay:
    """Passes the events of one sink on, while this worker has it."""

    def __init__(self, outlet: Outlet, storage: Storage, clock: Clock, lease: Lease, metrics: Metrics) -> None:
        self.outlet, self._table, self._clock, self._lease = outlet, storage.sinks, clock, lease
        self._metrics = metrics
        self._types: Sequence[str] = outlet.types
        self._patterns = Patterns(outlet.types, "types")
        self._breaker = Breaker()
        self.kicked = asyncio.Event()
        """Wakes the round: something was stored, is due, or has been delivered."""
        self._fresh = True
        """Whether there may be events to read."""
        self._arrivals = Arrivals()
        self._owner: str | None = None
        """The worker as which this process has the sink."""
        self._window: Window | None = None
        self._held: set[str] = set()
        """Lines that have parked events: later events of theirs are parked, too."""
        self._running: dict[asyncio.Task[BaseException | None], tuple[Line, Outgoing]] = {}
        self._alarm: Alarm | None = None
        self._declared_at: int | None = None
        self._moved_at = 0
        self._stops = False
        self._calm = asyncio.Event()
        """Set while no round is under way."""
        self._calm.set()

    def __repr__(self) -> str:
        return f"<Relay {self.outlet.name!r} running={len(self._running)} held={len(self._held)} {self._breaker!r}>"

    def takes(self, event: Event) -> bool:
        """Whether an event that this process has stored is for this sink."""
        return event.origin is None and event.target is None and self._patterns.match(event.type)

    def kick(self, seq: int | None = None) -> None:
        """Look for events now. `seq`: one that this process has stored."""
        if seq is not None and self._owner is not None:
            self._arrivals.stored(seq)
        self._fresh = True
        self.kicked.set()

    async def declare(self) -> None:
        """Store that the sink exists. A new one begins with the events from now on."""
        now = self._clock.now()
        outlet, keep = self.outlet, max(self.outlet.give_up_after, FORGOTTEN_AFTER)
        await self._table.declare(outlet.name, outlet.types, now, keep, holds=outlet.holds)
        self._declared_at = now

    def stop(self) -> None:
        """Begin no more deliveries. Those under way end or are cancelled with the round."""
        self._stops = True
        self._disarm()

    async def finish(self, seconds: float) -> None:
        """Let deliveries under way end, for a while, and what became of them be stored."""
        try:
            async with asyncio.timeout(seconds):
                await self._calm.wait()
        except TimeoutError:
            _logger.warning("sink %r: deliveries that did not end in time will be repeated", self.outlet.name)

    @property
    def is_idle(self) -> bool:
        return self._calm.is_set() and not self.kicked.is_set() and not self._arrivals.are_hidden

    # --- rounds -----------------------------------------------------------------------------------------------------
    async def round(self) -> float:
        worker = self._lease.worker
        if worker is None or self._stops:
            return POLL
        self._calm.clear()
        try:
            place = await self._claimed(worker)
            if place is not None:
                await self._relay(worker, place)
                row = await self._table.get(self.outlet.name)
                self._arm(None if row is None else row.due_at)
        finally:
            self._calm.set()
        return self._arrivals.rest

    async def _claimed(self, worker: str) -> Place | None:
        """Return where the sink stands, if this worker has it or can have it."""
        name, now = self.outlet.name, self._clock.now()
        row = await self._table.get(name)
        if row is None or self._declared_at is None:
            await self.declare()
            row = await self._table.get(name)
        elif now - self._declared_at > TOUCHED_EVERY:
            await self._table.touch(name, now)
            self._declared_at = now
        if row is None:
            return None
        if row.types != self._types:
            self._take_types(row.types)
        place = row.place
        if row.owner != worker:
            claimed = None if row.is_owned else await self._table.claim(name, worker, now)
            if claimed is None:
                self._disown()
                return None
            self._disown()
            place = claimed
        if self._owner != worker:
            await self._begin(now)
            self._owner = worker
        return place

    def _take_types(self, types: Sequence[str]) -> None:
        """Go by the types that were declared last: what runs here may be older code. What was read is read again."""
        self._disown()
        self._types, self._patterns = types, Patterns(types, "types")

    async def _begin(self, now: int) -> None:
        """Learn which lines are held. Their first events are due, even if the former owner died before it said so."""
        holds = self.outlet.holds
        self._held = await self._table.lines(self.outlet.name, holds=holds)
        lines = sorted(self._held)
        for first in range(0, len(lines), _PAGE):
            await self._table.heads(self.outlet.name, lines[first : first + _PAGE], now, holds=holds)

    async def _relay(self, worker: str, place: Place) -> None:
        """Deliver until there is nothing to do, or the breaker is shut.

        What was read is kept for the next round, unless something goes wrong: then it is read again.
        """
        window, self._window = self._window or Window(place), None
        self._fresh = True
        settled_at = stopwatch()
        try:
            while True:
                self.kicked.clear()
                self._collect(window)
                if self._fresh and window.has_room and not self._stops:
                    await self._read(window)
                elif self._fresh:
                    self._arrivals.pause()
                self._launch(window)
                if window.has_news and (not self._running or stopwatch() - settled_at >= SETTLED_EVERY):
                    if not await self._settle(window, worker):
                        return
                    settled_at = stopwatch()
                    continue
                if not self._running:
                    self._window = window
                    await self._move_on(window, worker)
                    return
                await self._wait(SETTLED_EVERY if window.has_news else None)
        except BaseException:
            self._disown()  # what is held in memory may not be stored
            raise
        finally:
            await self._abandon()

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.kicked.wait()
        except TimeoutError:
            return  # it is time to settle

    async def _read(self, window: Window) -> None:
        """Read events ahead, and parked ones that are due."""
        self._fresh = False
        now, name = self._clock.now(), self.outlet.name
        if self._breaker.allows(now, 1):
            self._take_due(window, await self._table.due(name, now, DUE_LINES, EACH), now)
        reading = await self._table.events(self._types, window.read_to, AHEAD, BYTES)
        self._fresh = self._fresh or not reading.is_end  # it may have been kicked meanwhile
        self._arrivals.read([event.place.seq for event in reading.events], is_end=reading.is_end)
        window.has_read(reading)
        for event in reading.events:
            if event.is_received or _has_expired(event, now):
                window.done(event)
            elif event.line in self._held:
                self._park_behind(window, event, now)
            else:
                window.add(event)

    def _take_due(self, window: Window, events: Sequence[Outgoing], now: int) -> None:
        """Deliver parked events, except those of lines of which something is under way or not stored yet."""
        busy = window.busy
        for event in events:
            if event.line in busy:
                continue
            self._held.add(event.line)
            if _has_expired(event, now):
                window.gone.append(event.place.seq)
                window.finished.add(event.line)
            else:
                window.add(event, is_parked=True)

    def _park_behind(self, window: Window, event: Outgoing, now: int) -> None:
        window.parked.append(Parked(event.place, event.line, 0, now, None, None))
        window.done(event)

    # --- deliveries -------------------------------------------------------------------------------------------------
    def _launch(self, window: Window) -> None:
        """Begin as many deliveries as may be under way."""
        most = 0 if self._stops else self._breaker.allows(self._clock.now(), self.outlet.max_concurrent)
        is_probe = self._breaker.shut_until is not None
        while window.ready and len(self._running) < most:
            line = window.next_line(is_probe=is_probe)
            event = line.events[0]
            task = asyncio.create_task(self._deliver(event.event), name=f"romancy-sink-{self.outlet.name}")
            self._running[task] = line, event
            task.add_done_callback(lambda _: self.kicked.set())

    async def _deliver(self, event: Event) -> BaseException | None:
        """Deliver an event. Return why that failed, if it did. Whatever user code raises is a failure."""
        limit, task = asyncio.timeout(self.outlet.timeout), asyncio.current_task()
        try:
            async with limit:
                check(event.data)
                await self.outlet.deliver(event)
        except TimeoutError as error:
            return NotDelivered(f"no answer within {self.outlet.timeout:g} seconds") if limit.expired() else error
        except asyncio.CancelledError:
            if task is not None and task.cancelling():  # by this relay; otherwise something that it awaits was
                raise
            return NotDelivered("the delivery was cancelled")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            return error
        return None

    def _collect(self, window: Window) -> None:
        """Follow up on deliveries that have ended."""
        for task in [task for task in self._running if task.done()]:
            line, event = self._running.pop(task)
            error = NotDelivered("the delivery was cancelled") if task.cancelled() else task.result()
            if error is None:
                self._delivered(window, line, event)
            else:
                self._failed(window, line, event, error)
            if line.key in window.lines and not line.events:
                window.end(line)
                if line.is_parked:
                    window.finished.add(line.key)
            elif line.key in window.lines:
                window.ready.append(line)

    def _delivered(self, window: Window, line: Line, event: Outgoing) -> None:
        line.events.popleft()
        window.done(event)
        if line.is_parked:
            window.gone.append(event.place.seq)
        self._metrics.sink_deliveries[self.outlet.name, "delivered"] += 1
        self._metrics.sink_lag.observe((self._clock.now() - event.event.accepted_at) / SECOND)
        if self._breaker.succeeded():
            self._fresh = True
            _logger.warning("sink %r delivers again", self.outlet.name)

    def _failed(self, window: Window, line: Line, event: Outgoing, error: BaseException) -> None:
        """Park an event, and what comes after it in its line. If it is given up, the line can go on."""
        now, text = self._clock.now(), _words(error)
        attempts = event.attempts + 1
        since = now if attempts == 1 or event.since is None else event.since
        is_dead = now - since >= self.outlet.give_up_after
        due = None if is_dead else max(next_due(_AGAIN, attempts, since, now) or now, now + _wish(error))
        window.parked.append(Parked(event.place, line.key, attempts, now if is_dead else since, due, text, is_dead))
        window.done(event)
        line.events.popleft()
        self._metrics.sink_deliveries[self.outlet.name, "failed"] += 1
        if is_dead:
            self._give_up(event, attempts, text)
        if self._breaker.failed(line.key, now, is_new=attempts == 1):
            _logger.warning(
                "sink %r: nothing can be delivered, the last error is: %s; it waits, and tries one event from time to "
                "time",
                self.outlet.name,
                text,
            )
        if not is_dead or self.outlet.holds:
            self._held.add(line.key)
            for later in line.events if not line.is_parked else ():
                self._park_behind(window, later, now)
            window.end(line)

    def _give_up(self, event: Outgoing, attempts: int, text: str) -> None:
        self._metrics.sink_deliveries[self.outlet.name, "dead"] += 1
        _logger.error(
            "sink %r gave up event %s of type %s after %d attempts: %s; `romancy sinks retry %s` tries again",
            self.outlet.name, show(event.event.id), show(event.event.type), attempts, text, self.outlet.name,
        )  # fmt: skip

    # --- the database -----------------------------------------------------------------------------------------------
    async def _settle(self, window: Window, worker: str) -> bool:
        """Store what became of events. False: another worker has the sink."""
        name, now = self.outlet.name, self._clock.now()
        place, gone, parked, finished = window.take()
        if not await self._table.settle(name, worker, self._types, place, gone, parked, now):
            self._disown()
            return False
        if finished:
            more = await self._table.heads(name, finished, now, holds=self.outlet.holds)
            self._held -= finished - more
            self._fresh = self._fresh or bool(more)
        return True

    async def _move_on(self, window: Window, worker: str) -> None:
        """Pass what is not for this sink, from time to time: types that are added later begin about now."""
        now = self._clock.now()
        if window.is_clear and now - self._moved_at > MOVED_EVERY and window.skip():
            self._moved_at = now
            await self._settle(window, worker)

    def _disown(self) -> None:
        """Note that another worker has the sink."""
        self._owner, self._window, self._arrivals = None, None, Arrivals()

    async def _abandon(self) -> None:
        """Cancel deliveries under way. They are repeated, because their outcome is unknown."""
        tasks = list(self._running)
        self._running.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=ABANDONED)
            if left:
                _logger.warning("sink %r: %d deliveries don't end when cancelled", self.outlet.name, len(left))

    def _arm(self, due: int | None) -> None:
        """Begin a round when the next parked event is due, and the breaker allows it."""
        self._disarm()
        shut = self._breaker.shut_until
        time = shut if shut is not None and shut > self._clock.now() else due
        if time is not None and not self._stops:
            self._alarm = self._clock.call_at(time, self.kick)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


def _has_expired(event: Outgoing, now: int) -> bool:
    expires_at = event.event.expires_at
    return expires_at is not None and expires_at <= now


def _wish(error: BaseException) -> int:
    """Return the microseconds that the receiver wants to be left alone."""
    wished = error.retry_after if isinstance(error, NotDelivered) else None
    return 0 if wished is None else int(min(wished, LONGEST_WISH) * SECOND)


def _words(error: BaseException) -> str:
    """Return why a delivery failed, as any database can store it."""
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception:
        return kind
    if not isinstance(error, NotDelivered):
        text = f"{kind}: {text}" if text else kind
    return text[:1000].encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
