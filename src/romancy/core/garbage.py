"""The only module that changes when Python collects garbage.

Most objects are freed as soon as nothing refers to them. The collector only finds those that refer to each other. It
comes after a number of new objects, and from time to time it looks at all objects in memory: with thousands of waiting
instances, that is most of its work.
"""

from __future__ import annotations

import gc

YOUNG = 50_000
"""New objects after which the collector comes, in processes of our own. Python's default is 700 to 2,000."""


def pause() -> bool:
    """Stop collecting, for work that makes no garbage. Return whether `resume` must be called."""
    if not gc.isenabled():
        return False
    gc.disable()
    return True


def resume() -> None:
    """Go on collecting."""
    gc.enable()


def collect_less() -> None:
    """Set up a process that is ours, once everything is loaded: collect less often, and never look at what is loaded.

    Settings that the user's code made are kept: a collector that is off, or that comes even less often.
    """
    gc.collect()
    gc.freeze()
    young = gc.get_threshold()[0]
    if 0 < young < YOUNG:
        gc.set_threshold(YOUNG)
