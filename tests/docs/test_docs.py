"""Every Python block of README.md and docs/ runs by itself and prints what the page says it prints.

Those of the cookbook are run by test_cookbook.py, and those of the tutorial by test_tutorial.py.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from romancy import RetryPolicy
from tests.docs.preloaded import run_script
from tests.helpers import free_port

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(
    r"(?P<fragment><!-- fragment -->\n)?```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
PLUGINS = ("-p", "pytest_asyncio.plugin", "-p", "romancy.testing.plugin")
"""What the reader has installed. All that is installed here would take seconds to load."""
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


@dataclass
class Block:
    """A Python block; `<!-- fragment -->` before it says that it is only part of something, and is only compiled."""

    name: str
    code: str
    is_fragment: bool
    output: str | None
    """A text block right after it: what it prints."""


def named(page: Path) -> str:
    return page.relative_to(DOCS if DOCS in page.parents else ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            f"{named(page)}:{text.count(chr(10), 0, found.start('code')) + 1}",
            found["code"],
            found["fragment"] is not None,
            found["output"],
        )
        for found in BLOCK.finditer(text)
    ]


ALL = [block for page in PAGES for block in blocks(page)]


RUN_HERE = [block for block in ALL if not block.is_fragment and not block.name.startswith(("cookbook/", "tutorial/"))]


@pytest.mark.parametrize("block", RUN_HERE, ids=lambda block: block.name)
def test_block_runs(block: Block, tmp_path: Path) -> None:
    run(block, tmp_path)


def run(block: Block, tmp_path: Path) -> None:
    is_test = "def test_" in block.code
    script = tmp_path / ("test_block.py" if is_test else "block.py")
    # The port that a page names may be in use on this machine.
    script.write_text(block.code.replace("8765", str(free_port())), encoding="utf-8")
    done = run_tests(script, tmp_path) if is_test else run_script(script, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if block.output is not None:
        assert done.stdout == block.output


def run_tests(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PLUGINS, "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", script],
        cwd=folder,
        env=os.environ | {"PYTHONIOENCODING": "utf-8", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("block", [b for b in ALL if b.is_fragment], ids=lambda block: block.name)
def test_fragment_compiles(block: Block) -> None:
    compile(block.code, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_block_escapes_the_search(page: Path) -> None:
    assert page.read_text(encoding="utf-8").count("```python") == len(blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_guide_tells_every_field_of_a_retry_policy() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text()
    for field in dataclasses.fields(RetryPolicy):
        default = field.default.total_seconds() if isinstance(field.default, timedelta) else field.default
        shown = f"{default:g} s" if isinstance(field.default, timedelta) else f"`{default}`"
        assert f"| `{field.name}` | {shown} |" in guide
