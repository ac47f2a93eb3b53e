"""Scopes: the `saga` blocks of a workflow, and which of them code is in."""

from __future__ import annotations

from contextvars import ContextVar


class Scope:
    """A `saga` block, or the whole workflow. What is owed in a block that was left is owed by the surrounding one."""

    __slots__ = ("_outer", "is_closed")

    def __init__(self, outer: Scope | None = None) -> None:
        self._outer, self.is_closed = outer, False

    @property
    def responsible(self) -> Scope:
        scope = self
        while scope.is_closed and scope._outer is not None:
            scope = scope._outer
        return scope

    def is_in(self, block: Scope) -> bool:
        """Return whether it is this block, or was entered inside it."""
        scope: Scope | None = self
        while scope is not None and scope is not block:
            scope = scope._outer
        return scope is not None


current_scope: ContextVar[Scope] = ContextVar("romancy.scope")
"""The innermost `saga` block, in each task of a workflow; not set outside of all blocks."""
