"""Clocks, randomness and I/O in workflow code, found by reading it; nothing is imported or run.

A workflow is run again from its history, so its code must do the same each time. `find_problems` reads one file: it
binds names to what they stand for (`names`), then reads every workflow and the plain functions of the file it reaches
(`reader`), by the `rules`. Names it can't follow (attributes of objects, other files) are taken to be harmless: better
to miss a problem, which replay will show, than to cry wolf. `# romancy: allow` silences its line.
"""

from romancy.cli.checker.reader import find_problems, problems_of
from romancy.cli.checker.source import Module, Problem

__all__ = ["Module", "Problem", "find_problems", "problems_of"]
