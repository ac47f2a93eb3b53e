"""`romancy tail`: follow what an instance emits."""

from __future__ import annotations

import json
from typing import Any

import click

from romancy.cli.screen import json_option, note
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.core.visible import printable, visible
from romancy.emission_records import Emission


@click.command()
@click.argument("id")
@click.argument("topic", required=False)
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin after the emission with this number.")
@target_options
@json_option
def tail(id: str, topic: str | None, after: int, options: TargetOptions, as_json: bool) -> None:
    """Follow what an instance emits, on one topic or on all, until it ends.

    Text is printed as it comes, other values as a line of JSON each. With --json, each emission is a line of JSON.
    """

    async def work(target: Target) -> None:
        printer = _Printer(with_topics=topic is None)
        async for emission in target.verbs.handle(id).emitted(topic, after=after):
            click.echo(_as_json(emission)) if as_json else printer.show(emission)
        if not as_json:
            printer.end_line()
            instance = await target.verbs.get_instance(id)
            note(f"the instance has ended: {instance.status}")

    options.do(work)


class _Printer:
    """Prints text without breaks, as tokens of a model come, and everything else in lines."""

    def __init__(self, *, with_topics: bool) -> None:
        self._with_topics = with_topics
        self._is_in_line = False

    def show(self, emission: Emission[Any]) -> None:
        if emission.kind == "restart":
            self._line(emission, f"--- {emission.activity_id} begins again ---")
        elif isinstance(emission.value, str) and not self._with_topics:
            text = visible(emission.value)
            click.echo(text, nl=False)
            self._is_in_line = not text.endswith("\n")
        else:
            self._line(emission, json.dumps(emission.value))

    def _line(self, emission: Emission[Any], text: str) -> None:
        self.end_line()
        click.echo(f"{printable(emission.topic)}: {text}" if self._with_topics else text)

    def end_line(self) -> None:
        if self._is_in_line:
            click.echo()
        self._is_in_line = False


def _as_json(emission: Emission[Any]) -> str:
    return json.dumps({**vars(emission), "at": emission.at.isoformat()})
