"""Data that is larger than a worker's memory, on a real Spark."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict
from apache_beam.testing.util import assert_that, equal_to

from rmqio.runners.spark import PipelineFailed, SparkRunner

MIB = 1 << 20


def pipeline(*flags: str) -> beam.Pipeline:
    """Returns a pipeline on the shared Spark."""
    return beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(list(flags)))


class LimitedMemory(beam.DoFn):
    """Limits the worker's memory to what it has when the stage begins, plus `mib`."""

    def __init__(self, mib: int) -> None:
        self._mib = mib

    def setup(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        self._before = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + self._mib * MIB
        resource.setrlimit(resource.RLIMIT_AS, (limit, self._before[1]))

    def teardown(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self._before)


class Twice(LimitedMemory):
    def process(self, element: Any) -> Any:
        _, values = element
        yield sum(map(len, values)), sum(1 for _ in values)


class AllAtOnce(LimitedMemory):
    def process(self, element: Any) -> Any:
        _, values = element
        yield len(b"".join(values))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc to measure the worker")
def test_a_group_larger_than_the_workers_memory_can_be_read_twice() -> None:
    # 286 MiB of values. In a new worker, threads reserve 64 MiB of addresses each, which count
    count, size, limit = 3_000, 100_000, 230
    with pipeline() as p:
        grouped = (
            p
            | beam.Create(range(count))
            | beam.Map(lambda n: ("one", os.urandom(size)))
            | beam.GroupByKey()
            | beam.ParDo(Twice(limit))
        )
        assert_that(grouped, equal_to([(count * size, count)]))
    # The limit is real: a function that needs all values at once fails
    p = pipeline()
    _ = (
        p
        | beam.Create(range(count))
        | beam.Map(lambda n: ("one", os.urandom(size)))
        | beam.GroupByKey()
        | beam.ParDo(AllAtOnce(limit))
    )
    with pytest.raises(PipelineFailed, match="MemoryError"):
        p.run().wait_until_finish()


def test_a_side_input_that_is_too_large_says_so() -> None:
    p = pipeline("--spark_side_input_limit_mb=1")
    side = p | "side" >> beam.Create([(n, os.urandom(1_000)) for n in range(2_000)])
    _ = p | beam.Create([1]) | "Join" >> beam.Map(lambda n, found: found[n], found=AsDict(side))
    with pytest.raises(ValueError, match=r"Join: a side input has \d+ MiB; --spark_side_input_limit_mb allows 1 MiB"):
        p.run().wait_until_finish()
