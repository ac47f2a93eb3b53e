"""The crowd of the storm: starts plans, sends events, cancels, retries, forks and resumes at random, from outside."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

from romancy import App, Instance, InstanceExists, NotRetryable
from tests.crash.storm_cast import Observer, reader, trip

LIVE = (
    "running",
    "waiting_for_event",
    "waiting_for_timer",
    "waiting_for_child",
    "compensating",
    "blocked",
)

LONG = 20.0
"""Seconds of a nap that nobody waits for: a child that takes it is cancelled before."""


# --- drawing plans ----------------------------------------------------------------------------------------------------
class Drawing:
    """Random plans."""

    def __init__(self, luck: random.Random) -> None:
        self._luck = luck

    def plan(self, name: str) -> dict[str, Any]:
        """A saga that is undone, one that isn't, a family, or an instance to be retried."""
        steps = self._luck.choice([self._saga, self._saga, self._family, self._family, self._broken])(name)
        return {"name": name, "steps": steps}

    def reader(self, name: str) -> dict[str, Any]:
        total = self._luck.randrange(6, 30)
        broken = [n for n in range(total) if self._luck.random() < 0.1]
        booking = self._luck.random() < 0.3
        return {
            "name": name,
            "total": total,
            "per_run": self._luck.randrange(2, 7),
            "broken": [] if booking and self._luck.random() < 0.7 else broken,
            "booking": booking,
        }

    def _book(self) -> list[Any]:
        kind = "book_in_thread" if self._luck.random() < 0.3 else "book"
        undo = self._luck.choices(["well", "shaky", "stuck"], [8, 3, 1])[0]
        return [kind, round(10 ** self._luck.uniform(-2, -0.3), 3), undo]

    def _books(self, least: int, most: int) -> list[Any]:
        return [self._book() for _ in range(self._luck.randint(least, most))]

    def _part(self) -> list[Any]:
        match self._luck.randrange(8):
            case 0:
                return ["together", self._books(2, 4)]
            case 1:
                return ["hasty", 0.2, self._books(2, 4)]
            case 2:
                return ["block", [*self._books(1, 3), ["hasty", 0.1, self._books(1, 2)]], "raise"]
            case 3:
                return ["block", self._books(1, 3), "go on"]
            case 4:
                return ["nap", round(self._luck.uniform(0.05, 1), 2)]
            case 5:
                return ["go", round(self._luck.uniform(0.1, 3), 2)]
            case _:
                return self._book()

    def _end(self, fails: float) -> list[Any]:
        if self._luck.random() >= fails:
            return []
        if self._luck.random() < 0.4:
            return [["together", [*self._books(1, 3), ["raise"]]]]
        return [["raise"]]

    def _saga(self, name: str) -> list[Any]:
        return [*(self._part() for _ in range(self._luck.randint(2, 5))), *self._end(0.7)]

    def _child(self, name: str) -> dict[str, Any]:
        kind = self._luck.random()
        if kind < 0.1:
            steps: list[Any] = [["nap", 0.05], ["repairable", name.partition("/")[0]], *self._books(0, 1)]
        elif kind < 0.15:
            steps = [*self._books(0, 1), ["called", [self._child(f"{name}/{n}") for n in range(2)], None, "lenient"]]
        else:
            steps = [*self._books(0, 2), *([self._part()] if kind < 0.5 else []), *self._end(0.15)]
        return {"name": name, "steps": steps}

    def _children(self, name: str, least: int, most: int) -> list[Any]:
        return [self._child(f"{name}/{n}") for n in range(self._luck.randint(least, most))]

    def _family(self, name: str) -> list[Any]:
        seconds = None if self._luck.random() < 0.6 else round(self._luck.uniform(0.2, 3), 2)
        how = "strict" if self._luck.random() < 0.4 else "lenient"
        children = self._children(name, 5, 16)
        for child in children if seconds is not None else ():
            if self._luck.random() < 0.2:
                child["steps"].append(["nap", LONG])  # it must be cancelled
        steps: list[Any] = [*self._books(0, 2), ["called", children, seconds, how]]
        if self._luck.random() < 0.5:
            awaited = self._luck.choice(["awaited", "left alone"])
            steps.insert(self._luck.randrange(len(steps) + 1), ["free", self._children(f"{name}/free", 1, 4), awaited])
        return [*steps, *self._end(0.3)]

    def _broken(self, name: str) -> list[Any]:
        """Fails before there is anything to undo, so that it can be retried."""
        first = [["nap", 0.05], ["go", 0.5], ["together", [["repairable", name], ["nap", 0.1]]]]
        children = [["called", self._quiet_children(name), None, self._luck.choice(["strict", "lenient"])]]
        middle = children if self._luck.random() < 0.5 else []
        return [*middle, *first[self._luck.randrange(3) :], *self._books(0, 2), *self._end(0.2)]

    def _quiet_children(self, name: str) -> list[Any]:
        """Children without anything to undo; some need the same repair."""
        steps = [[["nap", 0.1]], [["nap", 0.3], ["repairable", name]], [["go", 1]], [["repairable", name]]]
        return [{"name": f"{name}/{n}", "steps": self._luck.choice(steps)} for n in range(self._luck.randint(2, 6))]


# --- acting -----------------------------------------------------------------------------------------------------------
class Crowd:
    """Keeps a population alive until the storm is over, then waits until everything has ended."""

    def __init__(self, app: App, observer: Observer, seed: int, over: str, *, crowd: int, calm: float) -> None:
        self._app, self._observer, self._over = app, observer, over
        self._luck = random.Random(seed)
        self._drawing = Drawing(self._luck)
        self._crowd, self._calm = crowd, calm
        self._names = 0
        self._readers: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._start_plans(group))
            group.create_task(self._repeatedly(0.3, self._cancel_one))
            group.create_task(self._repeatedly(0.3, self._retry_some))
            group.create_task(self._repeatedly(0.3, self._fork_one))
            resuming = group.create_task(self._resume_always())
            await self._wait_for_the_end()
            resuming.cancel()

    @property
    def _is_over(self) -> bool:
        return os.path.exists(self._over)

    async def _repeatedly(self, every: float, act: Any) -> None:
        while not self._is_over:
            await asyncio.sleep(self._luck.expovariate(1 / every))
            await act()

    async def _start_plans(self, group: asyncio.TaskGroup) -> None:
        while not self._is_over:
            await asyncio.sleep(self._luck.expovariate(4))
            if await self._app.count_instances(status=LIVE) > self._crowd:
                continue
            self._names += 1
            if self._luck.random() < 0.2:
                group.create_task(self._start_reader(self._drawing.reader(f"stream{self._names}")))
            else:
                plan = self._drawing.plan(f"plan{self._names}")
                await self._app.start_workflow(trip, plan, instance_id=plan["name"])
                group.create_task(self._send_go(plan["name"], self._luck.uniform(0, 6)))

    async def _send_go(self, name: str, after: float) -> None:
        await asyncio.sleep(after)
        await self._app.send_event("go", "crowd", subject=name)

    async def _start_reader(self, plan: dict[str, Any]) -> None:
        name = plan["name"]
        await self._app.start_workflow(reader, plan, instance_id=name)
        for n in range(plan["total"]):
            await asyncio.sleep(0 if self._is_over else self._luck.expovariate(4))
            await self._app.send_event("tick", "crowd", n, subject=name, id=f"{name} {n}")
            if self._luck.random() < 0.1:
                again = await self._app.send_event("tick", "crowd", n, subject=name, id=f"{name} {n}")
                assert again.duplicate, f"tick {n} of {name} was accepted twice"

    # --- acts ---------------------------------------------------------------------------------------------------------
    async def _one(self, **which: Any) -> Instance | None:
        found = (await self._app.list_instances(limit=100, **which)).items
        return self._luck.choice(found) if found else None

    async def _cancel_one(self) -> None:
        found = await self._one(status=self._luck.choice(LIVE[:5]))
        if found is None or (found.workflow == "reader" and self._luck.random() < 0.8):
            return
        took = await self._app.cancel_workflow(found.instance_id, reason="the crowd")
        self._observer.note("cancelled", instance=found.instance_id, took=took)

    async def _retry_some(self) -> None:
        """Roots only: a parent that heard of a failure does not hear that its child went on."""
        which = self._luck.choice(["failed", "failed", "cancelled"])
        found = (await self._app.list_instances(status=which, limit=100)).items
        for instance in self._luck.sample(found, min(5, len(found))):
            if instance.parent is None:
                await self._retry(instance)

    async def _retry(self, instance: Instance) -> None:
        history = await self._app.get_history(instance.instance_id)
        if any(entry.operation.startswith("undo ") for entry in history):
            return
        if self._luck.random() < 0.7:
            self._repair(instance.input["plan"])
        try:
            await self._app.retry_workflow(instance.instance_id, steps=self._luck.choice([None, None, "failed"]))
            self._observer.note("retried", instance=instance.instance_id)
        except NotRetryable as error:
            self._observer.note("refused", instance=instance.instance_id, error=str(error))

    def _repair(self, plan: Any) -> None:
        for n in plan.get("broken", ()):
            self._observer.repair(f"{plan['name']} {n}")
        self._observer.repair(plan["name"].partition("/")[0])

    async def _fork_one(self) -> None:
        found = await (self._one(status=LIVE) if self._luck.random() < 0.6 else self._one())
        if found is None or ("/" in found.instance_id and self._luck.random() < 0.5):
            return
        history = await self._app.get_history(found.instance_id)
        at = self._luck.choice([0, *(entry.n for entry in history[1:])])
        try:
            fork = await self._app.fork_workflow(found.instance_id, at=at)
        except (NotRetryable, InstanceExists, ValueError) as error:
            self._observer.note("not forked", instance=found.instance_id, at=at, error=str(error))
            return
        kept = [entry for entry in history if 0 < entry.n <= at and entry.kind == "activity_completed"]
        taken = [entry.result for entry in kept if entry.operation.startswith("take:")]
        is_plain = at > 0 and found.workflow == "reader" and not any(entry.kind == "retried" for entry in history)
        about = {"origin": found.instance_id, "at": at, "run": found.run_number}
        self._observer.note("forked", instance=fork.instance_id, **about, taken=taken if is_plain else None)

    async def _resume_always(self) -> None:
        """Undos that were stuck are resumed. Nothing else may be blocked: the judge will see it."""
        while True:
            for instance in (await self._app.list_instances(status="blocked", limit=100)).items:
                if instance.error and instance.error.get("not_undone"):
                    await self._app.resume_workflow(instance.instance_id)
                    self._observer.note("resumed", instance=instance.instance_id)
            await asyncio.sleep(0.3)

    # --- the end ------------------------------------------------------------------------------------------------------
    async def _wait_for_the_end(self) -> None:
        while not self._is_over:  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.1)
        begin = time.monotonic()
        while time.monotonic() < begin + self._calm:
            left = await self._unfinished()
            waiting = [i.instance_id for i in left if i.workflow == "reader" and i.status == "waiting_for_event"]
            forks = [id for id in waiting if not id.startswith("stream")]
            if len(forks) == len(left):  # a fork from the beginning does not get what was sent before it
                for id in forks:
                    await self._app.cancel_workflow(id, reason="nothing left to take")
                    self._observer.note("cancelled", instance=id, took=True)
                if not left and not await self._unfinished():
                    break
            await asyncio.sleep(0.2)
        self._observer.note("calm", seconds=round(time.monotonic() - begin, 1))

    async def _unfinished(self) -> list[Instance]:
        return list((await self._app.list_instances(status=LIVE, limit=1000)).items)
