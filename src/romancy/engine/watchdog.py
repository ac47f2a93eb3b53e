"""The watchdog: warns about a workflow whose code is blocking the event loop."""

from __future__ import annotations

import logging
import sys
import threading
import traceback

from romancy.core.clock import stopwatch
from romancy.core.instance import Instance
from romancy.core.logs import Lines

_logger = logging.getLogger("romancy")
LIMIT = 1.0
_LOOK_EVERY = 0.25


class Watchdog:
    """Call `begin(instance)` and `end()` around every step. A thread checks the time four times a second."""

    def __init__(self) -> None:
        self._instance: Instance | None = None
        self._since = 0.0
        self._told: Instance | None = None
        self._stop = threading.Event()
        self._thread_id = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread_id = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="romancy-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def begin(self, instance: Instance) -> None:
        """Note that the code of an instance is about to run. `end` must follow."""
        self._since = stopwatch()
        self._instance = instance

    def end(self) -> None:
        self._instance = self._told = None

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_EVERY):
            instance, since = self._instance, self._since
            if instance is None or instance is self._told or stopwatch() - since < LIMIT:
                continue
            self._told = instance
            frame = sys._current_frames().get(self._thread_id)  # pyright: ignore[reportPrivateUsage]
            where = "".join(traceback.format_stack(frame)[-2:]) if frame is not None else ""
            _logger.warning(
                "workflow %s (instance %r) has blocked the event loop for %.1f s; everything else waits. "
                "Move long work into an activity. It is at:\n%s",
                instance.definition.name,
                instance.id,
                stopwatch() - since,
                Lines(where),
                extra={"instance_id": instance.id, "workflow": instance.definition.name},
            )
