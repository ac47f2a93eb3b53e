"""Tokens: the secrets that clients of the HTTP interface present, what each allows, and whose it is.

As text, a token is `[NAME=][SCOPES:]SECRET`:

    SECRET                                              full access
    events,read:SECRET                                  only these scopes
    alice=SECRET                                        full access, recorded as alice
    ci=events:SECRET                                    both
    bank=events[source=bank,type=payment.*|refund]:...  may only send such events

Text before a colon is always read as scopes, and a scope is never read as a name: a typo there must not create a token
with full access. Secrets could contain `=` before tokens had names, so the text of a named one is accepted as a secret,
too. Base64 ends with `=`: such a secret is not a name. If it is so short that it looks like a name whose secret is
missing, it is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from romancy.core.model import Event, show
from romancy.core.patterns import Patterns

SCOPES = ("events", "read", "control", "metrics")
"""What a token can allow: sending events, reading, controlling instances, reading the metrics."""
SHORT = 16
"""Secrets with fewer characters can be guessed."""
_PADDED = 24
"""Length of the shortest secret with `=` at its end that is not mistaken for a name: 16 bytes in base64."""
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_ALL = ",".join(SCOPES)
_IS_A_SECRET = (
    "a token is a secret of printable characters without spaces, optionally preceded by a name and by scopes "
    f'({", ".join(SCOPES)}), as in "events,read:SECRET", "alice=SECRET" or "alice=events,read:SECRET"'
)
_LIMITS = 'the limits of events are written as in "events[source=bank,type=payment.*|refund.*]"'
_ENDS = (".", "/", ":", "#")
"""What the text before the `*` of a source ends with."""


@dataclass(frozen=True)
class Token:
    """A secret that clients present, what it allows, and a name, which is recorded with what is done with it.

    >>> App("workflow.db", tokens=[Token("alice", secret), Token("ci", other, scopes=["events"])])

    Several tokens can have one name: to change a secret, add the new one before you remove the old one.
    `scopes=["events[source=bank,type=payment.*]"]` limits which events it may send.
    """

    name: str
    """1 to 64 letters, digits and `_.@-`."""
    secret: str = field(repr=False)
    scopes: Sequence[str] = SCOPES
    """Default: all."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"the name of a token is 1 to 64 letters, digits and _.@-, not {self.name!r}")
        _check_secret(self.secret)
        if isinstance(self.scopes, str) or not self.scopes:
            raise ValueError(f"scopes must be a list of some of {', '.join(SCOPES)}, not {self.scopes!r}")
        read_scopes(self.scopes)


@dataclass(frozen=True)
class Limits:
    """Which events a token may send. None: any."""

    sources: Sequence[str] | None = None
    types: Sequence[str] | None = None

    def __str__(self) -> str:
        parts = {"source": self.sources, "type": self.types}
        return " and ".join(f"{name}={'|'.join(found)}" for name, found in parts.items() if found is not None)

    def excess(self, event: Event) -> str | None:
        """Return what a token with these limits may not send of an event, in words; None if it may send it."""
        if self.sources is not None and not any(_fits(event.source, source) for source in self.sources):
            return f"the source {show(event.source)}"
        if self.types is not None and not Patterns(self.types, "type").match(event.type):
            return f"the type {show(event.type)}"
        return None


@dataclass(frozen=True)
class Credential:
    """A token as an app keeps it: only the digest of its secret."""

    scopes: frozenset[str]
    digest: bytes = field(repr=False)
    is_short: bool = False
    """The secret is short enough to be guessed."""
    name: str | None = None
    limits: Limits | None = None
    former: bytes = field(default=b"", repr=False)
    """The digest of a named token's whole text, which was the secret before tokens had names."""


def read_tokens(entries: Iterable[str | Token] | str | Token) -> tuple[Credential, ...]:
    """Parse tokens."""
    return tuple(map(_read, (entries,) if isinstance(entries, str | Token) else entries))


def _read(entry: str | Token) -> Credential:
    if isinstance(entry, Token):
        return _credential(entry.name, entry.scopes, entry.secret)
    if not isinstance(entry, str):  # pyright: ignore[reportUnnecessaryIsInstance] - as in [os.environ.get(...)]
        hint = "None: is the variable it comes from set?" if entry is None else f"{type(entry).__name__}"
        raise ValueError(f"{_IS_A_SECRET}; got {hint}")
    name, rest = _split_name(entry)
    words, secret = _split_scopes(rest)
    former = digest(entry.encode()) if name is not None and words is None else b""
    return _credential(name, SCOPES if words is None else words, secret, former)


def _credential(name: str | None, words: Sequence[str], secret: str, former: bytes = b"") -> Credential:
    scopes, limits = read_scopes(words)
    _check_secret(secret)
    return Credential(scopes, digest(secret.encode()), len(secret) < SHORT, name, limits, former)


def _check_secret(secret: str) -> None:
    if not isinstance(secret, str) or not secret or not secret.isprintable() or " " in secret:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(_IS_A_SECRET)


def _split_name(entry: str) -> tuple[str | None, str]:
    head, equals, rest = entry.partition("=")
    _check_no_scopes(entry)
    if not equals or not _NAME.fullmatch(head):
        return None, entry
    if rest.strip("="):
        _check_no_scopes(rest)
        return head, rest
    if len(entry) < _PADDED or len(entry) % 4:
        raise ValueError(
            f'a token ends with "=": a name without a secret, or a short secret? Is the variable it comes from set? '
            f'For a secret that ends with "=", write "{_ALL}:SECRET"'
        )
    return None, entry  # padded base64


def _check_no_scopes(text: str) -> None:
    """Refuse scopes without a colon, which would be a name or a secret that can be guessed: `events, read:SECRET`."""
    head, equals, _ = text.partition("=")
    words = re.split(r"[,;|]", head)
    if ":" in head or "[" in head or not any(map(_is_scope, words)):
        return
    if equals:
        raise ValueError(f'scopes are followed by a colon, as in "{head}:SECRET"; a name must not be a scope')
    if all(not word or _is_scope(word) for word in words):
        raise ValueError(f'"{text}" are scopes without a secret; write "events,read:SECRET", without spaces')


def _is_scope(word: str) -> bool:
    return word.strip().lower().rstrip("s") in {scope.rstrip("s") for scope in SCOPES}


def _split_scopes(text: str) -> tuple[list[str] | None, str]:
    """Return the scopes before the colon, if there is one, and the secret. A colon in brackets is part of a limit."""
    found = re.match(r"(?:[^\[\]:]|\[[^\[\]]*\])*:", text)
    if found is not None:
        before, secret = text[: found.end() - 1], text[found.end() :]
        return [word.strip() for word in re.split(r",(?![^\[]*\])", before)], secret
    if ":" in text or any(text.startswith(f"{scope}[") for scope in SCOPES):
        raise _not_scopes()
    return None, text


def read_scopes(words: Sequence[str]) -> tuple[frozenset[str], Limits | None]:
    """Return scopes, and which events may be sent. A token that can read can also read the metrics."""
    names: set[str] = set()
    limited: list[str] = []
    for word in words:
        name, bracket, inner = word.partition("[")
        if name not in SCOPES:
            raise _not_scopes()
        if bracket:
            if name != "events" or not inner.endswith("]"):
                raise ValueError(f"{_LIMITS}; other scopes have none")
            limited.append(inner[:-1])
        names.add(name)
    if limited and [word.partition("[")[0] for word in words].count("events") > 1:
        raise ValueError(f"{_LIMITS}; write the scope events once")
    implied = {"metrics"} if "read" in names else set[str]()
    return frozenset(names | implied), _read_limits(limited[0]) if limited else None


def _read_limits(text: str) -> Limits:
    found: dict[str, tuple[str, ...]] = {}
    for part in text.split(","):
        name, _, values = part.partition("=")
        name, given = name.strip(), tuple(value.strip() for value in values.split("|"))
        if name not in ("source", "type") or name in found or not all(given):
            raise ValueError(f"{_LIMITS}, not {text!r}")
        found[name] = given
    for source in found.get("source", ()):
        head, star, tail = source.partition("*")
        if star and (tail or (head and not head.endswith(_ENDS))):
            raise ValueError(f"a source in the limits of events is a source, 'bank/*', 'bank.*' or '*', not {source!r}")
    Patterns(found.get("type", ()), "a type in the limits of events")
    return Limits(found.get("source"), found.get("type"))


def _fits(source: str, pattern: str) -> bool:
    return source.startswith(pattern[:-1]) if pattern.endswith("*") else source == pattern


def _not_scopes() -> ValueError:
    return ValueError(
        f"the part of a token before its colon must be scopes ({', '.join(SCOPES)}), after a name and = if it has one; "
        f'for a secret that contains a colon, write "{_ALL}:SECRET"'
    )


def digest(secret: bytes) -> bytes:
    """Return the digest by which secrets are compared. All have the same length, so timing reveals nothing."""
    return hashlib.sha256(secret).digest()
