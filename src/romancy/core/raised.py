"""Finds the current class of a recorded exception. Classes can move between modules, as functions can.

An exception that an activity lists in `raises=` is stored by name. The module in that name is only a hint: the class
that `python shop.py` knows as `__main__.CardDeclined` is `shop.CardDeclined` for a process that imports `shop`. So the
full name is tried first, then the name without its module, if it matches exactly one of the listed classes.
Nothing is guessed: if no class matches, or several do, the instance is blocked.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterable
from typing import TypeAlias

from romancy.errors import NonDeterminismError

ErrorClass: TypeAlias = type[Exception]


def full_name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class Worded:
    """An exception that says its recorded message, because its own `__str__` or `__repr__` lacks an attribute."""

    __slots__ = ()
    recorded_message: str

    def __init_subclass__(cls) -> None:
        """Keep this from the class of the exception, which may register its subclasses, or refuse them."""

    def __str__(self) -> str:
        return self.recorded_message

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({self.recorded_message!r})"


def worded(kind: ErrorClass) -> ErrorClass:
    """Return the subclass of an exception class, under the same name, that is `Worded`."""
    known = [sub for sub in kind.__subclasses__() if Worded in sub.__bases__]
    about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ("recorded_message",)}
    return known[0] if known else type(kind)(kind.__name__, (Worded, kind), about)


def listed_for(error: BaseException, raises: Collection[ErrorClass]) -> ErrorClass | None:
    """Return the listed class that matches an exception: its own class, or the nearest of its bases."""
    near = [kind for kind in type(error).__mro__ if kind in raises]
    return near[0] if near else next((kind for kind in raises if isinstance(error, kind)), None)


def namesakes(listed: ErrorClass, raises: Collection[ErrorClass]) -> list[str]:
    """Return the other listed classes with the same name. They must never be mistaken for this one."""
    return [full_name(kind) for kind in raises if kind is not listed and kind.__name__ == listed.__name__]


def find_listed(
    listed: str, qualname: str | None, others: Collection[str], raises: Collection[ErrorClass]
) -> ErrorClass | None:
    """Return the class in `raises` that was recorded as `listed`, or None.

    `qualname` is None in histories that do not separate it from the module; `others` are its namesakes at that time.
    """
    name = (qualname or listed).rpartition(".")[2]
    candidates = [kind for kind in raises if full_name(kind) not in others]

    def is_same(kind: ErrorClass) -> bool:
        return listed.endswith(f".{kind.__qualname__}") if qualname is None else kind.__qualname__ == qualname

    by_full_name = [kind for kind in raises if full_name(kind) == listed]
    return (
        _only(by_full_name, listed)
        or _only(filter(is_same, candidates), listed)
        or _only([kind for kind in candidates if kind.__name__ == name], listed)
    )


def find_subclass(bases: Collection[ErrorClass], module: str | None, qualname: str) -> ErrorClass | None:
    """Return the class recorded under this name among `bases` and their subclasses, or None.

    `module` is None in histories that do not contain it.
    """
    found = _named(bases, module, qualname)
    if found is None and module not in (None, "__main__", *sys.modules):
        try:
            importlib.import_module(str(module))  # activities often import modules only when they run
        except Exception:
            return None
        found = _named(bases, module, qualname)
    return found


def find_unmoved(bases: Collection[ErrorClass], name: str) -> ErrorClass | None:
    """Return the class with exactly this full name among `bases` and their subclasses, or None."""
    return _only([kind for kind in _with_subclasses(bases) if full_name(kind) == name], name)


def _named(bases: Collection[ErrorClass], module: str | None, qualname: str) -> ErrorClass | None:
    recorded = f"{module or '(unknown module)'}.{qualname}"
    same = [kind for kind in _with_subclasses(bases) if kind.__qualname__ == qualname]
    return _only([kind for kind in same if kind.__module__ == module], recorded) or _only(same, recorded)


def _with_subclasses(bases: Collection[ErrorClass]) -> list[ErrorClass]:
    """Return `bases` and all their subclasses; the older of two subclasses comes first."""
    found = list(bases)
    for kind in found:
        found.extend(sub for sub in kind.__subclasses__() if sub not in found and Worded not in sub.__bases__)
    return found


def _only(kinds: Iterable[ErrorClass], recorded: str) -> ErrorClass | None:
    """Return the only class, or None. `@dataclass(slots=True)` leaves an older class of the same name: ignore it."""
    found = {full_name(kind): kind for kind in kinds}
    if len(found) > 1:
        raise NonDeterminismError(
            f"the exception recorded as {recorded!r} could be any of {', '.join(sorted(found))}; list only the right "
            f"one in raises=, or set its module to the recorded one: __module__ = {recorded.rpartition('.')[0]!r}",
            recorded=recorded,
            asked=", ".join(sorted(found)),
        )
    return next(iter(found.values()), None)
