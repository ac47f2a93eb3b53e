"""The groups of an app's options: what they take, what they refuse, and where an option is looked for in vain."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import romancy.sync
from romancy import App, Database, Retention, WorkerOptions

MOVED = {
    "schema": "schema is in Database: App(Database(url, schema=...))",
    "notify_url": "notify_url is in Database: App(Database(url, notify_url=...))",
    "durability": "durability is in Database: App(Database(url, durability=...))",
    "max_resident": "max_resident is in WorkerOptions: App(worker=WorkerOptions(max_resident=...))",
    "grace": "grace is in WorkerOptions: App(worker=WorkerOptions(grace=...))",
}


@pytest.mark.parametrize("kind", [App, romancy.sync.App], ids=["async", "sync"])
@pytest.mark.parametrize(("name", "said"), MOVED.items(), ids=MOVED)
def test_an_option_of_a_group_is_told_where_it_belongs(kind: Any, name: str, said: str) -> None:
    with pytest.raises(TypeError) as error:
        kind(":memory:", **{name: 1})
    assert str(error.value) == said


@pytest.mark.parametrize("kind", [App, romancy.sync.App], ids=["async", "sync"])
def test_an_option_nobody_has(kind: Any) -> None:
    with pytest.raises(TypeError, match="App has no option 'max_activites'"):
        kind(":memory:", max_activites=1)


def test_the_web_is_not_for_the_blocking_app() -> None:
    app: Any = romancy.sync.App
    for name in ("tokens", "http"):
        with pytest.raises(TypeError, match=name):
            app(":memory:", **{name: ()})


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Database(""), "url must be a path or URL"),
        (lambda: Database(None), "url must be a path or URL"),
        (lambda: Database("x.db", durability="some"), 'durability must be "full" or "normal"'),
        (lambda: App(42), "database must be a path, a URL or Database"),
        (lambda: WorkerOptions(max_resident=0), "max_resident must be a positive integer"),
        (lambda: WorkerOptions(max_resident=True), "max_resident must be a positive integer"),
        (lambda: WorkerOptions(grace=-1), "grace must not be negative"),
        (lambda: WorkerOptions(grace=None), "grace must be a timedelta"),
        (lambda: App(":memory:", worker="no"), "worker must be True, False or WorkerOptions"),
        (lambda: App(":memory:", worker=None), "worker must be True, False or WorkerOptions"),
        (lambda: App(":memory:", max_activities=0), "max_activities must be a positive integer"),
        (lambda: App(":memory:", lease=0.1), "lease must be at least half a second"),
        (lambda: Retention(instances=-1), "instances must not be negative"),
        (lambda: Retention(failed="1d"), "failed must be a timedelta"),
        (lambda: Retention(events=float("nan")), "events must be a number"),
        (
            lambda: App(":memory:", retention=None),
            r"not None; Retention\(instances=None, failed=None\) keeps everything",
        ),
    ],
)
def test_a_bad_value_names_its_option(make: Any, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        make()


def test_the_database_is_a_path_a_url_or_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANCY_DATABASE", "environment.db")
    assert App().database == "environment.db"
    assert App(tmp_path / "x.db").database == str(tmp_path / "x.db")
    assert App(Database("group.db")).database == "group.db"
    assert romancy.sync.App(Database("group.db")).database == "group.db"
    path: Any = tmp_path / "x.db"
    assert Database(path).url == str(path)


def test_groups_are_values() -> None:
    assert Database("x.db") == Database("x.db", None, None, "full")
    assert WorkerOptions(5, 1) == WorkerOptions(max_resident=5, max_transactions=1)
    assert Retention() == Retention(*[timedelta(days=7)] * 2, events=None)
