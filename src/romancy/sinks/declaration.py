"""Sinks as users declare them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias

from romancy.core.events import OURS
from romancy.core.history import plain_data, received
from romancy.core.model import SECOND, Duration, Event, ReceivedEvent, duration_us, show
from romancy.core.patterns import check_pattern
from romancy.core.sinks import Outlet
from romancy.webhooks.schemes import standard_key

OnDead: TypeAlias = Literal["skip", "hold"]
THREE_DAYS = timedelta(days=3)
MOST_TYPES = 100
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Sink(Protocol):
    """Anything that takes events: a queue, a topic, another system. Pass objects with these members to `App(sinks=)`.

    They may also have `timeout`, `max_concurrent`, `give_up_after` and `on_dead`, as `HTTPSink` does.
    """

    @property
    def name(self) -> str:
        """Identifies it in the database. Another name is another sink, which begins with the events from then on."""
        ...

    @property
    def types(self) -> str | Sequence[str]:
        """The types of events it takes, as in `["order.*"]`."""
        ...

    async def deliver(self, event: ReceivedEvent[Any]) -> None:
        """Deliver an event, or raise an error. It is called again with the same event if that is unknown."""
        ...


class HTTPSink:
    """Posts the events that this app sends to an address: at least once, and in order for each subject.

    >>> App(sinks=[HTTPSink("crm", "https://crm.example/in", types=["order.*"], secrets=[os.environ["CRM_SECRET"]])])

    The body is a CloudEvent in JSON, signed with each of the `secrets` as Standard Webhooks say; several, while one is
    replaced. Anything but an answer of 2xx within `timeout` is a failure. The event is then posted again, later and
    later, and events of the same subject wait for it, until `give_up_after` has passed. It is then a dead letter, and
    the others go on; with `on_dead="hold"` they wait until it is retried. Events without a subject wait for none.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        types: str | Sequence[str],
        secrets: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        timeout: Duration = 15.0,
        max_concurrent: int = 10,
        give_up_after: Duration = THREE_DAYS,
        on_dead: OnDead = "skip",
    ) -> None:
        _check_name(name)
        from romancy.sinks.posts import Poster  # lazy: only those who post need an HTTP library

        try:
            patience = min(1.0, duration_us(timeout, "timeout") / SECOND / 4)
            poster = Poster(url, _keys(secrets), headers or {}, patience)
        except ValueError as error:
            raise ValueError(f"sink {name!r}: {error}") from None
        self._poster = poster
        self._outlet = _outlet(name, types, poster.post, poster.close, timeout, max_concurrent, give_up_after, on_dead)

    def __repr__(self) -> str:
        return f"<HTTPSink {self.name!r} {self._poster.host}>"

    @property
    def name(self) -> str:
        return self._outlet.name

    @property
    def types(self) -> Sequence[str]:
        return self._outlet.types

    @property
    def outlet(self) -> Outlet:
        """The sink as the engine sees it."""
        return self._outlet


def _keys(secrets: Sequence[str]) -> list[bytes]:
    if isinstance(secrets, str) or not all(isinstance(secret, str) and secret for secret in secrets):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("secrets must be a list of texts; are the variables they come from set?")
    return list(map(standard_key, secrets))


def _outlet(
    name: str,
    types: str | Sequence[str],
    deliver: Any,
    close: Any,
    timeout: Duration,
    max_concurrent: int,
    give_up_after: Duration,
    on_dead: OnDead,
) -> Outlet:
    """Return a sink with checked settings."""
    limit = duration_us(timeout, f"timeout of sink {name!r}")
    if limit == 0:
        raise ValueError(f"sink {name!r}: timeout must not be 0")
    if isinstance(max_concurrent, bool) or not isinstance(max_concurrent, int) or max_concurrent < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"sink {name!r}: max_concurrent must be at least 1, not {max_concurrent!r}")
    if on_dead not in ("skip", "hold"):
        raise ValueError(f'sink {name!r}: on_dead must be "skip" or "hold", not {on_dead!r}')
    return Outlet(
        name=name,
        types=_check_types(name, types),
        deliver=deliver,
        close=close,
        timeout=limit / SECOND,
        max_concurrent=max_concurrent,
        give_up_after=duration_us(give_up_after, f"give_up_after of sink {name!r}"),
        holds=on_dead == "hold",
    )


def is_name(name: str) -> bool:
    """Whether a sink can have this name."""
    return _NAME.fullmatch(name) is not None


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not is_name(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"the name of a sink consists of letters, digits, '.', '_' and '-', not {show(name)}")


def _check_types(name: str, types: str | Sequence[str]) -> Sequence[str]:
    listed = [types] if isinstance(types, str) else list(types)
    if not 0 < len(listed) <= MOST_TYPES:
        raise ValueError(f'sink {name!r}: types must name 1 to {MOST_TYPES} types of events, as in ["order.*"]')
    for type in listed:
        check_pattern(type, f"types of sink {name!r}")
        if type.startswith(OURS):
            raise ValueError(f"sink {name!r}: events of type {type!r} are Romancy's own, and stay inside")
    return tuple(dict.fromkeys(listed))


def outlets(sinks: Sequence[HTTPSink | Sink]) -> Sequence[Outlet]:
    """Return the sinks of an app; raise `ValueError` if something is no sink, or two have the same name."""
    if isinstance(sinks, HTTPSink) or not isinstance(sinks, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("sinks must be a list: sinks=[HTTPSink(...)]")
    made = [sink.outlet if isinstance(sink, HTTPSink) else _custom(sink) for sink in sinks]
    names = [outlet.name for outlet in made]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two sinks have the name {twice!r}")
    return made


def _custom(sink: Sink) -> Outlet:
    name, types, own = (getattr(sink, attribute, None) for attribute in ("name", "types", "deliver"))
    if not isinstance(name, str) or types is None or not inspect.iscoroutinefunction(own):
        raise ValueError(f"a sink has a name, types and `async def deliver(event)`; {show(sink)} does not")
    _check_name(name)

    async def deliver(event: Event) -> None:
        await sink.deliver(received(event, plain_data(event)))

    async def close() -> None:
        """Do nothing: what a sink of the user's own has open is the user's."""

    timeout, most = getattr(sink, "timeout", 60.0), getattr(sink, "max_concurrent", 10)
    given_up: Any = getattr(sink, "give_up_after", THREE_DAYS)
    on_dead: Any = getattr(sink, "on_dead", "skip")
    return _outlet(name, types, deliver, close, timeout, most, given_up, on_dead)
