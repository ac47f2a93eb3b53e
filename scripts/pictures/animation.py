"""A recording as an animated SVG, with nothing but CSS: every line appears at its time, and the screen scrolls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from scripts.pictures.recording import Line

CELL, LINE, MARGIN, BAR = 8.4, 18.0, 16.0, 34.0
"""Width of a character, height of a line, the margin, and the height of the window's title bar, in pixels."""
SIZE = 14
BACK, INK = "#16181d", "#d7dae0"
NORMAL = "3c4048 f07178 7ed385 e6c060 6ea8fe cd8cf0 56c8d8 d7dae0"
BRIGHT = "787e8a ff878c 96e69b f5d478 82b9ff dea0ff 6edceb ffffff"
"""Black, red, green, yellow, blue, magenta, cyan and white."""


def _colors(names: str) -> list[tuple[int, int, int]]:
    return [(int(name[:2], 16), int(name[2:4], 16), int(name[4:], 16)) for name in names.split()]


THEME = TerminalTheme((22, 24, 29), (215, 218, 224), _colors(NORMAL), _colors(BRIGHT))
EDGES = {
    "─": "lr",
    "│": "tb",
    "╭": "rb",
    "╮": "lb",
    "╰": "tr",
    "╯": "tl",
    "├": "trb",
    "┤": "tlb",
    "┬": "lrb",
    "┴": "lrt",
    "┼": "lrtb",
}
"""The sides to which a character draws a line. Fonts leave gaps, so they are drawn."""
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"


def animate(lines: Sequence[Line], columns: int, rows: int, title: str, hold: float) -> str:
    """Return the SVG: a window of this size. It shows the end for `hold` seconds, and then begins again."""
    length = lines[-1].at + hold
    width, height = columns * CELL + 2 * MARGIN, rows * LINE + 2 * MARGIN + BAR
    groups = [(at, list(group)) for at, group in groupby(enumerate(lines), key=lambda item: round(item[1].at, 1))]
    styles, scroll = [f"#s{{font:{SIZE}px {FONT};white-space:pre;fill:{INK}}}"], ["0%{transform:none}"]
    parts: list[str] = []
    for n, (at, group) in enumerate(groups):
        shown = "\n".join(part for row, line in group for part in _line(row, line.text))
        moment = f"{100 * at / length:.2f}%"
        if at > 0:
            styles.append(f"@keyframes l{n}{{0%{{visibility:hidden}}{moment}{{visibility:visible}}}}")
        parts.append(f'<g style="animation-name:l{n}">\n{shown}\n</g>' if at > 0 else f"<g>\n{shown}\n</g>")
        if (above := group[-1][0] + 1 - rows) > 0:
            scroll.append(f"{moment}{{transform:translateY({-above * LINE:g}px)}}")
    last = max(0, len(lines) - rows) * LINE
    styles += [f"@keyframes s{{{''.join(scroll)}}}", f"#s{{animation-name:s;transform:translateY({-last:g}px)}}"]
    styles += [f"g{{animation-duration:{length:.1f}s;animation-timing-function:step-end}}"]
    styles += ["g{animation-iteration-count:infinite}"]
    styles += ["@media (prefers-reduced-motion:reduce){g{animation:none!important}}"]
    return _window(width, height, title, "\n".join(styles), "\n".join(parts))


def _window(width: float, height: float, title: str, styles: str, content: str) -> str:
    lights = "".join(
        f'<circle cx="{20 + 18 * n}" cy="{BAR / 2 + 2:g}" r="5.5" fill="{color}"/>'
        for n, color in enumerate(("#f0716f", "#e6c060", "#7ed385"))
    )
    size = f'width="{width:g}" height="{height:g}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:g} {height:g}" role="img">
<title>{escape(title)}</title>
<style>
{styles}
</style>
<rect {size} rx="10" fill="{BACK}"/>
{lights}
<svg x="{MARGIN:g}" y="{BAR + MARGIN / 2:g}" width="{width - 2 * MARGIN:g}" height="{height - BAR - MARGIN:g}">
<g id="s">
{content}
</g>
</svg>
</svg>
"""


def _line(row: int, text: str) -> Iterator[str]:
    """Yield the elements of a line: lines of tables as paths, everything else as runs of text of one style."""
    console = Console(width=1000, color_system="truecolor", legacy_windows=False)
    column, drawn = 0, ""
    for segment in Text.from_ansi(text).render(console):
        drawn += _drawn(segment.text, column)
        yield from _texts(segment, column, row * LINE)
        column += len(segment.text)
    if drawn:
        yield f'<path transform="translate(0 {row * LINE:g})" d="{drawn}" stroke="#5b616e" fill="none"/>'


def _texts(segment: Segment, column: int, top: float) -> Iterator[str]:
    for is_word, characters in groupby(enumerate(segment.text, column), key=lambda item: item[1] not in EDGES):
        found = list(characters)
        text = "".join(character for _, character in found)
        word = text.strip()
        if not is_word or not word:
            continue
        x = (found[0][0] + len(text) - len(text.lstrip())) * CELL
        fit = f' textLength="{len(word) * CELL:.1f}" lengthAdjust="spacingAndGlyphs"' if len(word) > 1 else ""
        yield f'<text x="{x:.1f}" y="{top + 13.5:g}"{fit}{_look(segment.style)}>{escape(word, quote=False)}</text>'


def _look(style: Style | None) -> str:
    if style is None:
        return ""
    look = ""
    if style.color is not None and not style.color.is_default:
        look += f' fill="{style.color.get_truecolor(THEME).hex}"'
    if style.dim:
        look += ' opacity=".65"'
    return look + (' font-weight="700"' if style.bold else "")


def _drawn(text: str, column: int) -> str:
    """Return the path of the characters that draw lines, in the coordinates of their line."""
    middle, path = LINE / 2, ""
    for edges, characters in groupby(enumerate(text, column), key=lambda item: EDGES.get(item[1], "")):
        if not edges:
            continue
        cells = [cell for cell, _ in characters]
        if edges == "lr":
            path += f"M{cells[0] * CELL:.1f} {middle:g}h{len(cells) * CELL:.1f}"
            continue
        for cell in cells:
            left, centre = cell * CELL, (cell + 0.5) * CELL
            path += f"M{left:.1f} {middle:g}H{centre:.1f}" if "l" in edges else ""
            path += f"M{centre:.1f} {middle:g}H{left + CELL:.1f}" if "r" in edges else ""
            path += f"M{centre:.1f} 0V{middle:g}" if "t" in edges else ""
            path += f"M{centre:.1f} {middle:g}V{LINE:g}" if "b" in edges else ""
    return path
