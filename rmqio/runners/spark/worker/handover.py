"""Hands elements from one fused DoFn to the next: functions call functions, in place of Beam's operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue, create

if TYPE_CHECKING:
    from rmqio.runners.spark.beam.private import PGBKCVOperation

_FIRST: Final = 10
_EVERY: Final = 128
"""Between fused DoFns, the first `_FIRST` elements and then each `_EVERY`-th go Beam's way, which looks at sizes."""
_AT_ONCE: Final = 1  # elements until one goes Beam's way: it is the first one
_UNUSUAL: Final = (WindowedValue, TimestampedValue, TaggedOutput)

Handle = Callable[[WindowedValue, Any], None]
"""Takes an element, and a value that has its timestamp, windows and pane. Enters a state and does not leave it."""

HandOver = Callable[[WindowedValue, Iterable[object] | None], None]
"""Beam's way of passing on what a function returned for an element."""

Count = Callable[[], int]
"""Returns how many elements have passed between two fused DoFns without Beam since the last call."""


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


def combining(operation: PGBKCVOperation) -> Following:
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


def inner(given: Function, enter: Callable[[], None], hand_over: HandOver, behind: Following) -> tuple[Handle, Count]:
    """Returns the handle of a fused DoFn that another one follows, and a function that counts elements.

    The count is that of the elements which have passed between the two without Beam since the last call.
    """
    return _INNER[given.kind](given, enter, hand_over, behind)


class _Sampling:
    """Says which elements between two fused DoFns go Beam's way, and counts the others.

    `left`, the number of elements until one goes Beam's way, is a variable of the function that passes the elements on:
    to count it down here would be a call for each element.
    """

    __slots__ = ("_begun", "_handed", "_passed", "_renewals", "ordinary")

    def __init__(self) -> None:
        self.ordinary: set[type] = set()
        """The types of values that have passed. None of them says where a value goes."""
        self._begun = _AT_ONCE  # `left` when it was last set
        self._renewals = self._passed = self._handed = 0

    def passes(self, value: object) -> bool:
        """Returns whether the first value of its type may pass without Beam."""
        kind = type(value)
        if issubclass(kind, _UNUSUAL):
            return False
        self.ordinary.add(kind)
        return True

    def renewed(self, left: int) -> int:
        """Counts an element that goes Beam's way. Returns `left`, set again if this element was the one that was due.

        Call it before the element is handed over.
        """
        self._handed += 1
        if left:
            return left
        self._passed += self._begun
        self._renewals += 1
        self._begun = 1 if self._renewals < _FIRST else _EVERY
        return self._begun

    def taken(self, left: int) -> int:
        """Returns how many elements have passed without Beam since the last call."""
        found = self._passed + self._begun - left - self._handed
        self._begun, self._passed, self._handed = left, 0, 0
        return found


def _mapping(
    given: Function, enter: Callable[[], None], hand_over: HandOver, behind: Following
) -> tuple[Handle, Count]:
    function, following, sampling, left = given.call, behind.handle, _Sampling(), _AT_ONCE
    ordinary = sampling.ordinary

    def mapped(element: WindowedValue, value: object) -> None:
        nonlocal left
        enter()
        result = function(value)
        left -= 1
        if left and (type(result) in ordinary or sampling.passes(result)):
            following(element, result)
        else:
            left = sampling.renewed(left)
            hand_over(element, (result,))

    return mapped, lambda: sampling.taken(left)


def _filtering(
    given: Function, enter: Callable[[], None], hand_over: HandOver, behind: Following
) -> tuple[Handle, Count]:
    function, following, sampling, left = given.call, behind.handle, _Sampling(), _AT_ONCE
    ordinary = sampling.ordinary

    def filtered(element: WindowedValue, value: object) -> None:
        nonlocal left
        enter()
        if function(value):
            left -= 1
            if left and (type(value) in ordinary or sampling.passes(value)):
                following(element, value)
            else:
                left = sampling.renewed(left)
                hand_over(element, (value,))

    return filtered, lambda: sampling.taken(left)


def _flattening(
    given: Function, enter: Callable[[], None], hand_over: HandOver, behind: Following
) -> tuple[Handle, Count]:
    function = given.call
    pass_on, taken = _passing_on(hand_over, behind)

    def flattened(element: WindowedValue, value: object) -> None:
        enter()
        pass_on(element, function(value))

    return flattened, taken


def _asking(given: Function, enter: Callable[[], None], hand_over: HandOver, behind: Following) -> tuple[Handle, Count]:
    function, by_window = given.call, given.by_window
    pass_on, taken = _passing_on(hand_over, behind)

    def asked(element: WindowedValue, value: object) -> None:
        enter()
        if not by_window or len(element.windows) == 1:
            pass_on(element, function(element, value))
            return
        for each in _by_window(element):
            pass_on(each, function(each, value))

    return asked, taken


def _passing_on(hand_over: HandOver, behind: Following) -> tuple[HandOver, Count]:
    """Returns a function that passes on the results of a DoFn, one by one, and the function that counts them."""
    following, leave = behind
    sampling, left, first = _Sampling(), _AT_ONCE, True
    ordinary = sampling.ordinary

    def pass_on(element: WindowedValue, results: Iterable[object] | None) -> None:
        nonlocal left, first
        if first:
            first = False
            hand_over(element, results)  # it rejects what a DoFn must not return
        elif results is not None:
            for result in results:
                left -= 1
                if left and (type(result) in ordinary or sampling.passes(result)):
                    following(element, result)
                else:
                    left = sampling.renewed(left)
                    hand_over(element, (result,))
                if leave is not None:
                    leave(None, None, None)  # leaves its state before the function goes on

    return pass_on, lambda: sampling.taken(left)


def _assigning(
    given: Function, enter: Callable[[], None], hand_over: HandOver, behind: Following
) -> tuple[Handle, Count]:
    function, following, sampling, left = given.call, behind.handle, _Sampling(), _AT_ONCE

    def assigned(element: WindowedValue, value: object) -> None:
        nonlocal left
        enter()
        if len(element.windows) == 1:
            left -= 1
            result = create(value, element.timestamp_micros, function(element, value))
            if left:
                following(result, value)
            else:
                left = sampling.renewed(left)
                hand_over(element, (result,))
            return
        for each in _by_window(element):
            hand_over(each, (create(value, element.timestamp_micros, function(each, value)),))

    return assigned, lambda: sampling.taken(left)


_INNER: Final[Mapping[str, Callable[[Function, Callable[[], None], HandOver, Following], tuple[Handle, Count]]]] = {
    "map": _mapping,
    "filter": _filtering,
    "flat": _flattening,
    "asking": _asking,
    "windows": _assigning,
}
"""By `Function.kind`: the function that makes the handle of a DoFn which another one follows."""
