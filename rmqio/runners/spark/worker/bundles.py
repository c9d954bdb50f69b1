"""Runs a fused stage in a Spark task: feeds rows to Beam's bundle processor, which writes rows."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from apache_beam.transforms.core import CombineFn

from rmqio.runners.spark.beam.patches import collected_finalizers
from rmqio.runners.spark.beam.private import (
    BundleProcessor,
    PipelineContext,
    beam_fn_api_pb2,
    beam_runner_api_pb2,
    pickler_dumps,
)
from rmqio.runners.spark.beam.serving import Channel, Channels, DueTimers
from rmqio.runners.spark.model import RESIDUAL_CHANNEL, SideInput, StageTask, TaskReport
from rmqio.runners.spark.reporting.metrics import consolidate
from rmqio.runners.spark.worker.rows import RowWriter
from rmqio.runners.spark.worker.side_inputs import SideInputBroadcast, SideInputs
from rmqio.runners.spark.worker.spool import Spool
from rmqio.runners.spark.worker.state import TaskState, UserState
from rmqio.runners.spark.worker.timers import Timers
from rmqio.runners.tracebacks.state_errors import StateNotEncodable, declared

if TYPE_CHECKING:
    from apache_beam.coders import Coder

    from rmqio.runners.spark.beam.private import metrics_pb2

TIMER_URL: Final = "spark-task"  # any value: Beam only checks whether a URL is set
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
