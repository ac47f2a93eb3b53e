"""Text from strangers as people may see it: nothing in it hides, turns the text around or begins a line of its own."""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls, but for the tab and the end of a line
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # characters without any width or shape
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"  # no width, and the direction of what follows
    "\u2028\u2029\ufeff\ufff0-\ufffb"
    "\ud800-\udfff"  # half of a character
    "\U000e0000-\U000e0fff"
    "]"
    "|\r(?!\n)"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"  # joiners, where there is nothing to join
)


def printable(text: str) -> str:
    """Text on one line, for logs and terminals: whatever is not printable is written as an escape."""
    shown = visible(text)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in shown)


def visible(text: str) -> str:
    """Text of any language, with its lines: only what can't be seen, or changes how the rest is seen, is an escape."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if character.isprintable() else repr(character)[1:-1]
