"""Lengths of time as people read them."""

from __future__ import annotations

_UNITS = ((60, 1, "s"), (3600, 60, "min"), (172_800, 3600, "h"), (63_072_000, 86_400, "d"))
_YEAR = 31_536_000
_FINER = {"min": (1, "s"), "h": (60, "min"), "d": (3600, "h"), "y": (86_400, "d")}


def span(seconds: float, *, finer: bool = True) -> str:
    """`850 ms`, `12 s`, `4 min 10 s`; roughly `4 min` unless `finer`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    unit, name = next(((unit, name) for limit, unit, name in _UNITS if seconds < limit), (_YEAR, "y"))
    words = f"{int(seconds // unit)} {name}"
    if not finer or name not in _FINER:
        return words
    small, small_name = _FINER[name]
    rest = int(seconds % unit // small)
    return f"{words} {rest} {small_name}" if rest else words


def lasting(seconds: float) -> str:
    """A length of time that does not tick, and so may be exact: `1.35 s`."""
    return f"{seconds:.2f} s" if 1 <= seconds < 59.99 else span(seconds)
