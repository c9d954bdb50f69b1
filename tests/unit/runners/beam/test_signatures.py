"""The arguments of functions: those that Beam's own inspection finds, whatever the function."""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms import core, userstate

from rmqio.runners import options
from rmqio.runners.beam import signatures
from rmqio.runners.beam.signatures import arguments_and_defaults


class Stateful(beam.DoFn):
    COUNT = userstate.CombiningValueStateSpec("count", sum)
    DUE = userstate.TimerSpec("due", userstate.TimeDomain.WATERMARK)

    def process(
        self, element: object, stamp: Any = beam.DoFn.TimestampParam, count: Any = beam.DoFn.StateParam(COUNT)
    ) -> None:
        count.add(1)

    @userstate.on_timer(DUE)
    def due(self, count: Any = beam.DoFn.StateParam(COUNT)) -> None:
        count.clear()


def _wraps(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def _with_options(a: int, /, b: int, c: int = 3, *more: int, d: int, e: int = 5, **others: int) -> None: ...


def _all_have_defaults(a: int = 1, b: int = 2) -> None: ...


def _only_more(*more: int) -> None: ...


class Odd:
    def __call__(self, a: int, b: int = 2) -> None: ...

    @classmethod
    def of_class(cls, a: int = 1) -> None: ...

    @staticmethod
    def static(a: int, b: int = 2) -> None: ...


def functions() -> Iterator[Any]:
    named = (_with_options, _all_have_defaults, _only_more)
    plain: tuple[Callable[..., Any], ...] = (*named, lambda: None, lambda a, b=[]: a)
    yield from plain
    yield from map(_wraps, plain)
    yield from (types.MethodType(each, object()) for each in named)
    yield from (Odd(), Odd().of_class, Odd.of_class, Odd.static, functools.partial(_with_options, 1), len, str.strip)
    yield from (dict.get, {}.get, Odd, int)
    for dofn in (beam.DoFn(), beam.Map(len).fn, beam.Filter(bool).fn, Stateful()):
        yield from (getattr(dofn, name) for name in dir(dofn) if isinstance(getattr(dofn, name), types.MethodType))


def found(read: Callable[[Any], Any], function: Any) -> tuple[list[str], list[int]] | type[Exception]:
    """Names, and the identities of the defaults."""
    try:
        names, defaults = read(function)
    except (TypeError, ValueError) as error:
        return type(error)
    return list(names), [id(each) for each in defaults]


def test_they_are_what_beam_finds() -> None:
    for function in functions():
        assert found(arguments_and_defaults, function) == found(signatures._inspect, function), function


def test_they_are_what_beam_finds_in_all_methods_of_beam() -> None:
    seen = 0
    for kind in [each for each in gc.get_objects() if isinstance(each, type)]:
        if str(kind.__module__).startswith("apache_beam.transforms"):
            for function in [each for each in vars(kind).values() if isinstance(each, types.FunctionType)]:
                for each in (function, types.MethodType(function, object())):
                    assert found(arguments_and_defaults, each) == found(signatures._inspect, each), each
                    seen += 1
    assert seen > 1_000


def test_lists_belong_to_the_caller() -> None:
    names, defaults = arguments_and_defaults(_all_have_defaults)
    names.clear()
    defaults.append("more")
    assert arguments_and_defaults(_all_have_defaults) == (["a", "b"], [1, 2])


def test_pipelines_with_our_options_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "get_function_args_defaults", signatures._inspect)
    options([])
    assert core.get_function_args_defaults is arguments_and_defaults
