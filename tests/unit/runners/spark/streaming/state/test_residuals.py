"""Residuals of splittable DoFns between micro-batches: when they are due, and how far the watermark may advance."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils import proto_utils
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP
from google.protobuf import duration_pb2, timestamp_pb2

from rmqio.runners.spark.streaming.state import Store
from rmqio.runners.spark.streaming.user_state import Residuals

LOWEST = int(MIN_TIMESTAMP.micros)


class Entries(dict[bytes, bytes]):
    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    def remove(self, key: bytes) -> None:
        self.pop(key, None)


def residual(element: bytes, micros: int | None, delay_ms: int) -> beam_fn_api_pb2.DelayedBundleApplication:
    """As Beam's worker reports it."""
    times = {} if micros is None else {"out": proto_utils.from_micros(timestamp_pb2.Timestamp, micros)}
    return beam_fn_api_pb2.DelayedBundleApplication(
        application=beam_fn_api_pb2.BundleApplication(element=element, output_watermarks=times),
        requested_time_delay=duration_pb2.Duration(nanos=delay_ms * 1_000_000),
    )


@pytest.mark.parametrize("micros", [LOWEST, -1, 0, 1_700_000_000_123_456, int(MAX_TIMESTAMP.micros)])
def test_the_watermark_waits_where_the_residual_says(micros: int) -> None:
    """A read that has found nothing yet reports Beam's lowest time, which is before the year 1."""
    entries = Entries()
    store = Store(entries)
    kept = Residuals(store, 3)
    kept.add([residual(b"a", micros, 10), residual(b"b", None, 0)], 1_000, LOWEST)
    assert kept.hold() == LOWEST
    assert kept.due(1_000) == [b"b"]
    assert kept.hold() == micros
    kept.flush()
    store.flush()
    again = Residuals(Store(entries), 3)
    assert (again.hold(), again.due(10_999), again.due(11_000)) == (micros, [], [b"a"])


def test_the_first_of_several_watermarks_counts() -> None:
    kept, both = Residuals(Store(Entries()), 3), residual(b"a", 7, 0)
    for name, micros in (("late", 9), ("early", 5)):
        both.application.output_watermarks[name].FromMicroseconds(micros)
    kept.add([both, residual(b"b", 8, 0)], 0, LOWEST)
    assert kept.hold() == 5
