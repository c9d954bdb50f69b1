"""The Spark runner on a real Spark: what Beam's own suite does not test."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict
from apache_beam.runners.runner import PipelineState
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import userstate, window
from apache_beam.transforms.environments import EmbeddedPythonEnvironment
from pyspark.sql import SparkSession

from rmqio.runners.capabilities import Mode
from rmqio.runners.spark import PipelineFailed, SparkRunner
from rmqio.runners.spark.execution import Execution
from tests.helpers.waiting import until


def pipeline(*flags: str) -> beam.Pipeline:
    """Returns a pipeline on the shared Spark."""
    return beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(list(flags)))


def counter(result: Any, name: str) -> int:
    """Returns the sum of a counter over all steps."""
    found = result.metrics().query(MetricsFilter().with_name(name))["counters"]
    return sum(each.committed for each in found)


class Counted(beam.DoFn):
    """Passes elements on and counts them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process(self, element: Any) -> Any:
        Metrics.counter("test", self._name).inc()
        yield element


def test_a_stage_with_several_readers_runs_once() -> None:
    with pipeline() as p:
        numbers = p | beam.Create(range(1_000)) | beam.ParDo(Counted("computed"))
        evens = numbers | "even" >> beam.Filter(lambda n: n % 2 == 0) | "e" >> beam.combiners.Count.Globally()
        by_key = (
            numbers | beam.Map(lambda n: (n % 3, n)) | beam.GroupByKey() | beam.MapTuple(lambda k, v: (k, len([*v])))
        )
        joined = by_key | "join" >> beam.Map(lambda kv, sizes: kv[1] == sizes[kv[0]], sizes=AsDict(by_key))
        assert_that(evens, equal_to([500]), label="evens")
        assert_that(by_key, equal_to([(0, 334), (1, 333), (2, 333)]), label="by key")
        assert_that(joined, equal_to([True] * 3), label="joined")
    assert counter(p.result, "computed") == 1_000


def test_a_kept_stage_that_is_computed_again_is_not_counted_again() -> None:
    with pipeline() as p:
        numbers = p | beam.Create(range(10)) | beam.ParDo(Counted("kept"))
        for name in ("one", "two"):
            groups = numbers | name >> beam.Map(lambda n: (n, n)) | f"group {name}" >> beam.GroupByKey()
            _ = groups | f"use {name}" >> beam.Map(len)
    execution = p.result._execution
    (stage, turn), *_ = execution._settled
    (report, *_) = execution._settled[stage, turn].values()
    execution._accumulator.add({(stage, turn, 99): report})  # as if a kept partition had been lost, before a union
    assert counter(p.result, "kept") == 10


class Everything(beam.DoFn):
    """Uses every kind of user state, for each key."""

    BAG = userstate.BagStateSpec("bag", beam.coders.VarIntCoder())
    SET = userstate.SetStateSpec("set", beam.coders.VarIntCoder())
    LAST = userstate.ReadModifyWriteStateSpec("last", beam.coders.VarIntCoder())
    SUM = userstate.CombiningValueStateSpec("sum", sum)
    ORDERED = userstate.OrderedListStateSpec("ordered", beam.coders.VarIntCoder())
    END = userstate.TimerSpec("end", userstate.TimeDomain.WATERMARK)

    def process(
        self,
        element: Any,
        bag: Any = beam.DoFn.StateParam(BAG),
        unique: Any = beam.DoFn.StateParam(SET),
        last: Any = beam.DoFn.StateParam(LAST),
        total: Any = beam.DoFn.StateParam(SUM),
        ordered: Any = beam.DoFn.StateParam(ORDERED),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        _, value = element
        bag.add(value)
        unique.add(value % 5)
        last.write(max(value, last.read() or 0))
        total.add(value)
        ordered.add((beam.utils.timestamp.Timestamp(100 - value), value))
        end.set(1_000)

    @userstate.on_timer(END)
    def at_end(
        self,
        key: Any = beam.DoFn.KeyParam,
        bag: Any = beam.DoFn.StateParam(BAG),
        unique: Any = beam.DoFn.StateParam(SET),
        last: Any = beam.DoFn.StateParam(LAST),
        total: Any = beam.DoFn.StateParam(SUM),
        ordered: Any = beam.DoFn.StateParam(ORDERED),
    ) -> Any:
        in_order = [value for _, value in ordered.read()]
        yield key, sorted(bag.read()), sorted(unique.read()), last.read(), total.read(), in_order


@pytest.mark.shows(Mode.SPARK)
def test_state_of_every_kind() -> None:
    with pipeline() as p:
        found = p | beam.Create([(f"k{n % 4}", n) for n in range(40)]) | beam.ParDo(Everything())
        expected = []
        for key in range(4):
            values = list(range(key, 40, 4))
            expected.append((f"k{key}", values, [0, 1, 2, 3, 4], values[-1], sum(values), values[::-1]))
        assert_that(found, equal_to(expected))


@pytest.mark.shows(Mode.SPARK)
def test_a_hot_key_does_not_break_a_combine() -> None:
    with pipeline() as p:
        keyed = p | beam.Create([("hot", 1)] * 20_000 + [("cold", 1)])
        plain = keyed | "plain" >> beam.CombinePerKey(sum)
        fanned = keyed | "fanout" >> beam.CombinePerKey(sum).with_hot_key_fanout(5)
        assert_that(plain, equal_to([("hot", 20_000), ("cold", 1)]), label="plain")
        assert_that(fanned, equal_to([("hot", 20_000), ("cold", 1)]), label="fanned")


def test_a_windowed_side_input_is_looked_up_by_window() -> None:
    with pipeline() as p:
        windows = window.FixedWindows(10)
        side = (
            p
            | "side" >> beam.Create([("a", 1), ("b", 11)])
            | "t1" >> beam.Map(lambda e: window.TimestampedValue(e[0], e[1]))
            | "w1" >> beam.WindowInto(windows)
        )
        main = (
            p
            | "main" >> beam.Create([("x", 2), ("y", 12)])
            | "t2" >> beam.Map(lambda e: window.TimestampedValue(e[0], e[1]))
            | "w2" >> beam.WindowInto(windows)
        )
        joined = main | beam.Map(lambda e, s: (e, list(s)), s=beam.pvalue.AsIter(side))
        assert_that(joined, equal_to([("x", ["a"]), ("y", ["b"])]))


def test_a_failure_names_the_transform_and_shows_the_users_frames_only() -> None:
    def divide(number: int) -> float:
        return 1 / number

    p = pipeline()
    _ = p | beam.Create([1, 0]) | "Invert" >> beam.Map(divide) | "After" >> beam.Map(abs)
    result = p.run()
    with pytest.raises(PipelineFailed) as caught:
        result.wait_until_finish()
    message = str(caught.value)
    assert message.startswith("Invert: ZeroDivisionError: division by zero\nTraceback")
    assert message.count("ZeroDivisionError") == 2, "said once on top, and once by the traceback"
    assert "in divide" in message
    assert "apache_beam/runners" not in message
    assert "java" not in message.lower()
    assert result.state == PipelineState.FAILED


class Forgetful(beam.DoFn):
    """Also fails in teardown."""

    def process(self, element: Any) -> Any:
        raise ValueError("the first one")

    def teardown(self) -> None:
        raise ValueError("the second one")


def test_a_failing_teardown_does_not_hide_the_failure() -> None:
    p = pipeline()
    _ = p | beam.Create([1]) | beam.ParDo(Forgetful())
    with pytest.raises(PipelineFailed, match="the first one"):
        p.run().wait_until_finish()


class Lifecycle(beam.DoFn):
    """Records the calls of its methods."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def _say(self, what: str) -> None:
        with open(f"{self._folder}/{os.getpid()}-{threading.get_ident()}-{id(self)}", "a") as file:
            file.write(what + " ")

    def setup(self) -> None:
        self._say("setup")

    def start_bundle(self) -> None:
        self._say("start")

    def process(self, element: Any) -> Any:
        self._say("process")
        yield element

    def finish_bundle(self) -> None:
        self._say("finish")

    def teardown(self) -> None:
        self._say("teardown")


@pytest.mark.shows(Mode.SPARK)
def test_every_setup_has_its_teardown_by_the_end_of_the_task(tmp_path: Path) -> None:
    with pipeline() as p:
        _ = p | beam.Create(range(10)) | beam.ParDo(Lifecycle(str(tmp_path)))
    told = " ".join(file.read_text().strip() for file in tmp_path.iterdir()).split()
    assert told.count("setup") == told.count("teardown") >= 1
    assert told.count("start") == told.count("finish") >= 1
    assert told.count("process") == 10


def test_a_finalizer_that_does_not_pickle_is_refused() -> None:
    class Locks(beam.DoFn):
        def process(self, element: Any, finalizer: Any = beam.DoFn.BundleFinalizerParam) -> Any:
            numbers = iter(range(element))
            finalizer.register((n for n in numbers).__next__)  # no pickler accepts a generator
            yield element

    p = pipeline()
    _ = p | beam.Create([1]) | beam.ParDo(Locks())
    with pytest.raises(PipelineFailed, match=r"bundle finalizer .* does not pickle"):
        p.run().wait_until_finish()


def test_waiting_for_a_while_and_cancelling(tmp_path: Path) -> None:
    def hang(_: Any) -> None:
        (tmp_path / "running").touch()
        time.sleep(600)

    p = pipeline()
    _ = p | beam.Create([1]) | beam.Map(hang)
    result = p.run()
    assert result.wait_until_finish(duration=10) == PipelineState.RUNNING
    until((tmp_path / "running").exists, "the element", still_s=240)
    assert result.cancel() == PipelineState.CANCELLED
    assert result.wait_until_finish() == PipelineState.CANCELLED
    with pipeline() as after:
        assert_that(after | beam.Create([1]), equal_to([1]))
    assert after.result.state == PipelineState.DONE


@pytest.mark.shows(Mode.SPARK)
def test_jobs_carry_the_names_of_transforms() -> None:
    with pipeline() as p:
        _ = p | "Numbers" >> beam.Create([1, 2]) | "Twice it" >> beam.Map(lambda n: 2 * n)
    active = SparkSession.getActiveSession()
    assert active is not None
    store = active.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    assert any("Twice it" in str(jobs.apply(at).description()) for at in range(jobs.size()))


def test_what_a_task_reads_of_a_shuffle_has_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a repeated task would deal out the results of a group differently, since its values have an order."""
    plans: list[str] = []
    compute = Execution._compute

    def noted(self: Execution, frame: Any) -> None:
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        compute(self, frame)

    monkeypatch.setattr(Execution, "_compute", noted)
    with pipeline() as p:
        groups = p | beam.Create([("a", 1), ("a", 2)], reshuffle=False) | beam.GroupByKey()
        _ = groups | "list" >> beam.MapTuple(lambda k, v: (k, [*v])) | beam.Reshuffle() | beam.Map(print)
    (plan,) = plans
    orders = re.findall(r"Sort \[(.*?)\], false", plan)
    columns = [re.findall(r"(\w+)#\d+ ASC", order) for order in orders]
    assert columns == [["value"], ["key", "value"]]
    assert plan.count("Exchange") == 2


class Primitive(beam.PTransform):
    """A transform like some of Beam's interactive runner: only the runners that know it can evaluate it."""

    def expand(self, pcoll: Any) -> Any:
        return beam.pvalue.PCollection.from_(pcoll)


class Itself(beam.PTransform):
    """Also contains no transform, but there is nothing to run."""

    def expand(self, pcoll: Any) -> Any:
        return pcoll


def test_a_primitive_that_no_runner_of_beams_model_knows_is_refused_by_its_name() -> None:
    p = pipeline()
    _ = p | beam.Create([1]) | Itself() | Primitive() | beam.Map(print)
    with pytest.raises(NotImplementedError, match="Primitive: neither made of other transforms"):
        p.run()
    with pipeline() as p:
        assert_that(p | beam.Create([1]) | Itself(), equal_to([1]))


@pytest.mark.parametrize("what", ["stream", "sorted"])
def test_what_is_not_supported_is_refused_before_anything_runs(what: str) -> None:
    class Sorted(beam.DoFn):
        STATE = userstate.BagStateSpec("state", beam.coders.VarIntCoder())

        def process(self, element: Any, state: Any = beam.DoFn.StateParam(STATE)) -> None:
            pass

    p = pipeline()
    if what == "stream":
        _ = p | test_stream.TestStream().add_elements([1]).advance_watermark_to_infinity()
        with pytest.raises(NotImplementedError, match="TestStream"):
            p.run()
    else:
        _ = p | beam.Create([("a", 1)]) | beam.ParDo(Sorted())
        proto = p.to_runner_api(default_environment=EmbeddedPythonEnvironment())
        proto.requirements.append("beam:requirement:pardo:time_sorted_input:v1")
        with pytest.raises(ValueError, match="time_sorted_input"):
            SparkRunner()._check(proto)
