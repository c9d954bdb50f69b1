"""The signature of a job beside its checkpoint: a changed query is refused with what has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from rmqio.runners.checkpoints import CheckpointOptions
from rmqio.sql.errors import SqlError
from rmqio.sql.planning.plan import Sink
from rmqio.sql.planning.signature import VERSION, compared, signature_of

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
