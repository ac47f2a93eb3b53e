"""Small plays that between them use every primitive. Each is a set of workflows and a script of what befalls them."""

from __future__ import annotations

# They add themselves to the list.
from tests.crash import family_scenarios, single_scenarios  # noqa: F401
from tests.crash.scenario import SCENARIOS, Scenario

__all__ = ["SCENARIOS", "Scenario"]
