"""Convert command-line words to workflow arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import click

from romancy.api.workflow import Workflow, definition_of
from romancy.cli.errors import Refused

_NEGATIVE = re.compile(r"-\.?\d")
_MARK = "\0"  # a command-line word can't contain it


class TakesWords(click.Command):
    """A command whose arguments can be negative numbers: `-5` is not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, [f"{_MARK}{word}" if _NEGATIVE.match(word) else word for word in args])
        ctx.params = {name: _unmarked(value) for name, value in ctx.params.items()}
        return rest


class SignedNumber(click.IntRange):
    """A whole number as an option of such a command."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(_unmarked(value), param, ctx)


def _unmarked(value: Any) -> Any:
    if isinstance(value, str):
        return value.removeprefix(_MARK)
    return tuple(map(_unmarked, value)) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def by_annotation(wf: Workflow[..., Any], words: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Convert words according to the annotations of the workflow."""
    definition = definition_of(wf)
    if definition.on_event:
        types = " or ".join(definition.on_event)
        raise Refused(f"workflow {wf.name!r} is started by events; use `romancy send {types} '{{...}}'`")
    signature = definition.signature
    return signature.decode(signature.encode(signature.read_arguments(words)))


def as_json(words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Convert words for a workflow whose code is not available: valid JSON as JSON, others as text."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if equals and name.isidentifier():
            kwargs[name] = _json_or_text(text)
        else:
            args.append(_json_or_text(word))
    return args, kwargs


def _json_or_text(word: str) -> Any:
    try:
        return json.loads(word, parse_constant=_refuse)
    except ValueError:
        return word


def _refuse(name: str) -> Any:
    raise ValueError(name)
