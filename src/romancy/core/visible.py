"""Makes untrusted text safe to show: nothing in it can hide, reverse the text or begin a new line."""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters, except tab and line ends
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # characters without width or shape
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"  # zero-width characters and text direction
    "\u2028\u2029\ufeff\ufff0-\ufffb"
    "\ud800-\udfff"  # lone surrogates
    "\U000e0000-\U000e0fff"
    "]"
    "|\r(?!\n)"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"  # joiners with nothing to join
)


def printable(text: str) -> str:
    """Return text on one line, for logs and terminals. Unprintable characters are escaped."""
    shown = visible(text)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in shown)


def visible(text: str) -> str:
    """Return text with its lines. Only characters that are invisible or change how the rest looks are escaped."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if character.isprintable() else repr(character)[1:-1]
