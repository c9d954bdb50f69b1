"""Coders: exact round trips, one encoding per value, typed errors for garbage, and no pickle on the way."""

from __future__ import annotations

import pickle
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import Coder, registry
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.typehints import Iterable, Tuple
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError, WireError
from rmqio.model import Message, MessageQueue, Record, SendResult, SendStatus
from rmqio.sending.batches import FailedMessage
from rmqio.transforms import coders
from rmqio.transforms.coders import (
    FailedMessageCoder,
    MessageCoder,
    MessageQueueCoder,
    ReadFailureCoder,
    RecordCoder,
    SendResultCoder,
)
from rmqio.transforms.failures import ReadFailure

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
uint32 = st.integers(0, 2**32 - 1)
small_text = st.text(max_size=20)
any_text = st.text(st.characters(), max_size=20)  # lone surrogates included: stored properties need not be UTF-8
optional_text = st.none() | any_text.filter(bool)
blob = st.binary(max_size=50)

queues = st.builds(MessageQueue, any_text, any_text, int32)
records = st.builds(
    Record,
    topic=any_text,
    broker=any_text,
    queue_id=int32,
    queue_offset=int64,
    body=blob,
    born_timestamp_ms=int64,
    store_timestamp_ms=int64,
    raw_properties=blob,
    reconsume_times=int32,
    sys_flag=int32,
    flag=int32,
    commit_log_offset=int64,
    prepared_transaction_offset=int64,
    raw_born_host=st.binary(max_size=20),
    raw_store_host=st.binary(max_size=20),
    body_crc=uint32,
    stored_size=int32,
)
messages = st.builds(
    Message,
    blob,
    topic=optional_text,
    tags=optional_text,
    keys=st.lists(any_text, max_size=3),
    properties=st.dictionaries(any_text, any_text, max_size=4),
    sharding_key=optional_text,
    delay_level=st.none() | int64,
    deliver_at_ms=st.none() | int64,
)
results = st.builds(SendResult, queues, int64, any_text, any_text, st.sampled_from(SendStatus), st.none() | any_text)
failed = st.builds(FailedMessage, st.none() | messages, any_text, optional_text, any_text, any_text)
read_failures = st.builds(
    ReadFailure,
    any_text,
    any_text,
    int64,
    int64,
    any_text,
    any_text,
    any_text,
    int64,
    int64,
    any_text,
    any_text,
    blob,
    st.lists(st.tuples(any_text, any_text), max_size=3).map(tuple),
    any_text,
)

CASES: list[tuple[Coder, st.SearchStrategy[Any]]] = [
    (RecordCoder(), records),
    (MessageCoder(), messages),
    (MessageQueueCoder(), queues),
    (SendResultCoder(), results),
    (FailedMessageCoder(), failed),
    (ReadFailureCoder(), read_failures),
]
by_coder = pytest.mark.parametrize(("coder", "values"), CASES, ids=[repr(coder) for coder, _ in CASES])

RECORD = Record(
    topic="orders",
    broker="broker-a",
    queue_id=3,
    queue_offset=2**40,
    body=b"body",
    born_timestamp_ms=1_700_000_000_000,
    store_timestamp_ms=1_700_000_000_001,
    raw_properties=b"UNIQ_KEY\x01A1\x02TAGS\x01t\x02",
    reconsume_times=0,
    sys_flag=0,
    flag=0,
    commit_log_offset=77,
    prepared_transaction_offset=0,
    raw_born_host=b"\x7f\x00\x00\x01\x00\x00\xc3\x50",
    raw_store_host=b"\x7f\x00\x00\x01\x00\x00\x2a\x9f",
    body_crc=0x7FFFFFFF,
    stored_size=200,
)
QUEUE = MessageQueue("orders", "broker-a", 3)
SAMPLES: list[tuple[Coder, Any]] = [
    (RecordCoder(), RECORD),
    (MessageCoder(), Message(b"b", topic="t", tags="a", keys=("k1", "k2"), properties={"x": "1", "a": "2"})),
    (MessageQueueCoder(), QUEUE),
    (SendResultCoder(), SendResult(QUEUE, 5, "ID", "OFFSETID", SendStatus.FLUSH_DISK_TIMEOUT)),
    (SendResultCoder(), SendResult(QUEUE, 5, "ID", "OFFSETID", recall_handle="HANDLE")),
    (FailedMessageCoder(), FailedMessage(Message(b"b"), "element", "t", "LocalError", "reason")),
    (ReadFailureCoder(), ReadFailure("t", "b", 1, 2, "id", "k", "g", 3, 4, "SerdeError", "reason", b"raw")),
]
by_sample = pytest.mark.parametrize(("coder", "value"), SAMPLES, ids=[repr(coder) for coder, _ in SAMPLES])


@by_coder
def test_round_trip(coder: Coder, values: st.SearchStrategy[Any]) -> None:
    @given(value=values)
    def check(value: Any) -> None:
        decoded = coder.decode(coder.encode(value))
        assert decoded == value
        assert type(decoded) is type(value)
        assert coder.decode_nested(coder.encode_nested(value)) == value

    check()


@by_coder
def test_garbage_raises_a_typed_error_or_is_a_value(coder: Coder, values: st.SearchStrategy[Any]) -> None:
    @given(garbage=st.binary(max_size=200))
    def check_garbage(garbage: bytes) -> None:
        try:
            decoded = coder.decode(garbage)
        except WireError:
            return
        coder.encode(decoded)

    @given(value=values, data=st.data())
    def check_damage(value: Any, data: st.DataObject) -> None:
        encoded = bytearray(coder.encode(value))
        encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
        try:
            decoded = coder.decode(bytes(encoded))
        except WireError:
            return
        assert type(decoded) is type(value)

    check_garbage()
    check_damage()


@by_sample
def test_truncated_or_extended_bytes_are_refused(coder: Coder, value: Any) -> None:
    encoded = coder.encode(value)
    for size in range(len(encoded)):
        with pytest.raises(WireError, match="not one encoded"):
            coder.decode(encoded[:size])
    with pytest.raises(WireError, match="not one encoded"):
        coder.decode(encoded + b"\x00")


@by_sample
def test_another_version_is_refused(coder: Coder, value: Any) -> None:
    version, *rest = coder.encode(value)
    with pytest.raises(WireError, match=f"version {version + 1}"):
        coder.decode(bytes([version + 1, *rest]))


def test_hostile_count_does_not_loop() -> None:
    encoded = bytearray(MessageCoder().encode(Message(b"")))
    encoded[-4:] = b"\xff\xff\xff\xff"
    with pytest.raises(WireError, match="do not fit"):
        MessageCoder().decode(bytes(encoded))


@pytest.mark.parametrize(
    ("coder", "value"),
    [
        (RecordCoder(), RECORD._replace(queue_id=2**31)),
        (RecordCoder(), RECORD._replace(topic=None)),  # type: ignore[arg-type]
        (RecordCoder(), ("too", "short")),
        (MessageCoder(), Message("text")),  # type: ignore[arg-type]
        (MessageCoder(), Message(b"b", keys=(1,))),  # type: ignore[arg-type]
        (MessageQueueCoder(), QUEUE._replace(broker=b"bytes")),  # type: ignore[arg-type]
        (SendResultCoder(), SendResult(QUEUE, 2**63, "", "")),
        (FailedMessageCoder(), FailedMessage(None, None, None, "e", "r")),  # type: ignore[arg-type]
    ],
)
def test_wrong_field_types_raise_local_error_without_quoting_the_value(coder: Coder, value: Any) -> None:
    with pytest.raises(LocalError, match="whose fields have its types") as caught:
        coder.encode(value)
    assert "body" not in str(caught.value)


def test_encoding_does_not_depend_on_the_order_of_properties() -> None:
    forth = Message(b"b", properties={"a": "1", "b": "2"})
    back = Message(b"b", properties={"b": "2", "a": "1"})
    assert MessageCoder().encode(forth) == MessageCoder().encode(back)
    assert forth == back


def test_record_layout_is_pinned() -> None:
    """Encoded records end up in checkpoints: another layout needs another version."""
    assert (
        RecordCoder().encode(RECORD).hex()
        == (
            "01 00000003 0000010000000000 0000018bcfe56800 0000018bcfe56801 00000000 00000000 00000000"
            "000000000000004d 0000000000000000 7fffffff 000000c8 0006 0008 00000004 00000013 08 08"
        ).replace(" ", "")
        + (b"ordersbroker-abody" + RECORD.raw_properties + RECORD[13] + RECORD[14]).hex()
    )


@by_sample
def test_coder_is_a_deterministic_value_that_says_its_type(coder: Coder, value: Any) -> None:
    same = type(coder)()
    assert coder == same
    assert hash(coder) == hash(same)
    assert coder != beam.coders.BytesCoder()
    assert coder.is_deterministic()
    assert coder.to_type_hint() is type(value)
    assert coder.estimate_size(value) == pytest.approx(len(coder.encode(value)), abs=150)


@by_sample
def test_coder_survives_pickle_and_the_runner_api(coder: Coder, value: Any) -> None:
    assert pickle.loads(pickle.dumps(coder)).decode(coder.encode(value)) == value
    context = PipelineContext()
    again = Coder.from_runner_api(coder.to_runner_api(context), context)
    assert again == coder


@by_sample
def test_registry_knows_the_coder(coder: Coder, value: Any) -> None:
    coders.register_coders()
    hint = type(value)
    assert registry.get_coder(hint) == coder
    assert registry.get_coder(Tuple[str, hint]).coders()[1] == coder
    assert registry.get_coder(Iterable[hint]).value_coder() == coder


RESHUFFLE_KEEPS_TYPES = tuple(map(int, beam.__version__.split(".")[:2])) > (2, 61)
"""Beam 2.61's Reshuffle adds timestamps by functions without type hints, so it pickles whatever passes."""


def _refuse_pickle(self: object, *_: object) -> Any:
    raise AssertionError(f"{type(self).__name__} is being pickled")


@pytest.mark.parametrize("value", [RECORD, Message(b"b", properties={"a": "1"}), SendResult(QUEUE, 5, "ID", "O")])
def test_no_element_is_pickled_in_a_pipeline(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    hint = type(value)
    encoded: list[bytes] = []
    coder = type(registry.get_coder(hint))
    plain_encode = coder.encode

    def spy(self: Any, element: Any) -> bytes:
        encoded.append(plain_encode(self, element))
        return encoded[-1]

    payload = plain_encode(coder(), value)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        # Made inside of the pipeline: what is in a Create belongs to the pipeline's definition.
        made = pipeline | beam.Create([payload]) | "Make" >> beam.Map(coder().decode).with_output_types(hint)
        monkeypatch.setattr(hint, "__reduce_ex__", _refuse_pickle, raising=False)
        monkeypatch.setattr(coder, "encode", spy)
        if RESHUFFLE_KEEPS_TYPES:
            made = made | beam.Reshuffle()
        keyed = (
            made
            | beam.Map(lambda element: (element, 1)).with_output_types(Tuple[hint, int])
            | beam.GroupByKey()
            | beam.MapTuple(lambda element, ones: element).with_output_types(hint)
        )
        assert_that(keyed | beam.Map(lambda element: type(element).__name__), equal_to([hint.__name__]))
    assert len(encoded) >= 1 + RESHUFFLE_KEEPS_TYPES  # as a value in the reshuffle, and as a key in the grouping
    assert set(encoded) == {payload}
    for raw in encoded:
        assert b"rmqio.model" not in raw
    with pytest.raises(AssertionError, match="pickled"):  # what the pipeline would have met
        beam.coders.FastPrimitivesCoder().encode(value)
