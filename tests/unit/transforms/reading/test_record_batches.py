"""Runs of records: how they are stamped, how they travel, and how they are taken apart."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import registry
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import example, given
from hypothesis import strategies as st

from rmqio.errors import CorruptMessage, SerdeError, WireError
from rmqio.interfaces import FetchedBatch
from rmqio.model import Record
from rmqio.transforms.coders import RecordBatchCoder
from rmqio.transforms.failures import ReadFailure
from rmqio.transforms.reading.record_batches import ERRORS_TAG, RecordBatch, UnbatchFn, to_record_batch
from rmqio.transforms.reading.restriction import beam_timestamp, timestamp_function
from tests.helpers.transforms.reading import body, odd_fails

WINDOW = IntervalWindow(0, 10)


def record(offset: int, *, born: int = 100, store: int = 200, properties: bytes = b"", size: int = 97) -> Record:
    return Record(
        topic="t",
        broker="b",
        queue_id=1,
        queue_offset=offset,
        body=b"%d" % offset,
        born_timestamp_ms=born,
        store_timestamp_ms=store,
        raw_properties=properties,
        reconsume_times=0,
        sys_flag=0,
        flag=0,
        commit_log_offset=0,
        prepared_transaction_offset=0,
        raw_born_host=b"",
        raw_store_host=b"",
        body_crc=0,
        stored_size=size,
    )


def corrupt(offset: int) -> CorruptMessage:
    return CorruptMessage("bad CRC", topic="t", broker="b", queue_id=1, queue_offset=offset, raw=b"raw", next_offset=9)


def fetched(*records: Record, corrupt: tuple[CorruptMessage, ...] = ()) -> FetchedBatch:
    return FetchedBatch(list(records), corrupt, 10, 10)


def failure(offset: int, *, store: int = 300) -> ReadFailure:
    return ReadFailure("t", "b", 1, offset, "", "", "", 0, store, "CorruptMessage", "bad CRC", b"raw")


# ---- stamping -------------------------------------------------------------------------------------------------------


def offset_time(record: Record) -> int:
    return record.queue_offset * 7


@pytest.mark.parametrize(
    ("policy", "stamps"), [("born", [11, 12]), ("store", [21, 22]), ("event", [31, 32]), (offset_time, [35, 42])]
)
def test_records_are_stamped_by_the_policy(policy: Any, stamps: list[int]) -> None:
    records = [record(5 + i, born=11 + i, store=21 + i, properties=b"event\x01%d\x02" % (31 + i)) for i in range(2)]
    pulled = to_record_batch(fetched(*records), timestamp_function(policy), keep_failures=False)
    assert pulled == RecordBatch(records, stamps, [])


@pytest.mark.parametrize("policy", ["born", "store", offset_time], ids=["born", "store", "function"])
def test_what_does_not_decode_is_kept_beside_the_records_or_raised(policy: Any) -> None:
    timestamp_of = timestamp_function(policy)
    what = fetched(record(1), record(4), corrupt=(corrupt(2), corrupt(3)))
    pulled = to_record_batch(what, timestamp_of, keep_failures=True)
    assert [r.queue_offset for r in pulled.records] == [1, 4]
    assert pulled.stamps == [timestamp_of(r) for r in pulled.records]
    assert [(f.queue_offset, f.error, f.reason, f.body) for f in pulled.failures] == [
        (2, "CorruptMessage", "bad CRC", b"raw"),
        (3, "CorruptMessage", "bad CRC", b"raw"),
    ]
    with pytest.raises(CorruptMessage, match="offset 2") as caught:
        to_record_batch(what, timestamp_of, keep_failures=False)
    assert caught.value is what.corrupt[0]


class Together:
    """A function of times that gets the records of a batch together."""

    def __init__(self, timestamp_of: Callable[[Record], int]) -> None:
        self.__call__ = self._one = timestamp_of

    def many(self, records: list[Record]) -> tuple[list[int], dict[int, Exception]]:
        stamps, errors = [], dict[int, Exception]()
        for position, each in enumerate(records):
            try:
                stamps.append(self._one(each))
            except SerdeError as error:
                errors[position] = error
        return stamps, errors


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_a_record_without_a_timestamp_is_a_failure_behind_the_corrupt_ones_or_is_raised(together: bool) -> None:
    good = record(1, properties=b"event\x0142\x02")
    what = fetched(good, record(2, properties=b"event\x01soon\x02"), record(3), corrupt=(corrupt(4),))
    by_event: Any = timestamp_function("event")
    by_event = Together(by_event) if together else by_event
    pulled = to_record_batch(what, by_event, keep_failures=True)
    assert (pulled.records, pulled.stamps) == ([good], [42])
    assert [(f.queue_offset, f.error) for f in pulled.failures] == [
        (4, "CorruptMessage"), (2, "SerdeError"), (3, "SerdeError")
    ]  # fmt: skip
    assert pulled.failures[1].body == b"2"
    with pytest.raises(SerdeError, match=r"queue t/b/1 offset 2: 'soon'.*Unix milliseconds"):
        to_record_batch(what._replace(corrupt=()), by_event, keep_failures=False)


def no_time(record: Record) -> int:
    raise SerdeError("no clock")


def test_an_error_of_a_users_own_timestamp_gets_the_coordinates() -> None:
    with pytest.raises(SerdeError, match=r"^queue t/b/1, offset 7: no clock$") as caught:
        to_record_batch(fetched(record(7)), no_time, keep_failures=False)
    assert str(caught.value.__cause__) == "no clock"


def test_whatever_a_users_function_raises_is_a_failure_of_that_record() -> None:
    def broken(record: Record) -> int:
        raise ZeroDivisionError("by 0")

    pulled = to_record_batch(fetched(record(7)), broken, keep_failures=True)
    assert [(failure.error, failure.reason) for failure in pulled.failures] == [("ZeroDivisionError", "by 0")]
    assert pulled.records == []
    _, bad = unbatch(RecordBatch([record(7)], [1], []), broken, errors_to_output=True)
    assert [failure.error for failure, _ in bad] == ["ZeroDivisionError"]
    where = r"offset 7: ZeroDivisionError: by 0"
    with pytest.raises(SerdeError, match=where):
        to_record_batch(fetched(record(7)), broken, keep_failures=False)
    with pytest.raises(SerdeError, match=where):
        unbatch(RecordBatch([record(7)], [1], []), broken, errors_to_output=False)


# ---- taking apart ---------------------------------------------------------------------------------------------------


def unbatch(
    pulled: RecordBatch, deserializer: Any = None, *, batches: bool = False, errors_to_output: bool = False
) -> tuple[list[tuple[Any, Timestamp]], list[tuple[Any, Timestamp]]]:
    """Elements and failures, each with its timestamp; all must be in the run's window."""
    fn = UnbatchFn(deserializer, batches=batches, errors_to_output=errors_to_output)
    good: list[tuple[Any, Timestamp]] = []
    bad: list[tuple[Any, Timestamp]] = []
    for output in fn.process(pulled, window=WINDOW):
        where = good
        if isinstance(output, beam.pvalue.TaggedOutput):
            assert output.tag == ERRORS_TAG
            where, output = bad, output.value
        assert isinstance(output, WindowedValue)
        assert tuple(output.windows) == (WINDOW,)
        where.append((output.value, output.timestamp))
    return good, bad


def at(milliseconds: int) -> Timestamp:
    return Timestamp(micros=milliseconds * 1000)


def test_without_a_deserializer_records_come_as_they_are() -> None:
    records = [record(1), record(2)]
    assert unbatch(RecordBatch(records, [5, 6], [])) == ([(records[0], at(5)), (records[1], at(6))], [])


@given(st.lists(st.sampled_from([0, 1, -1]) | st.integers(-(2**63), 2**63 - 1), max_size=12))
@example([5, 5, 6, 6, 5])
def test_every_element_has_its_own_timestamp_in_the_records_order(stamps: list[int]) -> None:
    pulled = RecordBatch([record(number) for number in range(len(stamps))], stamps, [])
    good, bad = unbatch(pulled, body)
    assert good == [(b"%d" % number, beam_timestamp(stamp)) for number, stamp in enumerate(stamps)]
    assert bad == []
    batches, _ = unbatch(pulled, body, batches=True)
    assert batches == ([([value for value, _ in good], min(stamp for _, stamp in good))] if stamps else [])


def test_a_value_may_be_anything_also_none_and_empty() -> None:
    good, _ = unbatch(RecordBatch([record(1), record(2)], [5, 6], []), lambda r: None)
    assert good == [(None, at(5)), (None, at(6))]
    good, _ = unbatch(RecordBatch([record(1)], [5], []), lambda r: [])
    assert good == [([], at(5))]


def test_what_does_not_deserialize_goes_to_the_errors_at_its_store_time_behind_earlier_failures() -> None:
    pulled = RecordBatch([record(n, store=200 + n) for n in range(4)], [50, 51, 52, 53], [failure(9)])
    good, bad = unbatch(pulled, odd_fails, errors_to_output=True)
    assert good == [(b"0", at(50)), (b"2", at(52))]
    assert [(f.queue_offset, f.error, f.reason, f.body, stamp) for f, stamp in bad] == [
        (9, "CorruptMessage", "bad CRC", b"raw", at(300)),
        (1, "SerdeError", "an odd one", b"1", at(201)),
        (3, "SerdeError", "an odd one", b"3", at(203)),
    ]
    assert pulled.failures == [failure(9)], "the element itself is left as it was"


def test_a_failure_without_a_store_time_is_stamped_with_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.transforms.reading.record_batches.time", SimpleNamespace(time=lambda: 12.345))
    good, bad = unbatch(RecordBatch([], [], [failure(1, store=0), failure(2)]), errors_to_output=True)
    assert good == []
    assert bad == [(failure(1, store=0), at(12_345)), (failure(2), at(300))]


class InBulk:
    """A deserializer that decodes many records at once. Its calls are counted."""

    def __init__(self, one: Callable[[Record], Any]) -> None:
        self._one, self.calls = one, 0

    def __call__(self, record: Record) -> Any:
        raise AssertionError("not one by one")

    def many(self, records: list[Record]) -> tuple[list[Any], dict[int, Exception]]:
        self.calls += 1
        values: list[Any] = []
        failed: dict[int, Exception] = {}
        for position, each in enumerate(records):
            try:
                values.append(self._one(each))
            except SerdeError as error:
                failed[position] = error
        return values, failed


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("records", [[], [2, 4], [1, 3], [1, 2, 3, 4]])
def test_bulk_and_single_deserializers_give_the_same(records: list[int], batches: bool) -> None:
    pulled = RecordBatch([record(n, store=200 + n) for n in records], [50 + n for n in records], [failure(9)])
    bulk = InBulk(odd_fails)
    wanted = unbatch(pulled, odd_fails, batches=batches, errors_to_output=True)
    assert unbatch(pulled, bulk, batches=batches, errors_to_output=True) == wanted
    assert bulk.calls == (1 if records or not batches else 0)


def names_itself(record: Record) -> Any:
    raise SerdeError(f"{record.queue} at {record.queue_offset} is bad")


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    ("deserializer", "message"),
    [
        (odd_fails, "queue t/b/1, offset 3: an odd one"),
        (InBulk(odd_fails), "queue t/b/1, offset 3: an odd one"),
        (names_itself, "queue t/b/1 at 3 is bad"),
    ],
)
def test_without_a_handler_the_first_failure_is_raised_with_coordinates_once(
    deserializer: Callable[[Record], Any], message: str, batches: bool
) -> None:
    with pytest.raises(SerdeError) as caught:
        unbatch(RecordBatch([record(3), record(5)], [1, 2], []), deserializer, batches=batches)
    assert str(caught.value) == message
    assert isinstance(caught.value.__cause__, SerdeError)


def test_a_batch_is_stamped_with_the_earliest_of_what_is_in_it() -> None:
    pulled = RecordBatch([record(n) for n in (2, 1, 4, 6)], [70, 10, 60, 65], [])
    assert unbatch(pulled, odd_fails, batches=True, errors_to_output=True)[0] == [([b"2", b"4", b"6"], at(60))]
    assert unbatch(pulled, None, batches=True) == ([(pulled.records, at(10))], [])
    (batch, _), *_ = unbatch(pulled, odd_fails, batches=True, errors_to_output=True)[0]
    assert (batch.queue, batch.offsets) == (record(1).queue, [2, 4, 6])


def test_a_run_of_failures_only_makes_no_empty_batch() -> None:
    good, bad = unbatch(RecordBatch([record(1)], [5], [failure(2)]), odd_fails, batches=True, errors_to_output=True)
    assert good == []
    assert [f.queue_offset for f, _ in bad] == [2, 1]


@pytest.mark.parametrize("window", [GlobalWindow(), IntervalWindow(5, 6)])
def test_elements_stay_in_the_window_of_their_run(window: Any) -> None:
    fn = UnbatchFn(None, batches=False, errors_to_output=True)
    outputs = list(fn.process(RecordBatch([record(1)], [5], [failure(2)]), window=window))
    assert [tuple(outputs[0].windows), tuple(outputs[1].value.windows)] == [(window,), (window,)]


# ---- the coder ------------------------------------------------------------------------------------------------------

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
uint32 = st.integers(0, 2**32 - 1)
texts = st.text(st.characters(), max_size=5)  # lone surrogates included
blobs = st.binary(max_size=10)
records = st.builds(
    Record, texts, texts, int32, int64, blobs, int64, int64, blobs, int32, int32, int32, int64, int64, blobs, blobs,
    uint32, int32,
)  # fmt: skip
failures = st.builds(ReadFailure, texts, texts, int64, int64, texts, texts, texts, int64, int64, texts, texts, blobs)
pulleds = st.lists(st.tuples(records, int64), max_size=3).flatmap(
    lambda stamped: st.builds(
        RecordBatch, st.just([r for r, _ in stamped]), st.just([s for _, s in stamped]), st.lists(failures, max_size=2)
    )
)
CODER = RecordBatchCoder()


@given(pulleds)
def test_a_run_survives_its_coder(value: RecordBatch) -> None:
    decoded = CODER.decode(CODER.encode(value))
    assert decoded == value
    assert type(decoded) is RecordBatch
    assert {type(one) for one in decoded.records} <= {Record}
    assert {type(one) for one in decoded.failures} <= {ReadFailure}
    assert CODER.decode_nested(CODER.encode_nested(value)) == value


def test_the_coder_writes_the_golden_head() -> None:
    encoded = CODER.encode(RecordBatch([record(1)], [258], [failure(2)]))
    assert encoded.startswith(
        b"\x01"  # version
        b"\x00\x00\x00\x01"  # records
        b"\x00\x00\x00\x01"  # failures
        b"\x00\x00\x00\x00\x00\x00\x01\x02"  # stamps
    )
    assert CODER.encode(RecordBatch([], [], [])) == b"\x01" + bytes(8)


@given(st.binary(max_size=120))
@example(b"\x02" + bytes(8))
@example(b"\x01\xff\xff\xff\xff\x00\x00\x00\x00")
@example(b"\x01\x00\x00\x00\x00\xff\xff\xff\xff")
@example(b"\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00")
def test_garbage_is_no_run(data: bytes) -> None:
    if data == b"\x01" + bytes(8):
        return
    with pytest.raises(WireError, match="these bytes are not one encoded"):
        CODER.decode(data)


@given(pulleds, st.data())
def test_a_damaged_run_is_refused_or_is_exactly_another_one(value: RecordBatch, data: st.DataObject) -> None:
    encoded = CODER.encode(value)
    with pytest.raises(WireError):
        CODER.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    with pytest.raises(WireError):
        CODER.decode(encoded + data.draw(st.binary(min_size=1, max_size=4)))
    flipped = bytearray(encoded)
    flipped[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        other = CODER.decode(bytes(flipped))
    except WireError:
        return
    assert other != value
    assert CODER.encode(other) == bytes(flipped)


def test_the_coder_is_registered_deterministic_and_equal_by_type() -> None:
    assert registry.get_coder(RecordBatch) == CODER
    assert CODER.is_deterministic()
    assert hash(CODER) == hash(RecordBatchCoder())
    assert CODER.to_type_hint() is RecordBatch


def test_the_size_is_estimated_by_the_stored_sizes() -> None:
    assert CODER.estimate_size(RecordBatch([record(1, size=70), record(2, size=30)], [1, 2], [])) == 100
