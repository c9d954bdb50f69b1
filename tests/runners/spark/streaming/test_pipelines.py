"""Pipelines on Structured Streaming: state, timers, side inputs, failures, checkpoints. Windows: test_live_windows."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import window
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.utils.timestamp import MAX_TIMESTAMP

from rmqio.errors import LocalError
from rmqio.runners.capabilities import Mode
from rmqio.runners.spark import PipelineFailed, SparkRunner
from tests.helpers.pipelines.finalizing import Committed

pytestmark = [pytest.mark.slow]


class ToFile(beam.DoFn):
    """Writes each element as JSON to the bundle's own file."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def start_bundle(self) -> None:
        self._found: list[Any] = []

    def process(self, element: Any) -> None:
        self._found.append(element)

    def finish_bundle(self) -> None:
        Path(self._folder, uuid.uuid4().hex).write_text(json.dumps(self._found))


def written(folder: Path) -> list[Any]:
    return [element for file in folder.iterdir() for element in json.loads(file.read_text())]


def streaming(*arguments: str) -> beam.Pipeline:
    return beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(["--streaming", *arguments]))


def timed(pipeline: Any, values: Iterable[tuple[str, int]]) -> Any:
    """Returns pairs whose timestamp is their number."""
    return (
        pipeline
        | beam.Create(list(values), reshuffle=False)
        | "Stamp" >> beam.Map(lambda kv: window.TimestampedValue(kv, kv[1]))
    )


def windowed_list(kv: Any, bounds: Any = beam.DoFn.WindowParam) -> Any:
    return [kv[0], sorted(kv[1]), float(bounds.start), float(bounds.end)]


class Totals(beam.DoFn):
    """Sums a key's numbers in state until the end of their window, and then emits all of them."""

    NUMBERS = BagStateSpec("numbers", VarIntCoder())
    COUNT = CombiningValueStateSpec("count", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)
    SOON = TimerSpec("soon", TimeDomain.REAL_TIME)

    def process(
        self,
        element: tuple[str, int],
        bounds: Any = beam.DoFn.WindowParam,
        numbers: Any = beam.DoFn.StateParam(NUMBERS),
        count: Any = beam.DoFn.StateParam(COUNT),
        end: Any = beam.DoFn.TimerParam(END),
        soon: Any = beam.DoFn.TimerParam(SOON),
    ) -> None:
        numbers.add(element[1])
        count.add(1)
        end.set(bounds.end)
        soon.set(time.time())

    @on_timer(END)
    def tell(
        self,
        key: Any = beam.DoFn.KeyParam,
        bounds: Any = beam.DoFn.WindowParam,
        numbers: Any = beam.DoFn.StateParam(NUMBERS),
        count: Any = beam.DoFn.StateParam(COUNT),
    ) -> Iterator[Any]:
        yield ["end", key, sorted(numbers.read()), count.read(), float(bounds.start)]

    @on_timer(SOON)
    def tell_soon(self, key: Any = beam.DoFn.KeyParam) -> Iterator[Any]:
        yield ["soon", key]


@pytest.mark.shows(Mode.SPARK_STREAMING)
def test_state_and_timers_of_both_kinds(tmp_path: Path) -> None:
    values = [(f"k{n % 3}", n) for n in range(30)]
    with streaming() as p:
        _ = (
            timed(p, values)
            | beam.WindowInto(window.FixedWindows(15))
            | beam.ParDo(Totals())
            | beam.ParDo(ToFile(tmp_path))
        )
    found = written(tmp_path)
    assert sorted(each for each in found if each[0] == "end") == [
        ["end", f"k{key}", [n for n in range(start, start + 15) if n % 3 == key], 5, float(start)]
        for key in range(3)
        for start in (0, 15)
    ]
    assert Counter(each[1] for each in found if each[0] == "soon") == {"k0": 2, "k1": 2, "k2": 2}


@pytest.mark.shows(Mode.SPARK_STREAMING)
def test_side_inputs_of_the_global_window_and_of_windows(tmp_path: Path) -> None:
    plain, by_window = tmp_path / "plain", tmp_path / "windows"
    plain.mkdir()
    by_window.mkdir()
    with streaming() as p:
        names = p | "Names" >> beam.Create([("a", "Anna"), ("b", "Ben")], reshuffle=False)
        pairs = timed(p, [("a", 1), ("b", 2), ("a", 11)])
        _ = (
            pairs
            | "Look up" >> beam.Map(lambda kv, of: [of[kv[0]], kv[1]], beam.pvalue.AsDict(names))
            | "WP" >> beam.ParDo(ToFile(plain))
        )
        windowed = pairs | beam.WindowInto(window.FixedWindows(10))
        total = windowed | beam.Values() | beam.CombineGlobally(sum).without_defaults()
        _ = (
            windowed
            | "Share" >> beam.Map(lambda kv, total: [kv[0], kv[1], total], beam.pvalue.AsSingleton(total))
            | "WW" >> beam.ParDo(ToFile(by_window))
        )
    assert sorted(written(plain)) == [["Anna", 1], ["Anna", 11], ["Ben", 2]]
    assert sorted(written(by_window)) == [["a", 1, 3], ["a", 11, 11], ["b", 2, 3]]


@pytest.mark.shows(Mode.SPARK_STREAMING)
def test_an_unbounded_splittable_dofn_runs_by_its_own_clock(tmp_path: Path) -> None:
    begin = time.time()
    with streaming() as p:
        _ = (
            p
            | PeriodicImpulse(begin, begin + 1.5, 0.5, apply_windowing=True)
            | "Text" >> beam.Map(lambda each: round(float(each) - begin, 3))
            | beam.ParDo(ToFile(tmp_path))
        )
    assert sorted(written(tmp_path)) == [0.0, 0.5, 1.0]


def test_a_failure_is_reported_once_with_its_transform(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(PipelineFailed, match=r"Divide.*ZeroDivisionError") as caught, streaming() as p:
        _ = p | beam.Create([0], reshuffle=False) | "Divide" >> beam.Map(lambda n: 1 // n)
    assert str(caught.value).count("ZeroDivisionError: ") <= 2
    assert "at org.apache.spark" not in str(caught.value)
    assert not [record for record in caplog.records if record.name.startswith("py4j")]


class Wrong(beam.DoFn):
    """Its state does not fit its coder, which is noticed when the bundle is over."""

    KEPT = ReadModifyWriteStateSpec("kept", beam.coders.VarIntCoder())

    def process(self, element: Any, kept: Any = beam.DoFn.StateParam(KEPT)) -> None:
        kept.write("text")


def test_state_that_cannot_be_encoded_is_reported_with_its_transform() -> None:
    with pytest.raises(PipelineFailed, match=r"^[^\n]*Keep[^\n]*: state 'kept'"), streaming() as p:
        _ = p | beam.Create([("a", 1)], reshuffle=False) | "Keep" >> beam.ParDo(Wrong())


def test_metrics_are_those_of_all_micro_batches() -> None:
    def noted(kv: Any) -> None:
        beam.metrics.Metrics.counter("test", "groups").inc()

    p = streaming()
    _ = (
        timed(p, [("a", n) for n in range(40)])
        | beam.WindowInto(window.FixedWindows(10))
        | beam.GroupByKey()
        | ("Note" >> beam.Map(noted))
    )
    result = p.run()
    assert result.wait_until_finish() == "DONE"
    (counter,) = result.metrics().query(beam.metrics.MetricsFilter().with_name("groups"))["counters"]
    assert counter.committed == 4


def test_the_figures_of_micro_batches_are_in_spark_s_own_progress() -> None:
    p = streaming()
    windows = timed(p, [("a", n) for n in range(40)]) | beam.WindowInto(window.FixedWindows(10))
    _ = windows | beam.GroupByKey() | "List" >> beam.Map(windowed_list)
    result = p.run()
    assert result.wait_until_finish() == "DONE"
    observed = [each["observedMetrics"]["rmqio"] for each in result.query.recentProgress]
    observed = [each for each in observed if each["rows"] is not None]  # a query that has ended reports nothing more
    assert sum(each["rows"] for each in observed) == 1, "the impulse"
    assert observed[-1]["watermark_us"] >= int(MAX_TIMESTAMP.micros)
    assert {each["late"] for each in observed} == {0}


def test_a_splittable_dofn_without_end_cannot_be_drained() -> None:
    p = streaming("--drain")
    _ = p | PeriodicImpulse(fire_interval=1)
    with pytest.raises(NotImplementedError, match=r"PeriodicImpulse.*--drain"):
        p.run()


def test_another_pipeline_does_not_take_over_a_checkpoint(tmp_path: Path) -> None:
    folder = f"--checkpoint_dir={tmp_path}"
    with streaming(folder) as p:
        _ = p | beam.Create([1], reshuffle=False) | "First" >> beam.Map(lambda n: n)
    p = streaming(folder)
    _ = p | beam.Create([1], reshuffle=False) | "Second" >> beam.Map(lambda n: n)
    with pytest.raises(LocalError, match=r"holds the state of another pipeline.*First.*Second.*--checkpoint_dir"):
        p.run().wait_until_finish()


def test_a_pipeline_that_has_ended_has_nothing_to_do_when_started_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for _ in range(2):
        with streaming(f"--checkpoint_dir={tmp_path / 'checkpoint'}") as p:
            _ = p | beam.Create([1, 2], reshuffle=False) | beam.ParDo(ToFile(out))
    assert sorted(written(out)) == [1, 2]


class Finalized(beam.DoFn):
    def __init__(self, finalizer: Committed) -> None:
        self._finalizer = finalizer

    def process(self, element: Any, finalizer: Any = beam.DoFn.BundleFinalizerParam) -> None:
        finalizer.register(self._finalizer)


@pytest.mark.shows(Mode.SPARK_STREAMING)
def test_finalizers_run_when_spark_has_committed_the_last_micro_batch_too(tmp_path: Path) -> None:
    checkpoint, first, last = (tmp_path / name for name in ("checkpoint", "first", "last"))
    first.mkdir()
    last.mkdir()
    with streaming(f"--checkpoint_dir={checkpoint}") as p:
        elements = timed(p, [("a", 1)])
        _ = elements | "First" >> beam.ParDo(Finalized(Committed(checkpoint, first)))
        groups = elements | beam.WindowInto(window.FixedWindows(10)) | beam.GroupByKey()
        _ = groups | "Last" >> beam.ParDo(Finalized(Committed(checkpoint, last)))
    assert "0" in written(first)
    assert written(last), "its window has fired in the last micro-batch"
    assert {"0", "1"} <= set(written(last))


def test_another_number_of_buckets_than_that_of_the_state_is_refused(tmp_path: Path) -> None:
    """Keys are dealt to buckets by the number of buckets, so in another bucket a key would not find its state."""

    def run(*flags: str) -> None:
        p = streaming(f"--checkpoint_dir={tmp_path}", *flags)
        _ = (
            timed(p, [(f"k{n}", n) for n in range(8)])
            | beam.WindowInto(window.FixedWindows(15))
            | beam.ParDo(Totals())
            | beam.Map(str)
        )
        p.run().wait_until_finish()

    run("--spark_buckets=2")
    with pytest.raises(LocalError, match=r"--spark_buckets=4: the state in \S+ is divided into 2 .*--checkpoint_dir"):
        run("--spark_buckets=4")
    run()
    assert json.loads((tmp_path / "rmqio.json").read_text())["buckets"] == 2
    partitions = {each.name for each in (tmp_path / "state" / "0").iterdir() if each.name.isdigit()}
    assert partitions == {"0", "1"}


def test_without_a_checkpoint_folder_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), streaming() as p:
        _ = p | beam.Create([1], reshuffle=False)
    assert "no --checkpoint_dir: a restart starts from scratch" in caplog.text
