"""`step`: run any function as a recorded activity, without a decorator."""

from __future__ import annotations

import ast
import asyncio
import builtins
import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Collection, Coroutine
from inspect import Parameter
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeVar, cast, overload

from romancy.api.activity import Activity, check_name
from romancy.api.context import ActivityContext, WorkflowContext, instance_of
from romancy.api.workflow import Workflow
from romancy.core.codec import Codec
from romancy.core.model import Duration, duration_us
from romancy.core.operations import StepCall
from romancy.core.registry import StepDefinition
from romancy.core.retry import RetryPolicy, check_policy
from romancy.core.signature import return_annotation
from romancy.core.step_input import encode_input

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
_MOST = 256
"""How many codecs and annotations are kept. Types that are created anew in every run must not pile up."""
_codecs: dict[tuple[str, Any], Codec] = {}
_annotations: dict[CodeType, Any] = {}
"""Annotations that are written as strings, by the code of their function: the code is shared by all its closures."""


@overload
async def step(
    ctx: WorkflowContext,
    name: str,
    fn: Callable[[], Coroutine[Any, Any, T]],
    /,
    *,
    result: type[T] | None = None,
    input: object = None,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    raises: type[Exception] | Collection[type[Exception]] = (),
) -> T: ...
@overload
async def step(
    ctx: WorkflowContext,
    name: str,
    fn: Callable[[], T],
    /,
    *,
    result: type[T] | None = None,
    input: object = None,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    raises: type[Exception] | Collection[type[Exception]] = (),
) -> T: ...
async def step(
    ctx: WorkflowContext,
    name: str,
    fn: Callable[[], Any],
    /,
    *,
    result: Any = None,
    input: object = None,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    raises: type[Exception] | Collection[type[Exception]] = (),
) -> Any:
    """Run a function without parameters as an activity named `name`: its result is recorded, failures are retried.

    `result=`, or the function's return annotation, says how to read the record. `input=` is shown to people and
    compared on replay. An `async def` function runs on the event loop; a plain function or lambda is called in a
    thread, and if it returns a coroutine, that is awaited on the event loop.

    >>> reply = await step(ctx, "model", lambda: model.ask(prompt), result=Reply, input=prompt, timeout=60)
    """
    if not isinstance(ctx, WorkflowContext):  # pyright: ignore[reportUnnecessaryIsInstance]
        _refuse_context(ctx)
    _check_name(name)
    _check_function(name, fn)
    instance = instance_of(ctx)
    definition = StepDefinition(name, fn, _codec(name, fn, result), _classes(raises))
    call = StepCall(
        instance.run.next_id(name),
        instance.at,
        definition,
        b"" if input is None else encode_input(input, f"step {name!r}"),
        None if retry is None else check_policy(retry, f"step {name!r}"),
        None if timeout is None else duration_us(timeout, "timeout"),
    )
    return await instance.perform(call)


def _refuse_context(ctx: object) -> typing.NoReturn:
    if isinstance(ctx, ActivityContext):
        raise TypeError("step must be called from a workflow, not from an activity; call the function itself there")
    raise TypeError(f"step needs the workflow's ctx as its first argument, got {ctx!r}")


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a step must be a string, got {name!r}: await step(ctx, 'model', fn)")
    check_name(name, "the name of a step")


def _classes(raises: type[Exception] | Collection[type[Exception]]) -> tuple[type[Exception], ...]:
    return (raises,) if isinstance(raises, type) else tuple(raises)


# --- the function -----------------------------------------------------------------------------------------------------
def _check_function(name: str, fn: object) -> None:
    """Check that a function can be called without arguments."""
    if isinstance(fn, FunctionType):
        code = fn.__code__  # much faster than inspect.signature, and a step is made anew in every call
        needed = code.co_argcount - len(fn.__defaults__ or ())
        if not needed and code.co_kwonlyargcount == len(fn.__kwdefaults__ or ()):
            return
    else:
        _check_callable(name, fn)
    try:
        inspect.signature(cast("Callable[..., Any]", fn)).bind()
    except TypeError as error:
        raise TypeError(
            f"step {name!r} calls its function without arguments, but {fn!r} does not allow that: {error}; "
            "wrap it: lambda: fn(...)"
        ) from None
    except ValueError:  # some builtins have no signature
        return


def _check_callable(name: str, fn: object) -> None:
    if isinstance(fn, (Activity, Workflow)):
        raise TypeError(f"step {name!r} takes a plain function, not {fn!r}, which you call itself")
    if inspect.iscoroutine(fn):
        fn.close()  # otherwise Python also warns that it was never awaited
        raise TypeError(f"step {name!r} takes a function, not its coroutine: write lambda: {fn.__name__}(...)")
    if isinstance(fn, asyncio.Future) or not callable(fn):
        raise TypeError(f"step {name!r} takes a function, not {fn!r}; to run an expression, write lambda: ...")


# --- the result -------------------------------------------------------------------------------------------------------
def _codec(name: str, fn: Callable[..., Any], result: Any) -> Codec:
    """Return what writes and reads the result. It is kept by name and type, never with the function."""
    annotation = _annotation(name, fn) if result is None else result
    try:
        codec = _codecs.get((name, annotation))
    except TypeError:  # an unhashable annotation
        return Codec(annotation, f"the result of step {name!r}")
    if codec is None:
        codec = _keep(_codecs, (name, annotation), Codec(annotation, f"the result of step {name!r}"))
    return codec


def _annotation(name: str, fn: Callable[..., Any]) -> Any:
    plain = _plain_function(fn)
    annotation = getattr(plain, "__annotations__", {}).get("return", Parameter.empty)
    if annotation is Parameter.empty:
        raise TypeError(
            f"step {name!r} does not know how to read its result back from the record, because its function has no "
            "return annotation; pass result=, e.g. result=str, or annotate the function (a lambda can't be annotated)"
        )
    if _has_names(annotation):
        annotation = _resolved(name, plain, annotation)
    if typing.get_origin(annotation) in (Coroutine, Awaitable):
        return typing.get_args(annotation)[-1]
    return annotation


def _has_names(annotation: Any) -> bool:
    """Whether an annotation is, or contains, a string with names to look up."""
    if isinstance(annotation, (str, typing.ForwardRef)):
        return True
    return typing.get_origin(annotation) is not typing.Literal and any(map(_has_names, typing.get_args(annotation)))


def _resolved(name: str, fn: FunctionType, annotation: Any) -> Any:
    """Return an annotation with its names looked up."""
    known = _annotations.get(fn.__code__, Parameter.empty)
    if known is not Parameter.empty:
        return known
    found = return_annotation(fn, f"step {name!r}")
    if isinstance(annotation, str) and _is_global(annotation, fn):
        _keep(_annotations, fn.__code__, found)
    return found


def _is_global(annotation: str, fn: FunctionType) -> bool:
    """Whether all names in an annotation are global. Classes local to a workflow are different ones in every run."""
    nodes = list(ast.walk(ast.parse(annotation, mode="eval")))
    quoted = any(isinstance(node, ast.Constant) and isinstance(node.value, str) for node in nodes)
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return not quoted and all(name in fn.__globals__ or hasattr(builtins, name) for name in names)


def _plain_function(fn: Any) -> Any:
    """Return the function that carries the annotations: inside partials and methods, or the `__call__` of an object."""
    while True:
        if isinstance(fn, functools.partial):
            fn = cast(Any, fn).func
        elif isinstance(fn, MethodType):
            fn = fn.__func__
        elif isinstance(fn, FunctionType) or not isinstance(type(fn).__dict__.get("__call__"), FunctionType):
            return fn
        else:
            fn = type(fn).__call__


def _keep(cache: dict[K, V], key: K, value: V) -> V:
    if len(cache) >= _MOST:
        cache.pop(next(iter(cache)))
    cache[key] = value
    return value
