"""The pictures of the documentation exist, are small, and can be made again. `make screenshots` makes most of them."""

from __future__ import annotations

import re
import struct
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from scripts.pictures.__main__ import IMAGES, SHOTS, photograph
from scripts.pictures.animation import animate
from scripts.pictures.recording import Line, paced, record
from scripts.pictures.window import CHROMIUM, HEIGHT, WIDTH
from tests.docs.test_docs import PAGES, ROOT

NAMED = re.compile(r"""(?:!\[[^\]]*\]\(|\bsrc(?:set)?=")(?!https?://)([^)"\s]+)""")
SVG = "{http://www.w3.org/2000/svg}"
DRAWN = sorted(IMAGES.glob("*.svg"))


def pictures() -> dict[Path, str]:
    """Return the pictures that pages name, each with one of these pages."""
    return {
        (page.parent / name).resolve(): page.relative_to(ROOT).as_posix()
        for page in PAGES
        for name in NAMED.findall(page.read_text(encoding="utf-8"))
    }


def test_pictures_that_pages_name_exist_and_others_are_of_benchmarks() -> None:
    there = set(IMAGES.iterdir())
    assert [f"{file.name} of {page}" for file, page in pictures().items() if file not in there] == []
    assert [file.name for file in there - set(pictures()) if not file.name.startswith("performance-")] == []


@pytest.mark.parametrize("file", sorted(IMAGES.iterdir()), ids=lambda file: file.name)
def test_pictures_are_small(file: Path) -> None:
    assert file.stat().st_size < (300 if file.suffix == ".svg" else 150) * 1024


def test_the_front_page_has_two_pictures_with_alternative_texts() -> None:
    shown = re.findall(r"<img [^>]*>", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(shown) == 2
    assert all(re.search(r'\balt="[^"]{20,}"', tag) for tag in shown)


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_screenshots_are_shown_in_light_and_dark(shot: object) -> None:
    name = getattr(shot, "name", "")
    for scheme in ("light", "dark"):
        assert size(IMAGES / f"viewer-{name}-{scheme}.png") == (WIDTH, HEIGHT)


def size(file: Path) -> tuple[int, int]:
    start = file.read_bytes()[:24]
    assert start.startswith(b"\x89PNG")
    return struct.unpack(">II", start[16:])


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.name)
def test_drawings_have_a_title_and_load_nothing(file: Path) -> None:
    root = ET.fromstring(file.read_text(encoding="utf-8"))
    assert root.findtext(f"{SVG}title")
    assert {element.tag for element in root.iter()} & {f"{SVG}script", f"{SVG}image", f"{SVG}foreignObject"} == set()
    assert not re.search(r"url\((?!#)|@import|href=\"(?!#)", file.read_text(encoding="utf-8"))


def test_the_recording_tells_the_whole_story() -> None:
    text = " ".join(ET.fromstring((IMAGES / "demo.svg").read_text(encoding="utf-8")).itertext())
    for part in ("romancy demo --once", "is killed", "takes over at once", "All 4 finished as expected"):
        assert part in text


def test_a_program_is_recorded_with_its_colors() -> None:
    code = "import sys; print('\\x1b[31mred\\x1b[0m'); print(sys.stdout.isatty())"
    lines = record([sys.executable, "-c", code], 80, 24)
    assert [line.text for line in lines] == ["\x1b[31mred\x1b[0m", "True"]


@pytest.mark.parametrize("code", ["raise SystemExit(1)", "print('\\x1b[2Jaway')"])
def test_what_fails_or_moves_the_cursor_is_refused(code: str) -> None:
    with pytest.raises(RuntimeError, match=r"ended with 1|moves the cursor"):
        record([sys.executable, "-c", code], 80, 24)


def test_long_pauses_are_cut_and_tables_can_be_read() -> None:
    lines = [Line(5, "a"), Line(5.5, "b"), Line(60, "c"), Line(60, ""), Line(60, "2. Next")]
    assert [round(line.at, 1) for line in paced(lines, 1)] == [1, 1.5, 3.1, 4.5, 4.5]


def test_lines_appear_at_their_time_and_scroll() -> None:
    lines = [Line(0, "$ x"), Line(1, "\x1b[1;31m<red>\x1b[0m & more"), Line(2, "│ cell │"), Line(2, "end")]
    drawn = animate(lines, 20, 3, "A test", hold=2)
    root = ET.fromstring(drawn)
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert texts == ["$ x", "<red>", "& more", "cell", "end"]
    [red] = [text for text in root.iter(f"{SVG}text") if text.text == "<red>"]
    assert red.get("font-weight") == "700"
    assert red.get("fill", "").startswith("#")
    assert "@keyframes l1{0%{visibility:hidden}25.00%{visibility:visible}}" in drawn
    assert "50.00%{transform:translateY(-18px)}" in drawn
    assert len(list(root.iter(f"{SVG}path"))) == 1, "the lines of the table"


@pytest.mark.play
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
async def test_a_screenshot_can_be_taken(tmp_path: Path) -> None:
    [now] = [shot for shot in SHOTS if shot.name == "now"]
    taken = await photograph([now], tmp_path)
    assert [file.name for file in taken] == ["viewer-now-light.png", "viewer-now-dark.png"]
    assert [size(file) for file in taken] == [(WIDTH, HEIGHT)] * 2
