"""`--status`, `--workflow`, `--since`, ...: which instances a command is about."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, cast

import click

from romancy.core.attributes import read_pair
from romancy.core.clock import SystemClock
from romancy.core.model import Scalar, from_us
from romancy.errors import InvalidInput
from romancy.records import InstanceFilter
from romancy.searches import given
from romancy.storage.batch import STATUS_CODES

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)")
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - not generic before click 8.2
    """A time, or how long ago it was: `90s`, `15m`, `2h`, `7d`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            if ago := _AGO.fullmatch(value.strip()):
                return from_us(SystemClock().now()) - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
            return datetime.fromisoformat(value).astimezone()  # without a zone, it is in the local one
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is neither a time like 2026-01-31T12:00 nor how long ago, like 90s, 15m, 2h or 7d")


class AttributeValue(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - not generic before click 8.2
    """An attribute and its value: `customer=c-7`."""

    name = "attribute"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Scalar]:
        if isinstance(value, tuple):
            return cast("tuple[str, Scalar]", value)
        try:
            return read_pair(value)
        except InvalidInput as error:
            self.fail(str(error))


def _one(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the only value: click would drop all but the last one without a word."""
    if len(values) > 1:
        raise click.BadParameter(f"give one workflow, not {len(values)}: {', '.join(values)}")
    return next(iter(values), None)


def workflow_option(help: str) -> Callable[[Any], Any]:
    return click.option("--workflow", "-w", metavar="NAME", multiple=True, callback=_one, help=help)


_OPTIONS = (
    click.option(
        "--status",
        "-s",
        multiple=True,
        type=click.Choice(list(STATUS_CODES)),
        metavar="STATUS",
        help=f"Only instances with this status (repeatable): {', '.join(STATUS_CODES)}.",
    ),
    workflow_option("Only instances of this workflow (NAME@2: of this version)."),
    click.option(
        "--where",
        multiple=True,
        type=AttributeValue(),
        metavar="NAME=VALUE",
        help="Only instances with this attribute (repeatable). 7, true and null (no such attribute) mean that, "
        """'"7"' and everything else is a string.""",
    ),
    click.option("--text", "-t", help="Only instances with this text in their id, input or error."),
    click.option(
        "--error-type",
        metavar="TYPE",
        help="Only instances with an error of this type: ActivityError if an activity failed, WorkflowFailed if a "
        "child failed, otherwise what the workflow itself raised.",
    ),
    click.option("--parent", metavar="ID", help="Only instances that this instance has started."),
    click.option("--queue", metavar="NAME", help="Only instances of this queue."),
    click.option("--key", metavar="KEY", help="Only instances with this key in their queue."),
    click.option(
        "--since",
        "started_after",
        type=Moment(),
        metavar="TIME",
        help="Only instances started after this time. Also how long ago: 90s, 15m, 2h, 7d.",
    ),
    click.option(
        "--until",
        "started_before",
        type=Moment(),
        metavar="TIME",
        help="Only instances started before this time. Also how long ago.",
    ),
)


def filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that filter instances; the command receives those that were given as `which`."""

    @wraps(command)
    def with_filters(*args: Any, **kwargs: Any) -> None:
        which = {name: kwargs.pop(name) for name in InstanceFilter.__annotations__}
        which["where"] = dict(which["where"])
        command(*args, which=given(cast("InstanceFilter", which)), **kwargs)

    decorated: Callable[..., None] = with_filters
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
