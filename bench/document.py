"""Writes the latest results to docs/performance.md and docs/comparison.md, between their markers."""

from __future__ import annotations

import re
from pathlib import Path

from bench import report
from bench.plan import GROWTH, MEASURES, SYSTEMS, TITLES
from bench.results import Results, load, load_pythons

DOCS = Path(__file__).parents[1] / "docs"
HEADLINES = ("finish", "parallel20", "latency", "wake1k", "sleepers200", "resume1k", "memory", "recovery")
"""The measures of the comparison."""


def main() -> None:
    results = load()
    for name, write in (("performance.md", performance), ("comparison.md", comparison)):
        page = DOCS / name
        page.write_text(write(page.read_text(), results))


def comparison(page: str, results: Results) -> str:
    """Return the page with the figures of all systems for the measures that decide most choices."""
    measures = [measure for measure in MEASURES if measure.name in HEADLINES]
    return _put(page, "headlines", report.markdown(results, measures, SYSTEMS, "sqlite"))


def performance(page: str, results: Results) -> str:
    """Return the page with every table made anew."""
    page = _put(page, "machine", _machine(results))
    for kind in ("sqlite", "postgres"):
        page = _put(page, kind, report.markdown(results, [*MEASURES, *GROWTH], ["limit", *SYSTEMS], kind))
    page = _put(page, "footprint", _footprint(results))
    return _put(page, "pythons", _pythons(load_pythons()))


def _put(page: str, mark: str, text: str) -> str:
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{text}\n{end}", page, flags=re.DOTALL)


def _machine(results: Results) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in results.machine.items())


def _pythons(by_label: dict[str, Results]) -> str:
    if len(by_label) < 2:
        return "Only one version of Python has been measured so far."
    tables = [(title, report.markdown_of_pythons(by_label, MEASURES, kind)) for kind, title in report.WHERE.items()]
    return "\n\n".join(f"On {title}:\n\n{text}" for title, text in tables)


def _footprint(results: Results) -> str:
    lines = ["| | import | on disk | packages |", "| --- | ---: | ---: | ---: |"]
    for system, found in results.footprint.items():
        cells = f"{found['import_ms']:.0f} ms | {found['install_mb']:.0f} MB | {found['packages']:.0f}"
        lines.append(f"| {TITLES[system]} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
