"""`--database`, `--schema`, `--url`, `--token-file`: what a command works on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from romancy.cli.database import (
    app_to_look,
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

T = TypeVar("T")


@dataclass(frozen=True)
class TargetOptions:
    """A database or, if there is a URL, a server."""

    database: str
    schema: str | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)

    def do(self, work: Callable[[Target], Awaitable[T]], *, make: bool = False) -> T:
        """Do something there. A database must be there already, unless it may be made."""
        if self.url is not None:
            return asyncio.run(self._on_server(self.url, work))
        (refuse_memory if make else check_exists)(self.database)
        file = file_of(self.database)
        is_new = file is not None and not file.exists()
        answer = on(app_to_look(self.database, self.schema), lambda app: work(DatabaseTarget(app)))
        if is_new:
            note(f"made the database {self.database!r}")
        return answer

    async def _on_server(self, url: str, work: Callable[[Target], Awaitable[T]]) -> T:
        from romancy.cli.server_target import ServerTarget  # only here: httpx takes its time to import
        from romancy.client import Client

        try:
            client = Client(url, token=self.token, retry_for=0)  # who sits there can try again, and is told why
        except ValueError as error:
            raise Refused(str(error)) from None
        async with client:
            return await work(ServerTarget(client))


def target_options(command: Callable[..., None], *, offers_server: bool = True) -> Callable[..., None]:
    """The options that say where; the command gets them as `options`.

    `offers_server=False`: for a command that tells why it can't ask a server; its help does not mention them.
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
        help="Where the server's token is written; else $ROMANCY_TOKEN.",
    )
    url_option = click.option(
        "--url",
        envvar="ROMANCY_URL",
        metavar="URL",
        hidden=hidden,
        help="A server instead of a database; else $ROMANCY_URL.",
    )
    return database_options(url_option(token_option(with_options)))


def _options(database: str, schema: str | None, url: str | None, token_file: str | None) -> TargetOptions:
    """What is typed counts more than the environment, and there a server more than a database."""
    ctx = click.get_current_context()
    if is_typed("database") and is_typed("url"):
        raise click.UsageError("Give --url or --database, not both", ctx)
    if not url or is_typed("database"):
        if token_file is not None:
            raise click.UsageError("--token-file goes with --url", ctx)
        return TargetOptions(database, schema_of(database, schema))
    if is_typed("schema"):
        raise click.UsageError("--schema goes with --database; a server has its own", ctx)
    return TargetOptions(database, None, url, _read_token(token_file))


def _read_token(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Refused(f"the token can't be read from {file!r}: {why}") from None
    if not token:
        raise Refused(f"there is no token in {file!r}; it is empty")
    return token
