"""Pictures of the latest results, and docs/performance.md around them: `python -m bench.plots` (needs matplotlib)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from bench import results as latest
from bench.plan import GROWTH, MEASURES, SYSTEMS, TITLES, Measure
from bench.results import Results

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "images"
COLOURS = {"romancy": "#0f766e", "edda": "#b45309", "dbos": "#4f46e5", "restate": "#be123c"}
KINDS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
THROUGHPUT = ("finish", "sequential", "parallel20", "parallel200")
WAITING = ("latency", "sleepers200", "resume1k", "recovery")


def bars(results: Results, names: tuple[str, ...], file: str, title: str, axis: str) -> None:
    """One group of bars for each measure and database, on a logarithmic axis: the distances are that great."""
    measures = [m for name in names for m in MEASURES if m.name == name]
    figure, axes = plt.subplots(1, 2, figsize=(12, 0.9 + 1.05 * len(measures)), sharey=True)
    for plot, kind in zip(axes, KINDS, strict=True):
        for place, measure in enumerate(measures):
            _group(plot, results, measure, kind, place)
        plot.set_xscale("log")
        plot.set_xlim(right=plot.get_xlim()[1] * 6)  # room for the words
        plot.set_title(KINDS[kind], loc="left", fontsize=11)
        plot.set_yticks(range(len(measures)), [_folded(m.title) for m in measures])
        plot.set_xlabel(axis)
        plot.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()  # shared: the first measure on top
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[s]) for s in SYSTEMS]
    figure.legend(handles, [TITLES[s] for s in SYSTEMS], loc="upper right", ncols=4, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    _save(figure, file)


def _group(plot: Any, results: Results, measure: Measure, kind: str, place: int) -> None:
    scale = 1e-3 if measure.unit == "ms" else 1.0
    for offset, system in enumerate(SYSTEMS):
        where = "sqlite" if system == "restate" else kind  # it keeps its own log
        value = results.median(measure, system, where)
        if value is None:
            continue
        y = place + (offset - 1.5) * 0.2
        plot.barh(y, value * scale, height=0.18, color=COLOURS[system])
        plot.text(value * scale * 1.08, y, _short(value * scale), va="center", fontsize=8)


def pythons(by_label: dict[str, Results]) -> None:
    """Romancy on every version of Python that was measured: how many times as much as on the oldest."""
    labels, measures = list(by_label), [m for m in MEASURES if m.name in (*THROUGHPUT, "wake1k", "replay")]
    figure, axes = plt.subplots(1, 2, figsize=(12, 0.9 + 0.9 * len(measures)), sharey=True)
    shades = plt.get_cmap("viridis")
    for plot, kind in zip(axes, KINDS, strict=True):
        for place, measure in enumerate(measures):
            base = by_label[labels[0]].median(measure, "romancy", kind)
            for offset, label in enumerate(labels):
                value = by_label[label].median(measure, "romancy", kind)
                if not value or not base:
                    continue
                y = place + (offset - (len(labels) - 1) / 2) * 0.8 / len(labels)
                times = value / base if measure.more else base / value
                unit = "/s" if measure.more else f" {measure.unit}"
                plot.barh(y, times, height=0.7 / len(labels), color=shades(0.2 + 0.6 * offset / len(labels)))
                plot.text(times * 1.01, y, f"{label}: {_short(value)}{unit}", va="center", fontsize=8)
        plot.set_xlim(right=plot.get_xlim()[1] * 1.35)  # room for the words
        plot.set_title(KINDS[kind], loc="left", fontsize=11)
        plot.set_yticks(range(len(measures)), [_folded(m.title) for m in measures])
        plot.set_xlabel(f"times as good as on {labels[0]}")
        plot.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()
    figure.suptitle("Romancy on several Pythons", x=0.01, ha="left", fontsize=13, fontweight="bold")
    _save(figure, "performance-pythons.png")


def growth(results: Results) -> None:
    curves = list(dict.fromkeys(m.growth for m in GROWTH if m.growth))
    figure, axes = plt.subplots(1, len(curves), figsize=(13, 4.8))
    for plot, curve in zip(axes, curves, strict=True):
        for system in SYSTEMS:
            for kind, style in (("sqlite", "-"), ("postgres", "--")):
                points = _points(results, str(curve), system, kind)
                if len(points) > 1:
                    slope = results.slope(str(curve), system, kind)
                    text = f"{TITLES[system]}, {KINDS[kind]} (n^{slope:.2f})" if slope is not None else TITLES[system]
                    plot.plot(*zip(*points, strict=True), style, marker="o", color=COLOURS[system], label=text)
        plot.set_xscale("log")
        plot.set_yscale("log")
        plot.set_title(str(curve), loc="left", fontsize=11)
        plot.set_xlabel("how many")
        plot.legend(fontsize=7, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
        plot.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("seconds for all of them")
    axes[-1].set_ylabel("seconds late (p99)")
    _save(figure, "performance-growth.png")


def _points(results: Results, curve: str, system: str, kind: str) -> list[tuple[int, float]]:
    points: list[tuple[int, float]] = []
    for measure in (m for m in GROWTH if m.growth == curve):
        value = results.median(measure, system, kind)
        if value:
            size = measure.sizes[system]
            points.append((size, size / value if measure.more else value / 1000))
    return points


def _folded(title: str) -> str:
    words, line = title.split(), ""
    lines: list[str] = []
    for word in words:
        if len(line) + len(word) > 24:
            lines.append(line.strip())
            line = ""
        line += f"{word} "
    return "\n".join([*lines, line.strip()])


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _save(figure: Any, file: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    figure.savefig(PICTURES / file, dpi=110)
    plt.close(figure)


def main() -> None:
    results = latest.load()
    bars(results, THROUGHPUT, "performance-throughput.png", "How much in a second (more is better)", "a second, log")
    bars(results, WAITING, "performance-waiting.png", "How long it takes (less is better)", "seconds, log")
    growth(results)
    by_label = latest.load_pythons()
    if len(by_label) > 1:
        pythons(by_label)
    print(f"pictures: {PICTURES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
