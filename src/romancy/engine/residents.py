"""The residents: the instances in memory, those being loaded, and which of them can be evicted."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator

from romancy.engine.resident import Input, Resident


class Residents:
    """A bounded set of instances. Those that only wait are idle, and the longest idle are evicted first.

    `on_work` is called when there may be instances to claim, and room for them.
    """

    def __init__(self, limit: int, on_work: Callable[[], None]) -> None:
        self._all: dict[str, Resident] = {}
        self.loading: dict[str, list[Input]] = {}
        """Instances on their way into or out of memory (read, held, replayed, released), and their inputs meanwhile."""
        self._held: set[str] = set()
        """Those of them that have been read, and wait for their turn to be replayed."""
        self._limit, self.on_work = limit, on_work
        self._idle: OrderedDict[str, Resident] = OrderedDict()
        self._staying: set[str] = set()
        """Those that only wait, but stay in memory."""
        self._reserved = 0
        self._backlog = False
        self._requests: dict[str, list[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, instance: object) -> bool:
        return instance in self._all

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __getitem__(self, instance: str) -> Resident:
        return self._all[instance]

    def get(self, instance: str) -> Resident | None:
        return self._all.get(instance)

    def values(self) -> list[Resident]:
        return list(self._all.values())

    def __repr__(self) -> str:
        return f"<Residents {len(self._all)} of {self._limit} idle={len(self._idle)} loading={len(self.loading)}>"

    def knows(self, instance: str) -> bool:
        """Whether an instance is in memory, or being loaded."""
        return instance in self._all or instance in self.loading

    # --- coming and going -------------------------------------------------------------------------------------------
    def add(self, resident: Resident) -> None:
        self._all[resident.instance.id] = resident

    def rest(self, resident: Resident) -> None:
        """Mark an instance as idle: it only waits, so it can be evicted."""
        self._idle[resident.instance.id] = resident
        self._offer_room()

    def stay(self, resident: Resident) -> None:
        """Mark an instance that only waits, but is not evicted. It takes no room: what it waits for may need that."""
        self._staying.add(resident.instance.id)
        self._offer_room()

    def rouse(self, resident: Resident) -> None:
        """Mark an instance as not idle, so that it stays in memory."""
        self._idle.pop(resident.instance.id, None)
        if self._staying:
            self._staying.discard(resident.instance.id)

    def remove(self, resident: Resident) -> None:
        self._all.pop(resident.instance.id, None)
        self._idle.pop(resident.instance.id, None)
        if self._staying:
            self._staying.discard(resident.instance.id)
        self.acknowledge(resident.instance.id)
        self._offer_room()

    def _offer_room(self) -> None:
        if self._backlog and self.has_room:
            self._backlog = False
            self.on_work()

    def surplus(self) -> Resident | None:
        """Return an instance to evict, the longest idle first; None if there is room."""
        if len(self._all) > self._limit and self._idle:
            return self._idle.popitem(last=False)[1]
        return None

    def hold(self, instance: str, inputs: list[Input]) -> None:
        """Hold an instance that may have killed its worker. Requests to it are stored, but not waited for."""
        self.loading[instance] = inputs
        self._held.add(instance)
        self.acknowledge(instance)

    def is_held(self, instance: str) -> bool:
        """Whether an instance waits for its turn to be replayed. Its mail is read after that."""
        return instance in self._held

    def let_in(self, instance: str) -> None:
        """Stop holding an instance."""
        self.loading.pop(instance, None)
        self._held.discard(instance)
        self.on_work()

    def stop_loading(self) -> None:
        for instance in self.loading:
            self.acknowledge(instance)
        self.loading.clear()
        self._held.clear()

    @property
    def is_loading(self) -> bool:
        """Whether any instance is being read or replayed."""
        return len(self.loading) > len(self._held)

    # --- room -------------------------------------------------------------------------------------------------------
    @property
    def room(self) -> int:
        """How many more instances can be taken on. Idle ones don't count: they are evicted if needed."""
        waiting = len(self._idle) + len(self._staying)
        return max(0, self._limit - (len(self._all) - waiting + len(self.loading) + self._reserved))

    @property
    def has_room(self) -> bool:
        return self.room > 0

    def reserve(self) -> bool:
        """Reserve a place for an instance that is about to be created. `unreserve` gives it back."""
        if not self.has_room:
            return False
        self._reserved += 1
        return True

    def unreserve(self) -> None:
        self._reserved -= 1

    def want_room(self) -> None:
        """Ask for a call of `on_work` when there is room: more instances wait to be taken on."""
        self._backlog = True

    # --- requests ---------------------------------------------------------------------------------------------------
    async def seen_to(self, instance: str) -> None:
        """Wait until a request to an instance is fed and stored, or the instance is held or leaves memory."""
        if self.knows(instance) and instance not in self._held:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._requests.setdefault(instance, []).append(future)
            await future

    def acknowledge(self, instance: str) -> None:
        for future in self._requests.pop(instance, ()):
            if not future.done():
                future.set_result(None)
