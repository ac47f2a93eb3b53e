"""Shows results as tables, on the terminal and as Markdown for docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.plan import RATE, SYSTEMS, TITLES, Measure
from bench.results import Results

FEW = 100
"""With fewer samples, the 99th percentile is just the maximum, and is not shown."""
WHERE = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def show(results: Results, measures: Sequence[Measure], systems: Sequence[str], console: Console) -> None:
    for kind in ("sqlite", "postgres"):
        rows = table(results, measures, systems, kind)
        if not rows:
            continue
        drawn = Table(title=f"On {WHERE[kind]}: medians (all rounds are in the file)")
        for number, name in enumerate(heads(systems)):
            drawn.add_column(name, justify="left" if number == 0 else "right")
        for row in rows:
            drawn.add_row(*row)
        console.print(drawn)
    console.print(", ".join(f"{k}: {v}" for k, v in results.machine.items()))


def heads(systems: Sequence[str]) -> list[str]:
    return ["", *(TITLES[s] for s in systems if s != "limit"), "limit, and our share"]


def table(results: Results, measures: Sequence[Measure], systems: Sequence[str], kind: str) -> list[list[str]]:
    """Return one row for each measure that was run here."""
    rows: list[list[str]] = []
    for measure in measures:
        if measure.growth is not None or not any(results.of(measure.name, s, kind) for s in systems):
            continue
        peers = [_cell(results, measure, s, kind) for s in systems if s != "limit"]
        alone = "romancy" not in measure.sizes
        last = _cell(results, measure, "limit", kind) if alone else _share(results, measure, kind)
        rows.append([measure.title, *peers, last])
    curves = list(dict.fromkeys(m.growth for m in measures if m.growth is not None))
    for curve in curves:
        slopes = [results.slope(curve, s, kind) for s in systems if s != "limit"]
        if any(slope is not None for slope in slopes):
            rows.append([f"growth of time: {curve}", *("-" if s is None else f"n^{s:.2f}" for s in slopes), ""])
    return rows


def show_pythons(by_label: Mapping[str, Results], measures: Sequence[Measure], console: Console) -> None:
    for kind in ("sqlite", "postgres"):
        head, *rows = table_of_pythons(by_label, measures, kind)
        drawn = Table(title=f"On {WHERE[kind]}: the same on several Pythons (times better than on the first)")
        for number, name in enumerate(head):
            drawn.add_column(name, justify="left" if number == 0 else "right")
        for row in rows:
            drawn.add_row(*row)
        if rows:
            console.print(drawn)


def table_of_pythons(by_label: Mapping[str, Results], measures: Sequence[Measure], kind: str) -> list[list[str]]:
    """Return the heads and a row for each measure: each system on every Python, side by side."""
    everyone = [(s, label) for s in SYSTEMS for label in by_label]
    shown = [(s, label) for s, label in everyone if any(by_label[label].of(m.name, s, kind) for m in measures)]
    lines = [["", *(f"{TITLES[s]}, {label}" for s, label in shown)]]
    for measure in measures:
        cells = [_beside(by_label, measure, s, label, kind) for s, label in shown]
        if any(cell != "-" for cell in cells):
            lines.append([measure.title, *cells])
    return lines


def _beside(by_label: Mapping[str, Results], measure: Measure, system: str, label: str, kind: str) -> str:
    value = by_label[label].median(measure, system, kind)
    if value is None:
        return "-"
    base = next((v for other in by_label.values() if (v := other.median(measure, system, kind))), None)
    is_first = label == next(iter(by_label))
    times = None if is_first or not base or not value else value / base if measure.more else base / value
    return quantity(value, measure.unit) + ("" if times is None else f"  ({times:.2f}x)")


def _cell(results: Results, measure: Measure, system: str, kind: str) -> str:
    value = results.median(measure, system, kind)
    troubles = results.troubles(measure.name, system, kind)
    if value is None:
        return f"({troubles[0][:40]})" if troubles else "-"
    text = quantity(value, measure.unit)
    at_once = results.of(measure.name, system, kind)[0].concurrency
    text += f" at {at_once}" if at_once else ""
    few = measure.sizes[system] < FEW
    more = [results.median(measure, system, kind, figure) for figure in measure.also]
    text += "".join(
        f", {label(name)} {number(v)}"
        for name, v in zip(measure.also, more, strict=True)
        if not (v is None or (few and name == "p99_ms"))
    )
    ours = results.median(measure, "romancy", kind)
    if measure.alike and system not in ("romancy", "limit") and ours and value:
        times = ours / value if measure.more else value / ours
        text += f"  ({times:,.0f}x)" if times >= 10 else f"  ({times:.1f}x)"
    return text + (f" [{', '.join(troubles)}]" if troubles else "")


def _share(results: Results, measure: Measure, kind: str) -> str:
    """Compare sequential activities with sequential commits, and parallel ones with the same work done by hand."""
    if measure.name == "sequential":
        limits = {run.round: run.value("commits_per_s") for run in results.of("limit", "limit", kind)}
    else:
        limits = {run.round: run.value(measure.figure) for run in results.of(measure.name, "limit", kind)}
    ours = results.of(measure.name, "romancy", kind)
    shares = [(r.value(measure.figure) or 0.0) / limit for r in ours if (limit := limits.get(r.round))]
    by_hand = results.median(measure, "limit", kind) if shares else None
    return (f"{quantity(by_hand, RATE)}: " if by_hand else "") + " ".join(f"{share:.0%}" for share in shares)


def quantity(value: float, unit: str) -> str:
    return f"{number(value)}/s" if unit == "1/s" else f"{number(value)} {unit}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def label(figure: str) -> str:
    return figure.removesuffix("_ms").removesuffix("_s").replace("_per", "/")


def markdown(results: Results, measures: Sequence[Measure], systems: Sequence[str], kind: str) -> str:
    return _drawn([heads(systems), *table(results, measures, systems, kind)])


def markdown_of_pythons(by_label: Mapping[str, Results], measures: Sequence[Measure], kind: str) -> str:
    return _drawn(table_of_pythons(by_label, measures, kind))


def _drawn(lines: list[list[str]]) -> str:
    head, *rows = lines
    under = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, under, *rows])
