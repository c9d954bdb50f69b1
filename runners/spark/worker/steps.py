"""DoFns that are a function of their element, one after the other, without Beam's hand-over between them.

Between two DoFns Beam makes a windowed value, counts it, looks at its type and changes the current state, which costs
more than most functions that users write. Where neither DoFn asks for more than the element and side inputs of the
global window, and the second one is the only reader of the first, only the function is called and the state changed.
Each stays an operation of its own, so metrics, names in errors and counts of elements are as ever. Sizes of elements
are estimated from fewer of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.internal.util import insert_values_in_args
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.beam_private import (
    bundle_processor,
    common,
    common_urns,
    core,
    operations,
)
from rmqio.runners.spark.worker.writing import WriteOperation

_FIRST: Final = 10
_EVERY: Final = 128
"""Of the elements between two steps the first ones, and then each so many-th, go Beam's way, which looks at sizes."""
_MOST: Final = 50
"""Of a stage, the last ones. Steps call each other, one to three frames each, of the 1,000 that Python permits."""
_LIFECYCLE: Final = ("setup", "start_bundle", "finish_bundle", "teardown", "process_batch")
_UNUSUAL: Final = (WindowedValue, TimestampedValue, TaggedOutput)

_PAR_DO: Final = common_urns.primitives.PAR_DO.urn

Handle = Callable[[WindowedValue, Any], None]
"""Takes a value, and the element whose timestamp, windows and pane it has. Enters a state and does not leave it."""


class Function(NamedTuple):
    """What a DoFn does with an element."""

    kind: str
    """`call` gives the result ("map"), says whether to keep the element ("filter"), or gives results ("flat")."""
    call: Callable[[Any], Any]
    is_checked: bool
    """Whether Beam looks at the first thing that it returns."""


class Following(NamedTuple):
    """What comes behind a step."""

    handle: Handle
    leave: Callable[[Any, Any, Any], None] | None  # its state, if it has one


class Step(operations.DoOperation):
    """A DoFn that is a function of its element.

    All of its elements go one way, through one copy of the DoFn, which may keep something in itself: Beam's way if
    neither the operation before it nor the one behind it is met without Beam, else our own, also where Beam calls it.
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
            self.handle = _last(self._function, enter, self._hand_over())
            return
        self.handle, self._passed = _inner(self._function, enter, self._hand_over(), following)
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
        receivers = operations._TaggedReceivers(self._counters, name)
        for tag in (None, *self.spec.output_tags):
            receivers[tag] = self.receivers[0]
        checked = self._function.is_checked
        args = (self._windowing.windowfn, self.receivers[0], receivers, None, None, False, False, checked)
        return common._OutputHandler(*args).handle_process_outputs  # type: ignore[no-any-return]

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
        receivers = {None: self.receivers[0]}
        common.DoFnRunner(beam.DoFn(), [], {}, [], self._windowing, receivers, name)._reraise_augmented(error)


def _following(operation: Any) -> Following | None:
    """What takes values in place of an operation's `process`, for operations that need no more."""
    if isinstance(operation, Step):
        return operation.take()
    if isinstance(operation, WriteOperation):
        return Following(operation.handle, None)
    if isinstance(operation, operations.PGBKCVOperation) and operation.is_default_windowing:
        state, add = operation.scoped_process_state, operation.add_key_value
        enter, leave = state.__enter__, state.__exit__

        def combined(element: WindowedValue, value: Any) -> None:
            enter()
            try:
                key, each = value
                add(key, each, None)
            except BaseException:
                leave(None, None, None)  # an error has the name of the DoFn before it, as Beam gives it
                raise

        return Following(combined, leave)
    return None


def _last(given: Function, enter: Callable[[], None], hand_over: Handle) -> Handle:
    """The step behind which Beam goes on."""
    function = given.call

    def mapped(element: WindowedValue, value: Any) -> None:
        enter()
        hand_over(element, (function(value),))

    def filtered(element: WindowedValue, value: Any) -> None:
        enter()
        if function(value):
            hand_over(element, (value,))

    def flattened(element: WindowedValue, value: Any) -> None:
        enter()
        hand_over(element, function(value))

    return {"map": mapped, "filter": filtered, "flat": flattened}[given.kind]


def _inner(
    given: Function, enter: Callable[[], None], hand_over: Handle, behind: Following
) -> tuple[Handle, Callable[[], int]]:
    """A step behind which another follows, and what tells how many elements have passed between them beside Beam."""
    function = given.call
    following, leave = behind
    ordinary: set[type] = set()  # types of values, not of what says where a value goes
    left = begun = 1  # elements until one goes Beam's way: now, and when that number was set
    renewals = passed = handed = 0
    first = True

    def aside(element: WindowedValue, value: Any) -> None:
        """For an element that goes Beam's way, or the first one of its type."""
        nonlocal left, begun, renewals, passed, handed
        if left and not issubclass(type(value), _UNUSUAL):
            ordinary.add(type(value))
            following(element, value)
            return
        handed += 1
        if not left:
            passed += begun
            renewals += 1
            left = begun = 1 if renewals < _FIRST else _EVERY
        hand_over(element, (value,))

    def mapped(element: WindowedValue, value: Any) -> None:
        nonlocal left
        enter()
        result = function(value)
        left -= 1
        if left and type(result) in ordinary:
            following(element, result)
        else:
            aside(element, result)

    def filtered(element: WindowedValue, value: Any) -> None:
        nonlocal left
        enter()
        if function(value):
            left -= 1
            if left and type(value) in ordinary:
                following(element, value)
            else:
                aside(element, value)

    def flattened(element: WindowedValue, value: Any) -> None:
        nonlocal left, first
        enter()
        results = function(value)
        if first:
            first = False
            hand_over(element, results)  # it refuses what no DoFn may return
        elif results is not None:
            for result in results:
                left -= 1
                if left and type(result) in ordinary:
                    following(element, result)
                else:
                    aside(element, result)
                if leave is not None:
                    leave(None, None, None)  # its state: the function may go on only now

    def taken() -> int:
        nonlocal begun, passed, handed
        found = passed + begun - left - handed
        begun, passed, handed = left, 0, 0
        return found

    return {"map": mapped, "filter": filtered, "flat": flattened}[given.kind], taken


_MAP: Final = (beam.Map(len).fn._fn.__code__, beam.Map(lambda x, y=None: (x, y)).fn._fn.__code__)
_FILTER: Final = beam.Filter(len).fn._fn.__code__


def _function(dofn: Any, args: Any, kwargs: Any, side_inputs: Any) -> Function:
    """That of a DoFn for which `is_function` holds."""
    kind, call = "flat", dofn.process
    wraps = isinstance(dofn, core.CallableWrapperDoFn)
    code = getattr(dofn._fn, "__code__", None) if wraps else None
    if code in _MAP or code == _FILTER:
        (cell,) = dofn._fn.__closure__
        kind, call = "map" if code in _MAP else "filter", cell.cell_contents
    if args or kwargs:
        call = _with_arguments(call, args, kwargs, side_inputs)
    return Function(kind, call, not wraps and not inspect.isgeneratorfunction(dofn.process))


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


def is_function(dofn: Any) -> bool:
    """Whether a DoFn needs its elements and side inputs only: no parameters, bundles or batches, nothing to set up."""
    if hasattr(dofn, "_runtime_output_constraints") or getattr(dofn.process, "_beam_yields_batches", False):
        return False
    # Asked of the instance, which may have them of its own or pass on those of another
    if any(getattr(getattr(dofn, name), "__func__", None) is not getattr(beam.DoFn, name) for name in _LIFECYCLE):
        return False
    _, defaults = dofn.get_function_arguments("process")
    return not any(_is_parameter(default) for default in defaults)


def _is_parameter(default: Any) -> bool:
    """Whether Beam fills it in: `DoFn.TimestampParam` and the like."""
    kind = default if isinstance(default, type) else type(default)
    return issubclass(kind, core._DoFnParam)


def take_steps() -> None:
    """Has Beam make `Step`s for our stages, in this process. Idempotent."""
    known = bundle_processor.BeamTransformFactory._known_urns
    creator, payload = known[_PAR_DO]
    if creator is bundle_processor.create_par_do:
        known[_PAR_DO] = (_create, payload)


def _create(
    factory: Any, transform_id: str, transform: Any, payload: Any, consumers: dict[str, list[Any]]
) -> operations.DoOperation:
    """As Beam's function for a ParDo, which is asked for all that is no step, and for stages that are not ours."""
    by_beam = functools.partial(bundle_processor.create_par_do, factory, transform_id, transform, payload, consumers)
    asks = payload.state_specs or payload.timer_family_specs or payload.restriction_coder_id
    channels = factory.data_channel_factory
    if not hasattr(channels, "steps") or channels.steps >= _MOST or asks or len(consumers) != 1:
        return by_beam()
    serialized = core.DoFnInfo.from_runner_api(payload.do_fn, factory.context).serialized_dofn_data()
    dofn, args, kwargs, _, _ = pickler.loads(serialized)
    if not is_function(dofn):
        return by_beam()
    (source,) = (each for tag, each in transform.inputs.items() if tag not in payload.side_inputs)
    windowing_id = factory.descriptor.pcollections[source].windowing_strategy_id
    windowing = factory.context.windowing_strategies.get_by_id(windowing_id)
    (readers,) = consumers.values()
    following = readers[0] if len(readers) == 1 else None

    def operation(*given: Any) -> operations.DoOperation:
        side_inputs = given[4]
        if not all(each.is_globally_windowed() for each in side_inputs):
            return operations.DoOperation(*given)
        channels.steps += 1
        function = _function(dofn, args, kwargs, side_inputs)
        return Step(*given, function=function, windowing=windowing, following=following)

    return bundle_processor._create_pardo_operation(
        factory, transform_id, transform, consumers, serialized, payload, operation
    )
