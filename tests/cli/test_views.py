"""What the commands say about views and attributes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from romancy import WorkflowContext, wait_event, workflow
from romancy.cli.group import main
from romancy.testing import environment


@workflow(attributes={"customer": "customer", "n": "n"})
async def showing(ctx: WorkflowContext, customer: str, n: int = 7) -> None:
    ctx.set_view({"done": 1, "total": n})
    await wait_event(ctx, "go")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(Path(tmp_path_factory.mktemp("views")) / "romancy.db")

    async def run() -> None:
        async with environment(database=path) as env:
            await env.start(showing.options(instance_id="a"), "c-7")
            await env.start(showing.options(instance_id="b"), "7", 8)
            await env.start(showing.options(instance_id="c"), "a\x1b b", 8)

    asyncio.run(run())
    return path


def romancy(database: str, *words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [*words, "-d", database])
    assert result.exit_code == code, result.output
    return result


def test_show_has_both(database: str) -> None:
    lines = [" ".join(line.split()) for line in romancy(database, "show", "a").stdout.splitlines()]
    assert "attributes customer=c-7 n=7" in lines
    assert 'view {"done": 1, "total": 7}' in lines
    found = json.loads(romancy(database, "show", "b", "--json").stdout)
    assert (found["attributes"], found["view"]) == ({"customer": "7", "n": 8}, {"done": 1, "total": 8})
    assert 'customer="7" n=8' in romancy(database, "show", "b").stdout
    assert "\x1b" not in romancy(database, "show", "c").stdout


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (["customer=c-7"], ["a"]),
        (["customer=7"], []),
        (['customer="7"'], ["b"]),
        (["n=8", 'customer="7"'], ["b"]),
        (["n=8"], ["c", "b"]),
        (["n=8", "none=null"], ["c", "b"]),
        (["n=null"], []),
    ],
)
def test_list_filters(database: str, where: list[str], ids: list[str]) -> None:
    words: list[Any] = [word for pair in where for word in ("--where", pair)]
    found = json.loads(romancy(database, "list", *words, "--json").stdout)
    assert [item["instance_id"] for item in found["items"]] == ids


@pytest.mark.parametrize("pair", ["customer", "=x", "a b=x", f"a={'x' * 256}"])
def test_a_wrong_filter_is_refused(database: str, pair: str) -> None:
    assert "attribute" in romancy(database, "list", "--where", pair, code=2).stderr


def test_many_are_cancelled_by_attribute(database: str) -> None:
    assert romancy(database, "cancel", "--where", 'customer="7"', "--yes").stdout.endswith("cancel them\n")
    assert "no instance to cancel" in romancy(database, "cancel", "--where", "customer=x", "--yes", code=1).stderr
