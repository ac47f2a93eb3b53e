"""The name of a build."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from romancy import App, WorkerOptions
from romancy.engine.build import choose_build
from romancy.engine.unfit import UnfitInstances

SOURCE = """
from romancy import workflow

@workflow
async def wf(ctx) -> int:
    return {result}
"""


def build(path: Path, result: int, given: str | None = None, *, keep: bool = True) -> str:
    """The build of an app with one workflow, in a module of its own."""
    text = SOURCE.format(result=result)
    module: Any = ModuleType("shop_flows")
    module.__file__ = str(path / "shop_flows.py")
    Path(module.__file__).write_text(text)
    sys.modules["shop_flows"] = module
    try:
        exec(compile(text, module.__file__, "exec"), vars(module))
        if not keep:
            Path(module.__file__).unlink()
        app = App(":memory:", workflows=[module.wf], worker=WorkerOptions(build=given))
        return choose_build(app._runtime.worker.build, app._runtime.registry)
    finally:
        del sys.modules["shop_flows"]


def test_the_source_decides_and_not_where_it_is(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    one = build(tmp_path / "a", 1)
    assert one == build(tmp_path / "b", 1)
    assert one != build(tmp_path / "a", 2)
    assert len(one) == 12


def test_without_source_the_compiled_code_decides(tmp_path: Path) -> None:
    compiled = build(tmp_path, 1, keep=False)
    assert compiled == build(tmp_path, 1, keep=False)
    assert compiled != build(tmp_path, 2, keep=False)
    assert compiled != build(tmp_path, 1)


def test_it_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANCY_BUILD", "r42")
    assert build(tmp_path, 1) == "r42"
    assert build(tmp_path, 1, "v7") == "v7"


@pytest.mark.parametrize("wrong", ["", 7, "x" * 201])
def test_a_wrong_build_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="build must be a string of 1 to 200 characters"):
        WorkerOptions(build=wrong)


async def test_the_app_passes_it_on() -> None:
    async with App(":memory:", worker=WorkerOptions(build="v7")) as app:
        unfit = app._runtime.engine.sweep._unfit
        assert isinstance(unfit, UnfitInstances)
        assert repr(unfit).startswith("<UnfitInstances build=v7")
