"""The function that `mapInArrow` runs for a stage. One thread runs the bundles, and Spark's thread takes their rows."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider
from apache_beam.transforms.core import CombineFn
from pyspark import TaskContext

from rmqio.repeats import Attempt, in_attempt
from rmqio.runners.spark.beam import patches
from rmqio.runners.spark.beam.operations import Channel, Channels, DueTimers
from rmqio.runners.spark.beam.patches import collected_finalizers
from rmqio.runners.spark.beam.private import (
    ENCODED_IMPULSE_VALUE,
    BundleProcessor,
    PipelineContext,
    beam_fn_api_pb2,
    beam_runner_api_pb2,
    pickler_dumps,
)
from rmqio.runners.spark.bootstrap import begin
from rmqio.runners.spark.model import RESIDUAL_CHANNEL, Form, SideInput, StageTask, TaskReport
from rmqio.runners.spark.reporting import consolidate
from rmqio.runners.spark.worker import fusion, writing
from rmqio.runners.spark.worker.rows import RowQueue, RowWriter, threaded
from rmqio.runners.spark.worker.shuffling import Row, by_key, chunks, grouped
from rmqio.runners.spark.worker.state import SideInputBroadcast, SideInputs, Spool, TaskState, Timers, UserState
from rmqio.runners.tracebacks import StateNotEncodable, declared

if TYPE_CHECKING:
    from apache_beam.coders import Coder

    from rmqio.runners.spark.beam.private import metrics_pb2


# Runs a fused stage in a Spark task: feeds rows to Beam's bundle processor, which writes rows.

_CAPABILITIES: Final = frozenset[str]()


class Bundles:
    """Runs the bundles of one task of a stage. After the last bundle, call `close`, which tears down the DoFns."""

    def __init__(
        self,
        task: StageTask,
        broadcasts: Mapping[str, SideInputBroadcast],
        rows: RowWriter,
        spool: Spool,
        report: TaskReport,
        waits_for_finalizers: bool = True,
    ) -> None:
        """Args: `waits_for_finalizers`: residuals of a bundle with finalizers leave as rows, to run after them."""
        self._task = task
        self._rows = rows
        self._report = report
        self._metrics: list[metrics_pb2.MonitoringInfo] = []
        descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(task.descriptor)
        self.context = PipelineContext(descriptor)
        self.state = TaskState(SideInputs(task.side_inputs, broadcasts, self.context.coders.get_by_id), spool)
        self._channel = Channel(task.input.transform_id)
        self._processor = BundleProcessor(_CAPABILITIES, descriptor, self.state, Channels(self._channel, rows))
        self.descriptor = descriptor
        self.timer_coders = {family: info.timer_coder_impl for family, info in self._processor.timers_info.items()}
        self._event_time = {family: _in_event_time(descriptor, *family) for family in self.timer_coders}
        self._channel.timer_coder = self.timer_coders.__getitem__
        self._kept_timers: DueTimers | None = None
        self._waits_for_finalizers = waits_for_finalizers
        self._used = False

    @property
    def side_specs(self) -> Sequence[SideInput]:
        """The side inputs of the stage."""
        return self._task.side_inputs

    @property
    def input_id(self) -> str:
        """The id of the transform from which a bundle's elements come."""
        return self._task.input.transform_id

    def combine_fn(self, payload: beam_runner_api_pb2.CombinePayload) -> CombineFn:
        """Returns the CombineFn of a CombinePayload."""
        return CombineFn.from_runner_api(payload.combine_fn, self.context)

    @property
    def input_coder(self) -> Coder:
        """The coder of a bundle's input elements."""
        read = self.descriptor.transforms[self.input_id].spec.payload
        return self.context.coders.get_by_id(beam_fn_api_pb2.RemoteGrpcPort.FromString(read).coder_id)

    def keep(self, user_state: UserState, timers: DueTimers) -> None:
        """Makes the next bundles keep state and timers in these objects, which outlive a bundle.

        See `streaming.state.user_state`.
        """
        self.state.serve(user_state)
        self._kept_timers = timers

    def run_once(self, chunks: Iterator[bytes]) -> list[beam_fn_api_pb2.DelayedBundleApplication]:
        """Runs one bundle over encoded elements, and returns its residuals."""
        residuals, finalizes = self._bundle(chunks)
        if finalizes:
            self._carry_finalizers()
        return list(residuals)

    def run(self, chunks: Iterator[bytes]) -> None:
        """Runs one bundle over encoded elements, then bundles over its residuals.

        The residuals of a splittable DoFn run here, in the same task, after the delay that they request. A bundle that
        registered finalizers must be committed first, however, so its residuals leave as rows.
        """
        while True:
            residuals, finalizes = self._bundle(chunks)
            if finalizes:
                self._carry_finalizers()
            if not residuals:
                return
            elements = [residual.application.element for residual in residuals]
            delay_s = min(delay_of(residual) for residual in residuals)
            if finalizes and self._waits_for_finalizers:
                self._report.delay_s = min(delay_s, self._report.delay_s) if self._report.residuals else delay_s
                self._report.residuals += len(elements)
                for element in elements:
                    self._rows.write(RESIDUAL_CHANNEL, 0, None, element)
                return
            if delay_s > 0:
                self._rows.flush()
                time.sleep(delay_s)
            chunks = iter(elements)

    def _bundle(self, chunks: Iterator[bytes]) -> tuple[Sequence[beam_fn_api_pb2.DelayedBundleApplication], bool]:
        if self._used:
            self._processor.reset()
        self._used = True
        self._channel.input = chunks
        self._channel.timers = self._kept_timers or (Timers(self._event_time) if self._event_time else None)
        try:
            residuals, finalizes = self._processor.process_bundle(uuid.uuid4().hex)
        except StateNotEncodable as error:
            raise declared(self.descriptor, error) from None
        self._add_metrics(self._processor.monitoring_infos())
        return residuals, finalizes

    def _carry_finalizers(self) -> None:
        for callback in collected_finalizers(self._processor):
            try:
                self._report.finalizers.append(pickler_dumps(callback))
            except Exception as error:
                raise ValueError(
                    f"{self._task.name}: the bundle finalizer {callback!r} does not pickle ({error}). On Spark, "
                    "finalizers run in the driver, after the output of their bundle is safe. Register a callback that "
                    "can be pickled"
                ) from error

    def _add_metrics(self, infos: list[metrics_pb2.MonitoringInfo]) -> None:
        self._metrics = consolidate([*self._metrics, *infos]) if self._metrics else infos

    def take_report(self) -> TaskReport:
        """Returns the report of what has run since the last call. For `Bundles` that are kept."""
        report, self._report = self._report, TaskReport(os.getpid())
        report.metrics = [info.SerializeToString() for info in self._metrics]
        self._metrics = []
        return report

    def close(self, failed: bool) -> None:
        """Tears down the DoFns and completes the report. After a failure, errors in a teardown do not hide it."""
        self._report.metrics = [info.SerializeToString() for info in self._metrics]
        with contextlib.suppress(Exception) if failed else contextlib.nullcontext():
            self._processor.shutdown()


def _in_event_time(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, transform_id: str, family: str) -> bool:
    payload = beam_runner_api_pb2.ParDoPayload.FromString(descriptor.transforms[transform_id].spec.payload)
    domain = payload.timer_family_specs[family].time_domain
    return bool(domain == beam_runner_api_pb2.TimeDomain.EVENT_TIME)


def delay_of(residual: beam_fn_api_pb2.DelayedBundleApplication) -> float:
    """Returns how many seconds a residual asks to wait."""
    if not residual.HasField("requested_time_delay"):
        return 0.0
    delay = residual.requested_time_delay
    return float(delay.seconds + delay.nanos / 1e9)


# Informs the transforms that write in a task whether the task may repeat work of an earlier attempt.


def running_attempt(*, is_planned_before: bool = False, commits_together: bool = False) -> AbstractContextManager[None]:
    """Returns a context manager for the bundles of a task, which sets the attempt that transforms see.

    It does not detect that Spark runs a stage again because the machine with its shuffle files is lost. Spark gives
    Python the attempt number of a task, but not that of its stage.

    Args:
      is_planned_before: whether an earlier run of the query had already planned the micro-batch.
      commits_together: whether the task belongs to a micro-batch.
    """
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    return in_attempt(Attempt(is_planned_before or attempt > 0, commits_together))


Warned = tuple[str, str, str, int]
_KEYED_BUNDLE_BYTES: Final = 4 << 20  # bounds the keys whose state is in memory at the same time


def run_stage(
    task: StageTask,
    broadcasts: Mapping[str, SideInputBroadcast],
    send: Callable[[TaskReport], None],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yields the rows that a stage writes for the rows of one partition. On success, `send` receives the report."""
    report = TaskReport(os.getpid())

    def work(rows: RowQueue) -> None:
        with recorded() as report.warnings:
            _run(task, broadcasts, RowWriter(rows), report, batches)

    yield from threaded(work, task.name)
    send(report)


def _run(
    task: StageTask,
    broadcasts: Mapping[str, SideInputBroadcast],
    rows: RowWriter,
    report: TaskReport,
    batches: Iterable[pa.RecordBatch],
) -> None:
    if task.bootstrap is not None:
        begin(task.bootstrap)  # before any object of the user is unpickled
    found = _input(task, batches)
    first = next(found, None)
    if first is None:
        return  # the partition is empty: no setup and no bundle, as in Beam's runners
    found = itertools.chain([first], found)
    prepared(task.options)
    spool = Spool()
    bundles = Bundles(task, broadcasts, rows, spool, report)
    failed = True
    try:
        with running_attempt():
            for bundle in _bundles(task, bundles, found, spool):
                bundles.run(bundle)
                spool.clear()
        rows.flush()
        failed = False
    finally:
        bundles.close(failed)
        spool.close()


def prepared(options: Mapping[str, object]) -> None:
    """Prepares this process for bundles of a pipeline with these options."""
    patches.apply({**writing.CREATORS, **fusion.CREATORS})
    # Beam logs here what is raised anyway, on each attempt
    logging.getLogger("apache_beam.runners.common").setLevel(logging.CRITICAL)
    RuntimeValueProvider.set_runtime_options(dict(options))
    FileSystems.set_options(PipelineOptions.from_dictionary(dict(options)))


def _bundles(
    task: StageTask, bundles: Bundles, found: Iterator[bytes | Row], spool: Spool
) -> Iterator[Iterator[bytes]]:
    """Yields the input of each bundle of this partition: one bundle, unless state or spooled groups require more."""
    if task.input.form is Form.KEYED:
        yield from _keyed(cast("Iterator[Row]", found), bundles)
    elif task.input.form is Form.GROUPED:
        group = task.input.group
        assert group is not None
        kv_coder = bundles.context.coders.get_by_id(group.kv_coder_id)
        windowing = bundles.context.windowing_strategies.get_by_id(group.windowing_id)
        rows = cast("Iterator[Row]", found)
        elements = grouped(rows, group.grouping, kv_coder, windowing, spool)
        more = True
        while more:
            cut = _UntilSpooled(elements, spool)
            yield chunks(cut)
            more = cut.more
    else:
        yield cast("Iterator[bytes]", found)


class _UntilSpooled:
    """Yields elements up to the first whose group is on disk, so that the end of the bundle frees the disk."""

    def __init__(self, elements: Iterator[bytes], spool: Spool) -> None:
        self._elements = elements
        self._spool = spool
        self.more = False

    def __iter__(self) -> Iterator[bytes]:
        for element in self._elements:
            yield element
            if self._spool.used:
                self.more = True
                return


def _keyed(rows: Iterator[Row], bundles: Bundles) -> Iterator[Iterator[bytes]]:
    """Yields bundles of whole keys. A key's elements are together, so its state ends with the bundle."""
    keys = by_key(rows)

    def bundle(key_rows: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        while True:
            for value in key_rows:
                size += len(value)
                yield value
            if size >= _KEYED_BUNDLE_BYTES:
                return
            following = next(keys, None)
            if following is None:
                return
            key_rows = following[1]

    for _, key_rows in keys:
        yield bundle(key_rows)
        bundles.state.forget_keys()


def _input(task: StageTask, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes | Row]:
    """Yields chunks of encoded elements, or (key, value) rows, from Spark's batches."""
    if task.input.impulse:
        # Reads all batches: Spark does not reuse a worker that leaves input unread, and a new worker takes 0.3 s
        if sum(batch.num_rows for batch in batches):
            yield ENCODED_IMPULSE_VALUE
        return
    by_keys = task.input.form in (Form.GROUPED, Form.KEYED)
    for batch in batches:
        values = batch.column("value").to_pylist()
        yield from zip(batch.column("key").to_pylist(), values, strict=True) if by_keys else values


class recorded:
    """Collects the warnings of user code for the report: a worker raises them, and the driver shows them."""

    def __init__(self) -> None:
        self._found: list[Warned] = []
        self._catch = warnings.catch_warnings()

    def __enter__(self) -> list[Warned]:
        self._catch.__enter__()
        warnings.simplefilter("always")
        warnings.showwarning = self._show  # type: ignore[assignment]
        return self._found

    def __exit__(self, *error: Any) -> None:
        self._catch.__exit__(*error)

    def _show(self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        found = (str(message), f"{category.__module__}.{category.__qualname__}", filename, lineno)
        if found not in self._found:
            self._found.append(found)
