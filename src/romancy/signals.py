"""Ctrl-C and SIGTERM: told once, so that a second one is not waited for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def on_first_signal(stop: Callable[[], None]) -> None:
    """Call `stop` when the first of them comes, on the running loop; the next one acts as if nobody listened."""
    loop = asyncio.get_running_loop()

    def told() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        logging.getLogger("romancy").info("stopping: finishing or handing back what runs")
        stop()

    with contextlib.suppress(NotImplementedError):  # on Windows Ctrl-C arrives as KeyboardInterrupt
        for number in _SIGNALS:
            loop.add_signal_handler(number, told)
