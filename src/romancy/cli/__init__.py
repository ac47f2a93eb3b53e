"""The command line: `romancy --help`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(prog_name: str | None = None) -> None:
    """The entry point. It imports late, so that Ctrl-C is one line from the first moment on."""
    try:
        from romancy.cli.group import main as group

        group(prog_name=prog_name)
    except KeyboardInterrupt:
        sys.stderr.write("romancy: interrupted\n")
        sys.exit(130)
