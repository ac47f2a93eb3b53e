"""Ctrl-C and SIGTERM: the first one stops gracefully, the second one at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def on_first_signal(stop: Callable[[], None]) -> None:
    """Call `stop` on the running loop at the first signal. The next one has its default effect."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        logging.getLogger("romancy").info("stopping: running work is finished or handed back")
        stop()

    with contextlib.suppress(NotImplementedError):  # on Windows Ctrl-C arrives as KeyboardInterrupt
        for number in _SIGNALS:
            loop.add_signal_handler(number, on_signal)
