"""A worker's connection to its supervisor, in the processes of `--workers N`.

It is one end of a socket pair. The worker reports once, when it is ready. The supervisor never sends anything: the end
of its side tells the worker to stop. That also happens if the supervisor is killed, so no worker is left behind.

A signal could not do this: a service manager (systemd) sends SIGTERM to all processes of a service, and Ctrl-C reaches
all processes in the foreground. A second signal from the supervisor would then end a worker in the middle of its work.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass

_VARIABLE = "ROMANCY_LIFELINE"


@dataclass(frozen=True)
class Report:
    """What a worker reports when it is ready."""

    message: str
    """What it does, for the log."""
    stop_timeout: float
    """Seconds that it may take to stop."""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        return cls(**json.loads(data))


class Lifeline:
    """The worker's end."""

    def __init__(self, number: int, connection: socket.socket, bound: socket.socket | None) -> None:
        self.number = number
        """Which of the workers this is: 1, 2, ..."""
        self.bound = bound
        """The socket that all workers accept connections from."""
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Lifeline of worker {self.number}>"

    def fileno(self) -> int:
        """Return the descriptor to watch: it becomes readable when the worker must stop."""
        return self._connection.fileno()

    def report(self, message: str, grace: float) -> None:
        """Tell the supervisor that this worker is ready. `grace` applies to requests, to activities and to hooks."""
        with suppress(OSError):  # the supervisor was killed: the end of its side tells this worker to stop
            self._connection.sendall(Report(message, 3 * grace).to_bytes())
            self._connection.shutdown(socket.SHUT_WR)


def environment(number: int, connection: socket.socket, bound: socket.socket | None) -> dict[str, str]:
    """Return the environment of a worker that inherits these sockets."""
    descriptors = [each.fileno() for each in (connection, bound) if each is not None]
    return {**os.environ, _VARIABLE: " ".join(map(str, [number, *descriptors]))}


def take_lifeline() -> Lifeline | None:
    """Return the lifeline of this process if it is one of several workers.

    Call it before the user's code runs, whose own processes must inherit neither the variable nor the sockets.
    """
    given = os.environ.pop(_VARIABLE, None)
    if given is None:
        return None
    number, *descriptors = map(int, given.split())
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    connection, *bound = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    return Lifeline(number, connection, bound[0] if bound else None)
