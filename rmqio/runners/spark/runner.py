"""SparkRunner and its results: Beam's runner interface on Spark."""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import importlib
import pathlib
import signal
import tempfile
import threading
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, TypeOptions
from apache_beam.options.value_provider import RuntimeValueProvider
from apache_beam.runners import runner
from pyspark.sql.streaming.query import StreamingQuery

from rmqio.runners.beam.portable import reads_among
from rmqio.runners.capabilities import Mode
from rmqio.runners.checkpoints import CheckpointOptions
from rmqio.runners.errors import PipelineFailed
from rmqio.runners.spark.beam import versions
from rmqio.runners.spark.beam.private import (
    EMBEDDED_PYTHON,
    PICKLED_TRANSFORM,
    EmbeddedPythonEnvironment,
    FnApiMetrics,
    common_urns,
    group_by_key_input_visitor,
    metrics_pb2,
    python_sdk_capabilities,
)
from rmqio.runners.spark.bootstrap import bootstrap_for
from rmqio.runners.spark.errors import LOGGER, failure_in, interrupts_unlogged, without_java_frames
from rmqio.runners.spark.execution import Execution
from rmqio.runners.spark.options import SparkOptions, refuse_unsupported, without_effect
from rmqio.runners.spark.reporting import Progress, consolidate, tasks_of
from rmqio.runners.spark.sessions.packaging import packages_for
from rmqio.runners.spark.sessions.session import (
    make_local_folder,
    partitions,
    session_for,
    spark_settings,
    unfit_workers,
)
from rmqio.runners.spark.streaming.execution import StreamExecution, refuse_local, stream_plan
from rmqio.runners.spark.streaming.planned_source import TEST_STREAM, PlannedSource, plan_test_streams
from rmqio.runners.spark.translation import translate
from rmqio.runners.submission import (
    NO_CHECKPOINT_DIR,
    Refused,
    Report,
    check,
    check_positions,
    compare,
    exactly_once_writes,
    look_up_topics,
)
from rmqio.runners.tracebacks import hide_callers

if TYPE_CHECKING:
    from apache_beam import Pipeline
    from pyspark import SparkContext

    from rmqio.runners.spark.beam.private import beam_runner_api_pb2
    from rmqio.runners.spark.model import TaskReport
    from rmqio.runners.spark.reporting import TaskKey


# Refuses speculative tasks with exactly-once writes: Spark runs a slow task twice at once, and both send.

_NAME: Final = "spark.speculation"


def refuse_in_options(writes: Sequence[str], settings: Mapping[str, str]) -> None:
    """Raises `Refused` if the settings of `--spark_conf` speculate and there are exactly-once writes (their names)."""
    if writes and _speculates(settings):
        raise _refused(writes[0], f"--spark_conf {_NAME}={settings[_NAME]}", "Leave it out")


def refuse_in_session(writes: Sequence[str], settings: Mapping[str, str]) -> None:
    """The same for the settings that Spark was started with, wherever they come from."""
    if writes and _speculates(settings):
        remedy = f"Give --spark_conf {_NAME}=false, or set that where Spark is started if it is running already"
        raise _refused(writes[0], f"Spark's setting {_NAME}={settings[_NAME]}", remedy)


def _speculates(settings: Mapping[str, str]) -> bool:
    return settings.get(_NAME, "").strip().lower() == "true"


def _refused(write: str, setting: str, remedy: str) -> Refused:
    return Refused(
        f"{write} is an exactly-once write, and {setting} makes Spark run a second copy of a slow task: neither copy "
        f"sees what the other sends, so messages would be stored twice. {remedy}"
    )


_SUPPORTED = frozenset(
    {
        common_urns.requirements.REQUIRES_STATEFUL_PROCESSING.urn,
        common_urns.requirements.REQUIRES_BUNDLE_FINALIZATION.urn,
        common_urns.requirements.REQUIRES_SPLITTABLE_DOFN.urn,
    }
)


class SparkRunner(runner.PipelineRunner):
    """Runs pipelines on Spark through PySpark, without a job server or containers.

    Bounded pipelines run as Spark jobs. Unbounded pipelines, with `--streaming`, run on Structured Streaming. Spark
    schedules, shuffles, spills and retries. Beam's own worker code runs the fused stages in Spark's Python workers. The
    effects of a task are at least once: if Spark retries a failed task, its external effects happen again.

    Args:
      is_drain: truncates the restrictions of splittable DoFns, as in a drained pipeline.

    Raises:
      LocalError: the version of Beam or PySpark was not tested, and `RMQIO_UNTESTED_VERSIONS` is not 1.
    """

    def __init__(self, is_drain: bool = False) -> None:
        super().__init__()
        versions.check()
        self._is_drain = is_drain

    @interrupts_unlogged()
    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions) -> SparkResult:
        """Starts the pipeline and returns immediately. The result's `wait_until_finish` raises errors."""
        streaming = options.view_as(StandardOptions).streaming
        if streaming:
            versions.check_streams()
        RuntimeValueProvider.set_runtime_options({})
        pipeline.visit(group_by_key_input_visitor(not options.view_as(TypeOptions).allow_non_deterministic_key_coders))
        environment = EmbeddedPythonEnvironment(capabilities=python_sdk_capabilities())
        proto = pipeline.to_runner_api(default_environment=environment)
        if streaming:
            plan_test_streams(proto)
        self._check(proto)
        refuse_unsupported(options)
        check_positions(pipeline)
        report = self.report(proto, options)
        check(report, options)
        if not streaming:
            report.warn_of_options()
        look_up_topics(pipeline, options)
        if streaming:
            plan = stream_plan(copy.deepcopy(proto), self._is_drain)
            # What is refused leaves no folder.
            kept = make_local_folder(options.view_as(CheckpointOptions).checkpoint_dir, spark_settings(options))
            refuse_local(kept, plan)
        else:
            plan = translate(copy.deepcopy(proto), self._is_drain)
        with tempfile.TemporaryDirectory() as folder:
            packages = packages_for(options, pathlib.Path(folder))
            session = session_for(options)
            refuse_in_session(exactly_once_writes(proto), dict(session.sparkContext.getConf().getAll()))
            shipped = packages.ship(session.sparkContext) if packages else None
        limit = options.view_as(SparkOptions).spark_side_input_limit_mb << 20
        values = _plain(options.get_all_options(drop_default=True, retain_unknown_options=True))
        bootstrap = bootstrap_for(options, shipped)
        if streaming:
            stream = StreamExecution(session, plan, options, values, bootstrap)
            result: SparkResult = StreamResult(stream, session.sparkContext)
        else:
            reads = functools.partial(reads_among, pipeline)
            execution = Execution(session, plan, partitions(session), values, limit, bootstrap, reads)
            result = SparkResult(execution, session.sparkContext)
        result.start()
        return result

    def report(self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions) -> Report:
        """Returns how the runner meets the needs of a pipeline, which is in Beam's portable form."""
        refuse_in_options(exactly_once_writes(pipeline), spark_settings(options))
        if not options.view_as(StandardOptions).streaming:
            return compare(pipeline, Mode.SPARK, of_options=without_effect(options))
        kept = options.view_as(CheckpointOptions).checkpoint_dir
        return compare(pipeline, Mode.SPARK_STREAMING, of_options=[] if kept else [NO_CHECKPOINT_DIR])

    looks_up_topics: Final = True
    """For transforms, which need not do in a worker what was done when the pipeline was submitted."""

    def planned_source(self, options: PipelineOptions) -> type[PlannedSource] | None:
        """Returns the transform on which transforms that plan their reads are built; None in bounded pipelines."""
        return PlannedSource if options.view_as(StandardOptions).streaming else None

    def _check(self, proto: beam_runner_api_pb2.Pipeline) -> None:
        for transform in proto.components.transforms.values():
            if transform.spec.urn == TEST_STREAM:
                raise NotImplementedError(f"{transform.unique_name}: TestStream needs --streaming")
            is_leaf = not transform.subtransforms and not set(transform.outputs.values()) <= {
                *transform.inputs.values()
            }
            if is_leaf and transform.spec.urn == PICKLED_TRANSFORM:
                raise NotImplementedError(
                    f"{transform.unique_name}: neither made of other transforms nor a transform of Beam's model. Only "
                    "the runner for which it was made can run it: use that runner, or another transform"
                )
            if transform.environment_id:
                environment = proto.components.environments[transform.environment_id]
                if environment.urn != EMBEDDED_PYTHON:
                    raise NotImplementedError(
                        f"{transform.unique_name}: SparkRunner runs Python transforms only, and this one needs "
                        f"{environment.urn}"
                    )
        self.check_requirements(proto, _SUPPORTED)


class _Execution(Protocol):
    """Runs a plan, bounded or not."""

    running: str

    @property
    def reports(self) -> dict[TaskKey, TaskReport]: ...

    def run(self, progress: Progress) -> None: ...


class SparkResult(runner.PipelineResult):
    """A pipeline that runs on Spark, in its own thread."""

    def __init__(self, execution: _Execution, context: SparkContext) -> None:
        super().__init__(runner.PipelineState.RUNNING)
        self._execution = execution
        self._context = context
        self._tag = f"beam-{uuid.uuid4().hex}"
        self._error: BaseException | None = None
        self._warned = False
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, name="beam-on-spark")
        # Waits use this event instead of the thread: if Ctrl-C interrupts `Thread.join`, Python 3.11 releases the lock
        # that marks the thread as running, and the thread then counts as ended
        self._ended = threading.Event()

    def start(self) -> None:
        """Starts the pipeline."""
        self._thread.start()

    @property
    def state(self) -> str:
        return str(self._state)

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Waits until the pipeline ends, or for `duration` milliseconds. Raises the error that made it fail.

        Raises:
          PipelineFailed: user code failed. The message has its traceback.
        """
        try:
            self._ended.wait(None if duration is None else duration / 1000)
        except KeyboardInterrupt:
            self.cancel()
            raise
        if not self._ended.is_set():
            return self.state
        self._warn()
        if self._error is not None:
            atexit.unregister(self._tell)
            hide_callers()
            raise self._error
        return self.state

    def cancel(self) -> str:
        """Stops the pipeline's Spark jobs and waits until they have ended."""
        self._cancelled = True
        while not self._ended.is_set():
            self._context.cancelJobsWithTag(self._tag)
            self._ended.wait(0.5)  # between two jobs there was no job to stop, so the next turn stops the next job
        return self.state

    def metrics(self) -> FnApiMetrics:
        """Returns the user metrics of the tasks that have ended."""
        return FnApiMetrics(self._infos(), user_metrics_only=True)

    def monitoring_metrics(self) -> FnApiMetrics:
        """Returns all metrics of the tasks that have ended."""
        return FnApiMetrics(self._infos(), user_metrics_only=False)

    def monitoring_infos(self) -> list[metrics_pb2.MonitoringInfo]:
        """Returns all metrics of the tasks that have ended, as Beam's MonitoringInfos."""
        return [info for infos in self._infos().values() for info in infos]

    def _infos(self) -> dict[str, list[metrics_pb2.MonitoringInfo]]:
        found: dict[str, list[metrics_pb2.MonitoringInfo]] = {}
        for (stage, _, _), report in self._execution.reports.items():
            found.setdefault(str(stage), []).extend(map(metrics_pb2.MonitoringInfo.FromString, report.metrics))
        return {stage: consolidate(infos) for stage, infos in found.items()}

    def _run(self) -> None:
        try:
            self._context.addJobTag(self._tag)
            with Progress(functools.partial(tasks_of, self._context, self._tag)) as progress:
                self._execution.run(progress)
            self._state = runner.PipelineState.CANCELLED if self._cancelled else runner.PipelineState.DONE
        except BaseException as error:  # noqa: BLE001  `wait_until_finish` raises it again
            if self._is_given_up:
                self._state = runner.PipelineState.CANCELLED
                return
            trace = failure_in(str(error))
            own = unfit_workers(str(error)) or without_java_frames(error, self._execution.running)
            self._error = PipelineFailed(trace) if trace else own
            self._state = runner.PipelineState.FAILED
            atexit.register(self._tell)
        finally:
            self._ended.set()

    @property
    def _is_given_up(self) -> bool:
        """Whether failures no longer matter, because the pipeline was cancelled."""
        return self._cancelled

    def _tell(self) -> None:
        """Logs the failure at the end of a process that has not waited for the pipeline: nothing else reports it."""
        LOGGER.error("the pipeline failed, and nobody called wait_until_finish: %s", self._error)

    def _warn(self) -> None:
        """Shows each warning of the workers once."""
        if self._warned:
            return
        self._warned = True
        for text, category, filename, line in sorted({w for r in self._execution.reports.values() for w in r.warnings}):
            module, _, name = category.rpartition(".")
            kind = getattr(importlib.import_module(module), name, UserWarning)
            warnings.warn_explicit(text, kind, filename, line)


class StreamResult(SparkResult):
    """A pipeline that runs on Structured Streaming."""

    _execution: StreamExecution
    _stopped_at_once = False

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query, to read its progress; None before it runs. To stop it, call `cancel`."""
        found: StreamingQuery | None = self._execution.query
        return found

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Waits as for a bounded pipeline. While the main thread waits, SIGTERM has the same effect as Ctrl-C."""
        with _terminable():
            return super().wait_until_finish(duration)

    def cancel(self) -> str:
        """Ends the planning, lets the running micro-batch finish and commit, and then stops the pipeline.

        A second call, or a second Ctrl-C, stops the pipeline immediately. The next start then repeats the micro-batch.
        """
        again, self._cancelled = self._cancelled, True
        try:
            self._stop_at_once() if again else self._execution.stop()
            self._ended.wait()
        except KeyboardInterrupt:
            self._stop_at_once()
            self._ended.wait()
            raise
        return self.state

    @property
    def _is_given_up(self) -> bool:
        return self._stopped_at_once  # otherwise, the last micro-batch must finish, and its failure matters

    def _stop_at_once(self) -> None:
        self._stopped_at_once = True
        self._execution.stop_at_once()


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # Also for Ctrl-C: PySpark's own handler cancels all jobs, including the running micro-batch
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plain(options: Mapping[str, object]) -> dict[str, object]:
    """Returns the options that can be sent to a worker. Others, such as callables or a runner, cannot be pickled."""
    plain = (str, int, float, bool, type(None))
    return {
        name: value
        for name, value in options.items()
        if isinstance(value, plain) or (isinstance(value, list) and all(isinstance(each, plain) for each in value))
    }
