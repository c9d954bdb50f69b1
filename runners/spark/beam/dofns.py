"""What a DoFn is inside Beam: the function that it wraps, what it asks for, and Beam's way on from its results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms import core

from rmqio.runners.spark.beam.private import bundle_processor, common, operations, pickler
from rmqio.runners.spark.beam.versions import release

CHECKS_RESULTS: Final = release(beam.__version__) >= (2, 76)
"""Whether a DoFn that returns a str, bytes or a dict is an error to Beam."""

_MAP: Final = (beam.Map(len).fn._fn.__code__, beam.Map(lambda x, y=None: (x, y)).fn._fn.__code__)
_FILTER: Final = beam.Filter(len).fn._fn.__code__

create_par_do: Final = bundle_processor.create_par_do
create_assign_windows: Final = bundle_processor.create_assign_windows
create_operation: Final = bundle_processor._create_pardo_operation
"""Makes the operation of a ParDo by a function that is given what `DoOperation` takes."""


def unpickled(payload: Any, context: Any) -> tuple[bytes, tuple[Any, ...]]:
    """The DoFn of a ParDoPayload with its arguments and more: pickled, and not."""
    serialized = core.DoFnInfo.from_runner_api(payload.do_fn, context).serialized_dofn_data()
    return serialized, pickler.loads(serialized)


def pickled_nothing() -> bytes:
    """A DoFn that does nothing, in the place of one."""
    return bytes(pickler.dumps((beam.DoFn(), (), {}, [], None)))


def wrapped_function(dofn: Any) -> tuple[str, Callable[..., Any], bool]:
    """The function that gives a DoFn's results, and whether Beam looks at the first thing that it returns.

    It gives the result ("map"), says whether to keep the element ("filter"), or gives results ("flat").
    """
    wraps = isinstance(dofn, core.CallableWrapperDoFn)
    is_checked = not wraps and not inspect.isgeneratorfunction(dofn.process)
    code = getattr(dofn._fn, "__code__", None) if wraps else None
    if code in _MAP or code == _FILTER:
        (cell,) = dofn._fn.__closure__
        return "map" if code in _MAP else "filter", cell.cell_contents, is_checked
    return "flat", dofn.process, is_checked


def takes_elements(dofn: Any) -> bool:
    """Whether its results are elements as they are: neither batches, nor checked as they come."""
    return not (hasattr(dofn, "_runtime_output_constraints") or getattr(dofn.process, "_beam_yields_batches", False))


def is_parameter(default: Any) -> bool:
    """Whether Beam fills it in: `DoFn.TimestampParam` and the like."""
    kind = default if isinstance(default, type) else type(default)
    return issubclass(kind, core._DoFnParam)


def hand_over(
    receiver: Any, tags: Iterable[str], windowing: Any, name: str, counters: Any, is_checked: bool
) -> Callable[[Any, Any], None]:
    """Beam's way for what a DoFn returned for an element. All tags go to one receiver."""
    receivers = operations._TaggedReceivers(counters, name)
    for tag in (None, *tags):
        receivers[tag] = receiver
    checks = (is_checked,) if CHECKS_RESULTS else ()
    args = (windowing.windowfn, receiver, receivers, None, None, False, False, *checks)
    return common._OutputHandler(*args).handle_process_outputs  # type: ignore[no-any-return]


def raise_named(error: BaseException, name: str, windowing: Any, receiver: Any) -> None:
    """Raises it with the name of a step, as Beam does it."""
    runner = common.DoFnRunner(beam.DoFn(), [], {}, [], windowing, {None: receiver}, name)
    runner._reraise_augmented(error)
