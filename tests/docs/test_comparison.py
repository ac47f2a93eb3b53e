"""The tables of figures in the documentation are those of the stored results of the benchmark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench import document
from bench.results import Results, load


@pytest.mark.parametrize("write", [document.comparison, document.performance])
def test_figures_are_generated_from_the_stored_results(write: Callable[[str, Results], str]) -> None:
    page = (document.DOCS / f"{write.__name__}.md").read_text()
    assert write(page, load()) == page, "run python -m bench.document"


def test_the_comparison_has_a_row_for_each_headline() -> None:
    page = (document.DOCS / "comparison.md").read_text()
    table = page.partition("<!-- headlines -->")[2].partition("<!-- end of headlines -->")[0]
    assert table.count("\n|") == len(document.HEADLINES) + 2
