"""Calls DoFns that are functions of their element one after the other, without Beam's hand-over between them.

Between two DoFns, Beam makes a windowed value, counts it, looks at its type and changes the current state. This costs
more than most functions that users write. Two DoFns are fused if neither asks for more than the element, its timestamp,
window and pane, or side inputs in the global window, and if the second is the only reader of the first. Then only the
function is called and the state is changed. A `WindowInto` is such a function, too. Each fused DoFn stays an operation
of its own, so metrics, names in errors and element counts do not change. Sizes of elements are estimated from fewer
elements.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import apache_beam as beam
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import (
    BoundedWindow,
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    SlidingWindows,
    WindowFn,
)
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.beam.operations import (
    DoOperation,
    Given,
    by_beam,
    create_assign_windows,
    create_operation,
    create_par_do,
    hand_over,
    is_parameter,
    pickled_nothing,
    raise_named,
    takes_elements,
    unpickled,
    wrapped_function,
)
from rmqio.runners.spark.beam.private import DoOperation as BeamDoOperation
from rmqio.runners.spark.beam.private import Operation as BeamOperation
from rmqio.runners.spark.beam.private import PGBKCVOperation, common_urns, insert_values_in_args
from rmqio.runners.spark.worker.handover import Following, Function, Handle, HandOver, combining, inner, last
from rmqio.runners.spark.worker.writing import WriteOperation

if TYPE_CHECKING:
    from apache_beam.transforms.window import BoundedWindow

    from rmqio.runners.spark.beam.private import BeamTransformFactory, beam_runner_api_pb2


# Assigns Beam's own windows to elements, and looks up by their start the windows that were made before.
#
# Making an `IntervalWindow` costs more than everything else that is done with an element between two functions, and
# most elements are in the same windows as the elements before them.

_MAX_STARTS: Final = 1_000
"""How many starts of windows are remembered."""

Assign = Callable[[WindowedValue, object], tuple[BoundedWindow, ...]]
"""Returns the windows of an element. Takes the element, which is in one window so far, and its value."""


def assigner(windowfn: WindowFn) -> Assign:
    """Returns a function that assigns windows as `windowfn` does, which may be a user's own."""
    context = WindowFn.AssignContext
    if type(windowfn) is GlobalWindows:
        found = tuple(windowfn.assign(context(0)))
        return lambda element, value: found
    period = _period(windowfn)
    if period is None:
        return lambda element, value: tuple(
            windowfn.assign(context(element.timestamp, element=value, window=element.windows[0]))
        )
    offset = windowfn.offset.micros
    known: dict[int, tuple[BoundedWindow, ...]] = {}

    def assign(element: WindowedValue, value: object) -> tuple[BoundedWindow, ...]:
        micros = element.timestamp_micros
        start = micros - (micros - offset) % period
        found = known.get(start)
        if found is None:
            if len(known) == _MAX_STARTS:
                known.clear()
            found = known[start] = tuple(windowfn.assign(context(element.timestamp)))
        return found

    return assign


def _period(windowfn: WindowFn) -> int | None:
    """Returns microseconds, if all timestamps between two of their multiples are in the same windows; else None."""
    if type(windowfn) is FixedWindows:
        return int(windowfn.size.micros)
    if type(windowfn) is SlidingWindows and windowfn.size.micros % windowfn.period.micros == 0:
        return int(windowfn.period.micros)
    return None


_MOST: Final = 50
"""The maximum number of fused DoFns in a stage: its last ones. They call each other with one to three frames each, of
the 1,000 that Python permits."""
_LIFECYCLE: Final = {
    "setup": beam.DoFn.setup,
    "start_bundle": beam.DoFn.start_bundle,
    "finish_bundle": beam.DoFn.finish_bundle,
    "teardown": beam.DoFn.teardown,
    "process_batch": beam.DoFn.process_batch,
}

_SLOW_BY_BEAM: Final = ("asking", "windows")


class FusedDoFn(DoOperation):
    """Runs a DoFn that is a function of its element.

    All of its elements go through one copy of the DoFn, which may keep something in itself, so all take the same way.
    They take Beam's way if Beam stands both before and after this operation. Otherwise, they take our own way, even if
    Beam calls the operation. A DoFn that Beam would call for each window, looking up parameters each time, always takes
    our own way.
    """

    def __init__(
        self, given: Given, *, function: Function, windowing: Windowing, following: BeamOperation | None
    ) -> None:
        super().__init__(given)
        self._function, self._windowing, self._following = function, windowing, following
        self._passed: Callable[[], int] = int
        self.handle: Handle

    def setup(self, data_sampler: object = None) -> None:
        super().setup(data_sampler)  # the operations that follow are already set up
        enter = self.scoped_process_state.__enter__
        following = _following(self._following)
        if following is None:
            self.handle = last(self._function, enter, self._hand_over())
            if self._function.kind in _SLOW_BY_BEAM:
                self.take()
            return
        self.handle, self._passed = inner(self._function, enter, self._hand_over(), following)
        self.take()

    def take(self) -> Following:
        """Changes to our own way. Returns what the operation before it calls from then on."""
        self.process = self._process()
        return Following(self.handle, self.scoped_process_state.__exit__)

    def finish(self) -> None:
        super().finish()
        passed = self._passed()
        if passed:
            self.receivers[0].opcounter.element_counter.update(passed)

    def _hand_over(self) -> HandOver:
        """Returns Beam's way of passing on what the function returned for an element."""
        name = self.name_context.logging_name()
        tags, checked = self.spec.output_tags, self._function.is_checked
        return hand_over(self.receivers[0], tags, self._windowing, name, self.counters, checked)

    def _process(self) -> Callable[[WindowedValue], None]:
        handle, leave, raised = self.handle, self.scoped_process_state.__exit__, self._raise

        def process(element: WindowedValue) -> None:
            try:
                handle(element, element.value)
            except BaseException as error:  # noqa: BLE001  raised again, as in Beam
                raised(error)
            leave(None, None, None)  # back to the state before this element

        return process

    def _raise(self, error: BaseException) -> None:
        """Raises the error with the name of the step that was running."""
        name = self.sampler.current_state().name_context.logging_name()
        raise_named(error, name, self._windowing, self.receivers[0])


def _following(operation: BeamOperation | None) -> Following | None:
    """Returns what takes values in place of an operation's `process`; None if the operation needs more than that."""
    if isinstance(operation, FusedDoFn):
        return operation.take()
    if isinstance(operation, WriteOperation):
        return Following(operation.handle, None)
    if isinstance(operation, PGBKCVOperation):
        return combining(operation)
    return None


class _SideInputMap(Protocol):
    """A side input of an operation, as Beam keeps it: values by window."""

    def __getitem__(self, window: BoundedWindow) -> object: ...

    def is_globally_windowed(self) -> bool: ...


def _function(
    dofn: beam.DoFn, args: Sequence[object], kwargs: Mapping[str, object], side_inputs: Iterable[_SideInputMap]
) -> Function:
    """Returns the function of a DoFn for which `is_function` holds."""
    kind, call, is_checked = wrapped_function(dofn)
    _, defaults = dofn.get_function_arguments("process")
    if any(map(is_parameter, defaults)):
        by_window = any(beam.DoFn.WindowParam == default for default in defaults)
        return Function("asking", _asking(dofn.process, defaults), is_checked, by_window)
    if args or kwargs:
        call = _with_arguments(call, args, kwargs, side_inputs)
    return Function(kind, call, is_checked)


def _asking(process: Callable[..., object], defaults: Sequence[object]) -> Callable[[WindowedValue, object], object]:
    """Returns `process` as a function of an element and its value. Parameters that Beam fills in follow the value."""
    getters = [_ASKED[each] for each in defaults if is_parameter(each)]
    if len(getters) == 1:  # the usual case
        (get,) = getters
        return lambda element, value: process(value, get(element))
    return lambda element, value: process(value, *[get(element) for get in getters])


def _only_window(element: WindowedValue) -> BoundedWindow:
    return element.windows[0]


_ASKED: Final[dict[object, Callable[[WindowedValue], object]]] = {
    beam.DoFn.TimestampParam: operator.attrgetter("timestamp"),
    beam.DoFn.PaneInfoParam: operator.attrgetter("pane_info"),
    beam.DoFn.WindowParam: _only_window,
}
"""How to look up a parameter. A function that was pickled has a copy of the parameter, which compares equal."""


def _with_arguments(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    side_inputs: Iterable[_SideInputMap],
) -> Callable[[object], object]:
    """Returns the function with its further arguments. Side inputs are fetched when the first element arrives."""
    found: tuple[list[object], dict[str, object]] | None = None

    def fetch() -> tuple[list[object], dict[str, object]]:
        nonlocal found
        found = insert_values_in_args(args, kwargs, [each[GlobalWindow()] for each in side_inputs])
        return found

    if not kwargs and len(args) == 1:  # the usual case

        def with_one(value: object) -> object:
            (argument,), _ = found or fetch()
            return function(value, argument)

        return with_one

    def with_all(value: object) -> object:
        positional, named = found or fetch()
        return function(value, *positional, **named)

    return with_all


def is_function(dofn: beam.DoFn, has_arguments: bool = False) -> bool:
    """Returns whether a DoFn needs only its elements and side inputs: no bundles or batches, and nothing to set up.

    If it has no further arguments, it may also ask for the timestamp, window and pane of its elements.
    """
    if not takes_elements(dofn):
        return False
    # The instance is examined: it may have methods of its own, or pass on those of another DoFn
    if any(getattr(getattr(dofn, name), "__func__", None) is not usual for name, usual in _LIFECYCLE.items()):
        return False
    names, defaults = dofn.get_function_arguments("process")
    asked = [default for default in defaults if is_parameter(default)]
    if not asked:
        return True
    # Beam treats parameters after a default of another kind in a way of its own
    are_first = all(map(is_parameter, defaults[: len(asked)]))
    is_plain = not has_arguments and len(names) == len(defaults) + 1
    return is_plain and are_first and all(each in _ASKED for each in asked)


def _create(
    factory: BeamTransformFactory,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.ParDoPayload,
    consumers: dict[str, list[BeamOperation]],
) -> BeamDoOperation:
    """Makes the operation of a ParDo. Calls Beam's function if the DoFn is not fused, or the stage is not ours."""
    usual = functools.partial(create_par_do, factory, transform_id, transform, payload, consumers)
    asks = payload.state_specs or payload.timer_family_specs or payload.restriction_coder_id
    channels = factory.data_channel_factory
    if not _is_fusable(factory, consumers) or asks:
        return usual()
    serialized, (dofn, args, kwargs, _, _) = unpickled(payload, factory.context)
    if not is_function(dofn, bool(args or kwargs)):
        return usual()
    (source,) = (each for tag, each in transform.inputs.items() if tag not in payload.side_inputs)
    windowing_id = factory.descriptor.pcollections[source].windowing_strategy_id
    windowing = factory.context.windowing_strategies.get_by_id(windowing_id)
    following = _only_reader(consumers)

    def operation(given: Given) -> BeamDoOperation:
        if not all(each.is_globally_windowed() for each in given.side_inputs):
            return by_beam(given)
        channels.fused += 1
        function = _function(dofn, args, kwargs, given.side_inputs)
        return FusedDoFn(given, function=function, windowing=windowing, following=following)

    return create_operation(factory, transform_id, transform, consumers, serialized, payload, operation)


def _create_assigning(
    factory: BeamTransformFactory,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.WindowingStrategy,
    consumers: dict[str, list[BeamOperation]],
) -> BeamDoOperation:
    """Makes the operation of a `WindowInto`. Like Beam's function, it makes a ParDo of the `WindowInto`."""
    if not _is_fusable(factory, consumers):
        return create_assign_windows(factory, transform_id, transform, payload, consumers)
    windowing = Windowing.from_runner_api(payload, factory.context)
    following = _only_reader(consumers)

    def operation(given: Given) -> BeamDoOperation:
        factory.data_channel_factory.fused += 1
        function = Function("windows", assigner(windowing.windowfn), False)
        return FusedDoFn(given, function=function, windowing=windowing, following=following)

    nothing = pickled_nothing()
    return create_operation(factory, transform_id, transform, consumers, nothing, None, operation)


CREATORS: Final[Mapping[str, Callable[..., BeamDoOperation]]] = MappingProxyType(
    {
        common_urns.primitives.PAR_DO.urn: _create,
        common_urns.primitives.ASSIGN_WINDOWS.urn: _create_assigning,
    }
)
"""The functions that make operations, by the URN of the transform; see `beam.patches`."""


def _is_fusable(factory: BeamTransformFactory, consumers: Mapping[str, Sequence[BeamOperation]]) -> bool:
    """Returns whether an operation with these readers may be fused: its stage is ours and has room for it."""
    return len(consumers) == 1 and getattr(factory.data_channel_factory, "fused", _MOST) < _MOST


def _only_reader(consumers: Mapping[str, Sequence[BeamOperation]]) -> BeamOperation | None:
    (readers,) = consumers.values()
    return readers[0] if len(readers) == 1 else None
