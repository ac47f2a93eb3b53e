"""What workflows and activities emit: the checks of topics and values, and how workflow code emits."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from romancy.core.history import Kind
from romancy.core.instance import Instance
from romancy.core.model import show
from romancy.core.offspring import note_sent
from romancy.core.sequences import added
from romancy.errors import InvalidInput

DEFAULT_TOPIC = "output"
MAX_ITEM = 256 * 1024
"""Maximum bytes of one value, as JSON."""
MAX_TOPIC = 100
"""Maximum characters of a topic."""
_PLAIN = (str, int, float, bool, type(None), dict, list)
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def check_topic(topic: Any) -> str:
    """Check the name of a topic. It is stored, shown, and part of URLs."""
    if not isinstance(topic, str) or not topic:
        raise InvalidInput(f"a topic must be a non-empty string, got {show(topic)}")
    if len(topic) > MAX_TOPIC or not topic.isprintable():
        raise InvalidInput(f"a topic must be at most {MAX_TOPIC} printable characters, got {topic[: MAX_TOPIC * 2]!r}")
    return topic


def encode_value(value: Any, topic: str) -> bytes:
    """Return a value as one line of JSON."""
    try:
        raw = _to_json({"base64": b64encode(value).decode()} if isinstance(value, bytes) else value)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        kind = type(value).__qualname__
        raise InvalidInput(
            f"a value for topic {topic!r} can't be emitted as JSON: {error} (it is a {kind}); "
            "emit plain values, a dataclass or a pydantic model"
        ) from None
    if len(raw) > MAX_ITEM:
        raise InvalidInput(
            f"a value for topic {topic!r} is {len(raw):,} bytes, more than the {MAX_ITEM:,} allowed; "
            "emit it in parts, or store it elsewhere and emit a reference to it"
        )
    return raw


def _to_json(value: Any) -> bytes:
    if isinstance(value, _PLAIN):
        try:
            return _encode(value).encode()
        except TypeError:
            pass  # something inside is not plain JSON: a model, a datetime; converted below
    return to_json(value, by_alias=True, bytes_mode="base64")


def emit(instance: Instance, topic: str, raw: bytes) -> None:
    """Emit a value of workflow code with the commit of its step. On replay, it was already emitted.

    The history gets a digest, which replay compares. A retry does not emit once more what was emitted before.
    """
    instance.check_alive()
    instance.spend(len(raw))
    op, identity = instance.run.next_id(f"emit {topic}"), _identity(topic, raw)
    dropped = instance.dropped
    was_emitted = dropped is not None and dropped.was_emitted(op, identity, instance.run.copied)
    if instance.mark_again(Kind.EMITTED, op, identity) and not was_emitted:
        instance.emitted = added(instance.emitted, (topic, raw))
        note_sent(instance.offspring)


def _identity(topic: str, raw: bytes) -> bytes:
    digest = hashlib.blake2b(raw, digest_size=16).hexdigest()
    return json.dumps({"topic": topic, "value": digest}, ensure_ascii=False).encode()
