"""The levels of an unbounded pipeline are the same in every process; another pipeline's checkpoint is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.pvalue import AsList, AsSingleton
from apache_beam.transforms import environments, trigger, window
from apache_beam.transforms.combiners import CountCombineFn, MeanCombineFn
from apache_beam.transforms.userstate import BagStateSpec, CombiningValueStateSpec, SetStateSpec

from rmqio.errors import LocalError
from rmqio.runners.spark.streaming.checkpoint import refuse_others, shape_of
from rmqio.runners.spark.streaming.execution import refuse_local, stream_plan
from rmqio.runners.spark.streaming.levels import Levels
from rmqio.runners.spark.streaming.planned_source import PlannedSource, Planner

pytestmark = [pytest.mark.slow]


def planned(build: Any) -> Any:
    pipeline = beam.Pipeline()
    build(pipeline)
    environment = environments.EmbeddedPythonEnvironment(capabilities=environments.python_sdk_capabilities())
    return stream_plan(pipeline.to_runner_api(default_environment=environment), False)


def shape(build: Any) -> list[str]:
    made = Levels(planned(build), "run", [0, 1], {}, None).make()
    return shape_of(made.sources, made.levels)


class Several(beam.PTransform):
    """Groups that differ only in their names."""

    def expand(self, pcoll: Any) -> Any:
        for name in "DBCA":
            _ = pcoll | f"{name}" >> beam.GroupByKey() | f"Show {name}" >> beam.Map(str)
        return pcoll


def several(pipeline: Any) -> None:
    for number in range(3):
        _ = pipeline | f"Make {number}" >> beam.Create([("a", 1)]) | f"Group {number}" >> Several()


def test_stages_have_the_same_numbers_in_every_process() -> None:
    found = set()
    for seed in "123":
        command = [sys.executable, "-c", f"from {__name__} import *; print(shape(several))"]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1
    assert found.pop() == f"{shape(several)}\n"


@pytest.mark.parametrize(
    ("change", "files", "said"),
    [
        ({}, ["offsets/0"], None),
        ({"shape": ["source 0: Other"]}, [], None),
        (
            {"shape": ["source 0: Other"]},
            ["offsets/0"],
            "the state of another pipeline: it has 'source 0: Other'",
        ),
        ({"version": 2}, ["offsets/0"], "was written by another version of rmqio: it has format 2"),
        ({}, ["offsets/0", "rmqio-drained"], "belongs to a pipeline that was drained"),
    ],
    ids=["its own", "nothing planned", "another pipeline's", "another version's", "drained"],
)
def test_a_checkpoint_with_which_it_cannot_go_on_is_refused_before_spark_starts(
    change: dict[str, Any], files: list[str], said: str | None, tmp_path: Path
) -> None:
    (tmp_path / "offsets").mkdir()
    for name in files:
        (tmp_path / name).touch()
    (tmp_path / "rmqio.json").write_text(json.dumps({"version": 3, "buckets": 2, "shape": shape(several)} | change))
    with nullcontext() if said is None else pytest.raises(LocalError, match=re.escape(said)):
        refuse_local(tmp_path, planned(several))


@pytest.mark.parametrize("kept", ["abx", "xbc", "bac", "ab", "abcd", ""])
def test_each_line_of_a_shape_counts(kept: str) -> None:
    with pytest.raises(LocalError, match="the state of another pipeline"):
        refuse_others("f", {"version": 3, "buckets": 2, "shape": [*kept]}, [*"abc"], is_drained=False)


class Kept(beam.DoFn):
    STATE = BagStateSpec("kept", VarIntCoder())

    def process(self, element: Any, state: Any = beam.DoFn.StateParam(STATE)) -> None:
        state.add(1)


class KeptElsewhere(beam.DoFn):
    STATE = BagStateSpec("elsewhere", VarIntCoder())

    def process(self, element: Any, state: Any = beam.DoFn.StateParam(STATE)) -> None:
        state.add(1)


def windowed(**windowing: Any) -> Any:
    def build(pipeline: Any) -> None:
        _ = (
            pipeline
            | beam.Create([("a", 1)])
            | beam.WindowInto(**{"windowfn": window.FixedWindows(10), **windowing})
            | beam.GroupByKey()
            | beam.Map(str)
        )

    return build


def stateful(fn: beam.DoFn, label: str = "Keep") -> Any:
    def build(pipeline: Any) -> None:
        _ = pipeline | beam.Create([("a", 1)]) | label >> beam.ParDo(fn)

    return build


def kept_as(spec: Any) -> beam.DoFn:
    class Keeping(beam.DoFn):
        STATE = spec

        def process(self, element: Any, state: Any = beam.DoFn.StateParam(STATE)) -> None:
            state.add(1)

    return Keeping()


def with_side_input(view: Any, windowfn: Any) -> Any:
    def build(pipeline: Any) -> None:
        side = pipeline | "Side" >> beam.Create([1]) | "Side windows" >> beam.WindowInto(windowfn)
        main = pipeline | "Main" >> beam.Create([1]) | "Main windows" >> beam.WindowInto(window.FixedWindows(10))
        _ = main | "Look" >> beam.Map(lambda x, looked: x, view(side))

    return build


def combined(fn: beam.CombineFn) -> Any:
    def build(pipeline: Any) -> None:
        windows = pipeline | beam.Create([("a", 1)]) | beam.WindowInto(window.FixedWindows(10))
        _ = windows | "Combine" >> beam.CombinePerKey(fn)

    return build


def reading(topic: Any) -> Any:
    def build(pipeline: Any) -> None:
        source = FakeSource(f"topics {topic}")
        _ = pipeline | "Read" >> PlannedSource(cast(Planner, source)) | beam.Map(str)

    return build


class FakeSource:
    element_type = str
    is_bounded = True

    def __init__(self, identity: str) -> None:
        self.identity = identity


early = {"trigger": trigger.AfterWatermark(early=trigger.AfterCount(2)), "accumulation_mode": 1}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (windowed(), windowed(windowfn=window.FixedWindows(20))),
        (windowed(), windowed(allowed_lateness=5)),
        (windowed(**early), windowed(**early | {"accumulation_mode": 2})),
        (stateful(Kept()), stateful(KeptElsewhere())),
        (stateful(Kept()), stateful(Kept(), "Keep more")),
        (stateful(kept_as(BagStateSpec("it", VarIntCoder()))), stateful(kept_as(BagStateSpec("it", StrUtf8Coder())))),
        (stateful(kept_as(BagStateSpec("it", VarIntCoder()))), stateful(kept_as(SetStateSpec("it", VarIntCoder())))),
        (
            stateful(kept_as(BagStateSpec("it", VarIntCoder()))),
            stateful(kept_as(CombiningValueStateSpec("it", VarIntCoder(), sum))),
        ),
        (with_side_input(AsSingleton, window.FixedWindows(10)), with_side_input(AsSingleton, window.FixedWindows(20))),
        (with_side_input(AsSingleton, window.FixedWindows(10)), with_side_input(AsList, window.FixedWindows(10))),
        (combined(MeanCombineFn()), combined(CountCombineFn())),
        (reading("a"), reading("b")),
    ],
)
def test_what_state_depends_on_shows_in_the_shape(one: Any, other: Any) -> None:
    assert shape(one) == shape(one)
    assert shape(one) != shape(other)
