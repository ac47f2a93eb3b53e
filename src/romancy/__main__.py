"""`python -m romancy` is `romancy`."""

from romancy.cli import main

main(prog_name="romancy")
