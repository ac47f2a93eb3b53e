"""Creates and checks instance ids, and checks the names of workflows and of changes."""

from __future__ import annotations

import os

from romancy.errors import InstanceNotFound, InvalidInput


def new_id(now: int) -> str:
    """Return a new instance id, a UUID of version 7. Later ids sort after earlier ones, so indexes stay compact."""
    entropy = os.urandom(10).hex()
    milliseconds = f"{now // 1000:012x}"
    variant = "89ab"[int(entropy[3], 16) & 3]
    return f"{milliseconds[:8]}-{milliseconds[8:]}-7{entropy[:3]}-{variant}{entropy[4:7]}-{entropy[7:19]}"


def check_id(instance_id: str) -> str:
    """Check that people can type an instance id and databases can store it."""
    if not isinstance(instance_id, str) or not instance_id:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"an instance id must be a non-empty string, got {instance_id!r}")
    if len(instance_id) > 255 or not instance_id.isprintable():
        raise InvalidInput(f"an instance id must be at most 255 printable characters, got {instance_id[:300]!r}")
    return instance_id


def check_name(workflow: str) -> str:
    """Check the name of a workflow that may be registered elsewhere."""
    if not workflow or not is_text(workflow) or "\0" in workflow:
        raise InvalidInput(f"the name of a workflow must be a non-empty string, got {workflow!r}")
    return workflow


def check_change(change: str) -> str:
    """Check the name of a change. It is stored and shown, like an instance id."""
    if not isinstance(change, str) or not change:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"ctx.patched() takes the name of a change, a non-empty string, got {change!r}")
    if len(change) > 255 or not change.isprintable():
        raise InvalidInput(f"the name of a change must be at most 255 printable characters, got {change[:300]!r}")
    return change


def check_lookup(instance_id: str) -> None:
    """Check an id to look up. Raise `InstanceNotFound` for text that can't be stored, since no instance can have it."""
    if not isinstance(instance_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"an instance id must be a string, got {instance_id!r}")
    if not is_text(instance_id):
        raise InstanceNotFound(instance_id=instance_id)


def check_reason(reason: str | None) -> None:
    """Check the reason for a cancellation."""
    if not isinstance(reason, str | None) or not is_text(reason or ""):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"the reason for cancelling must be a string, got {reason!r}")


def is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
