"""Arguments by name: bound like a call, stored as one JSON object, and still usable after the code has changed."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from types import GenericAlias, SimpleNamespace
from typing import Any, cast

from pydantic import PydanticUserError, ValidationError
from pydantic_core import from_json, to_json

from romancy.core.codec import Codec, Unfit, Wire, describe, describe_given, supported, typed_dict, unfit_of
from romancy.errors import InvalidInput

_SCALARS = (str, int, float, bool, type(None))
_SHOWN = 100
"""Maximum characters of an argument in a message."""
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Signature:
    """Binds the arguments of a workflow or activity by name and stores them. The first parameter (ctx) is skipped.

    >>> async def charge(ctx: ActivityContext, amount: int, currency: str = "EUR") -> str: ...
    >>> signature = Signature(charge, "activity 'charge'")
    >>> signature.encode(signature.bind((42,), {}))
    b'{"amount":42,"currency":"EUR"}'
    """

    def __init__(self, fn: Callable[..., Any], what: str) -> None:
        self.what = what
        hints = _hints(fn, what)
        context, *declared = [
            parameter.replace(annotation=hints.get(parameter.name, Parameter.empty))
            for parameter in inspect.signature(fn).parameters.values()
        ]
        self._parameters = {parameter.name: parameter for parameter in declared}
        self._declared = inspect.Signature(declared)
        self.names: tuple[str, ...] = tuple(self._parameters)
        self.annotations: dict[str, Any] = {name: hints.get(name, Any) for name in self.names}
        self.result = Codec(hints.get("return", Any), f"the result of {what}")
        self._readable = inspect.Signature([context, *_without_metadata(declared)])
        self._shown = f"{fn.__name__}{self._readable}".replace("romancy.core.model.", "")
        self._simple = all(parameter.kind in _POSITIONAL for parameter in declared)
        self._trailing = tuple(p.default for p in declared if p.default is not Parameter.empty)  # always the last
        types = tuple(self.annotations.values())
        self._scalars = types if self._simple and all(type_ in _SCALARS for type_ in types) else None
        self._wire = self._build_wire()
        self._check_defaults()

    def __repr__(self) -> str:
        return f"Signature({self._shown}, {self.what!r})"

    # Calling

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, including defaults."""
        if not kwargs and self._simple and 0 <= (missing := len(self.names) - len(args)) <= len(self._trailing):
            filled = args + self._trailing[-missing:] if missing else args
            return dict(zip(self.names, filled))  # noqa: B905 - there are as many, and `strict` takes time
        try:
            bound = self._declared.bind(*args, **kwargs)
        except TypeError as error:
            message = self._uncallable(error)
        else:
            bound.apply_defaults()
            return dict(bound.arguments)
        raise InvalidInput(message)

    def encode(self, bound: Mapping[str, Any]) -> bytes:
        if tuple(bound) != self.names:
            bound = self._in_order(bound)
        return self._write(bound, tuple(map(type, bound.values())) == self._scalars)

    def encode_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Bind and encode arguments."""
        if not kwargs and tuple(map(type, args)) == self._scalars:
            return self._write(dict(zip(self.names, args)), known=True)  # noqa: B905 - `strict` takes time
        return self.encode(self.bind(args, kwargs))

    def _write(self, bound: Mapping[str, Any], known: bool) -> bytes:
        try:
            return self._wire.write(bound, known)
        except Unfit as unfit:
            message = self._unfit_argument(unfit)
        raise InvalidInput(message)

    def decode(self, raw: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return `args` and `kwargs` for the call `fn(ctx, *args, **kwargs)`."""
        try:
            values: dict[str, Any] = self._wire.read(raw)
        except Unfit as unfit:
            message = self._unreadable(raw, unfit)
        else:
            if len(values) < len(self.names):
                values = self._completed(values)
            elif self._simple:
                return tuple(values.values()), {}  # the validator returns them in the order of the parameters
            return self._call(values)
        raise InvalidInput(message)

    def decode_given(self, raw: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Like `decode`, for arguments that are not stored yet, by name and as JSON."""
        try:
            return self._call(self._completed(cast(dict[str, Any], self._wire.read(raw))))
        except Unfit as unfit:
            name = str(unfit.path[0]) if unfit.path else "it"
            problem = describe_given(_inner(unfit), name)
        raise InvalidInput(f"an argument of {self.what} does not fit: {problem}; its signature is {self._shown}")

    def read_given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Like `decode`, for plain JSON from a starter without the code."""
        try:
            given = self._declared.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidInput(self._uncallable(error)) from None
        try:
            values = cast(dict[str, Any], self._wire.read(json.dumps(given).encode()))
        except Unfit as unfit:
            message = self._never_fitted(given, unfit)
        else:
            return self._call(self._completed(values))
        raise InvalidInput(message)

    def same_call(self, recorded: bytes, asked: bytes) -> bool:
        """Return whether calls are equal, apart from parameters that only one has, with the declared default."""
        if recorded == asked:
            return True
        ours, theirs = _by_name(recorded), _by_name(asked)
        return all(
            ours.get(name, self._defaults.get(name)) == theirs.get(name, self._defaults.get(name))
            for name in ours.keys() | theirs.keys()
        )

    def _in_order(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        unknown = [name for name in bound if name not in self._parameters]
        if unknown:
            raise InvalidInput(f"{self.what} has no parameter{_listed(unknown)}; its signature is {self._shown}")
        return {name: bound[name] for name in self.names if name in bound}

    def read_again(self, recorded: bytes) -> bytes | None:
        """Write recorded arguments with today's types, which can have new fields with defaults; None if unreadable."""
        try:
            return self._wire.write(self._wire.read(recorded))
        except Unfit:
            return None

    def read_arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """Bind arguments from strings, each read by its parameter's annotation; `name=value` names its parameter."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        positional = [parameter for parameter in self._parameters.values() if parameter.kind in _POSITIONAL]
        rest = next((p for p in self._parameters.values() if p.kind is Parameter.VAR_POSITIONAL), None)
        for word in words:
            name, equals, text = word.partition("=")
            if equals and self._takes_keyword(name):
                if name in kwargs:
                    raise InvalidInput(f"{self.what} got {name!r} twice; its signature is {self._shown}")
                kwargs[name] = self._read_word(name, text)
            else:
                parameter = positional[len(args)] if len(args) < len(positional) else rest
                args.append(self._read_word(parameter.name, word) if parameter else word)
        return self.bind(tuple(args), kwargs)

    def _takes_keyword(self, name: str) -> bool:
        parameter = self._parameters.get(name)
        if parameter is None or parameter.kind is Parameter.VAR_POSITIONAL:
            return name.isidentifier() and any(p.kind is Parameter.VAR_KEYWORD for p in self._parameters.values())
        return parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)

    def _read_word(self, name: str, word: str) -> Any:
        known = name if name in self._parameters else self.names[-1]  # otherwise **kwargs takes it, always last
        annotation = self.annotations[known]
        if annotation is Any:
            return _json_or_text(word)
        wire = Wire(annotation, self._parameter_named(known))
        try:
            return wire.validator.validate_strings(cast(Any, word), by_name=True)
        except ValidationError as error:
            unfit = unfit_of(error, "does not fit")
        if _is_json(word):  # otherwise the problem of the plain text is reported
            try:
                return wire.read(word.encode())
            except Unfit as error:
                unfit = error
        shown, problem = self._readable.parameters[known], describe(unfit, name)
        raise InvalidInput(f"{self.what}: {word!r} can't be read as the argument {name!r} ({shown}): {problem}")

    def json_schema(self) -> dict[str, Any]:
        """Return the arguments by name as JSON Schema, with the declared defaults."""
        schema: dict[str, Any]
        try:
            schema = self._wire.json_schema()
        except PydanticUserError:  # a type with a form of its own: only the names are known
            schema = {"type": "object", "properties": {name: {} for name in self.names}}
        properties = cast(dict[str, Any], schema.setdefault("properties", {}))
        for name, default in self._defaults.items():
            properties[name] = {**properties[name], "default": from_json(default)}
        schema["required"] = [name for name in self.names if name not in self._defaults]
        schema["additionalProperties"] = False
        schema.pop("title", None)
        return schema

    # Building

    def _build_wire(self) -> Wire:
        stored = {name: self._stored_as(parameter) for name, parameter in self._parameters.items()}
        # Not total: missing arguments are reported by this class, with better messages.
        arguments = typed_dict("Arguments", stored, total=False)
        try:
            return Wire(arguments, f"the arguments of {self.what}", closed=True)
        except TypeError:
            for name, annotation in stored.items():
                Wire(annotation, self._parameter_named(name))  # raises an error that names the parameter
            raise

    def _stored_as(self, parameter: Parameter) -> Any:
        annotation = supported(self.annotations[parameter.name])
        if parameter.kind is Parameter.VAR_POSITIONAL:
            return GenericAlias(tuple, (annotation, ...))
        if parameter.kind is Parameter.VAR_KEYWORD:
            unpacked = typing.get_origin(annotation) is typing.Unpack
            return supported(typing.get_args(annotation)[0]) if unpacked else GenericAlias(dict, (str, annotation))
        return annotation

    def _check_defaults(self) -> None:
        for parameter in self._parameters.values():
            if parameter.default is not Parameter.empty:
                try:
                    self._wire.write({parameter.name: parameter.default})
                except Unfit as unfit:
                    raise TypeError(f"the default of {self._unfit_argument(unfit)}") from None

    @cached_property
    def _defaults(self) -> dict[str, bytes]:
        """The declared defaults, in the form of `_by_name`."""
        defaults = {name: p.default for name, p in self._parameters.items() if p.default is not Parameter.empty}
        empty: dict[Any, Any] = {Parameter.VAR_POSITIONAL: (), Parameter.VAR_KEYWORD: {}}
        defaults |= {name: empty[p.kind] for name, p in self._parameters.items() if p.kind in empty}
        return _by_name(self._wire.write(defaults))

    # Reading stored arguments

    def _call(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._simple:
            return tuple(map(values.__getitem__, self.names)), {}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if parameter.kind in _POSITIONAL:
                args.append(values[name])
            elif parameter.kind is Parameter.VAR_POSITIONAL:
                args.extend(values[name])
            elif parameter.kind is Parameter.VAR_KEYWORD:
                kwargs.update(values[name])
            else:
                kwargs[name] = values[name]
        return tuple(args), kwargs

    def _completed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        missing = [name for name in self.names if name not in values]
        new = [name for name in missing if name not in self._defaults]
        if new:
            raise InvalidInput(
                f"{self.what} was called before it had the parameter{_listed(new)}; "
                f"add a default for earlier calls, or start over: its signature is now {self._shown}"
            )
        fresh = b"{" + b",".join(to_json(name) + b":" + self._defaults[name] for name in missing) + b"}"
        return {**values, **self._wire.read(fresh)}

    def _unreadable(self, raw: bytes, unfit: Unfit) -> str:
        stored = _by_name(raw)
        gone = [name for name in stored if name not in self._parameters]
        if not gone:
            name = str(unfit.path[0]) if unfit.path else "it"
            problem = describe(_inner(unfit), name)
            return f"a stored argument of {self.what} no longer fits: {problem}; its signature is now {self._shown}"
        new = [name for name in self.names if name not in stored]
        return (
            f"{self.what} was called with the parameter{_listed(gone)}, since removed or renamed"
            + (f" (new:{_listed(new)})" if new else "")
            + f"; keep the name, with a default once it is no longer used: its signature is now {self._shown}"
        )

    # Messages

    def _parameter_named(self, name: str) -> str:
        return f"the parameter {name!r} of {self.what}"

    def _uncallable(self, error: TypeError) -> str:
        return f"{self.what} can't be called like this: {error}; its signature is {self._shown}"

    def _never_fitted(self, given: Mapping[str, Any], unfit: Unfit) -> str:
        name = str(unfit.path[0]) if unfit.path else "it"
        problem = describe_given(_inner(unfit), name)
        got = json.dumps(given.get(name), ensure_ascii=False)
        shown = got if len(got) <= _SHOWN else f"{got[:_SHOWN]}..."
        return (
            f"{self.what} was started by name with an argument that does not fit: {problem}, got {shown}; its "
            f"signature is {self._shown}; start another with arguments that fit, as JSON: strings in quotes"
        )

    def _unfit_argument(self, unfit: Unfit) -> str:
        name = str(unfit.path[0]) if unfit.path else "?"
        shown = self._readable.parameters.get(name, name)
        advice = "pass a value of this type, or annotate it with its actual type"
        return f"argument {name!r} of {self.what} can't be stored: {describe(_inner(unfit), name)} ({shown}); {advice}"


def _inner(unfit: Unfit) -> Unfit:
    return Unfit(unfit.path[1:], unfit.problem, unfit.reason)


def _listed(names: Sequence[str]) -> str:
    return f"{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _by_name(raw: bytes) -> dict[str, bytes]:
    """Return each stored argument as bytes, so that NaN equals NaN and 1 is not True."""
    return {name: to_json(value) for name, value in cast(dict[str, Any], from_json(raw)).items()}


def _is_json(word: str) -> bool:
    try:
        from_json(word)
    except ValueError:
        return False
    return True


def _json_or_text(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def return_annotation(fn: Callable[..., Any], what: str) -> Any:
    """Return the resolved annotation of what a function returns; `Parameter.empty` if it has none."""
    return _hints(fn, what).get("return", Parameter.empty)


def _without_metadata(declared: Sequence[Parameter]) -> list[Parameter]:
    """Return parameters as people read them: `name: str`, not `Annotated[str, Field(...)]`."""
    types = {parameter.name: parameter.annotation for parameter in declared}
    plain = typing.get_type_hints(SimpleNamespace(__annotations__=types))
    return [parameter.replace(annotation=plain[parameter.name]) for parameter in declared]


def _hints(fn: Callable[..., Any], what: str) -> dict[str, Any]:
    """Return the resolved annotations, except that of ctx."""
    fn = inspect.unwrap(fn)
    context = next(iter(inspect.signature(fn).parameters), "")
    annotations = {name: hint for name, hint in fn.__annotations__.items() if name != context}
    local: dict[str, Any] = {}
    while True:
        try:
            named = SimpleNamespace(__annotations__=annotations, __type_params__=getattr(fn, "__type_params__", ()))
            return typing.get_type_hints(named, fn.__globals__, local, include_extras=True)
        except NameError as error:
            name = error.name or ""
            found = _in_callers(fn, name)
            if name in local or found is None:
                raise TypeError(
                    f"an annotation of {what} names {name!r}, which is not known where the function is defined; "
                    "import or define it at module level, before the function is used, and outside TYPE_CHECKING"
                ) from error
            local[name] = found
        except Exception as error:
            raise TypeError(f"the annotations of {what} can't be read: {error}") from error


def _in_callers(fn: Callable[..., Any], name: str) -> Any:
    """Return the value of `name` in the function that defines `fn`, if it is running: mostly classes in tests."""
    around = fn.__qualname__.split(".")
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name in around and name in frame.f_locals:
            return frame.f_locals[name]
        frame = frame.f_back
    return None
