"""Records: what the engine reads about instances, workers, deaths and events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from romancy.core.history import Entry
from romancy.core.model import Status
from romancy.core.operations import ActivityCall, Sought
from romancy.storage.attempts import Attempt
from romancy.storage.instances import InstanceRow

DEATHS_KEPT = 7 * 24 * 3600 * 1_000_000
"""Microseconds for which worker deaths are remembered."""
MOST_DEATHS = 5_000
POOLED = 600 * 1_000_000
"""Microseconds for which suspects of one name are pooled."""
MOST_COUNTED = 50_000
"""The instances of one worker are counted up to this number."""
MOST_BUILDS = 50
"""How many builds are kept for an instance. An older one may try it once more."""
_CODEC_OF_BUILD = re.compile(r" with (?:(keys? .+)|a codec)\Z", re.DOTALL)
"""What `SealedStorage.keys` adds to the name of a build: which keys it had."""


@dataclass(slots=True)
class Claimed:
    """An instance that this worker owns from now on. `crashed`: its previous owner died while running it.

    `waits`: it only has a timer that is due soon, so it need not be loaded into memory yet.
    """

    id: str
    crashed: bool
    waits: bool


@dataclass(slots=True, frozen=True)
class Death:
    """A worker that died; it lived from `since` until `at`."""

    since: int
    at: int


@dataclass(slots=True, frozen=True)
class Tally:
    """The combined evidence about all suspects of one name; see `Suspicion`. `ended`: how many ended normally."""

    since: int
    tried_alone: int
    alone: int
    ended: int = 0


@dataclass(slots=True, frozen=True)
class Mortality:
    """Recent worker deaths, and what is known about suspects, by name."""

    deaths: list[Death]
    tallies: dict[str, Tally]


@dataclass(slots=True)
class Shares:
    """How many unfinished instances each worker with a lease owns; empty if there is only one worker.

    `free`: how many waiting instances have no owner. Both are counted up to a limit.
    """

    owned: dict[str, int]
    free: int


@dataclass(slots=True)
class Finished:
    """How an instance ended, or that it is blocked."""

    id: str
    status: Status
    output: bytes | None
    error: bytes | None


@dataclass(slots=True)
class KnownChild:
    """A child that exists."""

    op: str | None
    """The operation that started it; none if another child was started in its place."""
    has_ended: bool


@dataclass(slots=True)
class Idle:
    """An instance of this worker that only waits."""

    id: str
    version: int
    status: Status


@dataclass(slots=True)
class StoredRequest:
    """A request to an instance: from outside, from its parent or from a child. `op`: the operation it is about."""

    id: int
    kind: int
    payload: bytes
    op: str | None = None


@dataclass(slots=True, frozen=True)
class MailPlace:
    """How far the mail was read: the last delivery, by its event and instance, and the last request."""

    event: int = 0
    instance: str = ""
    request: int = 0


FIRST_MAIL = MailPlace()


@dataclass(slots=True)
class Mail:
    """What others have left for this worker's instances."""

    deliveries: list[tuple[str, int]]
    requests: list[tuple[str, StoredRequest]]
    end: MailPlace = FIRST_MAIL
    """Where to read on; the beginning if this was all."""


@dataclass(slots=True)
class Due:
    """A wait or retry of this worker that falls due."""

    due: int
    instance: str
    op: str


@dataclass(slots=True, frozen=True)
class Unfit:
    """An instance that is blocked because the code of some builds did not follow its history."""

    workflow: str
    id: str
    builds: str

    @property
    def position(self) -> tuple[str, str]:
        """Its position among all of them."""
        return self.workflow, self.id


def to_builds(stored: str | None) -> list[str]:
    """Return the builds whose code did not follow an instance, the last one to fail last."""
    return [] if stored is None else [str(build) for build in json.loads(stored)]


def build_names(stored: str | None) -> list[str]:
    """Return the same builds as people read them."""
    return [build_name(build) for build in to_builds(stored)]


def build_name(build: str) -> str:
    """Return a build as people read it: `v7 with key 2026`, as it is stored, is `v7 (codec key 2026)`."""
    return _CODEC_OF_BUILD.sub(lambda found: f" (codec {found[1]})" if found[1] else " (with a codec)", build)


def with_build(stored: str | None, build: str) -> str:
    """Return what to store when the code of a further build did not follow an instance."""
    others = [known for known in to_builds(stored) if known != build]
    return json.dumps([*others, build][-MOST_BUILDS:])


@dataclass(slots=True)
class WorkerRow:
    """A worker that holds its lease."""

    id: str
    host: str
    until: int
    started_at: int
    is_gone: bool = False
    """Its process seems to have died, as `Storage.is_gone` says. The lease has not ended yet."""


@dataclass(slots=True)
class StoredWait:
    """A wait as shown in lists; `kind` is event, timer, retry or child."""

    instance: str
    workflow: str
    op: str
    kind: str
    spec: bytes
    created_at: int
    due: int | None
    location: str
    error: bytes | None = None
    child: str | None = None
    """The id of the child it waits for."""
    is_free: bool | None = None
    """Of a child: its parent does not cancel it, and perhaps never asks for its result."""

    @property
    def position(self) -> tuple[int, str] | tuple[str, str]:
        """Its position among the waits of its instance."""
        return (self.instance, self.op) if self.child is None else (self.created_at, self.child)


UNREAD = "unread"
"""In the description of a wait whose filter can't be opened: the key, or else the codec, that is needed."""


def unread_words(label: str) -> str:
    """Say why the filter of a wait is not known, and what to do."""
    return (
        f"it can't be compared: its filter is sealed with {label!r} (the name of a key, or of a codec), which this "
        "process lacks; give the app its codec, App(codec=...), or set ROMANCY_CODEC"
    )


@dataclass(slots=True, frozen=True)
class ShownAttempt:
    """An activity that failed, reported progress, or outlived a worker. An error longer than 64 KiB is left out."""

    op: str
    n: int
    """How many attempts have failed."""
    first_at: int
    next_due: int | None
    error: bytes | None
    progress: bytes | None
    size: int
    """The full size of the progress, which may have been cut."""


@dataclass(slots=True)
class Snapshot:
    """Everything needed to load an instance into memory."""

    row: InstanceRow
    history: list[Entry]
    waits: dict[str, int | None]
    attempts: list[Attempt]
    requests: list[StoredRequest]
    deliveries: list[int]
    headers: Mapping[str, str] | None = None
    problem: Exception | None = None
    """Why some of its values can't be opened."""
    sought: dict[str, Sought] = field(default_factory=lambda: {})
    """What its waits for events look for."""

    @property
    def unfed(self) -> Entry | None:
        """The stored result of a suspect that the code has not received yet: its attempts are still recorded.

        It must not be replayed. What the code does with it was never stored, so that happens for the first time.
        """
        if not self.history or not self.attempts:
            return None
        last = self.history[-1]
        is_result = last.kind in ActivityCall.answers
        return last if is_result and any(a.op == last.op for a in self.attempts) else None

    @property
    def fed(self) -> list[Entry]:
        """The history that the code has already received."""
        return self.history if self.unfed is None else self.history[:-1]
