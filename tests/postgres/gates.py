"""Actors on stage: processes that stop before each statement until they are let through, and the play they are in."""

from __future__ import annotations

import asyncio
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import pytest

from romancy.storage.errors import TransientError
from romancy.storage.postgres import PostgresStorage
from romancy.storage.sql import Statement
from tests.postgres.conftest import Place
from tests.storage.conftest import Database

THOROUGH = bool(os.environ.get("ROMANCY_TEST_THOROUGH"))
patient = pytest.mark.timeout(3600 if THOROUGH else 120)
DEAD = "dead"
CUT, DEAF = " is cut off", " is cut off before it hears the answer"
_IN_ORDER = re.compile(r"\bORDER BY\b[^()]*$")
"""Whether a statement says in what order its rows come; if not they may come in any, and here they are sorted."""


class Actor:
    """A process whose memory is empty. While it acts it stops before each statement until it is let through."""

    def __init__(self, name: str, home: PostgresStorage, place: Place) -> None:
        self.name, self._home, self._place = name, home, place
        self.is_dead = self.is_disturbed = self.was_cut_off = False
        self._trouble = ""
        self.task: asyncio.Task[Any] | None = None
        self.asks = ""
        self._answers: list[str] = []
        self._tokens: dict[bytes, bytes] = {}
        self._stopped, self._let_through = asyncio.Event(), asyncio.Event()
        self._be_born()

    def _be_born(self) -> None:
        storage = PostgresStorage(self._home.url, schema=self._home.schema, listen=False, clock=self._place.clock)
        storage._connections.statements = self._home._connections.statements
        storage._connections.write = self._write  # type: ignore[method-assign] - it is never opened
        storage._workflows = ("wf",)
        self.db = Database(storage, self._place.clock)

    @property
    def is_over(self) -> bool:
        return self.is_dead or self.task is None or self.task.done()

    @property
    def memory(self) -> str:
        return DEAD if self.is_dead else "\n".join([*self._answers, "over" if self.is_over else self.asks])

    @property
    def outcome(self) -> str:
        """What came of what it did, in words."""
        assert self.task is not None
        return repr(self.task.exception() or self.task.result())

    async def _write(self, statement: Statement, given: Mapping[str, Any]) -> list[Any]:
        if "pg_notify" in statement.sql:
            return []
        if "token" in given:
            mine = f"{self.name} {len(self._tokens)}{' of the stage' if self.task is None else ''}"
            given = {**given, "token": self._tokens.setdefault(given["token"], mine.encode())}
        if "letter_tokens" in given:
            known = len(self._tokens)
            new = [f"{self.name} letter {known + n}".encode() for n in range(len(given["letter_tokens"]))]
            tokens = [self._tokens.setdefault(*each) for each in zip(given["letter_tokens"], new, strict=True)]
            given = {**given, "letter_tokens": tokens}
        if self.is_over:
            return await self._home._connections.write(statement, given)
        assert not self._stopped.is_set(), f"{self.name} does two things at once"
        self.asks = f"{self._name(statement)} {_shown(given)}"
        self._stopped.set()
        await self._let_through.wait()
        self._let_through.clear()
        if self._trouble == CUT:
            return self._cut_off()
        try:
            rows = await self._home._connections.write(statement, given)
        except Exception as error:
            self._answers.append(repr(error))
            raise
        if self._trouble == DEAF:
            return self._cut_off()
        self.is_disturbed |= any(dict(row).get("settled") is False for row in rows)
        if not _IN_ORDER.search(statement.sql):
            rows.sort(key=lambda row: _shown(dict(row)))
        self._answers.append(" ".join(_shown(dict(row)) for row in rows))
        return rows

    def _cut_off(self) -> list[Any]:
        self._trouble = ""
        self._answers.append("cut off")
        raise TransientError("the connection was lost")

    def _name(self, statement: Statement) -> str:
        made: Mapping[Any, Statement] = self._home._connections.statements._made
        return next(str(key[0] or "write") for key, each in made.items() if each is statement)

    async def begin(self, action: Awaitable[Any]) -> None:
        """Up to its first statement."""
        self.task = asyncio.ensure_future(action)
        self.task.add_done_callback(lambda _: self._stopped.set())
        await self._stopped.wait()

    async def step(self, trouble: str = "") -> None:
        """Let one statement through, and wait until it stops before the next or is over.

        With `trouble` the process hears that its connection was lost: before the statement was run, or after it.
        """
        self._trouble, self.was_cut_off = trouble, self.was_cut_off or bool(trouble)
        self._stopped.clear()
        self._let_through.set()
        await self._stopped.wait()

    async def stop(self) -> None:
        tasks = [task for task in (self.task, *self.db.storage._commits) if task]  # type: ignore[attr-defined]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def die(self) -> None:
        """The process is gone: what it was about to do it never does."""
        await self.stop()
        self.is_dead = True
        self._be_born()


def _shown(values: Mapping[str, Any]) -> str:
    """Parameters or a row, without the server's time, and with transaction ids marked as such.

    Which version of a mark a look has seen is left out; tests/postgres/test_due_looks.py plays that.
    """
    shown = {name: value for name, value in values.items() if name not in ("now", "due_xid", "due_xids")}
    for name in shown:
        if name.endswith(("xid", "xids")) and shown[name]:
            shown[name] = re.sub(r"\d+", lambda xid: f"<xid {xid[0]:>020}>", str(shown[name]))
    return json.dumps(shown, default=repr)


class Play(ABC):
    """Who is on stage, what they do and how it must end."""

    names: Sequence[str] = ("owner", "sender", "heir", "last")
    cast: Mapping[str, Actor]
    """New for every run."""
    fragile: Sequence[str] = ()
    """Those whose connection may be lost, once: at any statement, before it is run or after."""

    def __getitem__(self, name: str) -> Database:
        return self.cast[name].db

    def is_dead(self, name: str) -> bool:
        return self.cast[name].is_dead

    def result(self, name: str) -> Any:
        """What came of what somebody did. None: it died."""
        task = self.cast[name].task
        return None if self.is_dead(name) or task is None else task.result()

    @abstractmethod
    async def set(self) -> None:
        """The stage as it is at the beginning."""

    @abstractmethod
    def actions(self) -> dict[str, Awaitable[Any]]:
        """What those do who do something. Any of them may die."""

    @abstractmethod
    async def check(self) -> None:
        """All are over or dead."""
