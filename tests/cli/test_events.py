"""`romancy events`: the log, and which old events are kept for whom."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from romancy import WorkflowContext, sleep, wait_event, workflow
from romancy.cli.group import main
from romancy.testing import environment


@workflow(expects="approved")
async def sleeper(ctx: WorkflowContext) -> Any:
    await sleep(ctx, 3600)
    return (await wait_event(ctx, "approved")).data


def filled(folder: Path) -> str:
    async def fill() -> None:
        async with environment(database=path, workflows=[sleeper]) as env:
            await env.start(sleeper.options(instance_id="old-one"))
            await env.send_event("approved", "test", 1, id="a")
            await env.send_event("other", "test", 1, id="o")

    path = str(folder / "events.db")
    asyncio.run(fill())
    return path


def romancy(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), prog_name="romancy")


def test_the_log_is_listed(tmp_path: Path) -> None:
    path = filled(tmp_path)
    lines = romancy("events", "-d", path).stdout.splitlines()
    assert [line.split()[:2] for line in lines[-2:]] == [["other", "o"], ["approved", "a"]]
    found = json.loads(romancy("events", "-d", path, "--type", "approved", "--json").stdout)["items"]
    [item] = found
    assert (item["id"], item["data"], item["to"]) == ("a", 1, None), "as over HTTP"
    assert {type(item[name]) for name in ("accepted_at", "time")} <= {str, type(None)}
    assert all(set(taken) == {"instance_id", "wait_id"} for taken in item["received_by"])
    assert "--cursor" in romancy("events", "-d", path, "--limit", "1").stderr


def test_what_is_kept_names_the_instance_it_is_kept_for(tmp_path: Path) -> None:
    path = filled(tmp_path)
    *_, line = romancy("events", "-d", path, "--held", "--older", "0").stdout.splitlines()
    assert line.split()[:2] == ["approved", "1"]
    assert line.split()[-2:] == ["sleeper", "old-one"]
    [item] = json.loads(romancy("events", "-d", path, "--held", "--older", "0", "--json").stdout)["items"]
    assert (item["type"], item["count"], item["workflow"], item["instance_id"]) == ("approved", 1, "sleeper", "old-one")
    assert "no event of more than 7 days" in romancy("events", "-d", path, "--held").stderr


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    found = romancy("events", "-d", filled(tmp_path), "--held", "--type", "x")
    assert found.exit_code != 0
    assert "--held shows all types" in str(found.stderr) + str(found.exception)
