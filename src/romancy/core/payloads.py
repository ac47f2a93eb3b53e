"""What a codec has to be: it encodes values before they are stored. `romancy.codecs` has some."""

from __future__ import annotations

from typing import Protocol


class PayloadCodec(Protocol):
    """Encodes values. Both methods are called from any thread, and must not wait for anything.

    `encode` must be deterministic. `decode` raises `CodecError`; with `place=None` it does not check the place.
    """

    @property
    def name(self) -> str:
        """Stored with every value, so that what this codec has written is told from what it has not."""
        ...

    def encode(self, payload: bytes, place: str, /) -> bytes: ...

    def decode(self, payload: bytes, place: str | None, /) -> bytes: ...
