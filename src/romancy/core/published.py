"""What an instance shows of itself: its view and its attributes. Both are stored with the commit of the step.

Replay leads to the same values, unless the code was changed. So they are compared with what is stored, and only what
differs is written, with the next commit. A value that is already stored is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from romancy.core.attributes import MAX_ATTRIBUTES, encode_attributes
from romancy.core.codec import Codec
from romancy.core.model import Scalar
from romancy.errors import InvalidInput, NotStorable

MAX_VIEW = 64 * 1024
"""Maximum bytes of a view."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What a step changes in what its instance shows. Of an attribute, None means that it is removed."""

    created_at: int
    """When the instance was created: the order of lists."""
    view: bytes | None
    attributes: Mapping[str, str | None]
    is_whole: bool = False
    """Nothing else is shown any more: the instance was retried."""


class Published:
    """The view and attributes of an instance: those that its code has set, and those that are stored."""

    __slots__ = ("_attributes", "_declared", "_is_whole", "_stored", "_stored_view", "_view")

    def __init__(self, stored_view: bytes | None = None, stored: Mapping[str, str | None] | None = None) -> None:
        self._view: bytes | None = None
        self._stored_view = stored_view
        self._attributes: dict[str, str | None] = {}
        """Set in this run. A replay knows no others, so the limit counts these only."""
        self._declared: Mapping[str, str | None] = {}
        """Stored with the start of the instance, if they were declared then."""
        self._stored: dict[str, str | None] = dict(stored or {})
        self._is_whole = False

    def set_view(self, view: bytes) -> None:
        self._view = view

    def set_attributes(self, attributes: Mapping[str, str | None], instance_id: str) -> None:
        """Merge attributes. Raise `InvalidInput`, and set none of them, if there are too many."""
        merged = {**self._attributes, **attributes}
        count = sum(value is not None for value in merged.values())
        if count > MAX_ATTRIBUTES:
            raise InvalidInput(
                f"instance {instance_id!r} would have {count} attributes, more than the {MAX_ATTRIBUTES} allowed; "
                "remove some by setting them to None, or show them with ctx.set_view(...)"
            )
        self._attributes = merged

    def settle(self) -> None:
        """Regard everything as stored."""
        if self._view is not None:
            self._stored_view = self._view
        self._stored |= self._attributes

    def settle_declared(self) -> None:
        """Regard what was taken from the arguments as stored."""
        self._declared = dict(self._attributes)
        self.settle()

    def compare(self, view: bytes | None, attributes: Mapping[str, str]) -> None:
        """After a replay: note what is stored, so that what the code set differently is stored with the next commit.

        An instance that was started before an attribute was declared for its arguments does not have it.
        """
        if self._view is not None:
            self._stored_view = view
        for name, value in self._attributes.items():
            if name in attributes or value != self._declared.get(name):
                self._stored[name] = attributes.get(name)

    def take(self, created_at: int) -> Publication | None:
        """Return what must be stored, if anything."""
        view = None if self._view == self._stored_view else self._view
        changed = {
            name: value
            for name, value in self._attributes.items()
            if name not in self._stored or value != self._stored[name]
        }
        if view is None and not changed and not self._is_whole:
            return None
        self.settle()
        is_whole, self._is_whole = self._is_whole, False
        return Publication(created_at, view, changed, is_whole)

    def show_anew(self, run: int) -> None:
        """Store everything that was set, because a retry dropped what is stored.

        What was only set in the dropped part is removed. A later run does not know what the earlier ones have set, so
        it only overwrites.
        """
        self._stored_view, self._stored, self._is_whole = None, {}, run == 1

    def for_next_run(self) -> Published:
        """Return it as the next run of the instance begins."""
        return Published(self._stored_view, self._stored)


def encode_view(value: object, workflow: str) -> bytes:
    """Return a view as JSON; raise `NotStorable` if it can't be stored."""
    kind = type(value)
    raw = _codec(Any if kind.__module__ == "builtins" else kind, workflow).encode(value)
    if len(raw) > MAX_VIEW:
        raise NotStorable(
            f"a view of workflow {workflow!r} is {len(raw):,} bytes, more than the {MAX_VIEW:,} allowed; "
            "show less, or store it elsewhere and show a reference to it"
        )
    return raw


def read_view(raw: bytes | None, model: Any, instance_id: str) -> Any:
    """Return a view as a value of `model`; None if there is none."""
    if raw is None or raw == b"null":
        return None
    return Codec(model, f"the view of instance {instance_id!r}").decode(raw)


@lru_cache(256)
def _codec(kind: Any, workflow: str) -> Codec:
    return Codec(kind, f"a view of workflow {workflow!r}")


def encode_changes(attributes: Mapping[str, Scalar], instance_id: str) -> dict[str, str | None]:
    """Check what `ctx.set_attributes` was given; name the instance if it is wrong."""
    try:
        return encode_attributes(attributes)
    except InvalidInput as error:
        raise InvalidInput(f"instance {instance_id!r}: {error}") from None
