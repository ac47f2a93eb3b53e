"""The examples run, say what they promise to say, and hold for their real durations too."""

import logging
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

from examples import approval_with_escalation as approvals
from examples import batch_with_delays as batches
from examples import cancellation as bookings
from examples import logging_in_workflows as logs
from examples import payment_with_timeout as payments
from romancy.testing import environment
from tests.docs.preloaded import run_script

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXPECT = "# expect: "


def expected_lines(example: Path) -> list[str]:
    lines = example.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(EXPECT) for line in lines if line.startswith(EXPECT)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_runs_and_ends_as_it_says(example: Path, tmp_path: Path) -> None:
    expected = expected_lines(example)
    assert expected, f"{example.name} has no '{EXPECT}' lines"
    done = run_script(example, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-len(expected) :] == expected, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


def test_every_example_is_in_the_readme() -> None:
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [example.name for example in EXAMPLES if f"]({example.name})" not in readme] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_is_short_and_introduces_itself(example: Path) -> None:
    module = import_module(f"examples.{example.stem}")
    assert 2 <= len((module.__doc__ or "").strip().splitlines()) <= 5
    assert len(example.read_text(encoding="utf-8").splitlines()) < 80
    assert module.WORKFLOWS


async def test_payment_times_out_after_five_minutes() -> None:
    undone: list[str] = []
    async with environment(workflows=payments.WORKFLOWS) as env:
        env.replace(payments.cancel_payment, lambda payment_id: undone.append(payment_id))
        env.replace(payments.cancel_order, lambda order_id: undone.append(order_id))
        handle = await env.start(payments.payment_with_timeout, "ORD-1")
        await env.advance(timedelta(minutes=4, seconds=59))
        assert await handle.status() == "waiting_for_event"
        assert undone == []
        await env.advance(timedelta(seconds=1))
        assert await handle.status() == "completed"
        assert await handle.result() == "timeout"
    assert undone == ["PAY-ORD-1", "ORD-1"]


async def test_payment_in_the_last_second_counts() -> None:
    async with environment(workflows=payments.WORKFLOWS) as env:
        handle = await env.start(payments.payment_with_timeout, "ORD-1")
        await env.advance(timedelta(minutes=4, seconds=59))
        await env.send_event("payment.completed.ORD-1", "bank", {"payment_id": "PAY-1", "status": "success"})
        assert await handle.result() == "completed"


async def test_approval_escalates_after_a_day() -> None:
    asked: list[str] = []
    async with environment(workflows=approvals.WORKFLOWS) as env:
        env.replace(approvals.send_approval_request, lambda request_id, role: asked.append(role))
        handle = await env.start(approvals.approval, "REQ-1")
        await env.advance(timedelta(hours=23, minutes=59))
        assert asked == ["manager"]
        await env.advance(timedelta(minutes=1))
        assert asked == ["manager", "director"]
        await env.restart()
        decision = approvals.Decision(role="director", approver="Di", approved=True)
        await env.send_event("approval.decision", "intranet", decision, subject="REQ-1")
        assert await handle.result() == approvals.Approval(approved=True, approver="Di", escalated=True)
    assert asked == ["manager", "director"]


async def test_approval_nobody_decides_in_two_days() -> None:
    async with environment(workflows=approvals.WORKFLOWS) as env:
        handle = await env.start(approvals.approval, "REQ-1")
        await env.advance(timedelta(hours=47))
        assert await handle.status() == "waiting_for_event"
        await env.advance(timedelta(hours=1))
        assert await handle.result() == approvals.Approval(approved=False, escalated=True)


async def test_batch_of_25_sleeps_twice() -> None:
    items = [batches.Item(number, f"letter {number}") for number in range(25)]
    async with environment(workflows=batches.WORKFLOWS) as env:
        handle = await env.start(batches.batch_processor, "monday", items)
        for _ in range(2):
            assert await handle.status() == "waiting_for_timer"
            assert [wait.kind for wait in await env.waits(handle)] == ["timer"]
            await env.advance(timedelta(seconds=5))
        assert await handle.status() == "completed"
        assert await handle.result() == batches.BatchReport("monday", [10, 10, 5])


async def test_batch_that_fits_in_one_does_not_sleep() -> None:
    async with environment(workflows=batches.WORKFLOWS) as env:
        handle = await env.start(batches.batch_processor, "small", [batches.Item(1, "letter 1")])
        assert await handle.status() == "completed"


async def test_booking_out_of_patience_frees_the_seat() -> None:
    calls: list[str] = []
    async with environment(workflows=bookings.WORKFLOWS) as env:
        env.replace(bookings.hold_seat, lambda seat: calls.append(f"hold {seat}"))
        env.replace(bookings.release_seat, lambda seat: calls.append(f"release {seat}"))
        handle = await env.start(bookings.booking, "12A")
        await env.advance(timedelta(hours=1))
        assert await handle.status() == "failed"
    assert calls == ["hold 12A", "release 12A"]


async def test_log_lines_appear_once_although_replayed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with environment(workflows=logs.WORKFLOWS) as env:
        handle = await env.start(logs.logged, "ORD-1")
        await env.restart()
        await env.send_event("payment.completed", "bank", {"amount": 12}, subject="ORD-1", id="evt-1")
        assert await handle.result() == "evt-1"
    lines = [record.getMessage() for record in caplog.records if getattr(record, "workflow", None) == "logged"]
    assert lines == ["waiting for the payment of ORD-1", "received evt-1 with {'amount': 12}"]
