"""Find clocks, randomness and I/O in workflow code by static analysis; nothing is imported or run.

A workflow is replayed from its history, so its code must do the same each time. `find_problems` reads one file: it
resolves names (`names`), then applies the `rules` to every workflow and the plain functions that it reaches in the
file (`reader`). Names that it can't resolve (attributes of objects, other files) count as harmless: a false alarm is
worse than a missed problem, which replay shows later. `# romancy: allow` suppresses problems on its line. `sarif`
formats problems for code scanners and editors.
"""

from romancy.cli.checker.reader import find_problems, problems_of
from romancy.cli.checker.source import Module, Problem

__all__ = ["Module", "Problem", "find_problems", "problems_of"]
