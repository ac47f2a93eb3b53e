"""`python -m romancy` is the same as `romancy`."""

from romancy.cli import main

main(prog_name="romancy")
