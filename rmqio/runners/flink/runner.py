"""Beam's FlinkRunner without ceremony: its own job server, defaults for streaming, and a real end of jobs."""

from __future__ import annotations

import copy
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
)

from rmqio.errors import LocalError
from rmqio.runners.beam import versions
from rmqio.runners.capabilities import TABLE, Cell, Mode, Requirement, Verdict
from rmqio.runners.checkpoints import CheckpointOptions
from rmqio.runners.errors import FlinkError
from rmqio.runners.flink.beam import (
    BeamFlinkRunner,
    cache_bytes,
    downloaded,
    loopback_environments,
    name_in_flink,
    to_pool,
)
from rmqio.runners.flink.jobserver import SERVERS, Server, Wanted
from rmqio.runners.flink.jobserver_command import LOCAL_MASTER, STREAM_RESTARTS, Value, says_restarts
from rmqio.runners.flink.options import (
    EMBEDDED,
    FlinkOptions,
    Job,
    dangers,
    flink_conf,
    goes_on,
    is_embedded,
    job_of,
    require_one_checkpoint,
    require_sound,
    set_defaults,
)
from rmqio.runners.flink.rest import FlinkJob, FlinkRest
from rmqio.runners.flink.result import FlinkResult
from rmqio.runners.flink.resuming import begins_anew, hold, require_savepoint, storage_of, with_own_inputs
from rmqio.runners.flink.workers import start_pool
from rmqio.runners.submission import (
    NO_CHECKPOINT_DIR,
    Report,
    check,
    check_positions,
    compare,
    exactly_once_writes,
    look_up_topics,
    refusing,
)

LOGGER = logging.getLogger("rmqio.runners.flink")


class FlinkRunner(BeamFlinkRunner):
    """Runs pipelines on Flink with Beam's own runner: on a Flink inside a job server that it starts, or on a cluster.

    `--flink_master`: "[local]" (default) for the embedded Flink, or host:port of a cluster's REST endpoint. With
    `--job_endpoint` it uses a job server that is already running; with `--flink_submit_uber_jar`, none.

    A streaming job takes a checkpoint every 10 s, keeps its state in RocksDB, and resumes from the last checkpoint in
    `--checkpoint_dir` after a restart. Without that option, its checkpoints go to a temporary folder.

    Raises `LocalError` for unsuitable options and pipelines, and on a Beam that it was not tested with (unless
    `RMQIO_UNTESTED_VERSIONS` is 1); `JobServerError` if no job server is available.
    """

    looks_up_topics: Final = True
    """For transforms, which need not do in a worker what was done when the pipeline was submitted."""

    def report(self, pipeline: Any, options: PipelineOptions) -> Report:
        """Report how Flink meets the needs of a pipeline in portable form. Raises `LocalError` for a bad option."""
        options = copy.deepcopy(options)
        require_sound(options)
        require_savepoint(options)
        job, given = job_of(pipeline, options), options.view_as(CheckpointOptions).checkpoint_dir
        require_one_checkpoint(options, job, exactly_once_writes(pipeline))
        set_defaults(options, job, given)
        said = dangers(options, job)
        if not job.streaming:
            return compare(pipeline, Mode.FLINK, of_options=said)
        if begins_anew(options, job):
            said.append(NO_CHECKPOINT_DIR)
        return compare(pipeline, Mode.FLINK_STREAMING, of_options=said, instead=_instead(options))

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Submit the pipeline and return its result, which waits for the end of the job."""
        check_positions(pipeline)
        look_up_topics(pipeline, options)
        return super().run_pipeline(pipeline, options)

    def run_portable_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Run the pipeline with Beam's runner, as described above."""
        versions.check("FlinkRunner")
        with refusing():
            check(self.report(pipeline, options), options)
        options = copy.deepcopy(options)  # the user's can serve the next pipeline, too, which must not resume from here
        flink, portable = options.view_as(FlinkRunnerOptions), options.view_as(PortableOptions)
        job = job_of(pipeline, options)
        embedded = is_embedded(options)
        server: Server | None = None
        temporary: Path | None = None
        others: list[FlinkJob] = []
        with refusing():
            held = hold(options) if job.streaming else None

        def ended() -> None:
            if server is not None:
                SERVERS.give_back(server)
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            if held is not None:
                held.close()

        try:
            with refusing():
                if not portable.job_endpoint and not flink.flink_submit_uber_jar and not embedded:
                    others = _jobs_of(flink.flink_master)
                storage, temporary = storage_of(options, job, others) if job.streaming else (None, None)
            set_defaults(options, job, storage)
            for danger in dangers(options, job):
                LOGGER.warning("%s", danger)
            if not portable.job_endpoint and not flink.flink_submit_uber_jar:
                server = SERVERS.take(_wanted(options, job))
                portable.job_endpoint = server.jobs.endpoint
                if embedded:
                    flink.flink_master = LOCAL_MASTER
            beams = super().run_portable_pipeline(with_own_inputs(pipeline) if job.streaming else pipeline, options)
        except BaseException:
            ended()
            raise
        rest = FlinkRest(server.rest) if server is not None else None
        if rest is not None:
            LOGGER.info("Flink's REST endpoint is %s", rest.url)
        return FlinkResult(
            beams,
            rest,
            name_in_flink(beams),
            ended,
            others=[each.id for each in others],
            goes_with_job=embedded and job.unbounded,
            is_stream=job.streaming,
        )

    def default_environment(self, options: PipelineOptions) -> Any:
        """Do what Beam's does, but make no list of this process's packages if the workers run in it: that takes 1 s."""
        kind = options.view_as(PortableOptions).environment_type
        if kind == "LOOPBACK" or (not kind and is_embedded(options)):
            options = copy.deepcopy(options)
            options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
        return super().default_environment(options)

    @staticmethod
    def start_and_replace_loopback_environments(pipeline: Any, options: PipelineOptions) -> list[Callable[[], None]]:
        """Do what Beam's does, but offer the workers of this process on the loopback interface only."""
        stops = []
        for environment in loopback_environments(pipeline):
            cache, buffer_limit_ms = cache_bytes(options)
            address, stop = start_pool(processes=False, cache_bytes=cache, buffer_limit_ms=buffer_limit_ms)
            to_pool(environment, address)
            stops.append(stop)
        return stops


def _jobs_of(master: str) -> list[FlinkJob]:
    """Return the jobs of a cluster. Raises `LocalError` if it does not answer, which Beam would wait a minute for."""
    try:
        return FlinkRest(master).jobs()
    except FlinkError as error:
        raise LocalError(f"--flink_master={master}: {error}") from error


def _instead(options: PipelineOptions) -> dict[Requirement, Cell]:
    """Return the cells that options change for a stream."""
    row = {
        need: TABLE[need][Mode.FLINK_STREAMING]
        for need in (Requirement.SIDE_INPUTS, Requirement.FINALIZATION, Requirement.KEPT_STATE)
    }
    refused = row[Requirement.SIDE_INPUTS]
    flink = options.view_as(FlinkOptions)
    if flink.checkpointing_interval == -1:
        return {
            Requirement.SIDE_INPUTS: refused._replace(verdict=Verdict.YES, text="as long as there are no checkpoints"),
            Requirement.FINALIZATION: row[Requirement.FINALIZATION]._replace(
                verdict=Verdict.WARNED, text="never: no checkpoints"
            ),
            Requirement.KEPT_STATE: row[Requirement.KEPT_STATE]._replace(
                verdict=Verdict.WARNED, text="without checkpoints a restart starts from scratch"
            ),
        }
    instead = _instead_of_side_inputs(options, refused)
    if flink.checkpointing_mode == "AT_LEAST_ONCE":
        instead[Requirement.KEPT_STATE] = row[Requirement.KEPT_STATE]._replace(
            verdict=Verdict.WARNED, text="at least once: after a failure it may have counted elements twice"
        )
    return instead


def _instead_of_side_inputs(options: PipelineOptions, refused: Cell) -> dict[Requirement, Cell]:
    if options.view_as(PortableOptions).job_endpoint or options.view_as(FlinkRunnerOptions).flink_job_server_jar:
        text = "unless the job server is newer than Beam 2.62, it fails at the first checkpoint"
        return {Requirement.SIDE_INPUTS: refused._replace(verdict=Verdict.WARNED, text=text)}
    return {}


def _wanted(options: PipelineOptions, job: Job) -> Wanted:
    flink, ours = options.view_as(FlinkRunnerOptions), options.view_as(FlinkOptions)
    given = options.view_as(JobServerOptions)
    master = LOCAL_MASTER if flink.flink_master in EMBEDDED else flink.flink_master
    jar = flink.flink_job_server_jar
    conf: dict[str, Value] = {**flink_conf(options)}
    if master == LOCAL_MASTER and goes_on(options, job) and not says_restarts(conf):
        conf |= STREAM_RESTARTS
    if master == LOCAL_MASTER and ours.savepoint_path:
        # Beam's job server passes it to clusters only; an embedded Flink would silently start without it.
        conf["execution.savepoint.path"] = ours.savepoint_path
        conf["execution.savepoint.ignore-unclaimed-state"] = "true" if ours.allow_non_restored_state else "false"
    return Wanted(
        flink_master=master,
        jar=downloaded(jar) if jar and "://" in jar else jar,
        heap_mb=ours.flink_heap_mb,
        flink_conf=tuple(sorted(conf.items())),
        artifacts_dir=given.artifacts_dir,
        verbose=LOGGER.isEnabledFor(logging.INFO),
    )
