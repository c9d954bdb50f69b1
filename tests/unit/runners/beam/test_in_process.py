"""The Direct runner with several workers: work that a part of a bundle defers is not lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import Duration

from rmqio import runners


class Ranges(RestrictionProvider):
    """Five offsets for each element."""

    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(element * 5, element * 5 + 5)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> int:
        return int(restriction.size())


class Hesitant(beam.DoFn):
    """Defers all of its work once for each element, like a read whose broker does not answer in time."""

    deferred: set[int] = set()  # noqa: RUF012 - the workers are threads of this process
    lock = threading.Lock()

    def process(
        self,
        element: int,
        tracker: Any = beam.DoFn.RestrictionParam(Ranges()),  # noqa: B008 - Beam's own way
    ) -> Iterator[int]:
        with self.lock:
            is_first = element not in self.deferred
            self.deferred.add(element)
        if is_first:
            tracker.defer_remainder(Duration(seconds=0.01))
            return
        offset = tracker.current_restriction().start
        while tracker.try_claim(offset):
            yield offset
            offset += 1


@pytest.mark.parametrize("mode", ["in_memory", "multi_threading"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_nothing_is_lost_that_a_bundle_defers(workers: int, mode: str) -> None:
    Hesitant.deferred = set()
    options = runners.options([f"--direct_num_workers={workers}", f"--direct_running_mode={mode}"])
    with beam.Pipeline(options=options) as pipeline:
        found = pipeline | beam.Create([0, 1, 2]) | beam.Reshuffle() | beam.ParDo(Hesitant())
        assert_that(found, equal_to([*range(15)]))
    assert Hesitant.deferred == {0, 1, 2}
