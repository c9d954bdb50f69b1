"""What Beam finds faster is what it found before, whatever the function, the DoFn or the value."""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import objsize
import pytest
from apache_beam.runners.worker import statecache
from apache_beam.transforms import core, userstate

from rmqio.runners import options
from rmqio.runners.beam import speedups
from rmqio.runners.beam.speedups import arguments_and_defaults, state_and_timers


class Stateful(beam.DoFn):
    COUNT = userstate.CombiningValueStateSpec("count", sum)
    DUE = userstate.TimerSpec("due", userstate.TimeDomain.WATERMARK)

    def process(
        self, element: object, stamp: Any = beam.DoFn.TimestampParam, count: Any = beam.DoFn.StateParam(COUNT)
    ) -> None:
        count.add(1)

    @userstate.on_timer(DUE)
    def due(self, again: Any = beam.DoFn.TimerParam(DUE)) -> None:
        again.clear()


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
        assert found(arguments_and_defaults, function) == found(speedups._inspect, function), function


def test_they_are_what_beam_finds_in_all_methods_of_beam() -> None:
    seen = 0
    for kind in [each for each in gc.get_objects() if isinstance(each, type)]:
        if str(kind.__module__).startswith("apache_beam.transforms"):
            for function in [each for each in vars(kind).values() if isinstance(each, types.FunctionType)]:
                for each in (function, types.MethodType(function, object())):
                    assert found(arguments_and_defaults, each) == found(speedups._inspect, each), each
                    seen += 1
    assert seen > 1_000


def test_lists_belong_to_the_caller() -> None:
    names, defaults = arguments_and_defaults(_all_have_defaults)
    names.clear()
    defaults.append("more")
    assert arguments_and_defaults(_all_have_defaults) == (["a", "b"], [1, 2])


class Stateless(beam.DoFn):
    def process(self, element: object) -> None: ...


class Replaced(Stateful):
    """Its objects have another method of the same name."""

    def __init__(self, process: Callable[..., None]) -> None:
        self.process = process  # type: ignore[method-assign]


class Computed(Stateless):
    def __init__(self, method: Callable[..., None]) -> None:
        self._due = [method]

    @property
    def due(self) -> Callable[..., None]:
        return self._due[0]


class Dynamic(Stateless):
    def __init__(self, name: str) -> None:
        self._name = [name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), "process_" + self._name[0]]

    def __getattr__(self, name: str) -> object:
        if name.startswith("process_"):
            return Stateful().process
        raise AttributeError(name)


class Inspected(Stateless):
    def __init__(self, *defaults: object) -> None:
        self._defaults = defaults

    def _inspect_process(self) -> tuple[list[str], list[object]]:
        return ["element", *map(str, range(len(self._defaults)))], [*self._defaults]


class Twice(beam.DoFn):
    def process(
        self,
        element: object,
        a: Any = beam.DoFn.StateParam(Stateful.COUNT),
        b: Any = beam.DoFn.StateParam(Stateful.COUNT),
    ) -> None: ...


def of_state(dofn: beam.DoFn, find: Callable[[beam.DoFn], object]) -> object:
    try:
        return find(dofn)
    except ValueError as error:
        return str(error)


def test_state_and_timers_are_what_beam_finds() -> None:
    stateful, count = Stateful(), beam.DoFn.StateParam(Stateful.COUNT)
    dofns = [
        *(beam.DoFn(), Stateless(), stateful, beam.Map(len).fn, beam.Map(lambda each: each).fn, beam.Filter(bool).fn),
        *(beam.Map(stateful.process).fn, Replaced(print), Replaced(stateful.process), Replaced(Stateless().process)),
        *(Computed(print), Computed(stateful.due), Dynamic("a"), Inspected(), Inspected(count), Twice()),
    ]
    expected = [of_state(each, speedups._find_specs) for each in dofns]
    assert len({str(each) for each in expected}) > 4, "they differ"
    for order in (range(len(dofns)), reversed(range(len(dofns)))):  # the first of a class does not speak for others
        for at in order:
            assert of_state(dofns[at], state_and_timers) == expected[at], dofns[at]


def test_sets_belong_to_the_caller() -> None:
    state_and_timers(Stateful())[0].clear()
    assert state_and_timers(Stateful())[0] == {Stateful.COUNT}


def test_values_of_state_have_the_sizes_that_beam_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["text", [1, {"a": Stateful()}], core, print, found, (found, core), Inspected(core, found), range]
    monkeypatch.setattr(objsize.default_settings, "exclude_modules_globals", True)
    expected = [statecache.get_deep_size(each) for each in values]
    options([])
    assert not objsize.default_settings.exclude_modules_globals
    assert [statecache.get_deep_size(each) for each in values] == expected


def test_pipelines_with_our_options_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "get_function_args_defaults", speedups._inspect)
    options([])
    assert core.get_function_args_defaults is arguments_and_defaults
