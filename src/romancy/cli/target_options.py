"""`--database`, `--schema`, `--url`, `--token-file`: the target of a command."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from romancy.cli.database import (
    app_without_worker,
    check_exists,
    database_options,
    file_of,
    is_typed,
    on,
    refuse_memory,
    schema_of,
)
from romancy.cli.database_target import DatabaseTarget
from romancy.cli.errors import Refused
from romancy.cli.screen import note
from romancy.cli.target import Target
from romancy.core.actor import acting_as

T = TypeVar("T")


@dataclass(frozen=True)
class TargetOptions:
    """The chosen target: a server if `url` is set, else a database."""

    database: str
    schema: str | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    codec: Any = None
    """The codec of the user's app, if it is known."""

    def do(self, work: Callable[[Target], Awaitable[T]], *, create: bool = False) -> T:
        """Do work on the target. A database must exist, unless `create` is set."""
        if self.url is not None:
            return asyncio.run(self._on_server(self.url, work))
        (refuse_memory if create else check_exists)(self.database)
        file = file_of(self.database)
        is_new = file is not None and not file.exists()
        app = app_without_worker(self.database, self.schema, codec=self.codec)
        answer = on(app, lambda app: _by_name(work(DatabaseTarget(app))))
        if is_new:
            note(f"created the database {self.database!r}")
        return answer

    async def _on_server(self, url: str, work: Callable[[Target], Awaitable[T]]) -> T:
        from romancy.cli.server_target import ServerTarget  # imported lazily: httpx2 is slow to import
        from romancy.client import Client

        try:
            client = Client(url, token=self.token, retry_for=0)  # the user sees the error and can run the command again
        except ValueError as error:
            raise Refused(str(error)) from None
        async with client:
            return await work(ServerTarget(client))


async def _by_name(work: Awaitable[T]) -> T:
    """Do work in the name of the user of this machine, which is recorded with it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a list of users
        return await work
    with acting_as(f"{name} (CLI)"):
        return await work


def target_options(command: Callable[..., None], *, offers_server: bool = True) -> Callable[..., None]:
    """Add the options that choose a target; the command receives them as `options`.

    `offers_server=False` hides the server options from the help of a command that needs a database.
    """
    hidden = not offers_server

    @wraps(command)
    def with_options(
        *args: Any, database: str, schema: str | None, url: str | None, token_file: str | None, **kwargs: Any
    ) -> None:
        command(*args, options=_options(database, schema, url, token_file), **kwargs)

    token_option = click.option(
        "--token-file",
        metavar="FILE",
        hidden=hidden,
        help="File that contains the server's token, if it is not in $ROMANCY_TOKEN.",
    )
    url_option = click.option(
        "--url",
        envvar="ROMANCY_URL",
        metavar="URL",
        hidden=hidden,
        help="Server to use instead of a database.  [env: ROMANCY_URL]",
    )
    return database_options(url_option(token_option(with_options)))


def _options(database: str, schema: str | None, url: str | None, token_file: str | None) -> TargetOptions:
    """Command line options override the environment; in the environment, a server overrides a database."""
    ctx = click.get_current_context()
    if is_typed("database") and is_typed("url"):
        raise click.UsageError("give --url or --database, not both", ctx)
    if not url or is_typed("database"):
        if token_file is not None:
            raise click.UsageError("--token-file requires --url", ctx)
        return TargetOptions(database, schema_of(database, schema))
    if is_typed("schema"):
        raise click.UsageError("--schema requires --database; a server has its own schema", ctx)
    return TargetOptions(database, None, url, _read_token(token_file))


def _read_token(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise Refused(f"can't read the token from {file!r}: {why}") from None
    if not token:
        raise Refused(f"no token in {file!r}: the file is empty")
    return token
