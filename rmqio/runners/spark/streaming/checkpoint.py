"""The checkpoint of a query. Stores the pipeline's shape, buckets and cuts, in addition to what Spark stores."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from apache_beam.transforms.core import CombineFn
from pyspark.accumulators import AccumulatorParam

from rmqio.errors import LocalError
from rmqio.runners.spark.beam.private import PipelineContext, SideInputData, beam_fn_api_pb2, beam_runner_api_pb2
from rmqio.runners.spark.model import WRITE_URN, StageTask
from rmqio.runners.spark.streaming.micro_batch import Cuts, Parts
from rmqio.runners.spark.streaming.model import LevelTask
from rmqio.runners.spark.streaming.source import StreamSource

if TYPE_CHECKING:
    from apache_beam.transforms.window import WindowFn
    from pyspark.sql import SparkSession

_FILE: Final = "rmqio.json"
_CUTS: Final = "rmqio-cuts.json"
_DRAINED: Final = "rmqio-drained"
_VERSION: Final = 3  # the format of offsets and the layout of state; a change of either needs a new version


class Begun(TypedDict):
    """The content of `_FILE`."""

    version: int
    buckets: int
    shape: list[str]


class Checkpoint:
    """A folder on any file system that Spark can use."""

    def __init__(self, session: SparkSession, folder: str) -> None:
        jvm: Any = session._jvm
        path = jvm.org.apache.hadoop.fs.Path(folder)
        self._files = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        self._path = path.makeQualified(self._files.getUri(), self._files.getWorkingDirectory())
        self._jvm = jvm
        self.folder = self._path.toString()

    def buckets(self) -> int | None:
        """Returns the number of buckets into which the state is divided; None if there is no state yet."""
        found = self._begun()
        return None if found is None else int(found["buckets"])

    def take(self, shape: list[str], buckets: int) -> None:
        """Stores the shape at the first start. Refuses another shape later.

        Raises:
          LocalError: the state belongs to another pipeline or to another version of this one, or was drained.
        """
        found = self._begun()
        if found is None:
            self._write({"version": _VERSION, "buckets": buckets, "shape": shape})
            return
        refuse_others(self.folder, found, shape, is_drained=self._files.exists(self._at(_DRAINED)))

    def close(self) -> None:
        """Notes that the pipeline was drained: any further record would be too late."""
        self._files.create(self._at(_DRAINED), True).close()

    def is_committed(self, batch: int) -> bool:
        """Returns whether Spark has committed a micro-batch."""
        return bool(self._files.exists(self._at(f"commits/{batch}")))

    def cuts(self) -> Cuts | None:
        """Returns the cuts of the last micro-batch that was cut short."""
        found = self._read(_CUTS)
        return None if found is None else Cuts.from_json(found)

    def note_cuts(self, cuts: Cuts) -> None:
        """Stores the cuts of a micro-batch. Call it before Spark commits the micro-batch.

        They replace the cuts of an earlier micro-batch, whose rest is planned by then.
        """
        self._write(cuts.to_json(), _CUTS)

    def _at(self, name: str) -> object:
        """Returns the Hadoop path of a file in the folder."""
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _begun(self) -> Begun | None:
        """Returns what `take` stored; None if nothing was planned after that, because then there is no state either."""
        offsets = self._at("offsets")
        if not self._files.exists(offsets) or not self._files.listStatus(offsets):
            return None
        found: Begun | None = self._read(_FILE)
        return found

    def _read(self, name: str) -> Any:
        """Returns the JSON value in a file; None if there is no such file."""
        path = self._at(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return json.loads(text)

    def _write(self, values: Mapping[str, object], name: str = _FILE) -> None:
        # Writes to another name first: a process that is killed here must not leave half a file
        part = self._at(f".{name}.part")
        stream = self._files.create(part, True)
        try:
            stream.write(bytearray(json.dumps(values, indent=1).encode()))
        finally:
            stream.close()
        self._files.delete(self._at(name), False)  # left by a start that planned nothing, or by an earlier batch
        if not self._files.rename(part, self._at(name)):
            raise LocalError(
                f"{self.folder}: {name} cannot be written, because the file system did not rename its temporary file. "
                "Check the permissions of the folder"
            )


def refuse_others(folder: str, found: Begun, shape: list[str], *, is_drained: bool) -> None:
    """Raises as `Checkpoint.take`, if what is kept in a folder is not the state of a pipeline of this shape."""
    if found.get("version") != _VERSION:
        raise LocalError(
            f"{folder} was written by another version of rmqio: it has format {found.get('version')}, this "
            f"version needs format {_VERSION}. Run the version that wrote it, or use another --checkpoint_dir"
        )
    if is_drained:
        raise LocalError(
            f"{folder} belongs to a pipeline that was drained: all its windows are closed, and new records "
            "would be dropped as late. Start with another --checkpoint_dir. Group offsets say where the drained "
            "pipeline ended"
        )
    if found["shape"] != shape:
        raise LocalError(
            f"{folder} holds the state of another pipeline: {_difference(found['shape'], shape)}. Run the "
            "pipeline that wrote it, or start from the beginning with another --checkpoint_dir"
        )


def kept_in(folder: Path) -> tuple[Begun, bool] | None:
    """Returns what `Checkpoint.take` has stored in a folder of this machine, and whether its pipeline was drained."""
    if not any(folder.glob("offsets/*")) or not (folder / _FILE).exists():
        return None
    return json.loads((folder / _FILE).read_bytes()), (folder / _DRAINED).exists()


def shape_of(sources: Sequence[StreamSource], levels: Sequence[LevelTask]) -> list[str]:
    """Returns a line for each source and stage, with everything that state depends on."""
    lines = [f"source {source.number}: {source.name} {source.planner.identity}".rstrip() for source in sources]
    for level in levels:
        for stage in level.stages:
            what = f"{stage.task.name}, {stage.task.input.form.value}, {_digest(stage.task)}"
            lines.append(f"level {level.number}, stage {stage.task.stage_id}: {what}")
    return lines


def _digest(task: StageTask) -> str:
    """Returns a digest of the full names of a stage's transforms, their state, and the grouping of their input."""
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(task.descriptor)
    context = PipelineContext(descriptor)
    parts: list[object] = []
    for name, transform in sorted(descriptor.transforms.items()):
        if transform.spec.urn == WRITE_URN:
            continue
        parts.append(name)
        if transform.spec.urn.startswith("beam:transform:pardo"):
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            timers = payload.timer_family_specs
            parts.append(sorted((state, _kept(spec, context)) for state, spec in payload.state_specs.items()))
            parts.append(sorted((family, timers[family].time_domain) for family in timers))
            for tag, side in sorted(payload.side_inputs.items()):
                windowing_id = descriptor.pcollections[transform.inputs[tag]].windowing_strategy_id
                read = SideInputData.from_runner_api(side, context)
                parts.append([tag, side.access_pattern.urn, _name(read.view_fn), _name(read.window_mapping_fn)])
                parts.append(_windows(context.windowing_strategies.get_by_id(windowing_id).windowfn))
        elif transform.spec.urn.startswith("beam:transform:combine"):
            payload = beam_runner_api_pb2.CombinePayload.FromString(transform.spec.payload)
            parts.append(type(CombineFn.from_runner_api(payload.combine_fn, context)).__qualname__)
    if task.input.group is not None:
        windowing = context.windowing_strategies.get_by_id(task.input.group.windowing_id)
        parts.append([task.input.group.grouping.value, context.coders.get_by_id(task.input.group.kv_coder_id)])
        parts.append(_windows(windowing.windowfn))
        parts.append([windowing.triggerfn, windowing.accumulation_mode, windowing.timestamp_combiner])
        parts.append(windowing.allowed_lateness)
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(parts))  # the addresses of objects without a repr of their own
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _kept(spec: beam_runner_api_pb2.StateSpec, context: PipelineContext) -> list[str]:
    """Returns the kind of a state, and the coders of its elements."""
    kind = spec.WhichOneof("spec")
    fields = getattr(spec, kind).DESCRIPTOR.fields
    coders = [getattr(getattr(spec, kind), each.name) for each in fields if each.name.endswith("coder_id")]
    return [kind, spec.protocol.urn, *(repr(context.coders.get_by_id(each)) for each in coders if each)]


def _windows(windowfn: WindowFn) -> list[object]:
    return [type(windowfn).__qualname__, sorted(vars(windowfn).items())]


def _name(function: object) -> str:
    return str(getattr(getattr(function, "func", function), "__qualname__", type(function).__qualname__))


def _difference(theirs: list[str], ours: list[str]) -> str:
    for their, our in zip(theirs, ours, strict=False):
        if their != our:
            name, comma, _ = our.rpartition(", ")  # a stage's name; its digest follows the last comma
            if comma and their.startswith(name + comma):
                return f"in it, {name!r} has other states, timers, side inputs, windows or coders"
            return f"it has {their!r}, this pipeline has {our!r}"
    return f"it has {len(theirs)} sources and stages, this pipeline has {len(ours)}"


# Stores cuts in the checkpoint before a later level begins: the planned parts that a micro-batch did not fully read.
#
# A micro-batch that is run again must read the same records. Otherwise, later levels would send different output.
# When a task has ended, Spark passes its accumulators to the driver, waits until the driver has merged them, and only
# then begins a stage that depends on the task (DAGScheduler.handleTaskCompletion, PythonAccumulatorV2.merge). The
# next run of the micro-batch therefore knows the cuts, no matter how early this run is killed. If it does not know
# them, nothing after level 0 has run.


class TaskCuts(AccumulatorParam["CutKeeper | list[tuple[int, Parts]]"]):
    """An accumulator whose value is a list of `Cuts`, as (number, parts), in tasks, and a `CutKeeper` in the driver."""

    def zero(self, value: CutKeeper | list[tuple[int, Parts]]) -> list[tuple[int, Parts]]:
        return []

    def addInPlace(
        self, value1: CutKeeper | list[tuple[int, Parts]], value2: CutKeeper | list[tuple[int, Parts]]
    ) -> CutKeeper | list[tuple[int, Parts]]:
        added = cast("list[tuple[int, Parts]]", value2)  # never a keeper: it comes from a task
        if isinstance(value1, CutKeeper):
            for number, parts in added:
                value1.add(number, parts)
            return value1
        return [*value1, *added]


class CutKeeper:
    """Stores the cuts of one run of a query in the checkpoint, and in a file of the driver that the planning reads.

    Thread-safe, because Spark merges accumulators in another thread.
    """

    def __init__(self, checkpoint: Checkpoint, path: str) -> None:
        self._checkpoint, self._path = checkpoint, path
        self._lock = threading.Lock()
        self._last: Cuts | None = None
        self._is_open = False
        self._failure: Exception | None = None

    def open(self) -> None:
        """Gives the planning the cuts that an earlier run has stored."""
        with self._lock:
            self._is_open = True
            self._last = self._checkpoint.cuts()
            if self._last is not None:
                self._last.write(self._path)

    def close(self) -> None:
        """Ignores what is added from now on, such as by a task that ends after its query was stopped."""
        with self._lock:
            self._is_open = False

    def add(self, number: int, parts: Parts) -> None:
        """Adds the parts that one task has cut short."""
        with self._lock:
            before: Parts = {} if self._last is None or self._last.number != number else self._last.parts
            sources = {*before, *parts}
            together = {each: {**before.get(each, {}), **parts.get(each, {})} for each in sources}
            try:
                self._keep(Cuts(number, together))
            except Exception as error:  # noqa: BLE001  the thread belongs to Spark, so `keep` raises it
                self._failure = error

    def keep(self, cuts: Cuts) -> None:
        """Stores all cuts of a micro-batch. Call it before Spark commits the micro-batch."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._keep(cuts)

    def _keep(self, cuts: Cuts) -> None:
        is_known = self._last is not None and self._last.number == cuts.number
        if not self._is_open or cuts == self._last or not (cuts.parts or is_known):
            return
        self._checkpoint.note_cuts(cuts)
        cuts.write(self._path)
        self._last = cuts
