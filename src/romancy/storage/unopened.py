"""A value that could not be opened, in place of it."""

from __future__ import annotations

from romancy.errors import CodecError


class Unopened(bytes):
    """Raise `error` where this would be used. It is empty."""

    error: CodecError

    @classmethod
    def because(cls, error: CodecError) -> Unopened:
        made = cls()
        made.error = error
        return made


def check(value: bytes | None) -> None:
    """Raise the error of a value that could not be opened."""
    if type(value) is Unopened:
        raise value.error
