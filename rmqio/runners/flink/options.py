"""Flink options that Beam's Python side does not know, and the defaults of a streaming job."""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)

from rmqio.errors import LocalError
from rmqio.runners.checkpoints import CheckpointOptions
from rmqio.runners.flink.beam import finalizes, has_no_end
from rmqio.runners.flink.jobserver_command import SMALLEST_HEAP_MB, Settings

DEFAULT_INTERVAL_MS: Final = 10_000
SHORTEST_INTERVAL_MS: Final = 10
"""Flink rejects shorter intervals."""
SHUTDOWN_AFTER_IDLE_MS: Final = 1_000
EMBEDDED: Final = ("[local]", "[auto]")
_NAME_AND_VALUE: Final = re.compile(r"[^=\s]+=.*")


class FlinkOptions(PipelineOptions):
    """Options that the job server understands and Beam's `FlinkRunnerOptions` lack, and `--flink_conf`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--flink_conf",
            action="append",
            metavar="NAME=VALUE",
            help="A setting of the embedded Flink, e.g. taskmanager.memory.network.max=256m. Repeatable.",
        )
        add(
            "--flink_heap_mb",
            type=int,
            default=512,
            help="Heap of the job server, which the tasks of the embedded Flink share. Default: %(default)s.",
        )
        add(
            "--checkpointing_interval",
            type=int,
            metavar="MS",
            help=f"Time between checkpoints of a streaming job; -1: none. Default: {DEFAULT_INTERVAL_MS}.",
        )
        add("--checkpointing_mode", choices=["EXACTLY_ONCE", "AT_LEAST_ONCE"], help="Default: EXACTLY_ONCE.")
        add("--state_backend", metavar="NAME", help="Default of a streaming job: rocksdb, or the cluster's.")
        add("--state_backend_storage_path", metavar="URL", help="Where checkpoints go. Default: --checkpoint_dir.")
        add("--externalized_checkpoints_enabled", action="store_true", default=None, help="Default of a streaming job.")
        add(
            "--retain_externalized_checkpoints_on_cancellation",
            action="store_true",
            default=None,
            help="Default of a streaming job.",
        )
        add(
            "--num_concurrent_checkpoints",
            type=int,
            metavar="N",
            help="How many checkpoints may be made at the same time. Default: 1, which exactly-once writes need.",
        )
        add(
            "--finish_bundle_before_checkpointing",
            action="store_true",
            default=None,
            help="Finish bundles before each checkpoint. Streaming jobs always do this.",
        )
        add("--savepoint_path", metavar="URL", help="A savepoint or checkpoint to resume from.")
        add(
            "--allow_non_restored_state",
            action="store_true",
            default=None,
            help="Drop state that belongs to no step of the pipeline.",
        )
        add("--shutdown_sources_after_idle_ms", type=int, metavar="MS", help="When a source that has ended shuts down.")


@dataclass(frozen=True, slots=True)
class Job:
    """The properties of a job on which defaults depend."""

    streaming: bool
    unbounded: bool
    """Whether one of its PCollections is unbounded."""


def job_of(pipeline: Any, options: PipelineOptions) -> Job:
    """Describe a pipeline in Beam's portable form. Flink streams an unbounded one, whatever the options say.

    It also streams one that finalizes bundles, as a read with a consumer group does: Flink's batch mode refuses that
    (Beam's #19526).
    """
    unbounded = has_no_end(pipeline)
    return Job(unbounded or finalizes(pipeline) or bool(options.view_as(StandardOptions).streaming), unbounded)


def set_defaults(options: PipelineOptions, job: Job, storage: str | None) -> None:
    """Fill in what the user has not set. `storage`: the URL for checkpoints; None: as the cluster is configured."""
    flink = options.view_as(FlinkOptions)
    if not job.streaming:
        if flink.savepoint_path:
            raise LocalError("--savepoint_path: this pipeline is bounded, and without --streaming a batch job")
        return
    options.view_as(StandardOptions).streaming = True
    # Otherwise, Beam holds back the output of a bundle that a checkpoint interrupts until the next bundle or watermark
    # of that step. If the first checkpoint comes before a read has begun, neither arrives, and nothing is ever read.
    flink.finish_bundle_before_checkpointing = True
    if flink.checkpointing_interval is None:
        flink.checkpointing_interval = DEFAULT_INTERVAL_MS
    if flink.checkpointing_interval < 0:
        return
    if flink.checkpointing_mode is None:
        flink.checkpointing_mode = "EXACTLY_ONCE"
    if flink.state_backend_storage_path is None and storage is not None:
        flink.state_backend_storage_path = storage
    # Beam refuses a state backend without a path for its checkpoints; then the cluster's own backend applies.
    if flink.state_backend is None and flink.state_backend_storage_path is not None:
        flink.state_backend = "rocksdb"
    flink.externalized_checkpoints_enabled = True
    flink.retain_externalized_checkpoints_on_cancellation = True
    if not job.unbounded and flink.shutdown_sources_after_idle_ms is None:
        # With checkpoints, Beam keeps a source that has ended, and with it the job, running forever.
        flink.shutdown_sources_after_idle_ms = SHUTDOWN_AFTER_IDLE_MS


def require_sound(options: PipelineOptions) -> None:
    """Raises `LocalError` for values that would make Flink or the job server fail later."""
    ours, theirs = options.view_as(FlinkOptions), options.view_as(FlinkRunnerOptions)
    flink_conf(options)
    if ours.flink_heap_mb < SMALLEST_HEAP_MB:
        raise LocalError(f"--flink_heap_mb={ours.flink_heap_mb}: the job server needs at least {SMALLEST_HEAP_MB}")
    if theirs.flink_master not in EMBEDDED:
        Settings(theirs.flink_master)
    interval = ours.checkpointing_interval
    if interval is not None and interval != -1 and interval < SHORTEST_INTERVAL_MS:
        raise LocalError(
            f"--checkpointing_interval={interval}: it must be at least {SHORTEST_INTERVAL_MS}, or -1 for no checkpoints"
        )
    if ours.num_concurrent_checkpoints is not None and ours.num_concurrent_checkpoints < 1:
        raise LocalError(f"--num_concurrent_checkpoints={ours.num_concurrent_checkpoints}: it must be at least 1")
    if theirs.parallelism != -1 and theirs.parallelism < 1:
        raise LocalError(f"--parallelism={theirs.parallelism}: it must be at least 1, or -1 for Flink's own default")
    jar = theirs.flink_job_server_jar
    if jar and "://" not in jar and not Path(jar).is_file():
        raise LocalError(f"--flink_job_server_jar={jar}: there is no such file")


def require_one_checkpoint(options: PipelineOptions, job: Job, writes: Sequence[str]) -> None:
    """Raises `LocalError` for checkpoints that overlap, if there are exactly-once writes (their names).

    When such a checkpoint is complete, the next one is already under way, so the position of a sink could move past
    messages that belong to a checkpoint which fails.
    """
    most = options.view_as(FlinkOptions).num_concurrent_checkpoints
    if job.streaming and writes and most is not None and most > 1:
        raise LocalError(
            f"{writes[0]} is an exactly-once write, which needs checkpoints one at a time, and "
            f"--num_concurrent_checkpoints={most} lets them overlap: messages could be stored twice. Leave it out"
        )


def dangers(options: PipelineOptions, job: Job) -> list[str]:
    """Return what the user should know about the options before the job runs, one sentence each."""
    flink, found = options.view_as(FlinkOptions), []
    master = options.view_as(FlinkRunnerOptions).flink_master
    checkpoint_dir = options.view_as(CheckpointOptions).checkpoint_dir
    if not job.streaming:
        return [f"--checkpoint_dir={checkpoint_dir} has no effect: this is a batch job"] if checkpoint_dir else []
    if flink.checkpointing_interval < 0:
        found.append(
            "--checkpointing_interval=-1: without checkpoints no bundle is finalized, so no group offset is "
            "committed, and after a failure the job starts from scratch"
        )
    if flink.checkpointing_mode == "AT_LEAST_ONCE":
        found.append("--checkpointing_mode=AT_LEAST_ONCE: after a failure state may have counted elements twice")
    if flink.allow_non_restored_state:
        found.append("--allow_non_restored_state: state that fits no step of this pipeline is dropped silently")
    if master not in EMBEDDED:
        if options.view_as(PortableOptions).environment_type == "LOOPBACK":
            found.append(
                "--environment_type=LOOPBACK: the pipeline's Python code runs in this process; when it ends, the job "
                f"on {master} fails"
            )
        path = flink.state_backend_storage_path
        if path and is_local(path) and not is_on_this_machine(master):
            found.append(f"checkpoints go to {path}: every machine of the cluster at {master} must have that folder")
    return found


def goes_on(options: PipelineOptions, job: Job) -> bool:
    """Return whether the job, after a failure, goes on from a checkpoint. While a read with an end runs, none is made.

    For options with defaults.
    """
    return job.unbounded and (options.view_as(FlinkOptions).checkpointing_interval or -1) > 0


def is_embedded(options: PipelineOptions) -> bool:
    """Return whether the job runs on a Flink inside our job server."""
    endpoint = options.view_as(PortableOptions).job_endpoint
    return options.view_as(FlinkRunnerOptions).flink_master in EMBEDDED and not endpoint


def sees_folders(options: PipelineOptions) -> bool:
    """Return whether Flink's folders are those of this machine."""
    return is_embedded(options) or is_on_this_machine(options.view_as(FlinkRunnerOptions).flink_master)


def flink_conf(options: PipelineOptions) -> dict[str, str]:
    """Return Flink's own settings by name. Raises `LocalError` for a setting that is not NAME=VALUE."""
    found = {}
    for each in options.view_as(FlinkOptions).flink_conf or ():
        if not _NAME_AND_VALUE.fullmatch(each):
            raise LocalError(f"--flink_conf={each!r}: it must be NAME=VALUE, e.g. taskmanager.memory.network.max=256m")
        name, _, value = each.partition("=")
        found[name] = value
    return found


def is_local(path: str) -> bool:
    """Return whether the path is a local folder, not one on a file system that machines share."""
    return "://" not in path or path.startswith("file:")


def is_on_this_machine(master: str) -> bool:
    """Return whether the address of a cluster is on this machine."""
    host = re.sub(r"^https?://", "", master).rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
