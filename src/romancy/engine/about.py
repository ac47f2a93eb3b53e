"""What a worker says about itself, for operators: see `storage/desk.py`."""

from __future__ import annotations

import json
import os

from romancy.core.registry import Registry
from romancy.engine.build import release


def describe(registry: Registry, build: str, slots: int) -> str:
    """Return it as JSON."""
    about = {"pid": os.getpid(), "version": release(), "build": build}
    return json.dumps({**about, "workflows": sorted(registry.names), "slots": slots})
