"""Determines what each stage reads and writes, and builds its task for a worker. Knows nothing about Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmqio.runners.spark.beam.private import DATA_INPUT_URN, beam_fn_api_pb2, beam_runner_api_pb2
from rmqio.runners.spark.model import WRITE_URN, Form, GroupSpec, Input, Output, SideInput, StageTask
from rmqio.runners.spark.translation.nodes import Empty, Flatten, GroupByKey, Impulse, Redistribute, Stage
from rmqio.runners.spark.translation.plan import Plan


class Writes:
    """Records which stage writes which PCollection in which form. Readers call `need` for their inputs."""

    def __init__(self, plan: Plan, buckets: int) -> None:
        self._plan = plan
        self._buckets = buckets
        self._channels = 0
        self._known: dict[tuple[str, Form], Output] = {}

    def need(self, pcollection: str, form: Form) -> list[tuple[Stage, Output]]:
        """Returns the outputs that together hold the PCollection in that form. Counts one reader for each of them."""
        producer = self._plan.producers.get(pcollection)
        if isinstance(producer, Flatten):
            return [found for each in producer.inputs for found in self.need(each, form)]
        if isinstance(producer, Empty):
            return []
        if isinstance(producer, Redistribute):
            # Sorting by key redistributes as well as dealing does
            (source,) = producer.inputs
            return self.need(source, Form.DEALT if form is Form.PLAIN else form)
        assert isinstance(producer, Stage), f"{pcollection} is not written by a stage"
        output = self._known.get((pcollection, form))
        if output is None:
            number = self._channels
            self._channels += 1
            output = Output(f"write_{number}", number, pcollection, form, self._buckets)
            self._known[pcollection, form] = output
            producer.writes.append(output)
        producer.readers += 1
        return [(producer, output)]


def stage_input(plan: Plan, stage: Stage) -> tuple[Input, str | None, Form]:
    """Returns a stage's input, the PCollection whose rows it reads (None: an impulse), and the form of the rows."""
    producer = plan.producers.get(stage.input)
    if isinstance(producer, Impulse):
        return Input("read", Form.PLAIN, impulse=True), None, Form.PLAIN
    if isinstance(producer, GroupByKey):
        (source,) = producer.inputs
        return Input("read", Form.GROUPED, plan.group_spec(source)), source, Form.GROUPED
    form = Form.KEYED if stage.stateful else Form.PLAIN
    return Input("read", form), stage.input, form


def stage_task(
    plan: Plan,
    stage: Stage,
    stage_id: int,
    read: Input,
    write_payload: Callable[[Output, str, GroupSpec | None], bytes],
    side_names: Mapping[tuple[str, str], str],
    options: Mapping[str, object],
) -> StageTask:
    """Returns the task of a stage. All readers of the stage must be known."""
    transforms = {each.unique_name: each for each in stage.transforms}
    coder_id = plan.windowed_coder_id(stage.input, state_iterables=True)
    transforms[read.transform_id] = beam_runner_api_pb2.PTransform(
        unique_name=read.transform_id,
        spec=beam_runner_api_pb2.FunctionSpec(
            urn=DATA_INPUT_URN,
            payload=beam_fn_api_pb2.RemoteGrpcPort(coder_id=coder_id).SerializeToString(),
        ),
        outputs={"out": stage.input},
    )
    for output in stage.writes:
        coder_id = plan.windowed_coder_id(output.pcollection_id)
        grouped = output.form in (Form.GROUPED, Form.WINDOWS, Form.STATEFUL)
        group = plan.group_spec(output.pcollection_id) if grouped else None
        transforms[output.transform_id] = beam_runner_api_pb2.PTransform(
            unique_name=output.transform_id,
            spec=beam_runner_api_pb2.FunctionSpec(urn=WRITE_URN, payload=write_payload(output, coder_id, group)),
            inputs={"in": output.pcollection_id},
        )
    sides = tuple(
        SideInput(transform_id, tag, side_names[transform_id, tag], multimap, plan.windowed_coder_id(pcollection))
        for transform_id, tag, pcollection, multimap in stage.side_inputs
    )
    used = {p for each in transforms.values() for p in (*each.inputs.values(), *each.outputs.values())}
    components = plan.components
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor(
        id=f"stage-{stage_id}",
        transforms=transforms,
        pcollections={each: components.pcollections[each] for each in used},
        coders=components.coders,
        windowing_strategies=components.windowing_strategies,
        environments=components.environments,
    )
    descriptor.timer_api_service_descriptor.url = "spark-task"  # any value: Beam only checks whether a URL is set
    return StageTask(
        stage_id, stage.name, descriptor.SerializeToString(), read, tuple(stage.writes), sides, dict(options)
    )
