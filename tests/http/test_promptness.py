"""Answers go out at once, also on a connection that is kept."""

from __future__ import annotations

import socket

from tests.http.conftest import Live


def test_no_answer_waits_until_the_client_has_acknowledged_its_first_part(live: Live) -> None:
    """Nagle's algorithm holds back the rest for 40 ms; asyncio turns it off, but only where the protocol is named."""
    live.client.get("/health/live")
    assert live.server is not None
    [connection] = live.server.server_state.connections
    given = connection.transport.get_extra_info("socket")  # type: ignore[union-attr]
    assert given.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
