"""Beam's FlinkRunner without ceremony: its own job server, defaults for streaming, and a real end of jobs."""

from __future__ import annotations

import copy
import logging
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
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
from rmqio.runners.checkpoints import CheckpointOptions, Exclusive, make_folder
from rmqio.runners.errors import FlinkError
from rmqio.runners.flink.beam import (
    BeamFlinkRunner,
    beam_runner_api_pb2,
    cache_bytes,
    common_urns,
    downloaded,
    identity,
    loopback_environments,
    name_in_flink,
    python_urns,
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
    is_local,
    job_of,
    require_one_checkpoint,
    require_sound,
    sees_folders,
    set_defaults,
)
from rmqio.runners.flink.rest import FlinkJob, FlinkRest
from rmqio.runners.flink.result import FlinkResult
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

# A job that goes on: its checkpoints, which of them it resumes from, and the ids by which Flink finds state in it.

# Finds the checkpoint from which a restarted pipeline resumes: Flink does not look for its last one by itself.

_METADATA: Final = re.compile(r"^(?P<checkpoint>.+/(?:chk-\d+|savepoint-[^/]+))/_metadata$")


def url_of(checkpoint_dir: str) -> str:
    """Return the URL of a folder; one without a scheme is local. Raises `NotReady` if it cannot be created."""
    if "://" in checkpoint_dir:
        return checkpoint_dir
    folder = Path(checkpoint_dir.removeprefix("file:")).absolute()
    make_folder(folder)
    return folder.as_uri()


def newest(url: str) -> str | None:
    """Return the URL of the last complete checkpoint of any job under `url`, or of a later savepoint there, or None.

    Either is complete once it has its `_metadata`. `url` can be on any file system that Beam knows. Raises `LocalError`
    if it cannot be listed.
    """
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    local = url.startswith("file:")
    root = path_of(url) if local else url.rstrip("/")
    try:
        found = FileSystems.match([f"{root}/*/chk-*/_metadata", f"{root}/savepoint-*/_metadata"])
    except (BeamIOError, ValueError) as error:
        raise LocalError(
            f"--checkpoint_dir={url}: it cannot be searched for the last checkpoint ({error}); set "
            "--savepoint_path to resume, and --state_backend_storage_path for new checkpoints"
        ) from error
    complete = [
        (each.last_updated_in_seconds, match["checkpoint"])
        for result in found
        for each in result.metadata_list
        if (match := _METADATA.match(each.path))
    ]
    if not complete:
        return None
    path = max(complete)[1]
    return Path(path).as_uri() if local else path


def require(url: str) -> None:
    """Raises `LocalError` if the given checkpoint or savepoint does not exist on this machine."""
    given = Path(path_of(url) if url.startswith("file:") else url)
    if not (given / "_metadata").is_file() and not given.is_file():
        raise LocalError(f"--savepoint_path={url}: no savepoint or checkpoint, which is a folder with a file _metadata")


def is_older(one: str, other: str) -> bool:
    """Compare two checkpoints or savepoints; False if their file system does not say when they were complete."""
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    def at(url: str) -> float:
        path = path_of(url) if url.startswith("file:") else url
        return float(FileSystems.last_updated(f"{path.rstrip('/')}/_metadata"))

    try:
        return at(one) < at(other)
    except (BeamIOError, ValueError, OSError):
        return False


def path_of(url: str) -> str:
    """Return the folder of a local URL."""
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path)


# Stable operator ids, by which Flink finds a step's state when a job resumes from a checkpoint.
#
# Beam derives the id of a fused stage from the name of the PCollection that the stage reads. If several stages read
# the same one, Beam tells them apart by a number, in the order in which it visits them. That order changes from one
# start of a Python program to the next. Two stages then swap ids: each finds the state of the other one, which Flink
# drops silently, and starts without state.
#
# So each step that keeps state reads a PCollection of its own, named after the step. Its id then also stays the same
# if other steps are added or removed.


def with_own_inputs(pipeline: Any) -> Any:
    """Return a copy of a pipeline, in Beam's portable form, whose steps with state read PCollections of their own.

    A Flatten of one input precedes each such step, and fuses with the step before it. Nothing fuses with what Flink
    runs itself, such as a GroupByKey: there, the added step is in Python, and only if others read the same PCollection,
    since it costs time. Steps with state are those with user state, timers, stable input, or input sorted by time, and
    splittable DoFns, whose restrictions are state.
    """
    found = beam_runner_api_pb2.Pipeline()
    found.CopyFrom(pipeline)
    components = found.components
    parents = {child: each for each in components.transforms.values() for child in each.subtransforms}
    leaves = [each for each in components.transforms.values() if not each.subtransforms]
    by_flink = [each for each in leaves if not each.environment_id]
    by_flink += [
        each for each in components.transforms.values() if each.spec.urn == common_urns.composites.RESHUFFLE.urn
    ]
    of_flink = {at for each in by_flink for at in each.outputs.values()}
    readers = Counter(at for each in leaves for at in each.inputs.values())
    for step_id in sorted(components.transforms):
        step = components.transforms[step_id]
        if step.spec.urn != common_urns.primitives.PAR_DO.urn:
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
        if not _keeps_state(payload):
            continue
        (tag,) = set(step.inputs) - set(payload.side_inputs)
        read = step.inputs[tag]
        is_python = payload.do_fn.urn == python_urns.PICKLED_DOFN_INFO  # another language cannot run our step
        if read in of_flink and (readers[read] == 1 or not is_python):
            continue
        new_id = f"{step_id}/input"
        own = components.pcollections[new_id]
        own.CopyFrom(components.pcollections[read])
        own.unique_name = f"{step.unique_name}/input"
        before = components.transforms[new_id]
        composite, slash, label = step.unique_name.rpartition("/")
        before.unique_name = f"{composite}{slash}Input of {label}"
        before.environment_id = step.environment_id
        before.inputs["0"], before.outputs["None"] = read, new_id
        if read in of_flink:
            before.spec.CopyFrom(identity())
        else:
            before.spec.urn = common_urns.primitives.FLATTEN.urn
        step.inputs[tag] = new_id
        siblings = parents[step_id].subtransforms if step_id in parents else found.root_transform_ids
        siblings.insert(list(siblings).index(step_id), new_id)
    return found


def _keeps_state(payload: Any) -> bool:
    return bool(
        payload.state_specs
        or payload.timer_family_specs
        or payload.restriction_coder_id
        or payload.requires_stable_input
        or payload.requires_time_sorted_input
    )


_LOGGER = logging.getLogger("rmqio.runners.flink")


def require_savepoint(options: PipelineOptions) -> None:
    """Raises `LocalError` if the savepoint to resume from does not exist, as far as this machine can see."""
    given = options.view_as(FlinkOptions).savepoint_path
    if given and is_local(given) and sees_folders(options):
        require(given)


def storage_of(options: PipelineOptions, job: Job, others: Sequence[FlinkJob]) -> tuple[str | None, Path | None]:
    """Return where checkpoints go, and the folder to remove at the end. Finds what the job resumes from."""
    flink, given = options.view_as(FlinkOptions), options.view_as(CheckpointOptions).checkpoint_dir
    if given:
        url = url_of(given)
        found = newest(url)
        if found:
            _require_ended(found, others, options)
        if flink.savepoint_path is None and found:
            _LOGGER.info("resuming from %s", found)
            flink.savepoint_path = found
        elif flink.savepoint_path and found and is_older(flink.savepoint_path, found):
            _LOGGER.warning(
                "--savepoint_path=%s is older than %s in --checkpoint_dir, and takes precedence: the work "
                "since then is repeated",
                flink.savepoint_path,
                found,
            )
        return url, None
    if begins_anew(options, job):
        _LOGGER.warning(NO_CHECKPOINT_DIR)
    if not _is_for_this_run(options):
        return None, None
    # In memory, Flink's default, a checkpoint cannot be larger than 5 MB.
    folder = Path(tempfile.mkdtemp(prefix="rmqio-checkpoint-"))
    return folder.as_uri(), folder


def _require_ended(checkpoint: str, others: Sequence[FlinkJob], options: PipelineOptions) -> None:
    """Raises `LocalError` if the job that made the checkpoint still runs. Its id is the name of a parent folder."""
    for each in others:
        if not each.has_ended and f"/{each.id}/" in checkpoint:
            master = options.view_as(FlinkRunnerOptions).flink_master
            raise LocalError(
                f"--checkpoint_dir: the job {each.name} ({each.id}), which writes checkpoints there, still runs on "
                f"{master}. Cancel it first, or give this pipeline its own folder"
            )


def begins_anew(options: PipelineOptions, job: Job) -> bool:
    """Return whether the same command, run again, would start over although the job has checkpoints."""
    flink = options.view_as(FlinkOptions)
    says_where = flink.savepoint_path or flink.state_backend_storage_path or flink.checkpointing_interval == -1
    return job.unbounded and not says_where and not options.view_as(CheckpointOptions).checkpoint_dir


def hold(options: PipelineOptions) -> Exclusive | None:
    """Keep other programs from resuming from the checkpoint that this one resumes from."""
    given = options.view_as(CheckpointOptions).checkpoint_dir
    if not given or not is_local(given):
        return None
    return Exclusive(f"file:{path_of(url_of(given))}")


def _is_for_this_run(options: PipelineOptions) -> bool:
    """Return whether checkpoints, without `--checkpoint_dir`, go to a folder that is removed at the end."""
    flink = options.view_as(FlinkOptions)
    return is_embedded(options) and not flink.state_backend_storage_path and flink.checkpointing_interval != -1


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
