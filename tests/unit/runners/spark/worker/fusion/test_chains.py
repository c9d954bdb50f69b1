"""Steps that follow each other without Beam's hand-over, and those that leave it to Beam."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam

from rmqio.runners.spark.worker import fusion
from tests.helpers.spark.fused_steps import Asking, Doubled, Noting, NotingByBeam, Returning, keyed
from tests.helpers.spark.spark_plan import LocalRun


def chained(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Returns the operations to which a step passes elements without Beam in between."""
    found = set()
    handle_of = fusion._following

    def following(operation: Any) -> Any:
        behind = handle_of(operation)
        if behind is not None:
            found.add(operation.name_context.logging_name())
        return behind

    monkeypatch.setattr(fusion, "_following", following)
    LocalRun(pipeline)
    return found


def test_steps_are_chained_to_each_other_and_to_what_ends_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = beam.Pipeline()
    numbers = pipeline | beam.Impulse() | "numbers" >> beam.FlatMap(lambda _: range(9))
    _ = (
        numbers
        | "plus" >> beam.Map(lambda x: x + 1)
        | "even" >> beam.Filter(lambda x: x % 2 == 0)
        | "keyed" >> beam.Map(keyed)
        | beam.CombinePerKey(sum)
        | beam.CombineGlobally(max).without_defaults()
        | "again" >> beam.Map(keyed)
        | beam.GroupByKey()
        | "last" >> beam.Map(len)
    )
    found = chained(pipeline, monkeypatch)
    assert {"plus", "even", "keyed", "CombinePerKey(sum)/Precombine"} <= found
    assert any(name.startswith("CombineGlobally(max)") and name.endswith("Precombine") for name in found), found
    assert any(name.startswith("write_") for name in found), found


class WithSetup(beam.DoFn):
    def setup(self) -> None:
        pass

    def process(self, element: Any) -> Any:
        return [element]


class PassingOn(beam.DoFn):
    """Stands for another DoFn, and returns all of its methods."""

    def __init__(self, other: Any) -> None:
        self._other = other

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_other"), name)


class WithBatches(beam.DoFn):
    def process(self, element: int) -> Iterator[int]:
        yield element

    def process_batch(self, batch: list[int]) -> Iterator[list[int]]:
        yield batch


class YieldsBatches(beam.DoFn):
    @beam.DoFn.yields_batches
    def process(self, element: int) -> Iterator[list[int]]:
        yield [element]


@pytest.mark.parametrize(
    ("dofn", "is_one"),
    [
        (Returning([]), True),
        (Noting(), True),
        (beam.Map(len).fn, True),
        (beam.FlatMap(Doubled()).fn, True),
        (NotingByBeam(), False),
        (PassingOn(WithSetup()), False),
        (WithSetup(), False),
        (WithBatches(), False),
        (YieldsBatches(), False),
        (beam.Map(lambda x, y=1: x).fn, True),
        (beam.Map(lambda x, k=beam.DoFn.KeyParam: x).fn, False),
        (beam.Map(lambda x, f=beam.DoFn.BundleFinalizerParam: x).fn, False),
        (beam.Map(lambda x, t=beam.DoFn.TimestampParam: x).fn, True),
        (beam.Map(lambda x, w=beam.DoFn.WindowParam, p=beam.DoFn.PaneInfoParam, n=1: x).fn, True),
        (beam.Map(lambda x, y, t=beam.DoFn.TimestampParam: x, 1).fn, False),
        (beam.Map(lambda t=beam.DoFn.TimestampParam, x=beam.DoFn.ElementParam: x).fn, False),
        (beam.Map(lambda x, n=1, t=beam.DoFn.TimestampParam: x).fn, False),
        (Asking(), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_function_of_an_element_is_what_asks_for_nothing_else(dofn: Any, is_one: bool) -> None:
    assert fusion.is_function(dofn) is is_one
