"""DoFns that are a function of their element, one after the other, without Beam's hand-over between them.

Between two DoFns Beam makes a windowed value, counts it, looks at its type and changes the current state, which costs
more than most functions that users write. Where neither DoFn asks for more than the element, its time, window and pane,
or side inputs of the global window, and the second one is the only reader of the first, only the function is called and
the state changed. A `WindowInto` is such a function, too. Each stays an operation of its own, so metrics, names in
errors and counts of elements are as ever. Sizes of elements are estimated from fewer of them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.beam.dofns import (
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
from rmqio.runners.spark.beam.private import common_urns, insert_values_in_args, operations
from rmqio.runners.spark.worker.fusion.assigning import assigner
from rmqio.runners.spark.worker.fusion.handover import Following, Function, Handle, combining, inner, last
from rmqio.runners.spark.worker.shuffling.writing import WriteOperation

_MOST: Final = 50
"""Of a stage, the last ones. Steps call each other, one to three frames each, of the 1,000 that Python permits."""
_LIFECYCLE: Final = ("setup", "start_bundle", "finish_bundle", "teardown", "process_batch")

_SLOW_BY_BEAM: Final = ("asking", "windows")


class FusedDoFn(operations.DoOperation):
    """A DoFn that is a function of its element.

    All of its elements go one way, through one copy of the DoFn, which may keep something in itself: Beam's way if
    neither the operation before it nor the one behind it is met without Beam, else our own, also where Beam calls it.
    What Beam calls by window, with parameters that it looks up each time, always goes our own.
    """

    def __init__(self, *args: Any, function: Function, windowing: Any, following: Any) -> None:
        super().__init__(*args)
        _, _, self._counters, self._sampler, _, _ = args
        self._function, self._windowing, self._following = function, windowing, following
        self._passed: Callable[[], int] = int
        self.handle: Handle

    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)  # whoever follows has been set up before
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
        """For the step before it, which from then on calls `handle`."""
        self.process = self._process()
        return Following(self.handle, self.scoped_process_state.__exit__)

    def finish(self) -> None:
        super().finish()
        passed = self._passed()
        if passed:
            self.receivers[0].opcounter.element_counter.update(passed)

    def _hand_over(self) -> Handle:
        """Beam's way for what a function returned for an element."""
        name = self.name_context.logging_name()
        tags, checked = self.spec.output_tags, self._function.is_checked
        return hand_over(self.receivers[0], tags, self._windowing, name, self._counters, checked)

    def _process(self) -> Callable[[WindowedValue], None]:
        handle, leave, raised = self.handle, self.scoped_process_state.__exit__, self._raise

        def process(element: WindowedValue) -> None:
            try:
                handle(element, element.value)
            except BaseException as error:  # noqa: BLE001  raised again, as Beam does it
                raised(error)
            leave(None, None, None)  # to the state before this element

        return process

    def _raise(self, error: BaseException) -> None:
        """Raises it with the name of the step that was running."""
        name = self._sampler.current_state().name_context.logging_name()
        raise_named(error, name, self._windowing, self.receivers[0])


def _following(operation: Any) -> Following | None:
    """What takes values in place of an operation's `process`, for operations that need no more."""
    if isinstance(operation, FusedDoFn):
        return operation.take()
    if isinstance(operation, WriteOperation):
        return Following(operation.handle, None)
    if isinstance(operation, operations.PGBKCVOperation):
        return combining(operation)
    return None


def _function(dofn: Any, args: Any, kwargs: Any, side_inputs: Any) -> Function:
    """That of a DoFn for which `is_function` holds."""
    kind, call, is_checked = wrapped_function(dofn)
    _, defaults = dofn.get_function_arguments("process")
    if any(map(is_parameter, defaults)):
        by_window = any(beam.DoFn.WindowParam == default for default in defaults)
        return Function("asking", _asking(dofn.process, defaults), is_checked, by_window)
    if args or kwargs:
        call = _with_arguments(call, args, kwargs, side_inputs)
    return Function(kind, call, is_checked)


def _asking(process: Any, defaults: Sequence[Any]) -> Callable[[WindowedValue, Any], Any]:
    """The function of an element and its value, with what it asks for first of all."""
    getters = [_ASKED[each] for each in defaults if is_parameter(each)]
    if len(getters) == 1:  # most often so
        (get,) = getters
        return lambda element, value: process(value, get(element))
    return lambda element, value: process(value, *[get(element) for get in getters])


def _only_window(element: WindowedValue) -> Any:
    return element.windows[0]


_ASKED: Final[dict[Any, Callable[[WindowedValue], Any]]] = {
    beam.DoFn.TimestampParam: operator.attrgetter("timestamp"),
    beam.DoFn.PaneInfoParam: operator.attrgetter("pane_info"),
    beam.DoFn.WindowParam: _only_window,
}
"""How a parameter is found. One of a function that was pickled is a copy, which is equal."""


def _with_arguments(function: Any, args: Any, kwargs: Any, side_inputs: Any) -> Callable[[Any], Any]:
    """The function with further arguments, of which side inputs are fetched when the first element comes."""
    found: Any = None

    def fetch() -> Any:
        nonlocal found
        found = insert_values_in_args(args, kwargs, [each[GlobalWindow()] for each in side_inputs])
        return found

    if not kwargs and len(args) == 1:  # most often so

        def with_one(value: Any) -> Any:
            (argument,), _ = found or fetch()
            return function(value, argument)

        return with_one

    def with_all(value: Any) -> Any:
        positional, named = found or fetch()
        return function(value, *positional, **named)

    return with_all


def is_function(dofn: Any, has_arguments: bool = False) -> bool:
    """Whether a DoFn needs its elements and side inputs only: no bundles or batches, nothing to set up.

    If it has no further arguments, it may ask for the time, the window and the pane of its elements.
    """
    if not takes_elements(dofn):
        return False
    # Asked of the instance, which may have them of its own or pass on those of another
    if any(getattr(getattr(dofn, name), "__func__", None) is not getattr(beam.DoFn, name) for name in _LIFECYCLE):
        return False
    names, defaults = dofn.get_function_arguments("process")
    asked = [default for default in defaults if is_parameter(default)]
    if not asked:
        return True
    # Of parameters behind a default of another kind Beam makes something of its own
    are_first = all(map(is_parameter, defaults[: len(asked)]))
    is_plain = not has_arguments and len(names) == len(defaults) + 1
    return is_plain and are_first and all(each in _ASKED for each in asked)


def _create(
    factory: Any, transform_id: str, transform: Any, payload: Any, consumers: dict[str, list[Any]]
) -> operations.DoOperation:
    """As Beam's function for a ParDo, which is asked for all that is no step, and for stages that are not ours."""
    by_beam = functools.partial(create_par_do, factory, transform_id, transform, payload, consumers)
    asks = payload.state_specs or payload.timer_family_specs or payload.restriction_coder_id
    channels = factory.data_channel_factory
    if not _is_fusable(factory, consumers) or asks:
        return by_beam()
    serialized, (dofn, args, kwargs, _, _) = unpickled(payload, factory.context)
    if not is_function(dofn, bool(args or kwargs)):
        return by_beam()
    (source,) = (each for tag, each in transform.inputs.items() if tag not in payload.side_inputs)
    windowing_id = factory.descriptor.pcollections[source].windowing_strategy_id
    windowing = factory.context.windowing_strategies.get_by_id(windowing_id)
    following = _only_reader(consumers)

    def operation(*given: Any) -> operations.DoOperation:
        side_inputs = given[4]
        if not all(each.is_globally_windowed() for each in side_inputs):
            return operations.DoOperation(*given)
        channels.fused += 1
        function = _function(dofn, args, kwargs, side_inputs)
        return FusedDoFn(*given, function=function, windowing=windowing, following=following)

    return create_operation(factory, transform_id, transform, consumers, serialized, payload, operation)


def _create_assigning(
    factory: Any, transform_id: str, transform: Any, payload: Any, consumers: dict[str, list[Any]]
) -> operations.DoOperation:
    """As Beam's function for a `WindowInto`, which it makes a ParDo of."""
    if not _is_fusable(factory, consumers):
        return create_assign_windows(factory, transform_id, transform, payload, consumers)
    windowing = Windowing.from_runner_api(payload, factory.context)
    following = _only_reader(consumers)

    def operation(*given: Any) -> operations.DoOperation:
        factory.data_channel_factory.fused += 1
        function = Function("windows", assigner(windowing.windowfn), False)
        return FusedDoFn(*given, function=function, windowing=windowing, following=following)

    nothing = pickled_nothing()
    return create_operation(factory, transform_id, transform, consumers, nothing, None, operation)


CREATORS: Final[Mapping[str, Callable[..., operations.DoOperation]]] = MappingProxyType(
    {
        common_urns.primitives.PAR_DO.urn: _create,
        common_urns.primitives.ASSIGN_WINDOWS.urn: _create_assigning,
    }
)
"""What makes operations, by the URN of their transform; see `beam.patches`."""


def _is_fusable(factory: Any, consumers: dict[str, list[Any]]) -> bool:
    """Whether an operation with these readers may be a step: of a stage of ours, and not of too many."""
    return len(consumers) == 1 and getattr(factory.data_channel_factory, "fused", _MOST) < _MOST


def _only_reader(consumers: dict[str, list[Any]]) -> Any:
    (readers,) = consumers.values()
    return readers[0] if len(readers) == 1 else None
