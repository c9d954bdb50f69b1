"""Event time: policies, timestamps that Beam cannot hold, and a watermark that only goes forward."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from apache_beam.runners.sdf_utils import ThreadsafeWatermarkEstimator
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError, SerdeError
from rmqio.model import Record
from rmqio.transforms.reading.restriction import (
    PropertyTime,
    QueueWatermark,
    QueueWatermarks,
    beam_timestamp,
    born_time,
    store_time,
    timestamp_function,
)

RECORD = Record("t", "b", 1, 42, b"x", 1000, 2000, b"event\x013000\x02bad\x01soon\x02", 0, 0, 0, 0, 0, b"", b"", 0, 0)


def double(record: Record) -> int:
    return record.born_timestamp_ms * 2


@pytest.mark.parametrize(("policy", "milliseconds"), [("born", 1000), ("store", 2000), ("event", 3000), (double, 2000)])
def test_policy_gives_the_records_time(policy: Any, milliseconds: int) -> None:
    function = timestamp_function(policy)
    assert function(RECORD) == milliseconds
    assert pickle.loads(pickle.dumps(function))(RECORD) == milliseconds


@pytest.mark.parametrize("policy", ["", None, 5, ("born",)])
def test_what_is_no_policy_is_refused_by_value(policy: Any) -> None:
    with pytest.raises(LocalError, match=r"timestamp is .*; it must be 'born', 'store'"):
        timestamp_function(policy)


@pytest.mark.parametrize(("name", "found"), [("absent", "no such property"), ("bad", "'soon'")])
def test_a_property_without_a_number_is_a_serde_error_with_coordinates(name: str, found: str) -> None:
    with pytest.raises(SerdeError, match=f"property '{name}' of queue t/b/1 offset 42: {found}.*Unix milliseconds"):
        PropertyTime(name)(RECORD)


def test_the_named_policies_are_these_functions() -> None:
    assert timestamp_function("born") is born_time
    assert timestamp_function("store") is store_time


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_64_bit_time_becomes_a_timestamp_that_beam_can_hold(milliseconds: int) -> None:
    stamp = beam_timestamp(milliseconds)
    assert MIN_TIMESTAMP < stamp < MAX_TIMESTAMP
    if 0 <= milliseconds < 4_102_444_800_000:
        assert stamp == Timestamp(micros=milliseconds * 1000)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=10))
def test_watermark_moves_forward_only_and_stays_within_beams_limits(times: list[int]) -> None:
    watermark = QueueWatermark(int(MIN_TIMESTAMP.micros))
    before = watermark.current_watermark()
    for time in times:
        watermark.advance(time)
        now = watermark.current_watermark()
        assert before <= now < MAX_TIMESTAMP
        before = now
    if times:
        assert before == beam_timestamp(max(times))


def test_observed_timestamps_move_nothing() -> None:
    watermark = QueueWatermark(5_000_000)
    watermark.observe_timestamp(Timestamp(100))
    assert watermark.current_watermark() == Timestamp(5)


def test_a_resumed_watermark_goes_on_where_it_was() -> None:
    provider = QueueWatermarks()
    assert provider.initial_estimator_state(None, None) == MIN_TIMESTAMP.micros
    first = provider.create_watermark_estimator(provider.initial_estimator_state(None, None))
    assert first.current_watermark() == MIN_TIMESTAMP
    first.advance(1_700_000_000_123)
    coder = provider.estimator_state_coder()
    state = coder.decode(coder.encode(first.get_estimator_state()))
    again = provider.create_watermark_estimator(state)
    assert again.current_watermark() == first.current_watermark() == Timestamp(micros=1_700_000_000_123_000)
    again.advance(1_600_000_000_000)
    assert again.current_watermark() == first.current_watermark()


def test_beams_threadsafe_wrapper_reaches_advance() -> None:
    wrapped = ThreadsafeWatermarkEstimator(QueueWatermark(0))
    wrapped.advance(7)
    assert wrapped.current_watermark() == Timestamp(micros=7000)
