"""The app: a service with its faces. Nothing else in the package but the command line and the test kit imports it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from romancy.api.workflow import Workflow
from romancy.errors import RomancyError
from romancy.options import SCOPES
from romancy.service import Service

if TYPE_CHECKING:
    from romancy.http.asgi import HttpApp

P = ParamSpec("P")
R = TypeVar("R")


class App(Service):
    """Your workflows on your database.

    >>> app = App("workflow.db", workflows=[payment])
    >>> async with app:
    ...     handle = await app.start_workflow(payment, "ORD-1")
    ...     print(await handle.result())

    `database` is a path, `":memory:"`, a URL, or `Database(url, ...)` with its settings; default: the environment's
    ROMANCY_DATABASE, else ./romancy.db. With `worker=False` it only starts, sends and reads; `romancy worker shop:app`
    works for it all the same, in a process of its own. `worker=WorkerOptions(...)` has the settings few need.
    `retention` is how long ended instances and events are kept; `Retention(...)` says it for each.

    It is an ASGI application too: `romancy serve shop:app`, or any ASGI server. `tokens` say who may use that
    (`"SECRET"`, `"events:SECRET"`; default: the environment's ROMANCY_TOKENS), `http` sets its limits.
    Without tokens it answers requests from this machine only. `public_url` is its address as people see it, where that
    is a proxy's.
    """

    _http_app: HttpApp | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The app as an ASGI application: events at `POST /`, control and health beside it."""
        if self._http_app is None:
            self._http_app = http_app(self)
        await self._http_app(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """For the app that mounts this one, because mounted apps are not started: `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield

    def run(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """For scripts: register, start, run to the end, stop. Blocks."""

        async def main() -> R:
            async with self:
                handle = await self.start_workflow(wf, *args, **kwargs)
                return await handle.result()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.register(wf)
            return asyncio.run(main())
        raise RomancyError("app.run() is for scripts; inside a running event loop use `async with app:`")


def http_app(service: Service, allows: Collection[str] = SCOPES) -> HttpApp:
    """The HTTP face of a service, with the viewer. `allows`: the scopes that are of any use here."""
    from romancy.http.asgi import HttpApp  # imported late: only needed to serve HTTP
    from romancy.viewer.routes import ROUTES

    return HttpApp(service, ROUTES, allows)
