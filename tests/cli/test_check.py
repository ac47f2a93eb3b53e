"""`romancy check`: what it finds in workflow code, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import tomllib
from io import StringIO
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from romancy import __version__
from romancy.cli.check import Problem, check, find_problems, show_table
from romancy.cli.checker.rules import KINDS
from romancy.cli.group import main

HEADER = """\
from romancy import App, WorkflowContext, ActivityContext, activity, workflow
from romancy import wait_event, sleep, send_event, start_workflow
import asyncio

@activity
async def charge(ctx: ActivityContext, amount: int) -> str: ...
"""


def inside(imports: str, body: str) -> list[Problem]:
    """The problems of a workflow with this body, below these imports."""
    body = textwrap.indent(textwrap.dedent(body), "    ")
    source = (
        f"{HEADER}{textwrap.dedent(imports)}\n@workflow\nasync def pay(ctx: WorkflowContext, order: str):\n{body}\n"
    )
    return find_problems(source, "shop.py")


@pytest.mark.parametrize(
    ("imports", "body", "code", "instead"),
    [
        ("import time", "time.time()", "clock", "ctx.now()"),
        ("import time", "x = [time.monotonic() for _ in order]", "clock", "ctx.now()"),
        ("from time import time as t", "t()", "clock", "ctx.now()"),
        ("from time import *\nimport time", "time.perf_counter_ns()", "clock", "ctx.now()"),
        ("import time", "time.sleep(1)", "sleep", "await sleep(ctx, ...)"),
        ("from datetime import datetime", "datetime.now()", "clock", "ctx.now()"),
        ("import datetime as dt", "x = {'at': dt.datetime.now(dt.UTC)}", "clock", "ctx.now()"),
        ("import datetime", "datetime.datetime.utcnow().isoformat()", "clock", "ctx.now()"),
        ("from datetime import date", "if date.today().day == 1: pass", "clock", "ctx.now()"),
        ("from datetime import datetime\nnow = datetime.now", "now()", "clock", "ctx.now()"),
        ("from datetime import datetime", "now = datetime.now\nnow()", "clock", "ctx.now()"),
        ("import time", "time.gmtime()", "clock", "ctx.now()"),
        ("", "import time\ntime.time()", "clock", "ctx.now()"),
        ("import random", "random.choice(order)", "random", "ctx.random"),
        ("import random as r", "r.Random().random()", "random", "ctx.random"),
        ("from random import randint", "randint(1, 6)", "random", "ctx.random"),
        ("import random\nrng = random.Random(42)", "rng.random()", "random", "ctx.random"),
        ("import numpy as np", "np.random.rand()", "random", "ctx.random"),
        ("import secrets", "secrets.token_hex()", "random", "ctx.random"),
        ("import os", "os.urandom(8)", "random", "ctx.random"),
        ("from uuid import uuid4", "f'{uuid4()}'", "random", "ctx.uuid4()"),
        ("import uuid", "str(uuid.uuid1())", "random", "ctx.uuid4()"),
        ("", "with open('x') as f: pass", "io", "an activity"),
        ("from pathlib import Path", "Path('x').read_text()", "io", "an activity"),
        ("from pathlib import Path", "p = Path('x')\np.write_text('y')", "io", "an activity"),
        ("import requests", "requests.get('http://x').json()", "io", "an activity"),
        ("import httpx", "async with httpx.AsyncClient() as c:\n    await c.get('http://x')", "io", "an activity"),
        ("import httpx\nclient = httpx.Client()", "client.get('http://x')", "io", "an activity"),
        ("import httpx2", "async with httpx2.AsyncClient() as c:\n    await c.get('http://x')", "io", "an activity"),
        ("import aiohttp", "aiohttp.ClientSession()", "io", "an activity"),
        ("import urllib.request", "urllib.request.urlopen('http://x')", "io", "an activity"),
        ("from urllib import request", "request.urlopen('http://x')", "io", "an activity"),
        ("import socket", "socket.create_connection(('x', 1))", "io", "an activity"),
        ("import subprocess", "subprocess.run(['ls'])", "io", "an activity"),
        ("import sqlite3", "sqlite3.connect('x')", "io", "an activity"),
        ("import os", "os.listdir('.')", "io", "an activity"),
        ("", "await asyncio.open_connection('x', 1)", "io", "an activity"),
        ("import os", "x = os.environ['HOME']", "environment", "an activity"),
        ("import os", "x = os.environ.get('HOME')", "environment", "an activity"),
        ("from os import environ as e", "x = e['HOME']", "environment", "an activity"),
        ("import os", "os.getenv('HOME')", "environment", "an activity"),
        ("", "await asyncio.to_thread(len, order)", "thread", "an activity"),
        ("", "await asyncio.get_running_loop().run_in_executor(None, len, order)", "thread", "an activity"),
        ("import threading", "threading.Thread(target=len).start()", "thread", "an activity"),
        ("from concurrent.futures import ThreadPoolExecutor", "ThreadPoolExecutor()", "thread", "an activity"),
        ("", "for c in asyncio.as_completed([charge(ctx, 1), charge(ctx, 2)]): await c", "order", "create_task"),
        ("", "for c in asyncio.as_completed(charge(ctx, n) for n in range(2)): await c", "order", "create_task"),
        ("", "cs = [charge(ctx, 1)]\nfor c in asyncio.as_completed(cs): await c", "order", "create_task"),
        ("", "for x in {'a', 'b'}: await charge(ctx, x)", "order", "sorted("),
        ("", "for x in set(order): await charge(ctx, x)", "order", "sorted("),
        ("", "xs = [x for x in frozenset(order)]", "order", "sorted("),
        ("", "for x in set(order) - {'a'}: pass", "order", "sorted("),
        ("", "names = {x for x in order}\nfor x in names: pass", "order", "sorted("),
        ("", "xs = list(set(order))", "order", "sorted("),
        ("", "await asyncio.gather(*{charge(ctx, x) for x in order})", "order", "sorted("),
        ("", "x = ','.join(set(order))", "order", "sorted("),
        ("count = 0", "global count\ncount += 1", "global", "return"),
        ("", "charge(ctx, 1)", "await", "await charge"),
        ("", "x = charge(ctx, 1)\nreturn {'x': x.upper()}", "await", "await charge"),
        ("", "if charge(ctx, 1): pass", "await", "await charge"),
        ("", "print(charge(ctx, 1))", "await", "await charge"),
        ("", "charge.options(activity_id='a')(ctx, 1)", "await", "await charge"),
        ("", "pay(ctx, 'x')", "await", "await pay"),
        ("", "sleep(ctx, 5)", "await", "await sleep"),
        ("from romancy import sleep as nap", "nap(ctx, 5)", "await", "await sleep"),
        ("", "return charge(ctx, 1)", "await", "await charge"),
        ("from romancy import *", "send_event(ctx, 'a', 'b')", "await", "await send_event"),
        ("from romancy import *", "await sleep(5)", "context", "sleep(ctx"),
        ("from romancy import emit", "emit(ctx, 'x')", "await", "await emit"),
        ("from romancy import emit", "await emit('x')", "context", "emit(ctx"),
        ("from romancy import compensate", "compensate(charge, 1)", "context", "compensate(ctx"),
        ("import asyncio", "asyncio.sleep(4)", "await", "await asyncio.sleep(...)"),
        ("from romancy import ask", "q = await ask(ctx, bool, title='?', people=[])\nq.answer()", "await", "await q"),
        ("from romancy import ask", "(await ask(ctx, bool, title='?', people=[])).answer()", "await", "answer(...)"),
        ("", "return wait_event(ctx, 'x') if order else None", "await", "await wait_event"),
        ("", "e = wait_event(ctx, 'x')\nreturn e.data['n']", "await", "await wait_event"),
        ("", "e = wait_event(ctx, 'x')\nreturn e", "await", "await wait_event"),
        ("", "e = wait_event(ctx, 'x')\nawait charge(ctx, e)", "await", "await wait_event"),
        ("", "e = wait_event(ctx, 'x')\norder.append(e)\nif e.type == 'x': pass", "await", "await wait_event"),
        ("", "await charge(ctx, charge(ctx, 1))", "await", "await charge"),
        ("", "await wait_event('x')", "context", "wait_event(ctx, ...)"),
        ("from romancy import ask", "q = ask(ctx, bool, title='?', people=[])\nreturn q", "await", "await ask"),
        ("", "await wait_event('x', timeout=5)", "context", "wait_event(ctx, ...)"),
        ("", "await sleep(5)", "context", "sleep(ctx, ...)"),
        ("", "await sleep(order)", "context", "sleep(ctx, ...)"),
        ("from datetime import timedelta", "await sleep(seconds=5)", "context", "sleep(ctx, ...)"),
        ("import romancy", "await romancy.send_event('t', 's')", "context", "send_event(ctx, ...)"),
        ("", "await charge(1)", "context", "ctx"),
        ("", "await charge(order)", "context", "ctx"),
        ("", "await charge()", "context", "ctx"),
        ("", "await charge.options(activity_id='a')(1)", "context", "ctx"),
        ("", "await charge.fn(ctx, 1)", "context", "charge(ctx, ...)"),
        ("app = App()", "await app.start_workflow(pay, 'x')", "app", "start_workflow(ctx, ...)"),
        ("app = App()", "await app.send_event('t', 's')", "app", "send_event(ctx, ...)"),
        ("app = App()", "await app.cancel_workflow('x')", "app", "activity"),
        ("from shop import app", "await app.send_event('t', 's')", "app", "send_event(ctx, ...)"),
        ("import romancy.sync as r\nshop = r.App()", "shop.get_instance('x')", "app", "activity"),
        ("", "try: await charge(ctx, 1)\nexcept BaseException: pass", "except", "except Exception"),
        ("", "try: await charge(ctx, 1)\nexcept: pass", "except", "except Exception"),
        (
            "",
            "try: await charge(ctx, 1)\nexcept (ValueError, BaseException) as e: print(e)",
            "except",
            "except Exception",
        ),
        ("", "try:\n  async with order: pass\nexcept BaseException: pass", "except", "except Exception"),
    ],
)
def test_finds(imports: str, body: str, code: str, instead: str) -> None:
    problems = inside(imports, body)
    assert [problem.code for problem in problems] == [code], problems
    assert code in KINDS
    assert instead in problems[0].suggestion
    assert problems[0].message.endswith(problems[0].suggestion)
    assert "workflow 'pay'" in problems[0].message


@pytest.mark.parametrize(
    ("imports", "body"),
    [
        ("", "print(ctx.now(), ctx.uuid4(), ctx.random.choice(order))"),
        ("import random", "random = ctx.random\nrandom.choice(order)"),
        ("import random", "random.Random(42).random()"),
        ("import random", "rng = random.Random(42)\nrng.random()"),
        ("import time", "time.gmtime(0)\ntime.strftime('%Y', time.gmtime(0))"),
        ("from datetime import datetime", "datetime.fromisoformat(order)\ndatetime(2026, 1, 1).timestamp()"),
        ("import datetime as dt", "x: dt.datetime = ctx.now()\ndt.timedelta(days=1)"),
        ("import uuid", "uuid.UUID(order)\nuuid.uuid5(uuid.NAMESPACE_DNS, order)"),
        ("import os", "os.path.join('a', order)"),
        ("import urllib.parse", "urllib.parse.quote(order)"),
        ("from pathlib import PurePath, Path", "PurePath('a').name\nPath('a').suffix"),
        ("import httpx", "try: await charge(ctx, 1)\nexcept httpx.HTTPError: raise httpx.HTTPError('x')"),
        ("import httpx", "isinstance(order, httpx.Response)"),
        ("import logging", "logging.info('x')\nctx.logger.info('y')"),
        ("", "await asyncio.sleep(1)\nawait sleep(ctx, 1)\nawait wait_event(ctx, 'x')"),
        ("from romancy import compensate, emit", "compensate(ctx, charge, 1)\nawait emit(ctx, 'x')"),
        ("", "t = asyncio.create_task(asyncio.sleep(1))\nw = asyncio.wait_for(t, 2)\nawait w"),
        ("from romancy import ask", "q = await ask(ctx, bool, title='?', people=[])\nreturn (await q.answer()).data"),
        ("", "order.answer()\norder.decision()"),
        ("", "async with asyncio.timeout(5): await charge(ctx, 1)"),
        ("", "await asyncio.gather(charge(ctx, 1), charge(ctx, 2))"),
        ("", "await asyncio.gather(*[charge(ctx, x) for x in order])"),
        ("", "async with asyncio.TaskGroup() as tg:\n    tg.create_task(charge(ctx, 1))"),
        ("", "a = charge(ctx, 1)\nb = await a"),
        ("", "e = wait_event(ctx, 'x')\ne = await e\nreturn e.data"),
        ("", "e = wait_event(ctx, 'x')\nevent = await e\nreturn event.data"),
        ("", "e = wait_event(ctx, 'x')\nt = asyncio.create_task(e)\nreturn (await t).data"),
        ("", "e = charge(ctx, 1)\ne.close()\nawait asyncio.gather(e)"),
        ("", "async def later(): return await charge(ctx, 1)\nreturn await later()"),
        ("def later(ctx): return charge(ctx, 1)", "return await later(ctx)"),
        ("", "return await asyncio.gather(*map(lambda n: charge(ctx, n), order))"),
        ("", "await sleep(ctx=ctx, duration=5)\nc = ctx\nawait wait_event(c, 'x')"),
        ("from asyncio import sleep as nap", "await nap(5)"),
        ("", "calls = []\ncalls.append(charge(ctx, 1))\nawait asyncio.gather(*calls)"),
        ("", "x = charge(ctx, 1) if order else charge(ctx, 2)\nawait x"),
        ("", "if (await charge(ctx, 1)) == 'x': pass"),
        ("", "await charge(ctx, amount=1)\nawait charge(*order)\nawait charge.options(activity_id='x')(ctx, 1)"),
        ("", "await charge(ctx=ctx, amount=1)"),
        ("", "c = ctx\nawait charge(c, 1)\nawait charge(WorkflowContext.current(), 1)"),
        ("", "tasks = [asyncio.create_task(charge(ctx, 1))]\nfor t in asyncio.as_completed(tasks): await t"),
        ("", "for t in asyncio.as_completed([asyncio.create_task(charge(ctx, 1))]): await t"),
        ("", "for x in sorted({'a', 'b'}): pass\nfor x in [1]: pass"),
        ("", "for x in {1, 2, 3}: pass"),
        ("", "ok = any(x for x in set(order)), len(set(order)), 'a' in {'a'}, sorted(list(set(order)))"),
        ("", "pending = {asyncio.create_task(charge(ctx, 1))}\nfor t in pending: await t"),
        ("", "tasks = set()\ntasks.add(asyncio.create_task(charge(ctx, 1)))\nfor t in tasks: await t"),
        ("", "done, pending = await asyncio.wait([asyncio.create_task(charge(ctx, 1))])\nfor t in done: await t"),
        ("count = 0", "global count\nprint(count)"),
        ("", "h = await start_workflow(ctx, pay, 'x')\nawait send_event(ctx, 't', 's')"),
        ("from romancy import compensate", "compensate(ctx, charge, 1)"),
        ("import romancy", "await romancy.send_event(ctx, 't', 's')"),
        ("app = App()", "return pay.continue_as_new(ctx, 'x')"),
        ("", "try: await charge(ctx, 1)\nexcept BaseException:\n    await charge(ctx, 2)\n    raise"),
        ("", "try: await charge(ctx, 1)\nexcept BaseException as e: raise e"),
        ("", "try: await charge(ctx, 1)\nexcept Exception: pass"),
        ("", "try: int(order)\nexcept BaseException: pass"),
        ("import time", "time.time()  # romancy: allow"),
        ("import time", "time.strftime(\n    '%Y',\n)  # romancy: allow"),
        ("import time", "x = 'time.time()'"),
        ("open = len", "open(order)"),
        ("", "a = order\na = b = order\nb = a | {'x'}\nx = y = charge(ctx, 1)\nx = y\nawait x"),
        ("", "names = names | {'a'} if order else b | {'b'}\nb = names | {'c'}\nnames.add('x')"),
        ("def helper(): open('x')", "helper()  # romancy: allow"),
    ],
)
def test_leaves_alone(imports: str, body: str) -> None:
    assert inside(imports, body) == []


def test_a_comment_in_a_string_allows_nothing() -> None:
    assert inside("import time", "x = time.time(), '# romancy: allow'")


@pytest.mark.parametrize(
    "decoration",
    [
        "from romancy import workflow\n@workflow",
        "from romancy import workflow\n@workflow()",
        "from romancy import workflow\n@workflow(name='x', timeout=5)",
        "from romancy import workflow as wf\n@wf",
        "import romancy\n@romancy.workflow",
        "import romancy as r\n@r.workflow(name='x')",
        "from romancy import *\n@workflow",
        "from .durable import workflow\n@workflow",
        "try:\n    from romancy import workflow\nexcept ImportError:\n    workflow = None\n@workflow",
    ],
)
def test_knows_a_workflow(decoration: str) -> None:
    assert len(find_problems(f"{decoration}\nasync def f(ctx):\n    open('x')\n", "f.py")) == 1


@pytest.mark.parametrize(
    "decoration", ["", "from romancy import activity\n@activity", "from prefect import workflow\n@workflow"]
)
def test_other_functions_are_free(decoration: str) -> None:
    assert find_problems(f"{decoration}\nasync def f(ctx):\n    open('x')\n", "f.py") == []


@pytest.mark.parametrize(
    "decoration",
    [
        "@charge.compensate",
        "@charge.compensate()",
        "@charge.options(timeout=5).compensate",
        "from shop import reserve\n@reserve.compensate",
        "from shop import *\n@reserve.compensate",
        "import shop\n@shop.reserve.compensate",
        "import shop\n@shop.reserve.compensate\n@shop.logged",
    ],
)
def test_an_undo_is_an_activity(decoration: str) -> None:
    source = f"import time\ndef wait():\n    time.sleep(1)\n{decoration}\ndef release(ctx, room):\n    wait()\n"
    assert inside(source, "compensate(ctx, release, '12A')\nawait release(ctx, order)\nundo = release") == []
    missing_await, without_ctx, unrecorded = inside(source, "release(ctx, '12A')\nawait release()\nrelease.fn(ctx)")
    assert missing_await.code == "await"
    assert (without_ctx.code, unrecorded.code) == ("context", "context")


@pytest.mark.parametrize(
    ("imports", "undo"),
    [
        ("from shop import release", "release"),
        ("from shop import *", "release"),
        ("import shop", "shop.release"),
        ("from . import time", "time.sleep"),
    ],
)
def test_an_undo_of_another_module_is_free(imports: str, undo: str) -> None:
    assert inside(imports, f"compensate(ctx, {undo}, '12A')\nawait {undo}(ctx, order)") == []


def test_workflows_inside_functions_are_found() -> None:
    source = "from romancy import workflow\ndef make():\n    import time\n    @workflow\n    async def f(ctx):\n"
    source += "        time.time()\n"
    assert [(p.line, p.column) for p in find_problems(source, "f.py")] == [(6, 9)]


def test_columns_count_characters() -> None:
    (problem,) = inside("import time", "x = 'é', time.time()")
    assert problem.column == 14


def test_follows_helpers_and_says_the_way() -> None:
    problems = inside(
        """
        import time
        def outer(x): return inner(x)
        def inner(x): return time.time()
        def unused(): return time.time()
        @activity
        def free(ctx): return inner(1)
        """,
        "outer(1)\nawait free(ctx)",
    )
    assert [problem.line for problem in problems] == [10]
    assert "workflow 'pay' through outer() -> inner()" in problems[0].message


def test_follows_nested_functions_and_references() -> None:
    problems = inside(
        "def key(x): return open(x)",
        """
        async def inner():
            return time.time()
        import time
        await inner()
        sorted(order, key=key)
        sorted(order, key=lambda x: time.time())
        """,
    )
    assert [problem.code for problem in problems] == ["io", "clock", "clock"]


@pytest.mark.parametrize(
    "body",
    [
        "await step(ctx, 'x', lambda: time.time(), result=float)",
        "await step(ctx, 'x', lambda: requests.get(order).json(), result=dict, input=order)",
        "async def now() -> float:\n    return time.time()\nawait step(ctx, 'x', now)",
        "def now() -> float:\n    return time.time()\nawait asyncio.gather(step(ctx, 'x', now), step(ctx, 'x', now))",
        "await step(ctx, 'x', fetch)",
        "await step(ctx, 'x', functools.partial(fetch, order))",
        "await romancy.step(ctx, 'x', lambda: open(order).read(), result=str)",
    ],
)
def test_the_function_of_a_step_may_do_anything(body: str) -> None:
    imports = """\
        import functools, requests, romancy, time
        from romancy import step
        def fetch(url=''): return requests.get(url)
    """
    assert inside(imports, body) == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("await step(ctx, 'x', lambda at=time.time(): at, result=float)", "clock"),
        ("await step(ctx, 'x', lambda: 1, result=int, input=time.time())", "clock"),
        ("await step(ctx, 'x', functools.partial(fetch, time.time()))", "clock"),
        ("await step(ctx, 'x', make(time.time()))", "clock"),
        ("def now() -> float:\n    return time.time()\nnow()\nawait step(ctx, 'x', now)", "clock"),
        ("step(ctx, 'x', lambda: 1, result=int)", "await"),
        ("await step('x', lambda: 1, result=int)", "context"),
    ],
)
def test_everything_else_in_a_step_is_the_workflow_s(body: str, code: str) -> None:
    imports = """\
        import functools, time
        from romancy import step
        def fetch(at): return time.time()
        def make(at): return lambda: at
    """
    assert [problem.code for problem in inside(imports, body)] == [code]


def test_helpers_may_call_each_other_and_are_reported_once() -> None:
    problems = inside("def a(): return b()\ndef b(): open('x'); return a()", "a()\nb()")
    assert len(problems) == 1


def test_helpers_get_the_context_too() -> None:
    helpers = """
    async def helper(c: WorkflowContext, n): await charge(c, n)
    async def wrong(ctx, n): await charge(n)
    """
    assert [p.code for p in inside(helpers, "await helper(ctx, 1)\nawait wrong(ctx, 1)")] == ["context"]


def test_parameters() -> None:
    source = "from romancy import App, workflow\n@workflow\nasync def f(c, app: App, xs: set[str], time):\n"
    source += "    time.time()\n    for x in xs: await app.send_event('t', 's')\n"
    assert [problem.code for problem in find_problems(source, "f.py")] == ["order", "app"]


def test_the_sources_of_the_api_example_are_clean() -> None:
    source = """
from datetime import timedelta
from romancy import App, WorkflowContext, WaitTimeout, activity, workflow, wait_event, sleep
@activity
async def initiate(ctx, order_id): return open(order_id).read()
@activity
def cancel(ctx, payment_id): ...
@workflow
async def payment(ctx: WorkflowContext, order_id: str) -> dict[str, str]:
    payment_id = await initiate(ctx, order_id)
    try:
        event = await wait_event(ctx, f"payment.completed.{order_id}", timeout=timedelta(minutes=5))
    except WaitTimeout:
        await cancel(ctx, payment_id)
        return {"status": "timeout"}
    await sleep(ctx, timedelta(seconds=1))
    return {"status": event.data.status}
app = App("workflow.db", workflows=[payment])
async def main() -> None:
    async with app:
        await app.start_workflow(payment, "ORD-1")
"""
    assert find_problems(source, "shop.py") == []


# --- the command ------------------------------------------------------------------------------------------------------

CLEAN = "from romancy import workflow\n@workflow\nasync def f(ctx): return ctx.now()\n"
DIRTY = "import time\nfrom romancy import workflow\n@workflow\nasync def f(ctx): return time.time()\n"
BOOBY_TRAP = "raise SystemExit('imported')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clean.py").write_text(CLEAN)
    (tmp_path / "dirty_shop.py").write_text(BOOBY_TRAP + DIRTY)
    (tmp_path / "broken.py").write_text("def (:\n")
    package = tmp_path / "shop_pkg"
    package.mkdir()
    (package / "__init__.py").write_text(BOOBY_TRAP)
    (package / "orders.py").write_text(CLEAN + CLEAN.replace("def f", "def g"))
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(check, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.usefixtures("folder")
class TestCommand:
    def test_no_problems(self) -> None:
        assert run("clean") == (0, "no problems in 1 workflow\n")
        assert run("clean.py", "shop_pkg") == (0, "no problems in 3 workflows\n")
        assert run("shop_pkg.orders") == (0, "no problems in 2 workflows\n")
        assert run("clean", "clean.py") == (0, "no problems in 1 workflow\n")

    @pytest.mark.parametrize("module", ["dirty_shop", "dirty_shop.py", "./dirty_shop.py", "dirty_shop:app"])
    def test_problems_one_line_each_without_importing(self, module: str) -> None:
        code, output = run(module)
        assert code == 1
        assert output.splitlines() == [
            "dirty_shop.py:5:26 clock time.time() reads the clock in workflow 'f'; use ctx.now()"
        ]
        assert "dirty_shop" not in sys.modules

    def test_json(self) -> None:
        code, output = run("--json", "dirty_shop", "clean")
        assert code == 1
        assert json.loads(output) == {
            "workflows": 2,
            "problems": [
                {
                    "file": "dirty_shop.py",
                    "line": 5,
                    "column": 26,
                    "code": "clock",
                    "message": "time.time() reads the clock in workflow 'f'; use ctx.now()",
                    "suggestion": "use ctx.now()",
                }
            ],
        }
        assert json.loads(run("--json", "clean")[1]) == {"workflows": 1, "problems": []}

    def test_the_format_can_be_named(self) -> None:
        assert run("--format", "json", "dirty_shop") == run("--json", "dirty_shop")
        assert run("--format", "json", "--json", "dirty_shop") == run("--json", "dirty_shop")
        assert run("--format", "text", "dirty_shop") == run("dirty_shop")
        code, output = run("--format", "sarif", "--json", "dirty_shop")
        assert code == 2
        assert "--json contradicts --format sarif" in output

    def test_sarif(self) -> None:
        code, output = run("--format", "sarif", "dirty_shop", "clean")
        assert code == 1
        log = json.loads(output)
        assert log["version"] == "2.1.0"
        [scan] = log["runs"]
        driver = scan["tool"]["driver"]
        assert (driver["name"], driver["version"]) == ("romancy check", __version__)
        assert [rule["id"] for rule in driver["rules"]] == list(KINDS)
        assert all(rule["shortDescription"]["text"] and rule["help"]["text"] for rule in driver["rules"])
        assert scan["columnKind"] == "unicodeCodePoints"
        assert scan["results"] == [
            {
                "ruleId": "clock",
                "ruleIndex": 0,
                "level": "error",
                "message": {"text": "time.time() reads the clock in workflow 'f'; use ctx.now()"},
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {"uri": "dirty_shop.py", "uriBaseId": "%SRCROOT%"},
                            "region": {"startLine": 5, "startColumn": 26},
                        }
                    }
                ],
            }
        ]

    def test_sarif_of_clean_code_has_rules_and_no_results(self) -> None:
        code, output = run("--format", "sarif", "clean")
        [scan] = json.loads(output)["runs"]
        assert (code, scan["results"]) == (0, [])
        assert scan["tool"]["driver"]["rules"]

    def test_sarif_locations_are_relative_and_quoted(
        self, folder: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        inside = folder / "my shop" / "ümlaut.py"
        outside = tmp_path_factory.mktemp("else where") / "dirty.py"
        inside.parent.mkdir()
        for file in (inside, outside):
            file.write_text(DIRTY)
        _, output = run("--format", "sarif", "my shop", str(outside))
        [scan] = json.loads(output)["runs"]
        places = [result["locations"][0]["physicalLocation"]["artifactLocation"] for result in scan["results"]]
        assert places == [
            {"uri": "my%20shop/%C3%BCmlaut.py", "uriBaseId": "%SRCROOT%"},
            {"uri": outside.as_uri()},
        ]

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, names of files are text")
    def test_a_file_whose_name_is_not_utf_8(self, folder: Path) -> None:
        """In a process of its own: the stdout of the tests takes everything."""
        (folder / "odd").mkdir()
        Path(os.fsdecode(b"odd/caf\xe9.py")).write_text(DIRTY)

        def run(form: str) -> str:
            command = [sys.executable, "-m", "romancy", "check", "--format", form, "odd"]
            strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
            done = subprocess.run(command, env=strict, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stderr) == (1, "")
            return done.stdout

        [scan] = json.loads(run("sarif"))["runs"]
        place = scan["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
        assert place["uri"] == "odd/caf%E9.py"
        assert json.loads(run("json"))["problems"][0]["file"] == os.fsdecode(b"odd/caf\xe9.py")
        assert run("text").startswith(r"odd/caf\udce9.py:4:")

    def test_links_to_folders_are_followed_once(self, folder: Path) -> None:
        inner = folder / "two" / "a"
        inner.mkdir(parents=True)
        for n in range(20):
            (inner / f"u{n}").symlink_to("..")
        (inner / "x.py").write_text(CLEAN)
        (folder / "far").mkdir()
        (folder / "far" / "y.py").write_text(CLEAN)
        (inner / "far").symlink_to(folder / "far")
        assert run("two") == (0, "no problems in 2 workflows\n")

    @pytest.mark.parametrize("name", ["notebook.ipynb", "shop.txt", "script"])
    def test_a_file_that_is_not_named_as_python(self, folder: Path, name: str) -> None:
        (folder / name).write_text("{}")
        code, output = run(name)
        assert code == 2
        assert f"{name!r} is not a .py file" in output

    def test_the_hook_for_pre_commit(self) -> None:
        """pre-commit runs the entry with the names of changed files."""
        root = Path(__file__).parents[2]
        [hook] = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text())
        assert (hook["id"], hook["language"], hook["files"]) == ("romancy-check", "python", r"\.py$")
        program, *command = hook["entry"].split()
        assert program in tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
        assert CliRunner().invoke(main, [*command, "clean.py", "shop_pkg/orders.py"]).exit_code == 0
        assert CliRunner().invoke(main, [*command, "clean.py", "dirty_shop.py"]).exit_code == 1
        assert CliRunner().invoke(main, [*command, "clean.py", "broken.py"]).exit_code == 2

    @pytest.mark.parametrize(
        ("module", "said"),
        [
            ("nowhere", "nowhere"),
            ("shop_pkg.nowhere", "shop_pkg.nowhere"),
            ("clean.nowhere", "clean.nowhere"),
            ("nowhere.py", "nowhere.py"),
            ("not/there", "not/there"),
            ("..clean", "..clean"),
            ("sys", "sys"),
            ("broken", "broken.py:1"),
            (".", "broken.py:1"),
        ],
    )
    def test_what_cannot_be_read(self, module: str, said: str) -> None:
        code, output = run(module)
        assert code == 2
        assert said in output
        assert len(output.splitlines()) == 1

    def test_odd_files(self, folder: Path) -> None:
        (folder / "latin.py").write_bytes(b"# coding: latin-1\n# \xe9\n" + DIRTY.encode())
        (folder / "nul.py").write_bytes(b"x = '\0'\n")
        (folder / "bytes.py").write_bytes(b"# \xff\n")
        assert run("latin.py")[0] == 1
        assert run("nul.py")[0] == 2
        assert run("bytes.py")[0] == 2

    def test_nothing_given(self) -> None:
        assert run()[0] == 2

    def test_sys_path_stays_as_it_was(self) -> None:
        before = list(sys.path)
        run("clean")
        assert sys.path == before


def test_the_table_for_people() -> None:
    out = StringIO()
    show_table(
        [Problem("a[b].py", 1, 2, "clock", "time.time() [x] in workflow 'f'", "use ctx.now()")],
        Console(file=out, width=100),
    )
    assert "a[b].py:1:2" in out.getvalue()
    assert "time.time() [x]" in out.getvalue()
