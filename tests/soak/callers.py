"""What callers do in every part of the soak, and how it is written down what they were told."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from romancy import App, InstanceExists
from romancy.errors import InstanceNotFound, RomancyError
from romancy.storage.rows import triggered_id
from tests.property.programs import program
from tests.soak.drawing import Drawing
from tests.soak.oracle import Told

Thing = Callable[[], Coroutine[Any, Any, None]]


class Callers:
    """Start, send, cancel and resume at random."""

    def __init__(self, random: random.Random, draw: Drawing) -> None:
        self.random, self.draw, self.told = random, draw, Told()
        self.story: list[str] = []
        self.violations: list[str] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self._numbers = 0

    # --- what differs ------------------------------------------------------------------------------------------------
    def now(self) -> float:
        """Seconds, for the story."""
        raise NotImplementedError

    async def ask(self, what: str, call: Callable[[App], Awaitable[Any]]) -> Any:
        """Ask some app until there is an answer, or the caller gives up: None."""
        raise NotImplementedError

    def reader(self) -> App:
        """An app to look things up with; it may fail."""
        raise NotImplementedError

    def asked(self, key: object) -> None:
        """Somebody is about to ask for an event or an instance."""

    def acknowledged(self, key: object) -> None:
        """It is stored."""

    # --- telling -----------------------------------------------------------------------------------------------------
    def say(self, what: str) -> None:
        self.story.append(f"{self.now():8.3f}  {what}")

    def violate(self, what: str) -> None:
        self.violations.append(what)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.violate(f"{type(error).__name__}: {error}")

    def choose(self, things: list[tuple[Thing, int]]) -> Coroutine[Any, Any, None]:
        """One of them, by weight."""
        [thing] = self.random.choices([thing for thing, _ in things], [weight for _, weight in things])
        return thing()

    @property
    def calls(self) -> list[tuple[Thing, int]]:
        return [
            (self.start, 5),
            (self.start_again, 2),
            (self.send_any, 10),
            (self.send_awaited, 16),
            (self.send_again, 4),
            (self.send_go, 2),
            (self.cancel, 3),
            (self.resume, 4),
        ]

    # --- starting ----------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        id = f"i{len(self.told.starts)}"
        code = self.told.starts[id] = self.draw.code()
        self.say(f"program {id}: {json.dumps(code)}")
        await self._start_as(id)

    async def _start_as(self, id: str) -> None:
        code = self.told.starts[id]
        self.asked(id)
        handle = await self.ask(f"start {id}", lambda app: app.start_workflow(program, code, instance_id=id))
        if handle is not None:
            self.acknowledged(id)
            if handle.created and id in self.told.created:
                self.violate(f"{id} was created twice")
            if handle.created:
                self.told.created.add(id)
            self.told.started.add(id)

    async def start_again(self) -> None:
        if not self.told.starts:
            return
        id = self.random.choice(list(self.told.starts))
        if self.random.random() < 0.7 or id not in self.told.started:
            await self._start_as(id)
            return
        try:
            handle = await self.ask(f"start another {id}", lambda app: app.start_workflow(program, {}, instance_id=id))
        except InstanceExists:
            return
        if handle is not None:
            self.violate(f"{id} was started with another input")

    # --- events ------------------------------------------------------------------------------------------------------
    async def _send(self, event: dict[str, Any], id: str | None = None) -> tuple[str, str]:
        self._numbers += 1
        key = event["source"], f"e{self._numbers}" if id is None else id
        event = self.told.sent.setdefault(key, event)
        known = key in self.told.acknowledged
        data = {name: event[name] for name in ("k", "n", "code") if name in event}
        about = {"subject": event["subject"], "id": key[1], "to": event["to"]}
        self.asked(key)
        receipt = await self.ask(
            f"send {key[1]} {json.dumps(event) if id is None else 'again'}",
            lambda app: app.send_event(event["type"], key[0], data, **about),
        )
        if receipt is not None:
            self.acknowledged(key)
            if not receipt.duplicate and (known or key in self.told.first):
                self.violate(f"{key} was accepted twice")
            if not receipt.duplicate:
                self.told.first.add(key)
            self.told.acknowledged.add(key)
        return key

    async def send_any(self) -> None:
        await self._send(self.draw.event())

    async def send_awaited(self) -> None:
        try:
            waits = [wait for wait in (await self.reader().list_waits(limit=200)).items if wait.kind == "event"]
        except RomancyError:
            return
        if waits:
            await self._send(self.draw.awaited(self.random.choice(waits)))

    async def send_again(self) -> None:
        if self.told.sent:
            source, id = self.random.choice(list(self.told.sent))
            await self._send(self.told.sent[source, id], id)

    async def send_go(self) -> None:
        event, id = self.draw.go(), f"go{len(self.told.sent)}"
        instance = triggered_id("reaction", event["source"], id)
        self.told.sent[event["source"], id] = event
        self.say(f"program {instance}: {json.dumps(event['code'])}")
        self.asked(instance)
        if await self._send(event, id) in self.told.acknowledged:
            self.acknowledged(instance)

    # --- people ------------------------------------------------------------------------------------------------------
    async def cancel(self) -> None:
        if self.told.starts:
            await self.cancel_one(self.random.choice(list(self.told.starts)))

    async def cancel_one(self, id: str) -> None:
        self.told.cancel_tried.add(id)
        try:
            answer = await self.ask(f"cancel {id}", lambda app: _answered(app.cancel_workflow(id)))
        except InstanceNotFound:
            return
        if answer is not None:
            self.told.cancelled.add(id)

    async def resume(self) -> None:
        try:
            blocked = (await self.reader().list_instances(status="blocked")).items
        except RomancyError:
            return
        for instance in blocked:
            id = instance.instance_id
            self.found_blocked(id, str((instance.error or {}).get("message")))
            await self.ask(f"resume {id}", lambda app, id=id: _answered(app.resume_workflow(id)))

    def found_blocked(self, id: str, reason: str) -> None:
        self.say(f"{id} is blocked: {reason}")


async def _answered(work: Awaitable[Any]) -> bool:
    await work
    return True
