"""Ctrl-C and SIGTERM: the first one stops gracefully, the second one at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def on_first_signal(stop: Callable[[], None], lifeline: int | None = None) -> None:
    """Call `stop` on the running loop at the first signal. The next one has its default effect.

    `lifeline` is a descriptor whose end of file also calls `stop`. It does not count as a signal: one may follow.
    """
    loop = asyncio.get_running_loop()
    has_stopped = False

    def stop_once() -> None:
        nonlocal has_stopped
        if not has_stopped:
            has_stopped = True
            logging.getLogger("romancy").info("stopping: running work is finished or handed back")
            stop()

    def on_signal() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        stop_once()

    def on_end(lifeline: int) -> None:
        loop.remove_reader(lifeline)
        stop_once()

    if lifeline is not None:
        loop.add_reader(lifeline, on_end, lifeline)
    with contextlib.suppress(NotImplementedError):  # on Windows Ctrl-C arrives as KeyboardInterrupt
        for number in _SIGNALS:
            loop.add_signal_handler(number, on_signal)
