"""What the checkpoint of a query fixes beside what Spark keeps in it: the shape of the pipeline and its numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.runners.spark.streaming.model import LevelTask
from rmqio.runners.spark.streaming.source import StreamSource

_FILE: Final = "rmqio.json"
_VERSION: Final = 1


class Checkpoint:
    """A folder on any file system that Spark knows."""

    def __init__(self, session: Any, folder: str) -> None:
        jvm = session._jvm
        path = jvm.org.apache.hadoop.fs.Path(folder)
        self._files = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        self._path = path.makeQualified(self._files.getUri(), self._files.getWorkingDirectory())
        self._jvm = jvm
        self.folder = self._path.toString()

    def buckets(self) -> int | None:
        """The number of buckets that the state here lies in; None: there is no state yet."""
        found = self._read()
        return None if found is None else int(found["buckets"])

    def take(self, shape: list[str], buckets: int) -> None:
        """Notes the shape at the first start; later refuses another one.

        Raises:
          LocalError: the state here belongs to another pipeline, or to another version of this one.
        """
        found = self._read()
        if found is None:
            self._write({"version": _VERSION, "buckets": buckets, "shape": shape})
            return
        if found.get("version") != _VERSION:
            raise LocalError(f"{self.folder} was written by another version of rmqio, format {found.get('version')}")
        if found["shape"] != shape:
            raise LocalError(
                f"{self.folder} holds the state of another pipeline: {_difference(found['shape'], shape)}. Run the one "
                "that wrote it, or start anew with another --checkpoint_dir"
            )

    def is_committed(self, batch: int) -> bool:
        """Whether Spark has committed a micro-batch."""
        return bool(self._files.exists(self._at(f"commits/{batch}")))

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _read(self) -> dict[str, Any] | None:
        path = self._at(_FILE)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        found: dict[str, Any] = json.loads(text)
        return found

    def _write(self, values: dict[str, Any]) -> None:
        # Under another name first: a process that is killed here must not leave half of it
        part = self._at(f".{_FILE}.part")
        stream = self._files.create(part, True)
        try:
            stream.write(bytearray(json.dumps(values, indent=1).encode()))
        finally:
            stream.close()
        if not self._files.rename(part, self._at(_FILE)):
            raise LocalError(f"{self.folder}: {_FILE} cannot be written")


def shape_of(sources: Sequence[StreamSource], levels: Sequence[LevelTask]) -> list[str]:
    """A line for each source and stage: what state depends on."""
    lines = [f"source {source.number}: {source.name}" for source in sources]
    for level in levels:
        for stage in level.stages:
            task = stage.task
            group = task.input.group
            keeps = "" if group is None else f", {group.grouping.value}, {_digest(group.windowing_id)}"
            lines.append(f"level {level.number}, stage {task.stage_id}: {task.name}, {task.input.form.value}{keeps}")
    return lines


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _difference(theirs: list[str], ours: list[str]) -> str:
    for their, our in zip(theirs, ours, strict=False):
        if their != our:
            return f"there {their!r}, here {our!r}"
    return f"there {len(theirs)} stages, here {len(ours)}"
