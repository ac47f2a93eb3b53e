"""`romancy start`, `send`, `cancel`, `resume`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from romancy import Receipt
from romancy.cli.actions import receipt_line


def test_start_by_name_reads_json_or_text(romancy, answered, folder: Path) -> None:
    result = romancy("start", "hello", "Ada", "times=2", "-5", "[1]", '"quo=ted"', "--id", "first")
    assert result.stdout == "first\n"
    assert "created the database 'romancy.db'" in result.stderr
    shown = answered("show", "first")
    assert shown["input"] == {"args": ["Ada", -5, [1], "quo=ted"], "kwargs": {"times": 2}}
    assert shown["status"] == "running"


@pytest.mark.usefixtures("database")
def test_start_warns_of_a_name_no_worker_has_run(romancy) -> None:
    warning = "no worker has run a workflow named 'helo' yet; check the name, and that a worker with it is running\n"
    assert romancy("start", "helo", "Ada").stderr == warning
    assert romancy("start", "helo", "Ada").stderr == warning, "that one was started means little"
    assert romancy("start", "hello", "Bob").stderr == ""


def test_start_says_nothing_if_a_worker_takes_it_up(folder) -> None:
    """Whether one has the workflow is seen from what it does, long before it has run one."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "romancy", "worker", "shop.py"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        assert worker.stderr is not None
        assert "romancy works on romancy.db with" in worker.stderr.readline()
        command = [sys.executable, "-m", "romancy", "start", "pay", "ORD-1"]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30)
        assert (said.returncode, said.stderr) == (0, "")
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


def test_a_folder_that_is_not_there_is_a_wrong_call(refused) -> None:
    for words in (("start", "hello"), ("run", "shop:hello", "Ada"), ("list",)):
        refused(*words, "-d", "nowhere/x.db", code=2)


def test_start_in_memory_is_refused(refused) -> None:
    assert "':memory:' only lasts as long as this command" in refused("start", "hello", "-d", ":memory:")
    assert "only lasts" in refused("start", "hello", "-d", "sqlite:///:memory:")


@pytest.mark.usefixtures("database")
def test_start_with_a_module_reads_by_annotation(answered, refused) -> None:
    assert answered("start", "hello", "7", "--id", "seven", "-m", "shop") == {"instance_id": "seven", "created": True}
    assert answered("show", "seven")["input"] == {"name": "7", "times": 1}
    assert answered("start", "hello", "7", "--id", "seven", "--module", "shop.py")["created"] is False
    assert "'many' can't be read as the argument 'times'" in refused("start", "hello", "x", "many", "-m", "shop")
    assert "missing a required argument: 'name'" in refused("start", "hello", "-m", "shop")
    assert "no workflow in shop is named 'unheard'; available: " in refused("start", "unheard", "-m", "shop")
    assert "use `romancy send order.placed" in refused("start", "placed", "1", "-m", "shop")


@pytest.mark.usefixtures("database")
def test_an_id_that_is_taken_or_impossible(refused, romancy) -> None:
    said = "romancy: instance 'done' already exists with a different input; use another --id"
    assert refused("start", "hello", "Bob", "--id", "done", code=1) == said
    assert "at most 255" in refused("start", "hello", "Bob", "--id", "x" * 300)
    assert romancy("start", "hello", "Ada", "--id", "done", "-m", "shop").stdout == "done (already exists)\n"


@pytest.mark.usefixtures("database")
def test_send_prints_the_receipt(romancy, answered) -> None:
    data = '{"order": {"id": "ORD-1"}, "amount": 12345678901234567.891}'
    receipt = answered("send", "payment.completed", data, "--id", "e1", "--source", "bank", "--subject", "s")
    assert receipt == {
        "id": "e1",
        "status": "accepted",
        "duplicate": False,
        "delivered": 1,
        "started": 0,
        "mismatched": 0,
        "differs": False,
    }
    again = romancy("send", "payment.completed", data, "--id", "e1", "--source", "bank", "--subject", "s").stdout
    assert again == "duplicate: this event was accepted before (id e1)\n"
    assert "no instance waits for it now" in romancy("send", "unheard").stdout
    told = romancy("send", "payment.completed", data, "--id", "e2").stdout
    assert told == "accepted: delivered to 1 instance (id e2)\n"
    told = romancy("send", "payment.completed", data, "--to", "[red]x", "--id", "e3").stdout
    assert told == "accepted: instance '[red]x' does not wait for it now; it is kept for later waits (id e3)\n"
    told = romancy("send", "payment.completed", data, "--to", "nosuch", "--id", "e4").stdout
    assert told == "accepted: instance 'nosuch' does not exist yet; the event is kept for it (id e4)\n"
    told = romancy("send", "payment.completed", data, "--to", "done", "--id", "e5").stdout
    assert told == "accepted: instance 'done' is completed and will not receive it (id e5)\n"
    assert "started 1 instance" in romancy("send", "order.placed", "-", input='{"n": 1}').stdout


@pytest.mark.usefixtures("database")
def test_an_id_that_belongs_to_another_event(romancy, answered, refused) -> None:
    romancy("send", "payment.completed", '{"amount": 1}', "--id", "p1")
    said = "romancy: dropped: a different event with this source and id exists; send it with another id (id p1)"
    assert refused("send", "payment.completed", '{"amount": 2}', "--id", "p1", code=1) == said
    receipt = answered("send", "payment.completed", '{"amount": 2}', "--id", "p1", code=1)
    assert (receipt["duplicate"], receipt["differs"]) == (True, True)


@pytest.mark.usefixtures("database")
def test_send_promises_nothing_where_the_model_is_unknown(romancy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.core.operations.event_wait.MODELS", {})
    monkeypatch.setattr("romancy.cli.database_target.MODELS", {})  # as in a process of its own
    told = romancy("send", "payment.completed", '{"order": {"id": "ORD-1"}, "amount": "x"}', "--id", "e1").stdout
    assert told == "accepted: matches 1 waiting instance (data not checked yet) (id e1)\n"
    told = romancy("send", "turned", "--id", "e2").stdout  # a wait without a model takes anything
    assert told == "accepted: delivered to 1 instance (id e2)\n"
    assert receipt_line(Receipt(delivered=3, started=1), 2) == (
        "accepted: delivered to 1 instance, matches 2 waiting instances (data not checked yet), started 1 instance"
    )
    assert receipt_line(Receipt(mismatched=2)) == "accepted: its data does not fit 2 instances"


@pytest.mark.usefixtures("database")
def test_what_is_no_event_is_refused(refused) -> None:
    assert "the data is not JSON" in refused("send", "t", "{oops")
    assert """quote text as JSON: '"hello"'""" in refused("send", "t", "hello")
    assert "NaN" in refused("send", "t", "NaN")
    assert "type must be a non-empty string" in refused("send", "")
    assert "missing argument 'TYPE'; see `romancy send --help`" in refused("send")


@pytest.mark.usefixtures("database")
def test_cancel(romancy, answered, refused) -> None:
    assert "asked instance 'order-1' to stop" in romancy("cancel", "order-1", "--reason", "changed my mind").stdout
    assert "asked instance 'order-1' to stop" in romancy("cancel", "order-1").stdout, "it has not ended yet"
    said = "instance 'done' is already completed; nothing to cancel (`romancy show done` shows how it ended)"
    assert refused("cancel", "done", code=1) == f"romancy: {said}"
    assert romancy("cancel", "blocked", "--reason", "hopeless").stdout == "instance 'blocked' is cancelled\n"
    assert answered("show", "blocked")["error"]["message"] == "hopeless"
    assert "'blocked' is already cancelled" in refused("cancel", "blocked", code=1)
    assert "no instance with id 'nobody'" in refused("cancel", "nobody", code=1)


@pytest.mark.usefixtures("database")
def test_resume(romancy, answered, refused) -> None:
    assert "a worker that has workflow 'turns' will retry instance 'blocked'" in romancy("resume", "blocked").stdout
    assert answered("show", "blocked")["status"] == "running"
    said = "romancy: instance 'order-1' is waiting_for_event, not blocked; nothing to resume"
    assert refused("resume", "order-1", code=1).startswith(said)
    assert "'blocked' is running, not blocked" in refused("resume", "blocked", code=1), "it was resumed just now"
    assert "`romancy show done` shows how it ended" in refused("resume", "done", code=1)
    assert "no instance with id 'nobody'" in refused("resume", "nobody", code=1)
