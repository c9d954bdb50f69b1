"""Statements without a runner: each transform runs when it is added, on lists in memory. A query takes milliseconds.

A bundle is a whole input, the watermark passes when it has ended, and timers of processing time do not fire.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final
from unittest import mock

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms.ptransform import PTransform
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, TimestampedValue, WindowFn
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.sql.catalog.tables import Table
from rmqio.sql.planning.plan import Sink
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from tests.helpers.transforms.records import record_of

_DOFN: Final = beam.DoFn


class Elements:
    """A PCollection whose elements are there."""

    element_type: Any = None

    def __init__(self, values: Iterable[WindowedValue], windows: WindowFn | None = None) -> None:
        self.values = list(values)
        self.windows = windows or GlobalWindows()

    @property
    def pipeline(self) -> Elements:
        return _START

    def __or__(self, transform: Any) -> Any:
        while type(transform).__name__ == "_NamedPTransform":
            transform = transform.transform
        match transform:
            case beam.Create():
                return Elements(_in_no_window(transform.values))
            case beam.WindowInto():
                return self._windowed(transform.windowing.windowfn)
            case beam.Reshuffle():
                return self
            case beam.CombinePerKey():
                return Elements(self._combined(transform.fn), self.windows)
            case beam.GroupByKey():
                return Elements(self._grouped(), self.windows)
            case beam.ParDo():
                return Elements(_Bundle(transform.fn, self.values).run()[None], self.windows)
        if (inner := getattr(transform, "_do_transform", None)) is not None:
            found = _Bundle(inner.fn, self.values).run()
            tags = {tag: Elements(found.get(tag, ()), self.windows) for tag in transform._tags}
            return tags | {transform._main_tag: Elements(found[None], self.windows)}
        return transform.expand(self)

    def _windowed(self, windows: WindowFn) -> Elements:
        def assigned(each: WindowedValue) -> WindowedValue:
            context = WindowFn.AssignContext(each.timestamp, each.value, each.windows[0])
            return WindowedValue(each.value, each.timestamp, tuple(windows.assign(context)))

        return Elements(map(assigned, self.values), windows)

    def _grouped(self) -> Iterator[WindowedValue]:
        found: dict[tuple[bytes, Any], list[Any]] = {}
        for each in self.values:
            key, value = each.value
            for window in each.windows:
                found.setdefault((key, window), []).append(value)
        for key, windows in self._merged(found).items():
            for window, olds in windows.items():
                values = [value for old in olds for value in found[key, old]]
                yield WindowedValue((key, values), window.max_timestamp(), (window,))

    def _merged(self, found: dict[tuple[bytes, Any], list[Any]]) -> dict[bytes, dict[Any, list[Any]]]:
        keys: dict[bytes, dict[Any, list[Any]]] = {}
        for key, window in found:
            keys.setdefault(key, {})[window] = [window]
        for windows in keys.values():
            if self.windows.is_merging():
                self.windows.merge(_Merging(windows))
        return keys

    def _combined(self, fn: beam.CombineFn) -> Iterator[WindowedValue]:
        fn.setup()
        for each in self._grouped():
            key, values = each.value
            parts = [fn.add_input(fn.create_accumulator(), value) for value in values]
            yield each.with_value((key, fn.extract_output(fn.merge_accumulators(parts))))


class _Merging(WindowFn.MergeContext):
    def __init__(self, windows: dict[Any, list[Any]]) -> None:
        super().__init__(windows)
        self._found = windows

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        olds = [old for each in to_be_merged for old in self._found.pop(each)]
        self._found.setdefault(merge_result, []).extend(olds)


def _in_no_window(values: Iterable[Any]) -> Iterator[WindowedValue]:
    return (WindowedValue(each, MIN_TIMESTAMP, (GlobalWindow(),)) for each in values)


_START: Final = Elements(())


class _Cell(list[Any]):
    """The state or the timer of a key and window: a bag, a value or a time."""

    add = list.append

    def read(self) -> Any:
        return self[0] if self else None

    def write(self, value: Any) -> None:
        self[:] = [value]

    set = write


class _Bag(_Cell):
    def read(self) -> Any:
        return list(self)


class _Bundle:
    """A DoFn and its input."""

    def __init__(self, fn: beam.DoFn, values: Sequence[WindowedValue]) -> None:
        self._fn, self._values = fn, values
        self._cells: dict[Any, _Cell] = {}
        self._timers: dict[Any, Any] = {}
        self._found: dict[str | None, list[WindowedValue]] = {None: []}

    def run(self) -> dict[str | None, list[WindowedValue]]:
        """Returns the elements by their tag; those of the main output have none."""
        for begin in ("setup", "start_bundle"):
            getattr(self._fn, begin, lambda: None)()
        for each in self._values:
            for window in each.windows:
                self._call(self._fn.process, each.value, each.timestamp, window, first=[each.value])
        while due := [(cell[0], place) for place, cell in self._timers.items() if cell]:
            time, place = min(due, key=lambda pair: pair[0])
            self._timers[place].clear()
            key, window, spec = place
            self._call(getattr(self._fn, spec._attached_callback.__name__), (key, None), time, window)
        self._emit(getattr(self._fn, "finish_bundle", lambda: ())(), MIN_TIMESTAMP, GlobalWindow())
        return self._found

    def _call(
        self, method: Callable[..., Any], element: Any, time: Any, window: Any, first: Sequence[Any] = ()
    ) -> None:
        parameters = list(inspect.signature(method).parameters.values())[len(first) :]
        given = [self._given(each.default, element, time, window) for each in parameters]
        self._emit(method(*first, *given), time, window)

    def _given(self, wanted: Any, element: Any, time: Any, window: Any) -> Any:
        if wanted == _DOFN.TimestampParam:
            return time
        if wanted == _DOFN.WindowParam:
            return window
        if wanted == _DOFN.KeyParam:
            return element[0]
        if (state := getattr(wanted, "state_spec", None)) is not None:
            kind = _Bag if type(state).__name__ == "BagStateSpec" else _Cell
            return self._cells.setdefault((element[0], window, state.name), kind())
        spec = wanted.timer_spec
        by_watermark = spec.time_domain == TimeDomain.WATERMARK
        return self._timers.setdefault((element[0], window, spec), _Cell()) if by_watermark else _Cell()

    def _emit(self, results: Iterable[Any] | None, time: Any, window: Any) -> None:
        for each in results or ():
            tag, value = (each.tag, each.value) if isinstance(each, beam.pvalue.TaggedOutput) else (None, each)
            if isinstance(value, TimestampedValue):
                value = WindowedValue(value.value, value.timestamp, (window,))
            elif not isinstance(value, WindowedValue):
                value = WindowedValue(value, time, (window,))
            self._found.setdefault(tag, []).append(value)


class Eager(Translation):
    """Runs the statements. Results and dead letters are lists.

    Attributes:
      bodies: the messages of each table that is read.
      written: what was written into each table: bodies and messages.
      letters: the dead letters.
      is_endless: whether the inputs are such without an end.
    """

    def __init__(self, bodies: dict[str, list[bytes]], *, is_endless: bool) -> None:
        super().__init__(beam.Pipeline(PipelineRunner(), options=PipelineOptions([])), Connection())
        self.pipeline: Any = self
        self.options, self.runner = PipelineOptions([]), PipelineRunner()
        self.bodies, self.is_endless = bodies, is_endless
        self.written: dict[str, list[Any]] = {}
        self.letters: list[Any] = []

    def run(self, sink: Sink) -> list[Any]:
        """Runs a statement. Returns what it has written. Raises `SqlError` if it is refused."""
        with mock.patch.object(PTransform, "__ror__", _flattened):
            self.add(sink)
        return self.written.pop(sink.table.name, [])

    def __or__(self, transform: Any) -> Any:
        return _START | transform

    def _ends(self, table: Table) -> bool:
        return not self.is_endless

    def _read(self, table: Table) -> Any:
        bodies = enumerate(self.bodies[table.name])
        return Elements(_in_no_window([Batch([record_of(body)._replace(queue_offset=at) for at, body in bodies])]))

    def _write(self, sink: Sink, rows: Any, label: str) -> None:
        found = self.written.setdefault(sink.table.name, [])
        for each in rows.values:
            found.extend(each.value)

    def _write_letters(self, table: Table, errors: Any, label: str) -> None:
        self.letters += [each.value for each in errors.values]


def body_of(written: Any) -> bytes:
    """Returns the body of a message, which may stand behind its id."""
    message = written[1] if isinstance(written, tuple) else written
    return message if isinstance(message, bytes) else message.body


def _flattened(transform: Any, inputs: Any, _label: Any = None) -> Elements:
    with contextlib.suppress(AttributeError):
        return Elements(value for each in inputs for value in each.values)
    raise AssertionError(transform)
