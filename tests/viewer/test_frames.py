"""A traceback on the page: the cause and the user's code first, and no file that must not be shown."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from romancy import NO_RETRY, ActivityContext, App, HTTPOptions, WorkflowContext, WorkflowFailed, activity, workflow
from romancy.viewer.frames import exceptions_of, line_in, own_files


@activity(retry=NO_RETRY)
async def parse(ctx: ActivityContext) -> None:
    try:
        json.loads("{")
    except ValueError as error:
        raise KeyError("no price") from error


@workflow
async def invoice(ctx: WorkflowContext, catch: bool) -> None:
    if not catch:
        await parse(ctx)
    try:
        await parse(ctx)
    except Exception as error:
        raise RuntimeError("no invoice") from error


class Lazy:
    """Like the proxies of web frameworks, which raise outside of a request, and modules that load on use."""

    def __getattr__(self, name: str) -> None:
        raise RuntimeError("working outside of a request")


current_request = Lazy()


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with App(":memory:", workflows=[invoice], http=HTTPOptions(open=True)) as made:
        for id, catch in (("plain", False), ("caught", True)):
            with pytest.raises(WorkflowFailed):
                await (await made.start_workflow(invoice, catch, instance_id=id)).result(timeout=30)
        yield made


async def traceback(app: App, id: str) -> str:
    return (await app.get_instance(id)).error["traceback"]


async def test_the_cause_comes_first(app: App) -> None:
    for id, last in (("plain", "ActivityError"), ("caught", "RuntimeError")):
        found = exceptions_of(await traceback(app, id))
        kinds = [one.error.split(":")[0].rpartition(".")[2] for one in found]
        assert kinds[:2] == ["JSONDecodeError", "KeyError"], id
        assert kinds[-1] == last, id
        assert [one.activity for one in found[:2]] == ["parse", "parse"]
        assert found[-1].activity == ""
        assert [frame.function for one in found for frame in one.own] == [
            "parse",
            "parse",
            *["invoice"] * (len(found) - 2),
        ]
        assert all("json" in frame.file for frame in found[0].libraries)


async def test_source_is_shown_of_the_workflows_own_files_only(app: App, tmp_path: Path) -> None:
    text = await traceback(app, "plain")
    files = own_files(invoice._definition)
    assert files == {__file__}
    [frame] = exceptions_of(text, files)[0].own
    assert dict(frame.source)[frame.line].strip() == frame.code == 'json.loads("{")'
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    for file in (secret, Path("/etc/passwd"), Path(json.__file__)):
        fake = f'Traceback (most recent call last):\n  File "{file}", line 1, in f\n    password = 1\nE: no'
        assert exceptions_of(fake, files)[0].frames[0].source == ()
    changed = text.replace('json.loads("{")', "json.loads(text)")
    assert exceptions_of(changed, files)[0].own[0].source == (), "the file is not the one that failed"


async def test_where_the_workflow_failed_is_marked(app: App) -> None:
    for id, code in (("plain", "await parse(ctx)"), ("caught", 'raise RuntimeError("no invoice") from error')):
        found = line_in(exceptions_of(await traceback(app, id)), invoice._definition)
        assert found is not None
        assert found[1] == code


async def test_the_page_shows_both(app: App) -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        page = (await client.get("/viewer/instances/caught")).text
        answer = await client.get("/viewer/instances/caught/history.json")
        missing = await client.get("/viewer/instances/nothing/history.json")
    assert page.index("JSONDecodeError") < page.index("Then in activity")
    assert "raised here" in page
    assert "3 frames of libraries" in page
    assert page.count("failed here") == 1
    assert answer.headers["content-disposition"] == 'attachment; filename="caught-history.json"'
    assert [entry["kind"] for entry in answer.json()["entries"]] == ["started", "activity_failed"]
    assert missing.status_code == 404


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no traceback at all",
        'File "x", line 3',
        'Traceback (most recent call last):\n  File "x", line 99999999999999999999, in f\nE: no\n  more\nof it',
        '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 1, in f\n  | E: two (1 sub)',
    ],
)
def test_any_text_can_be_read(text: str) -> None:
    assert all(one.error or one.frames for one in exceptions_of(text, {"x"}))


async def test_lazy_objects_are_left_alone(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lazy_module", current_request)  # type: ignore[arg-type]
    assert __file__ in own_files(invoice._definition)
