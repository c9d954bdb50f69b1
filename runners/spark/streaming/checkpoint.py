"""What the checkpoint of a query fixes beside what Spark keeps in it: the shape of the pipeline and its numbers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from apache_beam.transforms.core import CombineFn

from rmqio.errors import LocalError
from rmqio.runners.spark.beam.private import SideInputData, beam_fn_api_pb2, beam_runner_api_pb2, pipeline_context
from rmqio.runners.spark.model import WRITE_URN, StageTask
from rmqio.runners.spark.streaming.micro_batch import Cuts
from rmqio.runners.spark.streaming.model import LevelTask
from rmqio.runners.spark.streaming.source import StreamSource

_FILE: Final = "rmqio.json"
_CUTS: Final = "rmqio-cuts.json"
_DRAINED: Final = "rmqio-drained"
_VERSION: Final = 3  # of offsets and of the layout of state: a change of either needs another one


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
        found = self._begun()
        return None if found is None else int(found["buckets"])

    def take(self, shape: list[str], buckets: int) -> None:
        """Notes the shape at the first start; later refuses another one.

        Raises:
          LocalError: the state here belongs to another pipeline, or to another version of this one.
        """
        found = self._begun()
        if found is None:
            self._write({"version": _VERSION, "buckets": buckets, "shape": shape})
            return
        if found.get("version") != _VERSION:
            raise LocalError(f"{self.folder} was written by another version of rmqio, format {found.get('version')}")
        if self._files.exists(self._at(_DRAINED)):
            raise LocalError(
                f"{self.folder} is that of a pipeline that was drained: its windows are all closed, and new records "
                "would be dropped as late. Start anew with another --checkpoint_dir; group offsets say where it ended"
            )
        if found["shape"] != shape:
            raise LocalError(
                f"{self.folder} holds the state of another pipeline: {_difference(found['shape'], shape)}. Run the one "
                "that wrote it, or start anew with another --checkpoint_dir"
            )

    def close(self) -> None:
        """Notes that the pipeline was drained: whatever came now would be too late."""
        self._files.create(self._at(_DRAINED), True).close()

    def is_committed(self, batch: int) -> bool:
        """Whether Spark has committed a micro-batch."""
        return bool(self._files.exists(self._at(f"commits/{batch}")))

    def cuts(self) -> Cuts | None:
        """What the last micro-batch that was cut short did not read."""
        found = self._read(_CUTS)
        return None if found is None else Cuts(found["number"], found["parts"])

    def note_cuts(self, cuts: Cuts) -> None:
        """To be called before Spark commits the micro-batch. Those of an earlier one are forgotten: it is planned."""
        self._write(cuts._asdict(), _CUTS)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _begun(self) -> dict[str, Any] | None:
        """What was noted; None where nothing has been planned since, so that there is no state, either."""
        offsets = self._at("offsets")
        if not self._files.exists(offsets) or not self._files.listStatus(offsets):
            return None
        return self._read(_FILE)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._at(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        found: dict[str, Any] = json.loads(text)
        return found

    def _write(self, values: dict[str, Any], name: str = _FILE) -> None:
        # Under another name first: a process that is killed here must not leave half of it
        part = self._at(f".{name}.part")
        stream = self._files.create(part, True)
        try:
            stream.write(bytearray(json.dumps(values, indent=1).encode()))
        finally:
            stream.close()
        self._files.delete(self._at(name), False)  # of a start that came to nothing, or of an earlier micro-batch
        if not self._files.rename(part, self._at(name)):
            raise LocalError(f"{self.folder}: {name} cannot be written")


def shape_of(sources: Sequence[StreamSource], levels: Sequence[LevelTask]) -> list[str]:
    """A line for each source and stage: what state depends on."""
    lines = [f"source {source.number}: {source.name} {source.planner.identity}".rstrip() for source in sources]
    for level in levels:
        for stage in level.stages:
            what = f"{stage.task.name}, {stage.task.input.form.value}, {_digest(stage.task)}"
            lines.append(f"level {level.number}, stage {stage.task.stage_id}: {what}")
    return lines


def _digest(task: StageTask) -> str:
    """Of the full names of a stage's transforms, of what they keep, and of how their input is grouped."""
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(task.descriptor)
    context = pipeline_context.PipelineContext(descriptor)
    parts: list[Any] = []
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
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(parts))  # of what has no text of its own
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _kept(spec: Any, context: Any) -> list[str]:
    """What kind of state it is, and the coders of its elements."""
    kind = spec.WhichOneof("spec")
    fields = getattr(spec, kind).DESCRIPTOR.fields
    coders = [getattr(getattr(spec, kind), each.name) for each in fields if each.name.endswith("coder_id")]
    return [kind, spec.protocol.urn, *(repr(context.coders.get_by_id(each)) for each in coders if each)]


def _windows(windowfn: Any) -> list[Any]:
    return [type(windowfn).__qualname__, sorted(vars(windowfn).items())]


def _name(function: Any) -> str:
    return str(getattr(getattr(function, "func", function), "__qualname__", type(function).__qualname__))


def _difference(theirs: list[str], ours: list[str]) -> str:
    for their, our in zip(theirs, ours, strict=False):
        if their != our:
            name, comma, _ = our.rpartition(", ")  # of a stage, behind it what sums it up
            if comma and their.startswith(name + comma):
                return f"{name!r} has other states, timers, side inputs, windows or coders there"
            return f"there {their!r}, here {our!r}"
    return f"there {len(theirs)} stages, here {len(ours)}"
