"""Answers questions about DoFns: which function one wraps, what it asks for, and how Beam passes on its results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.runners import common
from apache_beam.runners.worker import bundle_processor, operations
from apache_beam.transforms import core

from rmqio.runners.beam.versions import release

if TYPE_CHECKING:
    from apache_beam.utils.counters import CounterFactory
    from apache_beam.utils.windowed_value import WindowedValue

    from rmqio.runners.spark.beam.private import PipelineContext, beam_runner_api_pb2

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
