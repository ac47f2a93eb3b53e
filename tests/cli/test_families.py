"""What the commands say about parents, children and runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from romancy import ActivityContext, App, WorkflowContext, activity, start_workflow, wait_event, workflow
from romancy.cli.group import main
from romancy.testing import Environment, environment

CODE = {"amount": 1.0}


@activity
async def charge(ctx: ActivityContext, amount: float) -> float:
    return amount


@workflow
async def kid(ctx: WorkflowContext, n: int) -> int:
    if n < 0:
        raise ValueError("no such kid")
    await charge(ctx, CODE["amount"])
    await wait_event(ctx, "go")
    return n


@workflow
async def parent(ctx: WorkflowContext, *ns: int) -> list[Any]:
    return await asyncio.gather(*(kid(ctx, n) for n in ns), return_exceptions=True)


@workflow
async def starter(ctx: WorkflowContext, n: int) -> None:
    for each in range(n):
        await start_workflow(ctx, kid, each)
    await wait_event(ctx, "go")


@workflow
async def runner(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "on")
    runner.continue_as_new(ctx)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "romancy.db")


def romancy(database: str, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "-d", database], catch_exceptions=False)


def answered(database: str, *words: str) -> Any:
    return json.loads(romancy(database, *words, "--json").stdout)


def play(database: str, story: Any) -> None:
    async def run() -> None:
        async with environment(database=database, workflows=[kid, parent, starter, runner]) as env:
            await story(env)

    asyncio.run(run())


async def family(env: Environment) -> None:
    await env.start(parent.options(instance_id="p"), 1, -1)


def test_show_has_the_parent_and_the_children_by_status(database: str) -> None:
    play(database, family)
    text = romancy(database, "show", "p").stdout
    assert "waiting_for_child" in text
    assert "children: 1 waiting_for_event, 1 failed\n" in text
    assert "p/kid:2" in text
    assert "ValueError: no such kid" in text
    assert "parent" in romancy(database, "show", "p/kid:1").stdout.split("history")[0]
    assert "children" not in romancy(database, "show", "p/kid:1").stdout
    shown = answered(database, "show", "p")
    assert shown["children"]["counts"] == {"waiting_for_event": 1, "failed": 1}
    assert [child["instance_id"] for child in shown["children"]["items"]] == ["p/kid:2", "p/kid:1"]
    assert [(wait["kind"], wait["wait_id"], wait["child"]) for wait in shown["waits"]] == [
        ("child", "kid:1", "p/kid:1")
    ]
    assert answered(database, "show", "p/kid:1")["parent"] == "p"


def test_show_lists_the_newest_of_many_children(database: str) -> None:
    async def story(env: Environment) -> None:
        await env.start(starter.options(instance_id="s"), 23)

    play(database, story)
    found = romancy(database, "show", "s")
    assert "children: 23 waiting_for_event\n" in found.stdout
    assert "`romancy list --parent s` lists all" in found.stderr
    children = answered(database, "show", "s")["children"]
    assert (len(children["items"]), children["counts"]) == (20, {"waiting_for_event": 23})


def test_show_says_which_run_it_is(database: str) -> None:
    async def story(env: Environment) -> None:
        await env.start(runner.options(instance_id="r"))
        await env.send_event("on", "test")
        await env.send_event("on", "test")

    play(database, story)
    text = romancy(database, "show", "r").stdout
    assert "3, began " in text
    assert "history of run 3\n" in text
    assert answered(database, "show", "r")["run_number"] == 3
    assert "began" not in romancy(database, "list").stdout


def test_why_names_the_children_and_their_state(database: str) -> None:
    play(database, family)
    text = romancy(database, "why", "p").stdout
    assert "it waits for child p/kid:1, which is waiting_for_event\n" in text
    assert "kid:2" not in text
    [wait] = answered(database, "why", "p")["waits"]
    assert (wait["kind"], wait["wait_id"], wait["child"]) == ("child", "kid:1", "p/kid:1")


def test_why_of_arguments_that_do_not_fit_gives_one_advice(database: str) -> None:
    async def story(env: Environment) -> None:
        async with App(database, worker=False) as app:
            await app.start_workflow("kid", {"n": 1}, "more", instance_id="k")
        env.app._runtime.engine.kick()
        while (await env.app.get_instance("k")).status != "failed":
            await env.settle()

    play(database, story)
    text = romancy(database, "why", "k").stdout
    assert (
        "start another with arguments that fit; if its code is to take these, change it; then `romancy retry k`" in text
    )
    assert "fix the cause" not in text


def test_why_and_show_say_which_children_go_on_by_themselves(database: str) -> None:
    async def story(env: Environment) -> None:
        await env.start(starter.options(instance_id="s"), 1)
        await env.settle()

    play(database, story)
    text = romancy(database, "why", "s").stdout
    assert "child s/kid:1 goes on by itself, and is waiting_for_event\n" in text
    assert "it waits for child" not in text
    assert [wait["is_free"] for wait in answered(database, "show", "s")["waits"]] == [False, True]
    assert "s/kid:1, which goes on by itself" in romancy(database, "show", "s").stdout


def test_why_says_why_a_child_is_blocked(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(env: Environment) -> None:
        await family(env)
        monkeypatch.setitem(CODE, "amount", 2.0)
        await env.restart()
        await env.send_event("go", "test")

    play(database, story)
    text = romancy(database, "why", "p").stdout
    assert "it waits for child p/kid:1, which is blocked: " in text
    assert "`romancy why p/kid:1` shows more\n" in text
    assert "charge" in text.split("which is blocked: ")[1]


def test_why_of_a_parent_that_has_ended_names_no_children(database: str) -> None:
    async def story(env: Environment) -> None:
        await env.start(starter.options(instance_id="s"), 1)
        await env.send_event("go", "test", to="s")

    play(database, story)
    assert answered(database, "why", "s")["waits"] == []
    assert answered(database, "show", "s")["children"]["counts"] == {"waiting_for_event": 1}


def test_top_counts_parents_that_wait_if_there_are_any(database: str) -> None:
    async def story(env: Environment) -> None:
        await env.start(runner.options(instance_id="r"))

    play(database, story)
    assert "waiting for child" not in romancy(database, "top", "--once").stdout
    assert answered(database, "top")["counts"]["waiting_for_child"] == 0
    play(database, family)
    assert "1 waiting for child" in romancy(database, "top", "--once").stdout
    assert answered(database, "top")["counts"]["waiting_for_child"] == 1


def test_the_result_of_a_child_is_shown(database: str) -> None:
    async def story(env: Environment) -> None:
        await env.start(parent.options(instance_id="p"), 7)
        await env.send_event("go", "test", {})

    play(database, story)
    [line] = [line for line in romancy(database, "show", "p").stdout.splitlines() if "child_completed" in line]
    assert line.rstrip().endswith("-> 7")
