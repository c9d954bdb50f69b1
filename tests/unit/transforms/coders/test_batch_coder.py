"""The coder of batches, and the type with which Beam finds it."""

from __future__ import annotations

import contextlib
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import FastPrimitivesCoder, registry
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from apache_beam.typehints import typehints
from hypothesis import given
from hypothesis import strategies as st

from rmqio.batches import Batch
from rmqio.errors import LocalError, WireError
from rmqio.model import MessageQueue, Record
from rmqio.transforms.coders import BatchCoder, BatchConstraint, RecordCoder

QUEUE = MessageQueue("orders", "broker-a", 3)
VALUE_ERRORS = (ValueError, IndexError, EOFError, KeyError)
"""Errors that the coder of the values raises for bytes that are not its own."""
CODER = BatchCoder(FastPrimitivesCoder())


def parts(batch: Batch[Any]) -> tuple[Any, ...]:
    return type(batch), list(batch), batch.queue, list(batch.offsets), batch.steps


@st.composite
def batches(draw: st.DrawFn) -> Batch[Any]:
    values = draw(st.lists(st.one_of(st.binary(max_size=5), st.text(max_size=5), st.integers(), st.none()), max_size=5))
    if not draw(st.booleans()):
        return Batch(values)
    begin = draw(st.integers(0, 2**62))
    count = len(values)
    offsets = [begin + 3 * n for n in range(count)] if draw(st.booleans()) else range(begin, begin + count)
    return Batch(values, MessageQueue(draw(st.text(max_size=3)), "b", 2), offsets, draw(st.text(max_size=3)))


@given(batches())
def test_batches_come_back(batch: Batch[Any]) -> None:
    assert parts(CODER.decode(CODER.encode(batch))) == parts(batch)


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 255))
def test_other_bytes_are_refused(noise: bytes, place: int, byte: int) -> None:
    encoded = CODER.encode(Batch([b"a", b"b"], QUEUE, [3, 9], "/x"))
    broken = encoded[:place] + bytes([byte]) + encoded[place + 1 :]
    for each in (noise, encoded[:-1], encoded + b"x"):
        with pytest.raises(WireError, match="not one encoded Batch"):
            CODER.decode(each)
    with contextlib.suppress(WireError, *VALUE_ERRORS):
        again = CODER.decode(broken)
        assert len(again) == 2


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(LocalError, match="not a Batch"):
        CODER.encode([1])  # type: ignore[arg-type]


def test_beam_finds_it_by_class_and_by_type() -> None:
    assert registry.get_coder(BatchConstraint(Record)) == BatchCoder(RecordCoder())
    assert registry.get_coder(Batch) == CODER
    assert BatchCoder(RecordCoder()) != CODER
    assert BatchCoder(RecordCoder()).to_type_hint() == BatchConstraint(Record)
    assert BatchCoder(RecordCoder()).is_deterministic()
    assert not CODER.is_deterministic()
    assert typehints.is_consistent_with(BatchConstraint(Record), typehints.List[Record])


def takes_a_list(values: list[bytes]) -> list[bytes]:
    return values


def test_a_batch_keeps_its_places_where_elements_are_encoded() -> None:
    batch = Batch([b"a", b"b"], QUEUE, [3, 9], "/x")

    def check(found: Any) -> None:
        assert [parts(each) for each in found] == [parts(batch)]

    with beam.Pipeline(FnApiRunner()) as pipeline:
        made = pipeline | beam.Create([0], reshuffle=False)
        batches = made | beam.Map(lambda _: batch).with_output_types(BatchConstraint(bytes)) | beam.Reshuffle()
        assert_that(batches, check)
        _ = batches | "Functions of lists take it" >> beam.Map(takes_a_list)
