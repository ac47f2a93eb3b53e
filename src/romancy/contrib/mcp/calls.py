"""Calls: each starts a workflow, and waits for its end for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams

from romancy.contrib.mcp.offers import Offer, read_arguments
from romancy.contrib.mcp.people import Question, open_questions
from romancy.contrib.mcp.results import INSTANCE_ID
from romancy.core.actor import acting_as
from romancy.core.ids import new_id
from romancy.core.model import STOPPED
from romancy.core.versions import bare_name
from romancy.engine.around import incoming, trace_in
from romancy.errors import InstanceExists, InstanceNotFound, InvalidInput
from romancy.http.backpressure import Backpressure
from romancy.http.responses import HTTPError
from romancy.records import Instance
from romancy.service import Service, runtime_of

CALLER = "romancy.mcp.caller"
"""The key of the token's name in the scope of an HTTP request."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: the name of a token, or of the user at this machine."""

    name: str | None = None
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    """The trace that the HTTP request belongs to."""

    @property
    def recorded(self) -> str:
        """The name to record with what is done."""
        return self.name or "mcp"


class Calls:
    """The workflows of an app that are offered, and their instances."""

    def __init__(self, app: Service, offers: Mapping[str, Offer], local: Caller | None = None) -> None:
        self.app, self.offers, self.runtime = app, offers, runtime_of(app)
        self._local = local or Caller()
        self._backpressure = Backpressure(self.runtime.http)
        self._workflows = frozenset(bare_name(offer.workflow.name) for offer in offers.values())

    def __repr__(self) -> str:
        return f"<Calls {', '.join(self.offers)}>"

    def caller(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        """Return who sent a request: over HTTP, the name of the token."""
        if ctx.request is None:
            return self._local
        return Caller(ctx.request.scope.get(CALLER), trace_in(ctx.request.headers))

    async def call(self, params: CallToolRequestParams, caller: Caller) -> Instance:
        """Do what a call of a workflow's tool asks for. The client can choose the instance id, in `_meta`."""
        offer = self.offers.get(params.name)
        if offer is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:200]!r}")
        meta: Mapping[str, Any] = params.meta or {}
        trace = incoming.set(trace_in(meta) or caller.trace)
        try:
            return await self.start(offer, params.arguments or {}, meta.get(INSTANCE_ID), caller)
        finally:
            incoming.reset(trace)

    async def start(self, offer: Offer, given: Mapping[str, Any], id: Any, caller: Caller) -> Instance:
        """Start a workflow, wait for its end up to `answer_within`, and return its instance."""
        if id is not None and not isinstance(id, str):
            raise InvalidInput("the instance id must be a string")
        args, kwargs = read_arguments(offer, given)
        id = new_id(self.runtime.clock.now()) if id is None else id
        unknown = f"; it is unknown whether the workflow was started: try again with the instance id {id!r}"
        with acting_as(caller.recorded):
            starting = self.app.start_workflow(offer.workflow.options(instance_id=id), *args, **kwargs)
            try:
                await self._backpressure.store(starting, len(repr(given)), unknown)
            except PermissionError as refusal:  # of middleware
                raise HTTPError(403, str(refusal) or "this start was refused", kind="Forbidden") from refusal
            except InstanceExists as taken:  # says nothing about the other instance, which may be of any workflow
                raise InvalidInput(f"the instance id {id!r} is taken; leave it out, or choose another one") from taken
        return await self.wait(id, offer.answer_within)

    async def wait(self, id: str, seconds: float) -> Instance:
        """Wait for an instance to end, up to so many seconds, and return it."""
        instance = await self.find(id)
        if seconds > 0 and instance.status not in STOPPED:
            with suppress(TimeoutError):
                await self.runtime.engine.ending(id, seconds)
            instance = await self.find(id)
        return instance

    async def find(self, id: str) -> Instance:
        """Return an instance of a workflow that is offered. Others are not found, whether they exist or not."""
        instance = await self.app.get_instance(id)
        if instance.workflow not in self._workflows:
            raise InstanceNotFound(instance_id=id)
        return instance

    async def questions(self, instance: Instance, caller: Caller) -> Sequence[Question]:
        return await open_questions(self.runtime, instance, caller.name)

    async def cancel(self, id: str, caller: Caller, reason: str | None = None) -> bool:
        """Cancel an instance. False if it had ended."""
        await self.find(id)
        with acting_as(caller.recorded):
            unknown = "; it is unknown whether the instance was cancelled: try again"
            return await self._backpressure.store(self.app.cancel_workflow(id, reason=reason), 0, unknown)
