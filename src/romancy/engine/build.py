"""The build: a name for the code of this process, to tell old and new workers apart during a deployment."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Collection, Iterable
from importlib.metadata import PackageNotFoundError, version
from types import CodeType
from typing import cast

from romancy.core.registry import Registry, WorkflowDefinition

_LENGTH = 12


def choose_build(given: str | None, registry: Registry) -> str:
    """Return the name of this build: the given one, that of the environment, or one made from the source code."""
    return given or os.environ.get("ROMANCY_BUILD") or source_build(registry.definitions.values())


def source_build(workflows: Collection[WorkflowDefinition]) -> str:
    """Return a hash of the modules that define these workflows, and of the release of Romancy.

    Only code that is replayed matters: the bodies of activities do not. Neither paths nor times are included, so that
    it is the same on every machine. A module without source is represented by the compiled code of its workflows, which
    also depends on the version of Python.
    """
    digest = hashlib.blake2b(release().encode(), digest_size=_LENGTH // 2)
    for module in sorted({workflow.fn.__module__ for workflow in workflows}):
        of_module = [workflow for workflow in workflows if workflow.fn.__module__ == module]
        for part in (module.encode(), _source(module) or b"".join(_compiled(of_module))):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def release() -> str:
    """Return the version of this library; "" if it is not installed."""
    try:
        return version("romancy")
    except PackageNotFoundError:
        return ""


def _source(module: str) -> bytes | None:
    try:
        return inspect.getsource(sys.modules[module]).encode("utf-8", "surrogatepass")
    except (KeyError, OSError, TypeError, SyntaxError):
        return None  # compiled only, typed into a prompt, or generated


def _compiled(workflows: Iterable[WorkflowDefinition]) -> Iterable[bytes]:
    for workflow in sorted(workflows, key=lambda workflow: workflow.name):
        yield workflow.name.encode()
        code = getattr(inspect.unwrap(workflow.fn), "__code__", None)
        if isinstance(code, CodeType):
            yield from _parts(code)


def _parts(code: CodeType) -> Iterable[bytes]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)
        elif isinstance(constant, frozenset):  # its order differs from process to process
            yield repr(sorted(map(repr, cast("frozenset[object]", constant)))).encode()
        else:
            yield repr(constant).encode()
