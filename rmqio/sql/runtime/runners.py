"""What a job has of its runner: its report for EXPLAIN, and a signature beside its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from rmqio.runners.checkpoints import CheckpointOptions
from rmqio.sql.errors import SqlError
from rmqio.sql.explain.signature import VERSION, compared, signature_of
from rmqio.sql.planning.plan import Sink

# Says what a runner does with a job, in a few words, above its report.

_PULLED: Final = "rows are computed in the batches in which they are pulled (up to some hundred messages)"
_MODES: Final = {
    "SparkRunner": (
        "On SparkRunner",
        "Spark jobs, one per shuffle; a task reads a range of a queue",
        _PULLED,
        "groups and joins are sorted by Spark, on disk if they are large; state ends with the job",
    ),
    "SparkRunner --streaming": (
        "On SparkRunner --streaming",
        "micro-batches of Structured Streaming, each of new ranges of the queues",
        _PULLED,
        "each shuffle is a stateful operator; its state is in --checkpoint_dir, and a micro-batch that fails is run "
        "again with the same ranges",
    ),
    "FlinkRunner": (
        "On FlinkRunner",
        "a stream of Flink, or a batch job if all reads end",
        _PULLED,
        "state by key is Flink's, and is in its checkpoints",
    ),
    "DirectRunner": (
        "On DirectRunner",
        "one process, stage after stage",
        _PULLED,
        "groups and joins are in memory, and ready when their input has ended",
    ),
}


def how_it_runs(pipeline: Any) -> str:
    """Returns lines about the pipeline's runner."""
    name = type(pipeline.runner).__name__
    name = {"FnApiRunner": "DirectRunner", "FlinkRunner": "FlinkRunner", "SparkRunner": "SparkRunner"}.get(name, name)
    options = pipeline.options.view_as(StandardOptions)
    if name == "SparkRunner" and options.streaming:
        name = "SparkRunner --streaming"
    head, *lines = _MODES.get(name, (f"On {name}", _PULLED))
    return "\n".join([head, *(f"    {each}" for each in lines)])


_FILE: Final = "rmqio-sql.json"


def check_signature(
    folder: str, sinks: Sequence[Sink], tell: Callable[[str], None] = print, *, stores: bool = True
) -> list[Sink]:
    """Returns the sinks in the order that the state has. Raises `SqlError` if it is that of another query.

    The order counts because labels are numbered, and Spark finds state by its label. Stores the signature if the folder
    holds no state yet, and only if `stores`. `tell` takes a line for each change that fits the state.

    A folder on a file system that Beam does not know is left to the runner, whose own check is less readable.
    """
    try:
        FileSystems.get_filesystem(folder)
    except ValueError:
        return list(sinks)
    now = signature_of(sinks)
    path = FileSystems.join(folder, _FILE)
    if _exists(FileSystems.join(folder, "offsets", "*")):
        kept = _read(path)
        if kept is None:
            return list(sinks)
        if kept.get("version") != VERSION:
            raise SqlError(
                f"{folder} holds the state of another version of rmqio, in which some functions have other values: the "
                "rows to come would not meet those that it has. Run that version, or start with another "
                "--checkpoint_dir"
            )
        found = compared(kept["sinks"], now)
        if found.refused:
            raise SqlError(
                f"{folder} holds the state of another query: {'; '.join(found.refused)}. Run the query that wrote it, "
                "or start from the beginning with another --checkpoint_dir"
            )
        for each in found.accepted:
            tell(f"rmqio sql: the state fits: {each}")
        sinks, now = [sinks[each] for each in found.order], [now[each] for each in found.order]
    if stores:
        _write(folder, path, {"version": VERSION, "sinks": now})
    return list(sinks)


def _exists(pattern: str) -> bool:
    try:
        return bool(FileSystems.match([pattern])[0].metadata_list)
    except BeamIOError:
        return False


def _read(path: str) -> Any:
    if not _exists(path):
        return None
    with FileSystems.open(path) as file:
        return json.loads(file.read())


def _write(folder: str, path: str, values: Any) -> None:
    try:
        if not FileSystems.exists(folder):
            FileSystems.mkdirs(folder)
        with FileSystems.create(path) as file:
            file.write(json.dumps(values, indent=1, ensure_ascii=False).encode())
    except (OSError, BeamIOError) as error:
        raise SqlError(f"cannot write {path}: {error}") from error


def checkpoint_of(options: PipelineOptions) -> str | None:
    """Returns the folder in which the job keeps its state by Spark; None: it keeps none, or not by Spark."""
    standard = options.view_as(StandardOptions)
    if not standard.streaming or not str(standard.runner).endswith("SparkRunner"):
        return None
    folder = options.view_as(CheckpointOptions).checkpoint_dir
    return str(folder) if folder else None
