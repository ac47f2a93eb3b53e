"""Instance ids: making them, and checking those of others."""

from __future__ import annotations

import os

from romancy.errors import InstanceNotFound, InvalidInput


def new_id(now: int) -> str:
    """A fresh instance id, a UUID of version 7: later ones sort after earlier ones, which keeps indexes compact."""
    chance = os.urandom(10).hex()
    milliseconds = f"{now // 1000:012x}"
    variant = "89ab"[int(chance[3], 16) & 3]
    return f"{milliseconds[:8]}-{milliseconds[8:]}-7{chance[:3]}-{variant}{chance[4:7]}-{chance[7:19]}"


def check_id(instance_id: str) -> str:
    """An instance id people can type and databases can store."""
    if not isinstance(instance_id, str) or not instance_id:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"an instance id must be a text that is not empty, got {instance_id!r}")
    if len(instance_id) > 255 or not instance_id.isprintable():
        raise InvalidInput(f"an instance id must be at most 255 printable characters, got {instance_id[:300]!r}")
    return instance_id


def check_lookup(instance_id: str) -> None:
    """An id somebody asks for may be anything; only text that can be stored can be found."""
    if not isinstance(instance_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"an instance id is a text, got {instance_id!r}")
    if not is_text(instance_id):
        raise InstanceNotFound(instance_id=instance_id)


def is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
