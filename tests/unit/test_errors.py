"""The error registry: classes by response code, flags that a retry loop reads, and errors that survive a pickle."""

from __future__ import annotations

import inspect
import pickle

import pytest

from rmqio import errors
from rmqio.errors import (
    BrokerError,
    CorruptMessage,
    InvalidParameter,
    LocalError,
    OffsetOutOfRange,
    OffsetsLost,
    QueueNotExist,
    RequestTimeout,
    RmqioError,
    SerdeError,
    TransportError,
    WireError,
    broker_error,
    counted,
)
from rmqio.model import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 3)

# code, name (ResponseCode.java), worth a retry, route out of date
CODES = [
    (1, "SYSTEM_ERROR", True, False),
    (2, "SYSTEM_BUSY", True, False),
    (3, "REQUEST_CODE_NOT_SUPPORTED", False, False),
    (4, "TRANSACTION_FAILED", False, False),
    (10, "FLUSH_DISK_TIMEOUT", False, False),
    (11, "SLAVE_NOT_AVAILABLE", False, False),
    (12, "FLUSH_SLAVE_TIMEOUT", False, False),
    (13, "MESSAGE_ILLEGAL", False, False),
    (14, "SERVICE_NOT_AVAILABLE", True, True),
    (15, "VERSION_NOT_SUPPORTED", False, False),
    (16, "NO_PERMISSION", False, False),
    (17, "TOPIC_NOT_EXIST", False, True),
    (18, "TOPIC_EXIST_ALREADY", False, False),
    (19, "PULL_NOT_FOUND", False, False),
    (20, "PULL_RETRY_IMMEDIATELY", True, False),
    (21, "PULL_OFFSET_MOVED", False, False),
    (22, "QUERY_NOT_FOUND", False, False),
    (23, "SUBSCRIPTION_PARSE_FAILED", False, False),
    (24, "SUBSCRIPTION_NOT_EXIST", False, False),
    (25, "SUBSCRIPTION_NOT_LATEST", False, False),
    (26, "SUBSCRIPTION_GROUP_NOT_EXIST", False, False),
    (27, "FILTER_DATA_NOT_EXIST", False, False),
    (28, "FILTER_DATA_NOT_LATEST", False, False),
    (29, "INVALID_PARAMETER", False, False),
    (205, "NOT_IN_CURRENT_UNIT", True, False),
    (215, "FLOW_CONTROL", True, False),
    (501, "NOT_LEADER_FOR_QUEUE", True, True),
    (604, "ILLEGAL_OPERATION", False, False),
    (1500, "GO_AWAY", True, True),
]


def test_a_queue_that_is_gone_is_told_from_other_parameters() -> None:
    gone = broker_error(29, "request queueId[3] is illegal, topicConfig(writeQueueNums=2) Producer: 10.0.0.1", "send")
    assert type(gone) is type(pickle.loads(pickle.dumps(gone))) is QueueNotExist
    assert (gone.code, gone.name, gone.retriable) == (29, "INVALID_PARAMETER", False)
    assert gone.stale_route
    assert type(broker_error(29, "the topic is illegal", "send")) is InvalidParameter


@pytest.mark.parametrize(("code", "name", "retriable", "stale_route"), CODES)
def test_a_code_has_its_class_name_and_flags(code: int, name: str, retriable: bool, stale_route: bool) -> None:
    error = broker_error(code, "why", "pull")
    assert type(error).number == code
    assert (error.number, error.name) == (code, name)
    assert (error.retriable, error.stale_route) == (retriable, stale_route)
    assert str(error) == f"pull: code {code} {name}: why"


def test_the_table_above_is_the_whole_registry() -> None:
    found = [code for code in range(3_000) if type(broker_error(code, None, "pull")) is not BrokerError]
    assert found == [row[0] for row in CODES]


@pytest.mark.parametrize("code", [-1, 0, 9999])
def test_an_unknown_code_is_a_plain_broker_error_that_shows_the_code(code: int) -> None:
    error = broker_error(code, None, "pull of q")
    assert type(error) is BrokerError
    assert str(error) == f"pull of q: code {code} UNKNOWN"
    assert not error.retriable


ALL_ERRORS = [value for _, value in inspect.getmembers(errors, inspect.isclass) if value.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", ALL_ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_has_the_one_base_and_says_what_it_is(cls: type[RmqioError]) -> None:
    assert issubclass(cls, RmqioError)
    assert cls.__doc__


@pytest.mark.parametrize(
    ("cls", "retriable", "stale_route"),
    [
        (RmqioError, False, False),
        (LocalError, False, False),
        (WireError, False, False),
        (SerdeError, False, False),
        (OffsetOutOfRange, False, False),
        (TransportError, True, True),
        (RequestTimeout, True, True),
    ],
)
def test_flags_of_the_families(cls: type[RmqioError], retriable: bool, stale_route: bool) -> None:
    assert (cls.retriable, cls.stale_route) == (retriable, stale_route)


def test_misuse_is_a_value_error_too() -> None:
    assert issubclass(LocalError, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        broker_error(17, "no route", "route"),
        broker_error(9999, None, "x"),
        OffsetOutOfRange(QUEUE, 5, 10, 20),
        CorruptMessage("bad CRC", topic="t", broker="b", queue_id=1, queue_offset=2, raw=b"\x00", next_offset=3),
        CorruptMessage("cut off"),
        SerdeError("no JSON"),
        TransportError("reset"),
        LocalError("bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_a_pickle_with_type_text_and_fields(error: RmqioError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (5, "5 messages were deleted by retention before they were read"),
        (9, "1 message was deleted by retention before it was read"),
        (25, "deleted and recreated, or the broker lost its tail"),
    ],
)
def test_offset_out_of_range_names_queue_wanted_available_cause_and_remedy(wanted: int, expected: str) -> None:
    text = str(OffsetOutOfRange(QUEUE, wanted, 10, 20))
    for part in ("queue orders/broker-a/3", f"offset {wanted}", "[10, 20)", expected, "on_offset_out_of_range="):
        assert part in text


def test_corrupt_message_shows_its_coordinates_and_not_its_bytes() -> None:
    error = CorruptMessage("bad CRC", topic="t", broker="b", queue_id=1, queue_offset=2, raw=b"secret")
    assert str(error) == "stored message cannot be decoded: bad CRC (topic 't', broker 'b', queue 1, offset 2)"


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, "row", "0 rows"), (1, "row", "1 row"), (1_234, "row", "1,234 rows"), (2, "address", "2 addresses")],
)
def test_a_number_of_things(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


@pytest.mark.parametrize(("skipped", "text"), [(1, "1 offset after 7 is missing"), (1200, "1,200 offsets after 7 are")])
def test_lost_offsets_are_counted(skipped: int, text: str) -> None:
    assert f"{QUEUE}: {text}" in str(OffsetsLost(QUEUE, 7, skipped))
