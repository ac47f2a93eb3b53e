"""What a sink has read of the event log and not settled yet: events by line, and what became of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from romancy.core.clock import stopwatch
from romancy.storage.sinks import Outgoing, Parked, Place, Reading

AHEAD = 500
"""How many events are read at a time."""
MOST_BYTES = 32 * 1024 * 1024
"""How much data of events is held."""
POLL, SOON = 1.0, 0.02
"""Seconds between rounds, because other processes send events, too; and while some that are stored can't be read."""
PATIENCE = 10.0
"""Seconds after which an event that can't be read is left to the regular rounds."""
MOST_OPEN = 10_000
"""How many events are delivered after one that is not: they are repeated after a crash."""


@dataclass(slots=True)
class Line:
    """Events that are delivered one after the other."""

    key: str
    is_parked: bool
    """Whether its events are parked already."""
    events: deque[Outgoing] = field(default_factory=deque[Outgoing])


class Arrivals:
    """Events that this process has stored and not read yet: on PostgreSQL, an older transaction may hide them."""

    def __init__(self) -> None:
        self._awaited: dict[int, float] = {}
        """When each was stored, by the stopwatch."""
        self._recent: deque[int] = deque(maxlen=4 * AHEAD)
        """Events that were read: one may be read before this process knows that it is stored."""
        self._misses = 0
        """How often nothing was read in a row."""
        self.are_hidden = False
        """Whether some were not there when the log was last read to its end."""

    def __repr__(self) -> str:
        return f"<Arrivals awaited={len(self._awaited)} are_hidden={self.are_hidden}>"

    @property
    def rest(self) -> float:
        """Seconds until the next round: soon at first, then less and less often."""
        return POLL if not self.are_hidden else min(SOON * 2**self._misses, POLL)

    def stored(self, seq: int) -> None:
        if len(self._awaited) < AHEAD and seq not in self._recent:
            self._awaited[seq] = stopwatch()

    def pause(self) -> None:
        """Note that nothing is read now."""
        self.are_hidden = False

    def read(self, seqs: Sequence[int], *, is_end: bool) -> None:
        """Note which events were read, and whether these were all that could be."""
        self._recent.extend(seqs)
        long_ago = stopwatch() - PATIENCE
        read = {*seqs, *(seq for seq, at in self._awaited.items() if at < long_ago)}
        self._awaited = {seq: at for seq, at in self._awaited.items() if seq not in read}
        self._misses = 0 if seqs else min(self._misses + 1, 10)
        self.are_hidden = is_end and bool(self._awaited)


class Window:
    """The events between what is settled and what was read last."""

    def __init__(self, place: Place) -> None:
        self.read_to = self._place = place
        self._open: deque[Place] = deque()
        """The events that were read and are not settled, in order."""
        self._undone: dict[Place, int] = {}
        """Those of them that are neither delivered nor parked, with the size of their data."""
        self._bytes = 0
        self._end: Place | None = None
        """Where the log ended when it was last read to its end."""
        self.lines: dict[str, Line] = {}
        self.ready: deque[Line] = deque()
        """Lines whose first event can be delivered."""
        self.gone: list[int] = []
        """Parked events that were delivered."""
        self.parked: list[Parked] = []
        self.finished: set[str] = set()
        """Parked lines of which all events that were read are delivered."""

    def __repr__(self) -> str:
        return f"<Window {self.read_to} open={len(self._open)} lines={len(self.lines)}>"

    @property
    def has_room(self) -> bool:
        """Whether more should be read. A slow line does not keep others from being delivered."""
        return len(self.lines) <= AHEAD // 2 and len(self._open) < MOST_OPEN and self._bytes < MOST_BYTES

    @property
    def is_clear(self) -> bool:
        """Whether the log was read to its end, and nothing of it is left to do."""
        return self._end is not None and not self._open and not self.lines

    def skip(self) -> bool:
        """Go on to the end of what was read. Return whether that is further than before."""
        if self._end is None or self._end <= self._place:
            return False
        self.read_to = self._place = self._end
        return True

    def next_line(self, *, is_probe: bool) -> Line:
        """Take a line to deliver. As a probe, rather one that has not failed, and the newest: the others seem bad."""
        chosen = next((line for line in reversed(self.ready) if not line.is_parked), None) if is_probe else None
        if chosen is None:
            return self.ready.popleft()
        self.ready.remove(chosen)
        return chosen

    def has_read(self, reading: Reading) -> None:
        """Note what was read."""
        self._end = reading.end if reading.is_end else None
        for event in reading.events:
            self.read_to = event.place
            self._open.append(event.place)
            self._undone[event.place] = size = len(event.event.data or b"")
            self._bytes += size

    @property
    def has_news(self) -> bool:
        """Whether there is anything to settle."""
        has_come_on = bool(self._open) and self._open[0] not in self._undone
        return bool(has_come_on or self.gone or self.parked or self.finished)

    @property
    def busy(self) -> set[str]:
        """Lines that are being delivered, or of which something is not stored yet."""
        return {*self.lines, *self.finished, *(parked.line for parked in self.parked)}

    def add(self, event: Outgoing, *, is_parked: bool = False) -> None:
        """Put an event at the end of its line."""
        line = self.lines.get(event.line)
        if line is None:
            line = self.lines[event.line] = Line(event.line, is_parked)
            self.ready.append(line)
        line.events.append(event)

    def done(self, event: Outgoing) -> None:
        """Note that an event is delivered, parked or skipped."""
        self._bytes -= self._undone.pop(event.place, 0)

    def end(self, line: Line) -> None:
        """Drop a line, of which nothing more is delivered now."""
        del self.lines[line.key]

    def take(self) -> tuple[Place, list[int], list[Parked], set[str]]:
        """Return what is to be settled, and forget it: how far the sink has come, and the changes."""
        while self._open and self._open[0] not in self._undone:
            self._place = self._open.popleft()
        news = self._place, self.gone, self.parked, self.finished
        self.gone, self.parked, self.finished = [], [], set()
        return news
