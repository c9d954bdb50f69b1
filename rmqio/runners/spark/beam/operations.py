"""What a worker needs of Beam: bases of operations, of a data channel and of state, and answers about DoFns."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.runners import common
from apache_beam.runners.worker import bundle_processor, data_plane, operations, sdk_worker
from apache_beam.transforms import core

from rmqio.runners.beam.versions import release
from rmqio.runners.spark.beam.private import beam_fn_api_pb2

if TYPE_CHECKING:
    from apache_beam.utils.counters import CounterFactory
    from apache_beam.utils.windowed_value import WindowedValue

    from rmqio.runners.spark.beam.private import CoderImpl, PipelineContext, beam_runner_api_pb2


# Bases of what a bundle processor asks in its own process: a data channel for input and timers, and state.


Family = tuple[str, str]  # transform id, timer family id


class DueTimers(Protocol):
    """Takes the timers that a bundle writes and returns those that are due: `Timers`, or what a stream keeps by key."""

    def stream(self, family: Family, coder: CoderImpl) -> data_plane.ClosableOutputStream:
        """Returns a stream to which the bundle writes the timers of a family. `coder` decodes them."""
        ...

    def due(self) -> Iterator[tuple[Family, bytes]]:
        """Yields encoded timers that fire now, until none is left. Timers that are set in between are included."""
        ...


class Channel(data_plane.DataChannel):
    """Gives a bundle its input, then the timers that are due."""

    def __init__(self, input_id: str) -> None:
        self._input_id = input_id
        self.input: Iterator[bytes] = iter(())
        self.timers: DueTimers | None = None
        self.timer_coder: Callable[[Family], CoderImpl] | None = None

    def input_elements(
        self,
        instruction_id: str,
        expected_inputs: Collection[str | tuple[str, str]],
        abort_callback: Callable[[], bool] | None = None,
    ) -> Iterator[beam_fn_api_pb2.Elements.Data | beam_fn_api_pb2.Elements.Timers]:
        for chunk in self.input:
            yield beam_fn_api_pb2.Elements.Data(transform_id=self._input_id, data=chunk)
        if self.timers is not None:
            for (transform_id, family), timers in self.timers.due():
                yield beam_fn_api_pb2.Elements.Timers(transform_id=transform_id, timer_family_id=family, timers=timers)

    def output_timer_stream(
        self, instruction_id: str, transform_id: str, timer_family_id: str
    ) -> data_plane.ClosableOutputStream:
        assert self.timers is not None
        assert self.timer_coder is not None
        family = (transform_id, timer_family_id)
        return self.timers.stream(family, self.timer_coder(family))

    def output_stream(self, instruction_id: str, transform_id: str) -> data_plane.ClosableOutputStream:
        raise NotImplementedError(
            f"{transform_id}: Beam asked for an output stream, but elements leave a stage only through the write "
            "operations of worker/shuffling/writing.py. This is a bug in SparkRunner: please report it"
        )

    def close(self) -> None:
        pass


class Channels(data_plane.DataChannelFactory):
    """Returns the only channel of the task.

    Write operations find their writer in `rows`. `fused` counts the fused DoFns.
    """

    def __init__(self, channel: Channel, rows: object) -> None:
        self._channel = channel
        self.rows = rows
        self.fused = 0

    def create_data_channel(
        self, remote_grpc_port: beam_fn_api_pb2.RemoteGrpcPort, data_stream_id: str | None = None
    ) -> Channel:
        return self._channel

    def create_data_channel_from_url(self, url: str, data_stream_id: str | None = None) -> Channel:
        return self._channel

    def close(self) -> None:
        pass


class StateHandler(sdk_worker.CachingStateHandler):
    """Serves state without a cache: it is in this process. Subclasses define `blocking_get`, `extend` and `clear`."""

    def __init__(self) -> None:
        """Beam's own would ask for a handler that has a connection, and for a cache."""

    @contextlib.contextmanager
    def process_instruction_id(self, bundle_id: str, cache_tokens: Iterable[object]) -> Iterator[None]:
        yield

    def done(self) -> None:
        pass


# Answers questions about DoFns: which function one wraps, what it asks for, and how Beam passes on its results.

CHECKS_RESULTS: Final = release(beam.__version__) >= (2, 76)
"""Whether Beam rejects a DoFn that returns a str, bytes or a dict."""

_MAP: Final = (beam.Map(len).fn._fn.__code__, beam.Map(lambda x, y=None: (x, y)).fn._fn.__code__)
_FILTER: Final = beam.Filter(len).fn._fn.__code__

create_par_do: Final = bundle_processor.create_par_do
create_assign_windows: Final = bundle_processor.create_assign_windows


def unpickled(
    payload: beam_runner_api_pb2.ParDoPayload, context: PipelineContext
) -> tuple[bytes, tuple[beam.DoFn, Sequence[object], Mapping[str, object], object, object]]:
    """Returns a ParDoPayload's DoFn, args, kwargs, side inputs and windowing: pickled, and unpickled."""
    serialized = core.DoFnInfo.from_runner_api(payload.do_fn, context).serialized_dofn_data()
    return serialized, pickler.loads(serialized)


def pickled_nothing() -> bytes:
    """Returns a pickled DoFn that does nothing, as a placeholder."""
    return bytes(pickler.dumps((beam.DoFn(), (), {}, [], None)))


def wrapped_function(dofn: beam.DoFn) -> tuple[str, Callable[..., Any], bool]:
    """Returns the kind of a DoFn's function, the function, and whether Beam checks the first thing that it returns.

    The function returns the result ("map"), whether to keep the element ("filter"), or results ("flat").
    """
    wraps = isinstance(dofn, core.CallableWrapperDoFn)
    is_checked = not wraps and not inspect.isgeneratorfunction(dofn.process)
    code = getattr(dofn._fn, "__code__", None) if wraps else None
    if code in _MAP or code == _FILTER:
        (cell,) = dofn._fn.__closure__
        return "map" if code in _MAP else "filter", cell.cell_contents, is_checked
    return "flat", dofn.process, is_checked


def takes_elements(dofn: beam.DoFn) -> bool:
    """Returns whether a DoFn's results are plain elements: not batches, and not checked against type hints."""
    return not (hasattr(dofn, "_runtime_output_constraints") or getattr(dofn.process, "_beam_yields_batches", False))


def is_parameter(default: object) -> bool:
    """Returns whether Beam fills in a parameter with this default, such as `DoFn.TimestampParam`."""
    kind = default if isinstance(default, type) else type(default)
    return issubclass(kind, core._DoFnParam)


def hand_over(
    receiver: common.Receiver,
    tags: Iterable[str],
    windowing: core.Windowing,
    name: str,
    counters: CounterFactory,
    is_checked: bool,
) -> Callable[[WindowedValue, Iterable[object] | None], None]:
    """Returns Beam's function that passes on what a DoFn returned for an element. All tags go to one receiver."""
    receivers = operations._TaggedReceivers(counters, name)
    for tag in (None, *tags):
        receivers[tag] = receiver
    checks = (is_checked,) if CHECKS_RESULTS else ()
    args = (windowing.windowfn, receiver, receivers, None, None, False, False, *checks)
    return common._OutputHandler(*args).handle_process_outputs  # type: ignore[no-any-return]


def raise_named(error: BaseException, name: str, windowing: core.Windowing, receiver: common.Receiver) -> None:
    """Raises the error with the name of a step, as Beam does."""
    runner = common.DoFnRunner(beam.DoFn(), [], {}, [], windowing, {None: receiver}, name)
    runner._reraise_augmented(error)


class Given(NamedTuple):
    """The arguments of Beam's DoOperation, in its order."""

    name: common.NameContext
    spec: Any
    counters: CounterFactory
    sampler: Any
    side_inputs: Any
    user_state: Any


class StageOperation(operations.Operation):
    """An operation of a stage that `factory` makes."""

    def __init__(self, name: str, transform_id: str, factory: bundle_processor.BeamTransformFactory) -> None:
        super().__init__(common.NameContext(name, transform_id), None, factory.counter_factory, factory.state_sampler)


class DoOperation(operations.DoOperation):
    """The operation of a ParDo."""

    def __init__(self, given: Given) -> None:
        super().__init__(*given)
        self.counters, self.sampler = given.counters, given.sampler


def by_beam(given: Given) -> operations.DoOperation:
    """Returns Beam's own operation of a ParDo."""
    return operations.DoOperation(*given)


def create_operation(
    factory: bundle_processor.BeamTransformFactory,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    consumers: dict[str, list[operations.Operation]],
    serialized: bytes,
    payload: beam_runner_api_pb2.ParDoPayload | None,
    operation: Callable[[Given], operations.DoOperation],
) -> operations.DoOperation:
    """Makes the operation of a ParDo with `operation`. `serialized` is its pickled DoFn with arguments."""
    return bundle_processor._create_pardo_operation(
        factory, transform_id, transform, consumers, serialized, payload, lambda *given: operation(Given(*given))
    )
