"""Culprits: an exception object that was raised elsewhere before blames no entry here."""

import pytest

from romancy.core.culprits import blame, culprits_of


@pytest.mark.parametrize(("instance", "run", "found"), [("x", 1, [3]), ("x", 2, []), ("i", 1, [])])
def test_only_entries_of_the_same_instance_and_run_are_blamed(instance: str, run: int, found: list[int]) -> None:
    error = ValueError("used twice")
    error.__context__ = blame(RuntimeError("failed"), ("x", 1, 3))
    assert culprits_of(error, instance, run, None) == found
