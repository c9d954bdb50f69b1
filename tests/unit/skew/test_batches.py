"""`BoundedGroupIntoBatches`: limits, order, and nothing lost at the end of a window or of the pipeline."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_stream as streams
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, GlobalWindow, GlobalWindows, Sessions, TimestampedValue
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError
from rmqio.skew import BoundedGroupIntoBatches
from rmqio.skew import batches as module
from rmqio.skew.batches import _BatchFn


class Bag(list[Any]):
    """A bag, as Beam's."""

    def add(self, value: Any) -> None:
        self.append(value)

    def read(self) -> list[Any]:
        return list(self)


class Cell:
    """A value of state, as Beam's."""

    value: Any = None

    def read(self) -> Any:
        return self.value

    def write(self, value: Any) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None


class Timer:
    """A timer that knows whether it is set."""

    at: Any = None

    def set(self, at: Any) -> None:
        self.at = at


@given(st.lists(st.binary(max_size=12), max_size=60), st.integers(1, 7), st.none() | st.integers(1, 20))
def test_limits_are_kept_and_order_too_and_nothing_is_lost(
    values: list[bytes], batch_size: int, max_bytes: int | None
) -> None:
    fn, bag, held, end = _BatchFn(BytesCoder(), batch_size, max_bytes), Bag(), Cell(), Timer()
    batches = []
    for value in values:
        batches += [batch for _, batch in fn.process(("k", value), GlobalWindow(), bag, held, end)]
        assert len(bag) < batch_size
        assert max_bytes is None or sum(map(len, bag)) < max_bytes
        assert not bag or end.at == GlobalWindow().max_timestamp()
    batches += [batch for _, batch in fn.at_the_end("k", bag, held)]
    assert not [*fn.at_the_end("k", bag, held)]
    assert [each for batch in batches for each in batch] == values
    assert all(0 < len(batch) <= batch_size for batch in batches)
    assert max_bytes is None or all(len(batch) == 1 or sum(map(len, batch)) <= max_bytes for batch in batches)


def test_in_a_pipeline_each_value_is_in_one_batch_of_its_key_and_window() -> None:
    values = [TimestampedValue((f"k{n % 3}", n), n // 20) for n in range(100)]

    def check(found: list[Any]) -> None:
        by_key: dict[str, list[int]] = defaultdict(list)
        for key, batch in found:
            assert len(batch) <= 8
            assert batch == sorted(batch)
            assert len({n // 20 // 2 for n in batch}) == 1, "one window"
            by_key[key] += batch
        assert {key: sorted(each) for key, each in by_key.items()} == {f"k{k}": [*range(k, 100, 3)] for k in range(3)}

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        made = pipeline | beam.Create(values, reshuffle=False).with_output_types(tuple[str, int])
        windowed = made | beam.WindowInto(FixedWindows(2))
        for label, more in (("plain", {}), ("timed", {"max_wait_ms": 60_000})):
            batches = windowed | label >> BoundedGroupIntoBatches(8, **more)
            assert_that(batches | f"{label} all" >> beam.WindowInto(GlobalWindows()), check, f"Check {label}")


def test_in_a_stream_a_batch_goes_out_after_its_wait_and_at_the_end_of_its_window_and_late_values_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "is_in_process", lambda pipeline: False)  # this one has a clock for timers

    def add(stream: Any, *numbers: int) -> Any:
        return stream.add_elements([TimestampedValue(("k", n), n % 100) for n in numbers])

    stream = streams.TestStream().advance_watermark_to(0).advance_processing_time(1)
    add(stream, 1, 2).advance_processing_time(10)
    add(stream, 3).advance_watermark_to(10)
    add(stream, 104).advance_watermark_to_infinity()
    with beam.Pipeline("BundleBasedDirectRunner", PipelineOptions(streaming=True)) as pipeline:
        given = pipeline | stream | beam.Map(lambda each: each).with_output_types(tuple[str, int])
        windowed = given | beam.WindowInto(FixedWindows(10), allowed_lateness=100)
        batches = windowed | BoundedGroupIntoBatches(50)
        everything = batches | "All" >> beam.WindowInto(GlobalWindows())
        assert_that(everything, equal_to([("k", [1, 2, 3]), ("k", [104])]))


@pytest.mark.parametrize("arguments", [{"batch_size": 0}, {"batch_size": 1, "max_bytes": 0}, {"batch_size": None}])
def test_bad_limits_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match="must be a whole number of at least 1"):
        BoundedGroupIntoBatches(**arguments)


def test_after_a_read_without_end_the_in_process_runner_refuses_it() -> None:
    stream = beam.Pipeline(runner=FnApiRunner()) | streams.TestStream().add_elements([("a", 1)])
    with pytest.raises(LocalError, match="after a read without end"):
        stream | BoundedGroupIntoBatches(5)


def test_windows_that_merge_are_refused() -> None:
    given = beam.Pipeline(runner=FnApiRunner()) | beam.Create([("a", 1)]) | beam.WindowInto(Sessions(5))
    with pytest.raises(LocalError, match=re.escape("BoundedGroupIntoBatches in Sessions")):
        given | BoundedGroupIntoBatches(5)
