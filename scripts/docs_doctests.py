"""Show the examples in docstrings as code. Markdown takes a line that begins with `>>>` for a quotation."""

from __future__ import annotations

import re

import griffe

EXAMPLE = re.compile(r"(?:^|(?<=\n))(?P<indent> *)>>>[^\n]*(?:\n(?!\s*(?:\n|$))[^\n]*)*")


def fenced(text: str) -> str:
    """Return `text` with a fence around every example; an example ends with an empty line."""

    def fence(found: re.Match[str]) -> str:
        return f"\n{found['indent']}```pycon\n{found[0]}\n{found['indent']}```"

    return EXAMPLE.sub(fence, text)


class Doctests(griffe.Extension):
    """Fence the examples of every docstring before it is rendered."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
