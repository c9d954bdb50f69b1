"""Each step with state reads a PCollection of its own, named after the step."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.userstate import CombiningValueStateSpec

from rmqio.runners.flink.runner import with_own_inputs


class Counts(beam.DoFn):
    COUNT = CombiningValueStateSpec("count", VarIntCoder(), sum)

    def process(self, element: tuple[str, int], count: Any = beam.DoFn.StateParam(COUNT)) -> None:
        count.add(1)


class Branches(beam.PTransform[Any, Any]):
    def expand(self, pcoll: Any) -> Any:
        _ = pcoll | "Other" >> beam.ParDo(Counts())
        return pcoll | "Windows" >> beam.WindowInto(beam.window.FixedWindows(1)) | beam.GroupByKey()


def portable() -> Any:
    pipeline = beam.Pipeline()
    pairs = pipeline | PeriodicImpulse() | beam.Map(lambda at: ("k", 1)).with_output_types(tuple[str, int])
    _ = pairs | "One" >> beam.ParDo(Counts())
    _ = pairs | Branches()
    return pipeline.to_runner_api()


def readers(pipeline: Any) -> dict[str, list[str]]:
    """By the name of a PCollection, the names of the steps that read it."""
    found: dict[str, list[str]] = {}
    for each in pipeline.components.transforms.values():
        if not each.subtransforms:
            for at in each.inputs.values():
                found.setdefault(pipeline.components.pcollections[at].unique_name, []).append(each.unique_name)
    return {name: sorted(steps) for name, steps in found.items()}


def test_each_step_with_state_reads_a_pcollection_that_nothing_else_reads() -> None:
    before, found = portable(), readers(with_own_inputs(portable()))
    assert ["Branches/Other", "Branches/Windows", "One"] in readers(before).values()
    assert found["One/input"] == ["One"]
    assert found["Branches/Other/input"] == ["Branches/Other"]
    assert ["Branches/Input of Other", "Branches/Windows", "Input of One"] in found.values()
    splittable = [name for name in found if name.startswith("PeriodicImpulse/")]
    assert any(name.endswith("/input") for name in splittable), splittable


def test_an_own_input_is_what_the_step_read_before() -> None:
    before, after = portable(), with_own_inputs(portable())
    names = {each.unique_name: each for each in after.components.transforms.values()}
    step, flatten = names["One"], names["Input of One"]
    assert flatten.spec.urn == common_urns.primitives.FLATTEN.urn
    assert list(flatten.outputs.values()) == list(step.inputs.values())
    (old,), (new,) = flatten.inputs.values(), flatten.outputs.values()
    assert {each.unique_name: dict(each.inputs) for each in before.components.transforms.values()}["One"] == {
        "None": old
    }
    one, other = after.components.pcollections[old], after.components.pcollections[new]
    assert (one.coder_id, one.windowing_strategy_id, one.is_bounded) == (
        other.coder_id,
        other.windowing_strategy_id,
        other.is_bounded,
    )
    payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
    assert "count" in payload.state_specs


def test_what_flink_makes_has_a_step_of_its_own_only_where_several_read_it() -> None:
    """Nothing fuses with a GroupByKey or a Reshuffle, and Beam refuses a Flatten of one there."""
    pipeline = beam.Pipeline()
    pairs = pipeline | beam.Create([("k", 1)]).with_output_types(tuple[str, int])
    for label, made in {"Group": beam.GroupByKey(), "Shuffle": beam.Reshuffle()}.items():
        shared = pairs | f"{label} for two" >> made
        _ = shared | f"{label} one" >> beam.ParDo(Counts())
        _ = shared | f"{label} two" >> beam.ParDo(Counts())
        _ = pairs | f"{label} for one" >> made | f"{label} alone" >> beam.ParDo(Counts())
    after = {
        each.unique_name: each for each in with_own_inputs(pipeline.to_runner_api()).components.transforms.values()
    }
    own = {name: each.spec.urn for name, each in after.items() if name.startswith("Input of ")}
    labels = [f"Input of {label} {number}" for label in ("Group", "Shuffle") for number in ("one", "two")]
    assert own == dict.fromkeys(labels, common_urns.primitives.PAR_DO.urn)


def test_a_step_in_another_language_gets_no_step_in_python() -> None:
    """Its environment could not run that. A Flatten is the same in every language."""
    pipeline = beam.Pipeline()
    pairs = pipeline | beam.Create([("k", 1)]).with_output_types(tuple[str, int])
    grouped = pairs | beam.GroupByKey()
    for label, read in {"One": grouped, "Two": grouped, "Plain": pairs}.items():
        _ = read | label >> beam.ParDo(Counts())
    proto = pipeline.to_runner_api()
    for each in proto.components.transforms.values():
        if each.unique_name in ("One", "Two", "Plain"):
            payload = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
            payload.do_fn.urn = "beam:dofn:javasdk:0.1"
            each.spec.payload = payload.SerializeToString()
    after = [each.unique_name for each in with_own_inputs(proto).components.transforms.values()]
    assert [name for name in after if name.startswith("Input of ")] == ["Input of Plain"]


def test_a_step_comes_right_after_its_own_input() -> None:
    after = with_own_inputs(portable()).components.transforms
    siblings = [[after[child].unique_name for child in each.subtransforms] for each in after.values()]
    (of_branches,) = [names for names in siblings if "Branches/Other" in names]
    assert of_branches[:2] == ["Branches/Input of Other", "Branches/Other"]
    (of_all,) = [names for names in siblings if "One" in names]
    assert of_all.index("Input of One") + 1 == of_all.index("One")


def test_the_pipeline_itself_stays_and_so_does_one_without_state() -> None:
    given = portable()
    before = given.SerializeToString(deterministic=True)
    assert with_own_inputs(given) != given
    assert given.SerializeToString(deterministic=True) == before
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([1]) | beam.Map(str)
    plain = pipeline.to_runner_api()
    assert with_own_inputs(plain) == plain
