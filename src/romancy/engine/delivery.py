"""Delivery: prepares incoming events for the database, and checks which waits their data fits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass

from romancy.core.clock import Clock
from romancy.core.codec import Codec
from romancy.core.history import pack_event
from romancy.core.model import Event, show
from romancy.core.operations import model_for
from romancy.core.registry import Registry
from romancy.core.throttle import Throttle, and_more
from romancy.engine.metrics import Metrics
from romancy.errors import NotStorable
from romancy.storage.batch import Accept, AcceptAnswer, Batch, BatchResult, Matched

_logger = logging.getLogger("romancy")


@dataclass(slots=True)
class Accepted:
    """An accepted event: how many instances were waiting for it, and for how many its data did not fit."""

    answer: AcceptAnswer
    delivered: int
    mismatched: int


class Delivery:
    """Prepares events for storage, and checks their data against the models this process knows."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        metrics: Metrics,
        tell: Callable[[Event, AcceptAnswer], None] | None = None,
    ) -> None:
        """`tell` is called with every event that was stored."""
        self._registry, self._clock, self._metrics, self._tell = registry, clock, metrics, tell
        self._differing = Throttle()

    def prepare(self, event: Event) -> Accept:
        """Set the time of an event, and list the workflows it does not start because its data does not fit."""
        now = self._clock.now()
        event = event.accepted(now)
        unfit: list[str] = []
        arrives_at = None
        for definition in self._registry.on_event(event.type):
            if definition.queue is not None and arrives_at is None:
                arrives_at = self._registry.arrivals.next(now)
            problem = _problem(definition.event_model, event)
            if problem is not None:
                _logger.warning("event %r does not start workflow %r: %s", event.id, definition.name, problem)
                unfit.append(definition.name)
        return Accept(event, pack_event(event), unfit, arrives_at=arrives_at)

    def judge(self, item: Accept, answer: AcceptAnswer) -> Accepted:
        """Count the instances whose waits matched, and those the data does not fit. Check each kind of wait once."""
        verdicts: dict[tuple[str, bytes], bool] = {}
        fit: set[str] = set()
        unfit: set[str] = set()
        for wait in answer.matched:
            if not wait.model:
                fit.add(wait.instance)
                continue
            kind = wait.model, wait.spec
            if kind not in verdicts:
                verdicts[kind] = _problem(_model_of(wait, item.event), item.event) is None
            (fit if verdicts[kind] else unfit).add(wait.instance)
        accepted = Accepted(answer, delivered=len(fit), mismatched=len(unfit - fit) + len(item.unfit))
        self._count(accepted)
        return accepted

    def stored(self, batch: Batch, answer: BatchResult) -> None:
        """Tell sinks about events, and warn about those that were dropped although they differ from the stored one."""
        if self._tell is None and not any(result.differs for result in (*answer.accepts, *answer.sent)):
            return
        applied = [commit for commit, done in zip(batch.commits, answer.commits, strict=True) if done]
        sent = [(commit.instance, item.event) for commit in applied for item in commit.sent]
        for result, (sender, event) in zip(answer.sent, sent, strict=True):
            self._report(result, event, f"instance {sender!r}")
        for result, item in zip(answer.accepts, batch.accepts, strict=True):
            self._report(result, item.event, "a client")

    def _report(self, answer: AcceptAnswer, event: Event, sender: str) -> None:
        if self._tell is not None:
            self._tell(event, answer)
        self._warn(answer, event, sender)

    def _warn(self, answer: AcceptAnswer, event: Event, sender: str) -> None:
        if not answer.differs or (left_out := self._differing.turn()) is None:
            return
        _logger.warning(
            "%s sent event %s from source %s again with different content, and it was dropped: source and id identify "
            "an event, so use a new id for a new event%s",
            sender,
            show(event.id),
            show(event.source),
            and_more(left_out),
        )

    def _count(self, accepted: Accepted) -> None:
        events, answer = self._metrics.events, accepted.answer
        if answer.duplicate:
            events["duplicate"] += 1
            events["differing"] += answer.differs
            return
        events["new"] += 1
        events["delivered"] += accepted.delivered
        events["mismatched"] += accepted.mismatched
        events["started"] += len(answer.started)
        if not (accepted.delivered or accepted.mismatched or answer.started):
            events["unmatched"] += 1


def _model_of(wait: Matched, event: Event) -> Codec | None:
    return model_for(wait.model, json.loads(wait.spec)["types"], event.type)


def _problem(model: Codec | None, event: Event) -> NotStorable | None:
    try:
        if model is not None:
            model.judge(event.data if event.data is not None else b"null")
    except NotStorable as error:
        return error
    return None
