"""The app: a service with HTTP and the viewer. In the package, only the command line and the test kit import it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from romancy.api.workflow import Workflow
from romancy.errors import RomancyError
from romancy.service import Service
from romancy.tokens import SCOPES

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

    `database` is a path, `":memory:"`, a URL, or `Database(url, ...)` with its settings. The default is the environment
    variable ROMANCY_DATABASE, or else ./romancy.db. With `worker=False` the app only starts, sends and reads; run
    `romancy worker shop:app` in another process to do the work. `worker=WorkerOptions(...)` has rarely needed settings.
    `retention` is how long ended instances and events are kept; `Retention(...)` sets it for each.

    It is also an ASGI application: `romancy serve shop:app`, or any ASGI server. `tokens` grant access to it
    (`"SECRET"`, `"alice=events:SECRET"`, `Token(...)`; default: the environment variable ROMANCY_TOKENS). Without
    tokens it answers only requests from this machine. `http` sets its limits. `public_url` is its address as people see
    it, if it is behind a proxy. `webhooks` are addresses for deliveries of other systems, which become events.
    `signing_keys` sign the links with which people answer questions (default: the environment variable
    ROMANCY_SIGNING_KEYS).
    """

    _http_app: HttpApp | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve as an ASGI application: events at `POST /`, and the control and health endpoints."""
        if self._http_app is None:
            self._http_app = http_app(self)
        await self._http_app(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """For an app that mounts this one, because mounted apps are not started: `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield

    def run(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Register, start and run a workflow to its end, then stop. Blocks; for scripts."""

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
    """Return the HTTP application of a service, with the viewer. `allows`: the scopes that can be used here."""
    from romancy.http.asgi import HttpApp  # imported lazily: only needed to serve HTTP
    from romancy.viewer.routes import ROUTES

    return HttpApp(service, ROUTES, allows)
