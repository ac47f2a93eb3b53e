"""`romancy run` and `worker`, and modules that can't be used. Workers and Ctrl-C are real processes."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from romancy import App, WorkflowFailed

ROMANCY = [sys.executable, "-m", "romancy"]


def test_run_prints_the_result(romancy) -> None:
    result = romancy("run", "shop:hello", "Ada", "times=2", "--id", "h1")
    assert result.stdout == '{"greeting": "hello Ada hello Ada "}\n'
    assert result.stderr == "instance h1 on romancy.db\n"
    again = romancy("run", "shop:hello", "Ada", "2", "--id", "h1")
    assert again.stdout == result.stdout
    assert "already exists" in again.stderr


def test_run_takes_negative_numbers_and_prints_text_as_it_is(romancy) -> None:
    assert romancy("run", "shop:hello", "Ada", "-1").stdout == '{"greeting": ""}\n'
    assert romancy("run", "shop.py:shout", "hi", "-d", "other.db").stdout == "HI!\nreally\n"
    assert Path("other.db").exists()


def test_run_a_workflow_that_fails(romancy) -> None:
    result = romancy("run", "shop:fails", "--id", "f", code=1)
    assert result.stdout == ""
    last = "romancy: instance 'f' failed: RuntimeError: no way; `romancy show f` shows the traceback\n"
    assert result.stderr.endswith(last)


def test_arguments_that_do_not_fit(refused) -> None:
    assert "missing a required argument: 'name'" in refused("run", "shop:hello")
    assert "'x' can't be read as the argument 'times'" in refused("run", "shop:hello", "Ada", "x")
    assert "--idd" in refused("run", "shop:hello", "Ada", "--idd", "x")
    assert not Path("romancy.db").exists()


def test_modules_that_can_not_be_used(refused, folder: Path) -> None:
    (folder / "broken.py").write_text("x = 1\nprint(undefined)\n")
    (folder / "wrong.py").write_text("def f(:\n")
    (folder / "needs.py").write_text("import missing_one\n")
    (folder / "quits.py").write_text("import sys\nsys.exit(3)\n")
    assert "can't find module 'unheard'; check the name" in refused("run", "unheard:x")
    assert "can't find module 'shop.unheard'" in refused("run", "shop.unheard:x")
    assert "can't find module '../x'" in refused("run", "../x:y")
    assert "no such file: 'unheard.py'" in refused("run", "unheard.py:x")
    text = refused("run", "broken:x", code=1)
    assert "can't import module 'broken': NameError: name 'undefined' is not defined" in text
    assert "broken.py:2)" in text
    assert "wrong.py:1)" in refused("run", "wrong:x", code=1)
    assert "No module named 'missing_one'" in refused("run", "needs:x", code=1)
    assert "SystemExit: 3" in refused("run", "quits:x", code=1)
    assert "'shop' has no workflow 'unheard'; available: shop:delivers, " in refused("run", "shop:unheard")
    assert "'shop' has no workflow 'charge'" in refused("run", "shop:charge")
    assert "choose a workflow of 'shop'" in refused("run", "shop")
    assert "use `romancy send order.placed" in refused("run", "shop:placed", "1")
    assert "no workflow in json" in refused("worker", "json", code=1)
    assert "'shop' has no App named 'nope'; available: none" in refused("worker", "shop:nope")


def test_a_modules_app_gives_its_settings_and_database(romancy, refused, folder: Path) -> None:
    (folder / "tiny.py").write_text(
        "from romancy import *\n"
        "@activity\nasync def ask(ctx: ActivityContext) -> str:\n    return ctx.state\n"
        "@workflow\nasync def wf(ctx: WorkflowContext) -> str:\n    return await ask(ctx)\n"
        "app = App('own.db', state='mine')\n"
        "idle = None\n"
    )
    assert romancy("run", "tiny:wf").stdout == "mine\n"
    assert (folder / "own.db").exists()
    romancy("run", "tiny:wf", "-d", "given.db")
    assert (folder / "given.db").exists()
    (folder / "lazy.py").write_text(
        "from tiny import wf\nfrom romancy import App\napp = App(state='lazy', worker=False)\n"
    )
    assert romancy("run", "lazy:wf", "-d", "lazy.db").stdout == "lazy\n", "it works all the same"
    (folder / "two.py").write_text("from tiny import app, wf\n")
    (folder / "three.py").write_text("from lazy import app as other\n")
    assert "several Apps" in refused("worker", "two", "three", code=1)


def test_two_workflows_of_one_name(refused, folder: Path) -> None:
    (folder / "twin.py").write_text(
        "import shop\nfrom romancy import *\n"
        "@workflow\nasync def hello(ctx: WorkflowContext) -> None: ...\n"
        "other = shop.hello\n"
    )
    assert "two different workflows are named 'hello'" in refused("worker", "twin", code=1)


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    env = {k: v for k, v in os.environ.items() if k != "ROMANCY_DATABASE"}
    pipe = subprocess.PIPE
    with subprocess.Popen([*ROMANCY, *words], stdout=pipe, stderr=pipe, text=True, env=env) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                running.kill()


async def _result(id: str) -> Any:
    async with App("romancy.db", worker=False) as app:
        return await app.handle(id).result(timeout=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_works_until_it_is_told_to_stop(romancy, folder: Path, number: signal.Signals) -> None:
    with process("worker", "shop") as worker:
        assert worker.stderr is not None
        assert "romancy works on romancy.db with delivers, fails, hello" in worker.stderr.readline()
        romancy("start", "hello", "Ada", "--id", "h1")
        assert asyncio.run(_result("h1")) == {"greeting": "hello Ada "}
        romancy("start", "fails", "--id", "f1")
        with pytest.raises(WorkflowFailed):
            asyncio.run(_result("f1"))
        worker.send_signal(number)
        assert worker.wait(30) == 0
        log = worker.stderr.read()
        assert "Traceback" not in log
        assert " WARNING romancy: [fails f1] workflow fails failed" in log
        assert " INFO romancy: stopping: " in log


def test_an_api_without_a_worker_and_a_worker_beside_it(folder: Path) -> None:
    """Both use one module, whose App says worker=False; the worker works all the same."""
    (folder / "split.py").write_text(
        "from romancy import *\n"
        "@workflow\nasync def wf(ctx: WorkflowContext, n: int) -> int:\n    return 2 * n\n"
        "app = App('romancy.db', workflows=[wf], worker=False)\n"
    )

    async def start() -> None:
        async with importlib.import_module("split").app as app:
            assert not app._runtime.engine.is_worker
            await app.start_workflow("wf", 4, instance_id="w1")

    asyncio.run(start())
    with process("worker", "split:app") as worker:
        assert worker.stderr is not None
        assert "romancy works on romancy.db with wf" in worker.stderr.readline()
        assert asyncio.run(_result("w1")) == 8


@pytest.mark.parametrize(("own", "young"), [("", 50_000), ("gc.set_threshold(90_000)", 90_000), ("gc.disable()", 0)])
def test_a_worker_collects_garbage_less_often_unless_its_code_chose_otherwise(
    folder: Path, own: str, young: int
) -> None:
    (folder / "litter.py").write_text(
        f"import gc\nfrom romancy import *\n{own}\n"
        "@workflow\nasync def wf(ctx: WorkflowContext) -> list[int]:\n"
        "    return [gc.get_threshold()[0] if gc.isenabled() else 0, gc.get_freeze_count()]\n"
    )

    async def start() -> None:
        async with App("romancy.db", worker=False) as app:
            await app.start_workflow("wf", instance_id="w1")

    with process("worker", "litter") as worker:
        assert worker.stderr is not None
        assert "romancy works" in worker.stderr.readline()
        asyncio.run(start())
        threshold, frozen = asyncio.run(_result("w1"))
    assert threshold == young
    assert frozen > 1_000


def test_an_interrupted_run_can_be_taken_up_again(romancy, folder: Path) -> None:
    with process("run", "shop:pay", "ORD-1", "--id", "p1") as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "instance p1 on romancy.db\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
        text = running.stderr.read()
        assert text == "romancy: interrupted; continue with `romancy run shop:pay ... --id p1` or a worker\n"
    romancy("send", "payment.completed", '{"order": {"id": "ORD-1"}, "amount": 2.5}')
    assert romancy("run", "shop:pay", "ORD-1", "--id", "p1").stdout == "paid 2.5\n"


@pytest.mark.usefixtures("database")
def test_a_real_process_ends_with_one_line(folder: Path) -> None:
    shown = subprocess.run([*ROMANCY, "show", "nope"], capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert shown.stdout == ""
    assert shown.stderr == "romancy: no instance with id 'nope'; `romancy list` shows all instances\n"


@pytest.mark.usefixtures("database")
def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nowhere:
        listed = subprocess.run([*ROMANCY, "list"], stdout=nowhere, stderr=subprocess.PIPE, text=True, check=False)
    assert listed.returncode == 1
    assert listed.stderr == ""
