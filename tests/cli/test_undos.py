"""What the commands say about an instance that is being undone, and about undos that failed for good."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from romancy import ActivityContext, RetryPolicy, WorkerOptions, WorkflowContext, activity, saga, workflow
from romancy.cli.group import main
from romancy.testing import environment


@activity
async def reserve(ctx: ActivityContext, room: str) -> str:
    return room.upper()


@reserve.compensate
async def release(ctx: ActivityContext, booking: str) -> None:
    if booking == "B":
        raise ConnectionError("closed")


@workflow
async def trip(ctx: WorkflowContext) -> None:
    for room in "abc":
        await reserve(ctx, room)
    raise ValueError("no luck")


@workflow
async def nested(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    async with saga(ctx):
        await reserve(ctx, "b")
        await reserve(ctx, "c")
        raise ValueError("no luck")


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "romancy.db")


def romancy(database: str, *words: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, [*words, "-d", database], input=typed)


def play(database: str, retry: RetryPolicy, code: Any = trip) -> None:
    async def run() -> None:
        options = WorkerOptions(grace=0.1, compensation_retry=retry)
        async with environment(database=database, worker=options, workflows=[leg]) as env:
            await env.start(code.options(instance_id="t"))

    asyncio.run(run())


def test_why_it_is_not_over_yet(database: str) -> None:
    play(database, RetryPolicy(max_attempts=None, initial=1000))
    text = romancy(database, "why", "t").stdout
    assert "compensating" in text
    assert "it ended, and is undoing reserve:2\n" in text
    assert "1 undone so far: reserve:3\n" in text
    assert "activity undo reserve:2:1: failed once (ConnectionError: closed)" in text
    shown = romancy(database, "show", "t").stdout
    assert "undo reserve:3:1" in shown
    assert re.search(r"^steps +1 undone so far: reserve:3$", shown, re.MULTILINE)
    assert "compensating" in romancy(database, "list", "--status", "compensating").stdout
    retried = romancy(database, "retry", "t")
    assert retried.exit_code == 1
    assert "'t' is undoing its steps; once it has ended, `romancy fork t` starts it again" in retried.output
    asked = romancy(database, "cancel", "t")
    assert asked.exit_code == 0, asked.output
    assert "instance 't': its undos are running; they are not interrupted, and it ends after them" in asked.output


def test_undos_that_failed(database: str) -> None:
    play(database, RetryPolicy(max_attempts=1))
    text = romancy(database, "why", "t").stdout
    assert "it is blocked: some of what it did could not be undone\n" in text
    assert "could not be undone: release (undo of reserve:2): ConnectionError: closed\n" in text
    assert "2 of 3 undone: reserve:3, reserve:1\n" in text
    assert "2 of 3 undone: reserve:3, reserve:1\n" in romancy(database, "show", "t").stdout
    assert "not undone: reserve:2\n" in text
    assert "`romancy resume t` tries the failed undos again" in text
    retried = romancy(database, "retry", "t").output
    assert "instance 't' is blocked: fix what makes its undos fail, then `romancy resume t`" in retried


def test_giving_them_up_needs_a_yes(database: str) -> None:
    play(database, RetryPolicy(max_attempts=1))
    refused = romancy(database, "cancel", "t", typed="n\n")
    assert refused.exit_code == 1
    assert "What it did will not be undone: reserve:2. Cancel it?" in refused.output
    assert "not cancelled" in refused.output
    assert romancy(database, "cancel", "t").exit_code == 1  # nobody is there to answer
    agreed = romancy(database, "cancel", "t", typed="y\n")
    assert agreed.exit_code == 0
    assert "instance 't' is cancelled" in agreed.output


def test_undos_outside_of_the_block_are_owed_too(database: str) -> None:
    play(database, RetryPolicy(max_attempts=1), nested)
    text = romancy(database, "why", "t").stdout
    assert "ConnectionError: closed; not tried yet: release (undo of reserve:1)\n" in text
    assert "1 of 3 undone: reserve:3\n" in text
    assert "not undone: reserve:2, reserve:1\n" in text
    assert "`romancy cancel t` gives up all that is not undone" in text
    assert re.search(r"^not undone +reserve:2, reserve:1$", romancy(database, "show", "t").stdout, re.MULTILINE)
    agreed = romancy(database, "cancel", "t", typed="y\n")
    assert "What it did will not be undone: reserve:2, reserve:1. Cancel it?" in agreed.output
    assert "not undone: reserve:2, reserve:1\n" in romancy(database, "why", "t").stdout
    shown = romancy(database, "show", "t").stdout
    assert re.search(r"^not undone +reserve:2, reserve:1$", shown, re.MULTILINE)
    assert "1 of 3 undone: reserve:3\n" in shown


def test_yes_can_be_said_beforehand(database: str) -> None:
    play(database, RetryPolicy(max_attempts=1))
    assert "instance 't' is cancelled" in romancy(database, "cancel", "t", "--yes").output


def test_a_worker_runs_it_and_does_not_only_hold_it(database: str) -> None:
    play(database, RetryPolicy(max_attempts=None, initial=1000))
    text = romancy(database, "why", "t").stdout
    assert "runs it" in text or "which ran it" in text
    assert "when its wait ends" not in text


@workflow
async def family(ctx: WorkflowContext) -> None:
    with contextlib.suppress(Exception):
        await leg(ctx)
    await leg(ctx)


@workflow
async def leg(ctx: WorkflowContext) -> None:
    await reserve(ctx, "a")
    raise ValueError("no luck")


def test_a_child_that_has_undone_its_steps_is_replaced_by_a_retry_of_its_parent(database: str) -> None:
    play(database, RetryPolicy(max_attempts=1), family)
    text = romancy(database, "why", "t/leg:2").stdout
    advice = "`romancy retry t` lets its parent go on, and starts another child in its place"
    assert f"it has undone its steps; {advice}\n" in text
    assert "fork" not in text
    for other in ("t", "t/leg:1"):  # the error of the first child was handled
        assert advice not in romancy(database, "why", other).stdout
