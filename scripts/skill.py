"""Write skills/romancy/SKILL.md, which tells coding agents how to write workflows: python scripts/skill.py.

It is made of sections of the documentation, so that it says the same and its examples are tested there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SKILL = ROOT / "skills" / "romancy" / "SKILL.md"
HEAD = """\
---
name: romancy
description: >-
  Write, test and operate durable workflows in Python with Romancy: workflows that wait for events and timers, call
  activities with retries, and survive crashes. Use when code imports romancy, or when a task needs durable execution.
---

<!-- Made by scripts/skill.py from docs/. Change those pages, and run it again. -->

# Romancy
"""
SECTIONS = (
    ("docs/guide.md", "Guide", "The two rules"),
    ("docs/guide.md", "Determinism", "Pitfalls: determinism"),
    ("docs/guide.md", "Workflows and activities", "Workflows and activities"),
    ("docs/guide.md", "Waiting for events", "Waiting for events"),
    ("docs/guide.md", "Timers", "Timers"),
    ("docs/guide.md", "Errors and retries", "Errors and retries"),
    ("docs/guide.md", "Child workflows", "Child workflows"),
    ("docs/guide.md", "Changing code with running instances", "Changing code with running instances"),
    ("docs/testing.md", "Testing workflows", "Testing"),
)
"""The page, the heading there, and the heading here."""
COMMANDS = """\
## Commands

```sh
romancy check shop.py           # finds code that is not deterministic; run it after every change of a workflow
romancy replay --all -m shop:app  # does the changed code fit the running instances?
romancy list                    # instances, newest first
romancy show INSTANCE           # one instance with its history
romancy why INSTANCE            # why it does not continue
romancy doctor                  # what is wrong with a database or a deployment
romancy mcp shop:app --operations # the same for you, as tools that only read
```
"""
LINK = re.compile(r"\]\((?!https?://|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def section(page: str, heading: str) -> str:
    """Return the text below a heading, up to the next one of any page-level section."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(
        rf"^#{{1,2}} {re.escape(heading)}\n(.*?)(?=^#{{1,2}} (?!#)|\Z)", _masked(text), re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise SystemExit(f"{page} has no section {heading!r}")
    return _linked(text[found.start(1) : found.end(1)], page).strip()


def _masked(text: str) -> str:
    """Hide `#` inside code, where it is no heading. Positions stay."""
    return re.sub(r"^```.*?^```$", lambda code: code[0].replace("#", "-"), text, flags=re.MULTILINE | re.DOTALL)


def _linked(text: str, page: str) -> str:
    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), found["path"]))
        return f"](../../{target}{found['anchor'] or ''})"

    return re.sub(r"\]\((#[^)]*)\)", rf"](../../{page}\1)", LINK.sub(link, text))


def skill() -> str:
    """Return the whole file."""
    parts = [f"## {title}\n\n{section(page, heading)}\n" for page, heading, title in SECTIONS]
    return "\n".join([HEAD, *parts, COMMANDS])


if __name__ == "__main__":
    SKILL.parent.mkdir(parents=True, exist_ok=True)
    SKILL.write_text(skill(), encoding="utf-8")
