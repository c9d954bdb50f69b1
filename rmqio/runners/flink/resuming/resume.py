"""The folder of a job's checkpoints, and the checkpoint that it resumes from."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions

from rmqio.errors import LocalError
from rmqio.runners.checkpoints.lock import Exclusive
from rmqio.runners.checkpoints.options import CheckpointOptions
from rmqio.runners.flink.options import FlinkOptions, Job, is_embedded, is_local, sees_folders
from rmqio.runners.flink.rest import FlinkJob
from rmqio.runners.flink.resuming import checkpoints
from rmqio.runners.report import NO_CHECKPOINT_DIR

_LOGGER = logging.getLogger("rmqio.runners.flink")


def require_savepoint(options: PipelineOptions) -> None:
    """Raises `LocalError` if the savepoint to resume from does not exist, as far as this machine can see."""
    given = options.view_as(FlinkOptions).savepoint_path
    if given and is_local(given) and sees_folders(options):
        checkpoints.require(given)


def storage_of(options: PipelineOptions, job: Job, others: Sequence[FlinkJob]) -> tuple[str | None, Path | None]:
    """Return where checkpoints go, and the folder to remove at the end. Finds what the job resumes from."""
    flink, given = options.view_as(FlinkOptions), options.view_as(CheckpointOptions).checkpoint_dir
    if given:
        url = checkpoints.url_of(given)
        found = checkpoints.newest(url)
        if found:
            _require_ended(found, others, options)
        if flink.savepoint_path is None and found:
            _LOGGER.info("resuming from %s", found)
            flink.savepoint_path = found
        elif flink.savepoint_path and found and checkpoints.is_older(flink.savepoint_path, found):
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
    return Exclusive(f"file:{checkpoints.path_of(checkpoints.url_of(given))}")


def _is_for_this_run(options: PipelineOptions) -> bool:
    """Return whether checkpoints, without `--checkpoint_dir`, go to a folder that is removed at the end."""
    flink = options.view_as(FlinkOptions)
    return is_embedded(options) and not flink.state_backend_storage_path and flink.checkpointing_interval != -1
