"""A webhook as users declare it, and a request as their functions get it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from romancy.core.model import show
from romancy.core.new_events import Event
from romancy.core.patterns import Patterns
from romancy.core.strict_json import Reader
from romancy.errors import InvalidEvent
from romancy.webhooks.schemes import SCHEMES, Scheme, Verifier, make_verifier
from romancy.webhooks.senders import CUSTOM, SENDERS, Sender

_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BODY = Reader("the body", InvalidEvent, exact=False)


class Headers(Mapping[str, str]):
    """Headers by name, whatever its case. The values of one that came twice are joined by a comma."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in values.items()}

    def __repr__(self) -> str:
        return f"<Headers {sorted(self._values)}>"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True)
class WebhookRequest:
    """A request to a webhook, as its `verify` and `to_event` get it."""

    headers: Mapping[str, str]
    """Found by name, whatever its case."""
    query: Mapping[str, str]
    body: bytes
    """As it was sent: this is what senders sign."""

    def json(self) -> Any:
        """Return the body as JSON. A body that is not JSON is answered with 400."""
        return _BODY.read(self.body)


class Webhook:
    """An address for deliveries of another system, `POST /webhooks/{name}`. Each becomes an event `<name>.<type>`.

    >>> App(webhooks=[
    ...     Webhook("stripe", scheme="stripe", secrets=[os.environ["STRIPE_SECRET"]]),
    ...     Webhook("github", scheme="github", secrets=[os.environ["GITHUB_SECRET"]], types=["push"]),
    ...     Webhook("acme", verify=is_from_acme, to_event=to_event),
    ... ])

    `scheme` is how the sender signs its deliveries, with one of the `secrets`; several, while one is replaced. With
    `verify`, a function of yours decides instead. `to_event` makes the event; None from it means that nothing is
    stored. Both must not block. `types` are the sender's types to take, as in `["invoice.*"]`; others are dropped.
    """

    @overload
    def __init__(
        self,
        name: str,
        *,
        scheme: Scheme,
        secrets: Sequence[str],
        to_event: Callable[[WebhookRequest], Event | None] | None = None,
        types: Sequence[str] = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        verify: Callable[[WebhookRequest], bool],
        to_event: Callable[[WebhookRequest], Event | None],
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        scheme: Scheme | None = None,
        secrets: Sequence[str] = (),
        verify: Callable[[WebhookRequest], bool] | None = None,
        to_event: Callable[[WebhookRequest], Event | None] | None = None,
        types: Sequence[str] = (),
    ) -> None:
        self.name = _check_name(name)
        if (scheme is None) == (verify is None):
            raise ValueError(f"webhook {name!r} needs either scheme= and secrets=, or verify= and to_event=")
        if verify is not None and (to_event is None or secrets or types):
            raise ValueError(f"webhook {name!r} has verify=, so it needs to_event=, and takes no secrets= and types=")
        for what, function in (("verify", verify), ("to_event", to_event)):
            if function is not None and (not callable(function) or inspect.iscoroutinefunction(function)):
                raise ValueError(f"webhook {name!r}: {what} must be a plain function (`def`), not {show(function)}")
        self.scheme: Scheme | None = scheme
        self.to_event = to_event
        self.verify = verify
        self._verifier = None if scheme is None else _verifier(name, scheme, secrets)
        self._types = Patterns(types, f"types of webhook {name!r}") if types else None

    def __repr__(self) -> str:
        return f"<Webhook {self.name!r} {self.scheme or 'verified by a function'}>"

    @property
    def verifier(self) -> Verifier | None:
        """Checks signatures. None: the user's function decides."""
        return self._verifier

    @property
    def sender(self) -> Sender:
        return CUSTOM if self.scheme is None else SENDERS[self.scheme]

    def takes(self, type: str) -> bool:
        """Whether an event of this type is stored. Types are given as the sender names them, or as ours."""
        if self._types is None:
            return True
        return self._types.match(type.removeprefix(f"{self.name}.")) or self._types.match(type)


def _check_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"the name of a webhook consists of letters, digits, '.', '_' and '-', not {show(name)}")
    if name.lower().partition(".")[0] == "romancy":
        raise ValueError(f"a webhook can't have the name {name!r}: events named so are Romancy's own")
    return name


def _verifier(name: str, scheme: Scheme, secrets: Sequence[str]) -> Verifier:
    if scheme not in SCHEMES:
        raise ValueError(
            f"webhook {name!r}: scheme must be one of {', '.join(SCHEMES)}, not {show(scheme)}; "
            "for another sender give verify= and to_event="
        )
    _check_secrets(name, secrets)
    try:
        return make_verifier(scheme, secrets)
    except ValueError as error:
        raise ValueError(f"webhook {name!r}: {error}") from None


def _check_secrets(name: str, secrets: Sequence[str]) -> None:
    """Raise `ValueError` if a secret can't be right. No message shows one."""
    if not secrets:
        raise ValueError(f"webhook {name!r} needs secrets=[...], the secrets with which its sender signs")
    if isinstance(secrets, str | bytes) or not isinstance(secrets, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"webhook {name!r}: secrets must be a list: secrets=[...]")
    for secret in secrets:
        if not isinstance(secret, str) or not secret:  # pyright: ignore[reportUnnecessaryIsInstance]
            text = "a secret must be a non-empty string; is the variable that it comes from set?"
            raise ValueError(f"webhook {name!r}: {text}")
        if secret != secret.strip():
            text = "a secret begins or ends with whitespace, as if read from a file with its newline; strip() it"
            raise ValueError(f"webhook {name!r}: {text}")


def check_webhooks(webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
    """Return the webhooks of an app; raise `ValueError` if two have the same name."""
    if isinstance(webhooks, Webhook):
        raise ValueError("webhooks must be a list: webhooks=[Webhook(...)]")
    for webhook in webhooks:
        if not isinstance(webhook, Webhook):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"webhooks must be Webhook(...) objects, not {webhook!r}")
    names = [webhook.name for webhook in webhooks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two webhooks have the name {twice!r}")
    return tuple(webhooks)
