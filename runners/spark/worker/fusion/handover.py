"""Hands elements from one fused DoFn to the next: functions call functions, in place of Beam's operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue, create

if TYPE_CHECKING:
    from rmqio.runners.spark.beam.private import operations

_FIRST: Final = 10
_EVERY: Final = 128
"""Between fused DoFns, the first `_FIRST` elements and then each `_EVERY`-th go Beam's way, which looks at sizes."""
_UNUSUAL: Final = (WindowedValue, TimestampedValue, TaggedOutput)

Handle = Callable[[WindowedValue, Any], None]
"""Takes an element, and a value that has its timestamp, windows and pane. Enters a state and does not leave it."""

HandOver = Callable[[WindowedValue, Iterable[object] | None], None]
"""Beam's way of passing on what a function returned for an element."""


class Function(NamedTuple):
    """How a DoFn processes an element."""

    kind: str
    """With the value, `call` returns the result ("map"), whether to keep the element ("filter") or results ("flat").
    With the element and its value, it returns results ("asking") or the windows for the value ("windows")."""
    call: Callable[..., Any]
    is_checked: bool
    """Whether Beam checks the first thing that `call` returns."""
    by_window: bool = False
    """Whether `call` is called for each window of an element."""


class Following(NamedTuple):
    """The consumers of a fused DoFn's outputs."""

    handle: Handle
    leave: Callable[[None, None, None], None] | None  # leaves its state, if it has one


def combining(operation: operations.PGBKCVOperation) -> Following:
    """Returns the `Following` of an operation that combines values by key and window before they are shuffled."""
    state, add = operation.scoped_process_state, operation.add_key_value
    enter, leave = state.__enter__, state.__exit__
    is_global, wants_time = operation.is_default_windowing, operation.timestamp_combiner is not None

    def combined(element: WindowedValue, value: tuple[object, object]) -> None:
        enter()
        try:
            key, each = value
            if is_global:
                add(key, each, None)
                return
            time = element.timestamp if wants_time else None
            for window in element.windows:
                add((window, key), each, time)
        except BaseException:
            leave(None, None, None)  # an error gets the name of the DoFn before it, as in Beam
            raise

    return Following(combined, leave)


def last(given: Function, enter: Callable[[], None], hand_over: HandOver) -> Handle:
    """Returns the handle of a fused DoFn after which Beam goes on."""
    function = given.call

    def mapped(element: WindowedValue, value: object) -> None:
        enter()
        hand_over(element, (function(value),))

    def filtered(element: WindowedValue, value: object) -> None:
        enter()
        if function(value):
            hand_over(element, (value,))

    def flattened(element: WindowedValue, value: object) -> None:
        enter()
        hand_over(element, function(value))

    def asked(element: WindowedValue, value: object) -> None:
        enter()
        for each in _by_window(element) if given.by_window else (element,):
            hand_over(each, function(each, value))

    def assigned(element: WindowedValue, value: object) -> None:
        enter()
        for each in _by_window(element):
            hand_over(each, (create(value, element.timestamp_micros, function(each, value)),))

    found = {"map": mapped, "filter": filtered, "flat": flattened, "asking": asked, "windows": assigned}
    return found[given.kind]


def _by_window(element: WindowedValue) -> tuple[WindowedValue, ...]:
    """Returns the element once for each of its windows, in that window alone."""
    if len(element.windows) == 1:
        return (element,)
    value, micros, pane = element.value, element.timestamp_micros, element.pane_info
    return tuple(create(value, micros, (window,), pane) for window in element.windows)


def inner(
    given: Function, enter: Callable[[], None], hand_over: HandOver, behind: Following
) -> tuple[Handle, Callable[[], int]]:
    """Returns the handle of a fused DoFn that another one follows, and a function that counts elements.

    The count is that of the elements which have passed between the two without Beam since the last call.
    """
    function = given.call
    following, leave = behind
    ordinary: set[type] = set()  # types of values, not of what says where a value goes
    left = begun = 1  # elements until one goes Beam's way: now, and when this number was set
    renewals = passed = handed = 0
    first = True

    def aside(element: WindowedValue, value: object) -> None:
        """Takes an element that goes Beam's way, or the first one of its type."""
        if left and not issubclass(type(value), _UNUSUAL):
            ordinary.add(type(value))
            following(element, value)
            return
        count_handed()
        hand_over(element, (value,))

    def count_handed() -> None:
        nonlocal left, begun, renewals, passed, handed
        handed += 1
        if not left:
            passed += begun
            renewals += 1
            left = begun = 1 if renewals < _FIRST else _EVERY

    def mapped(element: WindowedValue, value: object) -> None:
        nonlocal left
        enter()
        result = function(value)
        left -= 1
        if left and type(result) in ordinary:
            following(element, result)
        else:
            aside(element, result)

    def filtered(element: WindowedValue, value: object) -> None:
        nonlocal left
        enter()
        if function(value):
            left -= 1
            if left and type(value) in ordinary:
                following(element, value)
            else:
                aside(element, value)

    def flattened(element: WindowedValue, value: object) -> None:
        enter()
        pass_on(element, function(value))

    def asked(element: WindowedValue, value: object) -> None:
        enter()
        if not given.by_window or len(element.windows) == 1:
            pass_on(element, function(element, value))
            return
        for each in _by_window(element):
            pass_on(each, function(each, value))

    def pass_on(element: WindowedValue, results: Iterable[object] | None) -> None:
        nonlocal left, first
        if first:
            first = False
            hand_over(element, results)  # it rejects what a DoFn must not return
        elif results is not None:
            for result in results:
                left -= 1
                if left and type(result) in ordinary:
                    following(element, result)
                else:
                    aside(element, result)
                if leave is not None:
                    leave(None, None, None)  # leaves its state before the function goes on

    def assigned(element: WindowedValue, value: object) -> None:
        nonlocal left
        enter()
        if len(element.windows) == 1:
            left -= 1
            result = create(value, element.timestamp_micros, function(element, value))
            if left:
                following(result, value)
            else:
                count_handed()
                hand_over(element, (result,))
            return
        for each in _by_window(element):
            hand_over(each, (create(value, element.timestamp_micros, function(each, value)),))

    def taken() -> int:
        nonlocal begun, passed, handed
        found = passed + begun - left - handed
        begun, passed, handed = left, 0, 0
        return found

    found = {"map": mapped, "filter": filtered, "flat": flattened, "asking": asked, "windows": assigned}
    return found[given.kind], taken
