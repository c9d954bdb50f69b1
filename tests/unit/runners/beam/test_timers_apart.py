"""Several DoFns with timers in one pipeline on the DirectRunner: nothing that a timer emits is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import PickleCoder
from apache_beam.runners.portability.fn_api_runner.translations import Stage
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import TimestampedValue

from rmqio.runners import options
from rmqio.runners.beam.in_process import timers_apart

PAIR = beam.typehints.Tuple[str, int]
PAIRS = [("a", 1), ("a", 2), ("b", 3)]


class HoldFn(beam.DoFn):
    """Emits its input when the watermark reaches a time."""

    HELD = BagStateSpec("held", PickleCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def __init__(self, at: int) -> None:
        self._at = at

    def process(
        self, element: Any, held: Any = beam.DoFn.StateParam(HELD), due: Any = beam.DoFn.TimerParam(DUE)
    ) -> None:
        held.add(element)
        due.set(self._at)

    @on_timer(DUE)
    def emit(self, held: Any = beam.DoFn.StateParam(HELD)) -> Iterator[Any]:
        yield from held.read()
        held.clear()


def holding(at: int) -> Any:
    return beam.ParDo(HoldFn(at)).with_output_types(PAIR)


@pytest.mark.parametrize("shape", ["one after the other", "side by side", "three and a map", "with a flatten"])
@pytest.mark.parametrize("workers", [1, 3])
def test_what_their_timers_emit_is_there(shape: str, workers: int) -> None:
    flags = ["--runner=DirectRunner", f"--direct_num_workers={workers}", "--direct_running_mode=multi_threading"]
    with beam.Pipeline(options=options(flags)) as pipeline:
        at_ten = beam.Map(lambda pair: TimestampedValue(pair, 10)).with_output_types(PAIR)
        pairs = pipeline | beam.Create(PAIRS) | at_ten
        first = pairs | "First" >> holding(100)
        if shape == "one after the other":
            found = [first | "Second" >> holding(200)]
        elif shape == "side by side":
            found = [first, pairs | "Second" >> holding(200)]
        elif shape == "three and a map":
            mapped = first | "Map" >> beam.Map(lambda pair: pair).with_output_types(PAIR)
            found = [mapped | "Second" >> holding(50) | "Third" >> holding(300), pairs | "Fourth" >> holding(100)]
        else:
            both = (first, pairs | "Second" >> holding(200)) | beam.Flatten()
            found = [both | "Third" >> holding(300)]
        for number, each in enumerate(found):
            wanted = PAIRS * 2 if shape == "with a flatten" else PAIRS
            assert_that(each, equal_to(wanted), label=f"check {number}")


def test_the_rule_about_stages_is_taken_back_after_a_failure_too() -> None:
    before = Stage.can_fuse

    def fail() -> None:
        with timers_apart():
            assert Stage.can_fuse is not before
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert Stage.can_fuse is before
