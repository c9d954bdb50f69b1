"""Pipelines with `SqlTransform`, and what they are checked by."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to

from rmqio.runners import options
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.transform.row_kinds import Order

OLD_BEAM = pytest.mark.skipif(
    int(beam.__version__.split(".")[1]) < 75, reason="an older Beam gives dataclasses no schema, and infers other types"
)
ORDERS = [
    Order(1, "ann", Decimal(10)),
    Order(2, None, Decimal(20)),
    Order(3, "ann", Decimal(5)),
    Order(4, "bob", Decimal(1)),
]


@pytest.fixture
def pipeline() -> beam.Pipeline:
    return beam.Pipeline(options=options([]))


def run(pipeline: beam.Pipeline) -> Any:
    result = pipeline.run()
    result.wait_until_finish()
    return result


def orders(pipeline: beam.Pipeline) -> Any:
    return pipeline | "orders" >> beam.Create(ORDERS).with_output_types(Order)


def check(pcoll: Any, expected: list[Any], label: str = "check") -> None:
    """Rows cross a coder before they are looked at."""
    shuffled = pcoll | f"{label}: shuffle" >> beam.Reshuffle()
    assert_that(shuffled | f"{label}: tuples" >> beam.Map(tuple), equal_to(expected), label=label)


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        made.create_topic("t", 2)
        yield made


DDL = "(id BIGINT, ts TIMESTAMP(3), tag STRING METADATA FROM 'tags', WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)"
