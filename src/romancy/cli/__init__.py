"""The command line: `romancy --help`."""

from romancy.cli.group import main

__all__ = ["main"]
