"""Every interleaving of statements, and deaths at every point: all that can happen, followed to its end.

Actors stop before each statement. A move lets one of them go on to its next stop, or lets it die; any of them may die,
also all of them, and also when it is through. Where the play says so, somebody may also lose its connection,
and lives to hear of it. What can come after some moves depends on what the tables hold and on what each actor has been
answered, which together is a *state*: two orders that lead to one state have the same future, and one of them is
enough. So it is states that are gone through, thousands, instead of orders, of which there are
billions. And as a statement sees the tables and its actor, but not what the others know, each is run once in all
contents of the tables that it may meet; what it does beside other memories of the others is put together from that.
Where nobody has a statement left, the play is played to this end, and says whether all is well. Of the ends that differ
only in what somebody was answered on the way, and not in what came of it, one is played.

Why nothing else matters, and what is done about what would:

- Statements are transactions of their own, leave nothing behind in a session, and never overlap here. What one does
  depends on its parameters, on the tables and sequences, and on the time.
- An actor is a new storage in every run: all that it knows it was answered. Its answers, and the statement it stops at,
  are its memory. Who died knows nothing any more, and who acts by its name later is a new one too.
- The clock stands still. One time is the server's own, that of events which nobody has dispatched yet: it is left out,
  and sweeps take all of them, however young. How long ago a storage swept is not asked: it does so once in a run.
- Names are the same in every run, tokens go by actor and turn, tables and sequences are put back as they were.
- Transaction ids only grow. They are compared with each other and never with a constant, and as nothing overlaps a new
  one is higher than all that are there, and in none of the snapshots that are there. So an id is told by its rank among
  those in the tables, and a snapshot by which of these it sees; what comes later changes neither. (A snapshot's lower
  bound is used too, but only to begin a search, of which the snapshot decides what it finds.)
- Somebody else's transaction on the same server, such as autovacuum's, makes a look say that an event may not be the
  oldest one yet. Nothing of ours is under way, so this is never our own doing: the run is repeated.
- Rows that a statement leaves in no order are handed over sorted, and so not as they happen to lie in the table.
- Notices are swallowed: they are hints, and nobody listens.

Should this be wrong, or become wrong, it shows: a run begins by going to the state where there is something to find
out, and must get there. ROMANCY_TEST_THOROUGH=1 goes to every state there is, and to every end.

Not covered: statements that overlap in time, of which one waits for the other, or does not see what it does. Those we
know to matter are played one by one in test_order and test_interleavings, others come up by chance where several
workers run. To the tables, whoever dies in the middle of a statement died before it or after; the same is true of a
connection. What a lost connection leaves under way on the server is for test_lost_answers and test_outages.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from romancy.storage.postgres import PostgresStorage
from romancy.storage.postgres import dispatch as dispatching
from tests.postgres.conftest import Place
from tests.postgres.gates import CUT, DEAD, DEAF, THOROUGH, Actor, Play

DIES = " dies"
State = tuple[str, ...]
"""What the tables hold, and then every actor's memory."""


class Stage:
    """The tables: put back for every run, and looked at after every statement."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    async def keep(self) -> None:
        """From here on the stage is as it is now."""
        columns: list[tuple[str, list[str]]] = await self._raw.fetch(_COLUMNS)
        sequences: list[tuple[str, int]] = await self._raw.fetch(_SEQUENCES)
        looks = [f"SELECT '{table}' AS name, row_to_json(x)::text FROM {_marked(table, c)} x" for table, c in columns]
        looks += [f"SELECT '{name}', last_value || ' ' || is_called FROM {name}" for name, _ in sequences]
        self._look = " UNION ALL ".join(looks)
        back = ["SET synchronous_commit = off"]
        for table, _ in columns:
            await self._raw.execute(f"CREATE TEMP TABLE stage_{table} AS TABLE {table}")
            await self._raw.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")  # it would disturb us
            back.append(f"DELETE FROM {table}")
            if await self._raw.fetchval(f"SELECT EXISTS (TABLE {table})"):
                back.append(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE stage_{table}")
        back += [f"SELECT setval('{name}', greatest({n}, 1), {n} > 0)" for name, n in sequences]
        self._back = "; ".join(back)

    async def put_back(self) -> None:
        await self._raw.execute(self._back)

    async def state(self, actors: Sequence[Actor]) -> State:
        contents = "\n".join(f"{name} {row}" for name, row in await self._raw.fetch(self._look))
        ids = sorted({int(xid) for xid in re.findall(r"<xid (\d+)>", contents)})
        ranks = {xid: rank for rank, xid in enumerate(ids)}
        lines = sorted(_ranked(contents, ranks).split("\n"))
        return _digest("\n".join(lines)), *(_digest(_ranked(actor.memory, ranks)) for actor in actors)


_COLUMNS = """SELECT table_name::text, array_agg(column_name || ' ' || data_type)::text[]
FROM information_schema.columns WHERE table_schema = current_schema AND table_name <> 'schema_info' GROUP BY 1"""
_SEQUENCES = "SELECT sequencename::text, coalesce(last_value, 0) FROM pg_sequences WHERE schemaname = current_schema"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _marked(table: str, columns: Sequence[str]) -> str:
    """A table with transaction ids and snapshots marked as such, and without the server's time."""
    marks = {"xid8": "xid", "pg_snapshot": "snapshot"}
    pairs = [column.split(" ", 1) for column in columns if (table, column) != ("undispatched", "at bigint")]
    shown = [f"'<{marks[kind]} ' || {name} || '>' AS {name}" if kind in marks else name for name, kind in pairs]
    return f"(SELECT {', '.join(shown)} FROM {table})"


def _ranked(text: str, ranks: Mapping[int, int]) -> str:
    def sees(match: re.Match[str]) -> str:
        end, running = int(match[1]), match[2].split(",")
        return f"<sees {[rank for xid, rank in ranks.items() if xid < end and str(xid) not in running]}>"

    text = re.sub(r"<snapshot \d+:(\d+):([\d,]*)>", sees, text)
    return re.sub(r"<xid (\d+)>", lambda match: f"<{ranks[int(match[1])]}>", text)


class Disturbed(Exception):
    """Somebody else's transaction was seen."""


class Search:
    """Goes through all states of a play."""

    def __init__(self, play: Play, place: Place, home: PostgresStorage, raw: Any) -> None:
        self._play, self._place, self._home, self._stage = play, place, home, Stage(raw)
        self._orders: dict[State, tuple[str, ...]] = {}
        """The shortest way to every state."""
        self._steps: dict[tuple[str, str, str], tuple[str, str]] = {}
        """(move, what the tables hold, the actor's memory): what the move makes of these two."""
        self._over = {_digest(DEAD)}
        self._came_of: dict[tuple[str, str], str] = {}
        """(actor, its memory): what came of what it did."""
        self._checked = set[tuple[str, ...]]()
        self._unhurt = set[str]()
        """Memories of actors whose connection may still be lost."""
        self._acting: list[Actor] = []
        self._moves = self._ends = self._runs = 0

    def __repr__(self) -> str:
        counts = f"{len(self._orders)} states, {self._moves} moves, {self._ends} ends"
        return f"<{counts}; {len(self._steps)} statements, {self._runs} runs>"

    async def go(self) -> None:
        self._enter()
        await self._play.set()
        await self._stage.keep()
        start = await self._run()
        self._orders[start], queue = (), deque([start])
        while queue:
            state = queue.popleft()
            if THOROUGH or (self._is_end(state) and self._is_news(state)):
                await self._run(state)
            for move in self._possible(state):
                self._moves += 1
                after = await self._after(state, move)
                if after not in self._orders:
                    self._orders[after] = (*self._orders[state], move)
                    queue.append(after)

    # --- in thought --------------------------------------------------------------------------------------------------
    def _is_end(self, state: State) -> bool:
        return self._over.issuperset(state[1:])

    def _is_news(self, state: State) -> bool:
        """Whether this end differs from those before in the tables, in what came of it for somebody, or in who died."""
        ways = [(a.name, memory) for a, memory in zip(self._acting, state[1:], strict=True)]
        end = (state[0], *(DEAD if way[1] == _digest(DEAD) else self._came_of[way] for way in ways))
        is_news = end not in self._checked
        self._checked.add(end)
        return is_news

    def _possible(self, state: State) -> list[str]:
        """Who is over may still die: with it goes what it came to know."""
        alive = [(a.name, memory) for a, memory in zip(self._acting, state[1:], strict=True) if memory != _digest(DEAD)]
        going_on = [name for name, memory in alive if memory not in self._over]
        dying = [name + DIES for name, _ in alive]
        return (
            going_on + dying + [name + how for name, memory in alive if memory in self._unhurt for how in (CUT, DEAF)]
        )

    async def _after(self, state: State, move: str) -> State:
        contents, *memories = state
        n = [actor.name for actor in self._acting].index(_mover(move))
        if move.endswith(DIES):
            memories[n] = _digest(DEAD)
        else:
            key = move, contents, memories[n]
            if key not in self._steps:
                await self._run(state, move)
            contents, memories[n] = self._steps[key]
        return contents, *memories

    # --- on stage ----------------------------------------------------------------------------------------------------
    async def _run(self, wanted: State | None = None, move: str = "") -> State:
        for _ in range(1000):
            self._runs += 1
            try:
                return await self._play_to(wanted, move)
            except Disturbed:
                await asyncio.sleep(0.01)
            except BaseException as error:
                error.add_note(f"when the order was: {', '.join(self._said)}")
                raise
            finally:
                for actor in self._acting:
                    await actor.stop()
        raise AssertionError("somebody else's transactions on this server leave us no moment of our own")

    async def _play_to(self, wanted: State | None, move: str) -> State:
        """Go to a state, and see whether all is well if it is an end; or go on while there is something to find out."""
        await self._begin()
        for done in self._orders[wanted] if wanted is not None else ():
            await self._make(done)
        here = state = await self._look()
        assert wanted in (None, here), "the same moves led elsewhere: there is more to a state than we look at"
        while move:
            state = await self._find_out(move, state)
            move = self._undecided(state)
        if state == here and self._is_end(here):
            self._ends += 1
            await self._play.check()
        return here

    def _enter(self) -> None:
        self._play.cast = {name: Actor(name, self._home, self._place) for name in self._play.names}

    async def _begin(self) -> None:
        await self._stage.put_back()
        self._enter()
        self._acting, self._said = [], list[str]()
        for name, action in self._play.actions().items():
            self._acting.append(self._play.cast[name])
            await self._acting[-1].begin(action)

    async def _make(self, move: str) -> None:
        actor = self._play.cast[_mover(move)]
        if move.endswith(DIES):
            self._said.append(move)
            await actor.die()
        else:
            self._said.append(f"{move}: {actor.asks.split()[0]}")
            await actor.step(move.removeprefix(actor.name))
        if actor.is_disturbed:
            raise Disturbed

    def _undecided(self, state: State) -> str:
        """Somebody whose next statement has not been run in what the tables hold now."""
        for n, actor in enumerate(self._acting):
            if not actor.is_over and (actor.name, state[0], state[n + 1]) not in self._steps:
                return actor.name
        return ""

    async def _find_out(self, move: str, state: State) -> State:
        n = [actor.name for actor in self._acting].index(_mover(move))
        await self._make(move)
        after = await self._look()
        assert after == (after[0], *state[1 : n + 1], after[n + 1], *state[n + 2 :]), "others' memories have changed"
        self._steps[move, state[0], state[n + 1]] = after[0], after[n + 1]
        return after

    async def _look(self) -> State:
        state = await self._stage.state(self._acting)
        for actor, memory in zip(self._acting, state[1:], strict=True):
            if actor.is_over:
                self._over.add(memory)
                if not actor.is_dead:
                    self._came_of[actor.name, memory] = actor.outcome
            elif actor.name in self._play.fragile and not actor.was_cut_off:
                self._unhurt.add(memory)
        return state


def _mover(move: str) -> str:
    return move.split(" ", 1)[0]


async def explore(place: Place, play: Play) -> None:
    """Play all that can happen; what of it ends badly is told with the order that leads there."""
    search = Search(play, place, await place.storage(listen=False), await place.raw())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatching, "STALE", -1_000_000)  # however young, what is not dispatched is swept up
        await search.go()
    print(f"{type(play).__name__}: {search!r}")  # pytest -s shows it
