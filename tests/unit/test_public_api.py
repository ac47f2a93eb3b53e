"""The public names, and that the first example of the documentation is typed all the way through."""

import os
import subprocess
import sys
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest

import romancy
import romancy.testing

ROOT = Path(__file__).parents[2]

NAMES = """
App Client Database HTTPOptions RemoteHandle Retention WorkerOptions
WorkflowContext ActivityContext Context current_context activity workflow Activity Workflow WorkflowHandle
step start_workflow ChildHandle events EventStream compensate saga
wait_event sleep sleep_until send_event ReceivedEvent RetryPolicy NO_RETRY Duration Scalar Status
Receipt Instance InstanceFilter BulkResult Wait Page HistoryEntry EventRecord
Queue Rate QueueFull QueueRecord QueueWait
RomancyError WaitTimeout ActivityError ActivityTimeout WorkflowFailed WorkflowCancelled NonDeterminismError
InstanceNotFound InstanceExists InvalidInput InvalidEvent TerminalError
ServerUnreachable AccessDenied UnexpectedAnswer
Within PendingHandle NotInTransaction
HooksBase WorkflowInfo EventReceivedInfo WorkflowStartedInfo WorkflowCompletedInfo WorkflowFailedInfo
WorkflowCancelledInfo WorkflowBlockedInfo ActivityStartedInfo ActivityCompletedInfo ActivityFailedInfo
ActivityRetryingInfo EventSentInfo WaitStartedInfo WaitCompletedInfo WaitTimedOutInfo TimerStartedInfo TimerFiredInfo
ReplayStartedInfo ReplayCompletedInfo
TransactionContext
CodecError PayloadCodec
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_there(name: str) -> None:
    assert hasattr(romancy, name)
    assert name in romancy.__all__


def test_nothing_else_leaks_out() -> None:
    public = {n for n in romancy.__all__ if not n.startswith("_")}
    allowed = set(NAMES) | {"AppNotRunning", "IOInWorkflow", "NotRetryable", "NotStorable", "Overloaded"}
    allowed |= {"StorageError", "UnknownWorkflow", "WorkflowBlocked", "WorkflowStuck"}
    allowed |= {"Schedule", "ScheduleNotFound", "ScheduleRecord", "InboxRecord", "HeldEvents"}
    allowed |= {"Event", "Webhook", "WebhookRequest", "ask", "Answer", "Decision", "Invitation", "Question", "Vote"}
    allowed |= {"ScheduleFiredInfo", "ScheduleSkippedInfo", "ScheduleFailedInfo", "InboxRefusedInfo"}
    allowed |= {"MiddlewareBase", "StartRequest", "ActivityLostInfo"}
    allowed |= {"HTTPSink", "Sink", "SinkRecord", "DeadLetter", "QuestionRecord", "WorkerRecord", "Act", "Token"}
    allowed |= {"emit", "Emission", "EmissionsFull"}
    modules = {n for n in public if isinstance(getattr(romancy, n), type(romancy))}
    assert public - modules <= allowed
    assert "PackageNotFoundError" not in public


def test_the_testing_kit() -> None:
    for name in ("environment", "Environment", "replay", "activity_context"):
        assert hasattr(romancy.testing, name)
    for name in ("app", "start", "advance", "send_event", "waits", "restart", "replace", "replace_step"):
        assert name == "app" or hasattr(romancy.testing.Environment, name)


def test_typed() -> None:
    assert (Path(romancy.__file__).parent / "py.typed").exists()
    assert romancy.__version__


def parameters(fn: Any) -> dict[str, Any]:
    found = signature(fn).parameters.values()
    return {p.name: p.default for p in found if p.kind is Parameter.KEYWORD_ONLY}


KEYWORDS: list[tuple[Any, str]] = [
    (romancy.App, "workflows hooks worker retry state tokens max_activities retention lease"),
    (romancy.workflow, "name on_event timeout"),
    (romancy.activity, "name retry timeout raises"),
    (romancy.step, "result input retry timeout raises"),
    (romancy.wait_event, "model timeout wait_id subject source where since"),
    (romancy.events, "model limit until timeout wait_id subject source where since"),
    (romancy.EventStream.take, "window"),
    (romancy.sleep, "timer_id"),
    (romancy.sleep_until, "timer_id"),
    (romancy.send_event, "subject id to extensions"),
    (romancy.App.send_event, "subject id to extensions"),
    (romancy.App.cancel_workflow, "reason"),
    (romancy.App.list_instances, "status workflow text error_type parent started_after started_before limit cursor"),
    (romancy.App.cancel_workflows, "reason limit"),
    (romancy.App.resume_workflows, "limit"),
    (romancy.App.list_waits, "instance_id type limit cursor"),
    (romancy.Activity.options, "activity_id retry timeout"),
    (romancy.Workflow.options, "instance_id timeout"),
]


@pytest.mark.parametrize(("fn", "names"), KEYWORDS, ids=[fn.__qualname__ for fn, _ in KEYWORDS])
def test_keywords(fn: Any, names: str) -> None:
    assert set(names.split()) <= set(parameters(fn))


FIELDS: list[tuple[Any, str]] = [
    (romancy.ReceivedEvent, "data type source id time subject datacontenttype dataschema extensions"),
    (romancy.Receipt, "status duplicate delivered started mismatched"),
    (romancy.Instance, "instance_id workflow status input output error started_at finished_at waits"),
    (romancy.Wait, "instance_id wait_id kind types where since due_at location"),
    (romancy.Page, "items cursor"),
    (romancy.BulkResult, "matched changed errors"),
    (romancy.EventReceivedInfo, "instance_id workflow at event_type event_data event wait_id"),
    (romancy.WorkflowInfo, "instance_id workflow at error"),
    (romancy.RetryPolicy, "max_attempts initial backoff maximum jitter max_duration non_retryable"),
]


@pytest.mark.parametrize(("kind", "names"), FIELDS, ids=[kind.__name__ for kind, _ in FIELDS])
def test_fields(kind: Any, names: str) -> None:
    assert [f.name for f in fields(kind)][: len(names.split())] == names.split()
    assert kind.__dataclass_params__.frozen


def test_the_tree_of_errors() -> None:
    for name in NAMES:
        kind = getattr(romancy, name)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            assert issubclass(kind, romancy.RomancyError)
            assert kind.__doc__
            assert str(kind()), "the docstring is the default message"
    for kind, builtin in (
        (romancy.WaitTimeout, TimeoutError),
        (romancy.ActivityTimeout, TimeoutError),
        (romancy.ActivityTimeout, romancy.ActivityError),
        (romancy.InstanceNotFound, LookupError),
        (romancy.InvalidInput, ValueError),
        (romancy.InvalidEvent, ValueError),
    ):
        assert issubclass(kind, builtin)


def test_contexts() -> None:
    both = "instance_id workflow_name state logger"
    workflows = "started_at is_replaying now uuid4 random describe current"
    activities = "activity_id attempt idempotency_key progress last_progress check_cancelled send_event current"
    for kind, names in ((romancy.WorkflowContext, workflows), (romancy.ActivityContext, activities)):
        for name in f"{both} {names}".split():
            assert hasattr(kind, name), name


def test_hooks() -> None:
    expected = (
        "on_workflow_started on_workflow_admitted on_workflow_continued on_workflow_retried on_workflow_completed "
        "on_workflow_failed on_workflow_cancelled on_workflow_blocked "
        "on_activity_started on_activity_completed on_activity_failed on_activity_retrying on_activity_lost "
        "on_event_received "
        "on_event_sent on_wait_started on_wait_completed on_wait_timed_out on_timer_started on_timer_fired "
        "on_replay_started on_replay_completed on_compensation_started on_compensation_completed "
        "on_compensation_failed on_schedule_fired on_schedule_skipped on_schedule_failed on_inbox_refused"
    ).split()
    assert sorted(n for n in dir(romancy.HooksBase) if n.startswith("on_")) == sorted(expected)


EXAMPLE = """
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict, assert_type

from pydantic import BaseModel
from romancy import (
    ActivityContext, App, EventReceivedInfo, HooksBase, ReceivedEvent, RetryPolicy, WaitTimeout, WorkflowContext,
    WorkflowHandle, activity, send_event, sleep, wait_event, workflow,
)
from romancy import HistoryEntry, Instance, Page, sync
from romancy.testing import environment


@dataclass
class PaymentCompleted:
    payment_id: str
    amount: float
    status: str


class Declined(BaseModel):
    reason: str


class Order(TypedDict):
    id: int


@activity
async def initiate_payment(ctx: ActivityContext, order_id: str) -> str:
    await send_event(ctx, "payment.initiated", "shop", {"order": order_id})
    return f"PAY-{order_id}"


@activity(retry=RetryPolicy(max_attempts=3), timeout=10, raises=(KeyError,))
def cancel_payment(ctx: ActivityContext, payment_id: str) -> None:
    ctx.send_event("payment.cancelled", "shop")


@workflow
async def payment(ctx: WorkflowContext, order_id: str) -> dict[str, str]:
    payment_id = await initiate_payment(ctx, order_id)
    assert_type(payment_id, str)
    try:
        event = await wait_event(
            ctx, f"payment.completed.{order_id}", model=PaymentCompleted, timeout=timedelta(minutes=5)
        )
    except WaitTimeout:
        await cancel_payment(ctx, payment_id)
        return {"status": "timeout"}
    assert_type(event, ReceivedEvent[PaymentCompleted])
    await sleep(ctx, timedelta(seconds=1))
    other = await wait_event(ctx, "a", "b", model=(PaymentCompleted, Declined), where={"x": 1}, since="now")
    assert_type(other.data, PaymentCompleted | Declined)
    await cancel_payment.options(activity_id="again", timeout=5)(ctx, payment_id)
    return {"status": event.data.status, "payment_id": event.data.payment_id}


@workflow(on_event="order.placed", timeout=timedelta(days=1))
async def on_order(ctx: WorkflowContext, event: ReceivedEvent[Order]) -> int:
    return event.data["id"]


class Hooks(HooksBase):
    async def on_event_received(self, info: EventReceivedInfo) -> None:
        print(info.instance_id, info.event_type)


app = App("workflow.db", workflows=[payment, on_order], hooks=Hooks())


async def main() -> None:
    async with app:
        handle = await app.start_workflow(payment, "ORD-1", instance_id="order-1")
        assert_type(handle, WorkflowHandle[dict[str, str]])
        receipt = await app.send_event(
            "payment.completed.ORD-1", "payment-service", {"payment_id": "PAY-1", "amount": 99.99, "status": "success"}
        )
        print(receipt.delivered, await handle.result(timeout=10))
        again = await app.start_workflow(payment.options(instance_id="order-2"), order_id="ORD-2")
        assert_type(await again.result(), dict[str, str])
        assert_type(await app.handle("order-1", payment).result(), dict[str, str])


def fake(order_id: str) -> str:
    return order_id


async def test_payment() -> None:
    async with environment(workflows=[payment]) as env:
        env.replace(initiate_payment, fake)
        handle = await env.start(payment, "ORD-1")
        await env.advance(timedelta(minutes=5))
        assert_type(await handle.result(), dict[str, str])


def script() -> dict[str, str]:
    return App(":memory:").run(payment, "ORD-1")


def blocks(there: sync.Client, here: sync.App) -> None:
    assert_type(there.start_workflow(payment, "ORD-1").result(), dict[str, str])
    assert_type(there.send_event("paid", "bank", {"a": 1}, dataschema="https://example.com/x").duplicate, bool)
    assert_type(here.send_event("paid", source="bank", id="1").delivered, int)
    assert_type(here.cancel_workflow("a", reason="b"), bool)
    for one in (here, there):
        assert_type(one.list_instances(status="failed", limit=3), Page[Instance])
        assert_type(one.get_history("a"), list[HistoryEntry])
"""

UNDOS = """
from romancy import (
    ActivityContext, RetryPolicy, WorkflowContext, activity, compensate, saga, workflow,
)


class Booking:
    pass


@activity
async def reserve(ctx: ActivityContext, room: str, nights: int = 1) -> Booking:
    return Booking()


@reserve.compensate
async def release(ctx: ActivityContext, booking: Booking, room: str, nights: int = 1) -> None: ...


@activity
async def charge(ctx: ActivityContext, amount: int) -> str:
    return "p"


@charge.compensate
@activity(retry=RetryPolicy(max_attempts=None))
async def refund(ctx: ActivityContext, payment: str) -> None: ...


@activity
def ship(ctx: ActivityContext, order: str) -> int:
    return 1


@ship.compensate
def unship(ctx: ActivityContext, order: str) -> None: ...


@ship.compensate
async def unship_result(ctx: ActivityContext, parcel: int) -> None: ...


@workflow
async def trip(ctx: WorkflowContext, room: str) -> None:
    compensate(ctx, refund, "payment")
    async with saga(ctx):
        booking = await reserve(ctx, room)
        compensate(ctx, release, booking, room)
        await unship(ctx, "order")
"""

WRONG_UNDOS = """
from romancy import ActivityContext, WorkflowContext, activity, compensate, saga, workflow

@activity
async def charge(ctx: ActivityContext, amount: int) -> str:
    return "p"

@charge.compensate  # wrong
async def number(ctx: ActivityContext, payment: int) -> None: ...

@charge.compensate  # wrong
async def three(ctx: ActivityContext, payment: str, amount: int, more: int) -> None: ...

@charge.compensate  # wrong
async def in_workflow(ctx: WorkflowContext, payment: str) -> None: ...

@charge.compensate
async def refund(ctx: ActivityContext, payment: str) -> None: ...

@workflow
async def pay(ctx: WorkflowContext, amount: int) -> None:
    compensate(ctx, refund, 7)  # wrong
    compensate(ctx, refund)  # wrong
    compensate(ctx, print, "x")  # wrong
    async with saga("ctx"):  # wrong
        pass
"""

MISTAKES = """
from romancy import ActivityContext, App, WorkflowContext, activity, sync, workflow

@activity
async def charge(ctx: ActivityContext, amount: int) -> str:
    return str(amount)

@workflow
async def pay(ctx: WorkflowContext, amount: int) -> int:
    await charge(ctx, "much")
    return await charge(ctx, amount)

async def main(app: App) -> None:
    await app.start_workflow(pay, "much", instance_id=None)
    await app.start_workflow(pay)

def blocks(here: sync.App) -> None:
    here.send_event("paid")  # wrong
    here.list_waits(limit="many")  # wrong
    here.get_instance(1)  # wrong
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy found out about the sources here, which it need not do twice."""
    return tmp_path_factory.mktemp("mypy")


def check(tool: str, file: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """A type checker, strict, on one file against the sources here."""
    strict = file.with_name("pyrightconfig.json")
    strict.write_text(
        f'{{"typeCheckingMode": "strict", "extraPaths": ["{ROOT / "src"}"], "pythonVersion": "3.11"}}', encoding="utf-8"
    )
    command = {
        "pyright": [
            sys.executable,
            "-m",
            "pyright",
            "--project",
            str(strict),
            "--pythonpath",
            sys.executable,
            str(file),
        ],
        "mypy": [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), str(file)],
    }[tool]
    environ = os.environ | {"MYPYPATH": str(ROOT / "src"), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return subprocess.run(
        command, cwd=file.parent, env=environ, capture_output=True, text=True, timeout=110, check=False
    )


@pytest.mark.parametrize("tool", ["pyright", "mypy"])
def test_the_first_example_is_typed(tool: str, tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(EXAMPLE, encoding="utf-8")
    done = check(tool, file, cache)
    assert done.returncode == 0, done.stdout + done.stderr


STEPS_AND_STREAMS = """
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from romancy import EventStream, ReceivedEvent, WorkflowContext, events, step, workflow
from romancy.testing import Environment


@dataclass
class Reply:
    text: str


async def ask(prompt: str) -> Reply:
    return Reply(prompt)


def count() -> int:
    return 1


@workflow
async def talk(ctx: WorkflowContext) -> str:
    async def closure() -> Reply:
        return await ask("x")

    assert_type(await step(ctx, "model", closure), Reply)
    assert_type(await step(ctx, "model", lambda: ask("x"), result=Reply, input=["x"], timeout=60), Reply)
    assert_type(await step(ctx, "count", count, raises=KeyError), int)
    assert_type(await step(ctx, "count", lambda: count() + 1, result=int, raises=[KeyError, OSError]), int)
    stream = events(ctx, "reply", model=Reply, limit=3, since="now")
    assert_type(stream, EventStream[Reply])
    async for event in stream:
        assert_type(event, ReceivedEvent[Reply])
    assert_type(await stream.take(3, window=timedelta(seconds=1)), list[ReceivedEvent[Reply]])
    assert_type(events(ctx, "a", "b", model=(Reply, int)), EventStream[Reply | int])
    assert_type(events(ctx, "a"), EventStream[Any])
    return [event.data.text async for event in stream][0]


def replace(env: Environment) -> None:
    env.replace_step("model", lambda: Reply("fake"))
"""


@pytest.mark.parametrize("tool", ["pyright", "mypy"])
def test_steps_and_streams_are_typed(tool: str, tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "talk.py"
    file.write_text(STEPS_AND_STREAMS, encoding="utf-8")
    done = check(tool, file, cache)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("tool", ["pyright", "mypy"])
def test_undos_are_typed(tool: str, tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "undos.py"
    file.write_text(UNDOS, encoding="utf-8")
    done = check(tool, file, cache)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG_UNDOS, encoding="utf-8")
    found = check(tool, wrong, cache).stdout
    lines = WRONG_UNDOS.splitlines()
    for number, line in enumerate(lines, start=1):
        reported = f"wrong.py:{number}:" in found or ("@" in line and f"wrong.py:{number + 1}:" in found)
        is_wrong = "# wrong" in line or "# wrong" in lines[max(number - 2, 0)]
        assert reported if "# wrong" in line else is_wrong or not reported, f"{line}\n{found}"


@pytest.mark.parametrize("tool", ["pyright", "mypy"])
def test_mistakes_are_found_by_the_type_checker(tool: str, tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(MISTAKES, encoding="utf-8")
    done = check(tool, file, cache)
    lines = MISTAKES.splitlines()
    for number, line in enumerate(lines, start=1):
        if '"much"' in line or line.endswith("start_workflow(pay)") or "return await" in line or "# wrong" in line:
            assert f"shop.py:{number}" in done.stdout, line + "\n" + done.stdout
