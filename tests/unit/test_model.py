"""Values: immutable, picklable, and what is decoded from a record when asked for."""

from __future__ import annotations

import pickle
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError
from rmqio.model import (
    BrokerData,
    Message,
    MessageFilter,
    MessageQueue,
    QueueData,
    Record,
    SendResult,
    TopicRoute,
    decode_properties,
    find_property,
)

QUEUE = MessageQueue("orders", "broker-a", 3)
RECORD = Record(
    topic="orders",
    broker="broker-a",
    queue_id=3,
    queue_offset=42,
    body=b"body",
    born_timestamp_ms=1,
    store_timestamp_ms=2,
    raw_properties=b"KEYS\x01k1 k2\x02TAGS\x01vip\x02UNIQ_KEY\x0101AB\x02"
    b"__SHARDINGKEY\x01user-7\x02city\x01Hangzhou\x02",
    reconsume_times=0,
    sys_flag=0,
    flag=0,
    commit_log_offset=0x0102030405060708,
    prepared_transaction_offset=0,
    raw_born_host=b"\x0a\x00\x00\x01\x00\x00\x30\x39",
    raw_store_host=b"\x7f\x00\x00\x01\x00\x00\x2a\x9f",
    body_crc=0,
    stored_size=100,
)


def test_record_decodes_its_properties_on_demand() -> None:
    assert RECORD.keys == ("k1", "k2")
    assert RECORD.tags == "vip"
    assert RECORD.message_id == "01AB"
    assert RECORD.sharding_key == "user-7"
    assert RECORD.get_property("city") == "Hangzhou"
    assert RECORD.get_property("none") is None
    assert RECORD.properties["city"] == "Hangzhou"
    assert RECORD.queue == QUEUE
    assert RECORD.born_host == "10.0.0.1:12345"
    assert RECORD.store_host == "127.0.0.1:10911"


def test_record_without_properties() -> None:
    bare = RECORD._replace(raw_properties=b"")
    assert (bare.keys, bare.tags, bare.sharding_key, bare.properties) == ((), None, None, {})


def test_message_id_falls_back_to_the_brokers_id() -> None:
    bare = RECORD._replace(raw_properties=b"")
    assert bare.message_id == bare.offset_message_id == "7F00000100002A9F0102030405060708"


def test_ipv6_hosts() -> None:
    record = RECORD._replace(raw_born_host=bytes(15) + b"\x01\x00\x00\x00\x50")
    assert record.born_host == "[::1]:80"


PROPERTIES: list[tuple[bytes, dict[str, str]]] = [
    (b"", {}),
    (b"a\x011\x02", {"a": "1"}),
    (b"a\x011", {"a": "1"}),
    (b"a\x01\x02b\x012\x02", {"a": "", "b": "2"}),
    (b"junk\x02a\x011\x02", {"a": "1"}),
    (b"\x01novalue\x02a\x011\x02", {"a": "1"}),
    (b"a\x01x\x01y\x02", {"a": "x\x01y"}),
    (b"a\x01\xff\x02", {"a": "\udcff"}),
    ("n\u00f6\x01\u6d59\x02".encode(), {"n\u00f6": "\u6d59"}),
]


@pytest.mark.parametrize(("raw", "expected"), PROPERTIES)
def test_properties_are_decoded(raw: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(raw) == expected
    for name, value in expected.items():
        assert find_property(raw, name) == value


def test_find_property_does_not_take_the_end_of_another_name_or_a_value_for_a_name() -> None:
    raw = b"XKEYS\x01wrong\x02v\x01KEYS\x02KEYS\x01right\x02"
    assert find_property(raw, "KEYS") == "right"
    assert find_property(b"XKEYS\x01wrong\x02", "KEYS") is None


def test_of_a_name_that_is_there_twice_the_last_counts_as_in_java() -> None:
    raw = b"TAGS\x01a\x02KEYS\x01k\x02TAGS\x01b\x02"
    assert find_property(raw, "TAGS") == decode_properties(raw)["TAGS"] == "b"


def test_a_name_that_is_not_utf_8_is_found_as_it_was_decoded() -> None:
    assert find_property(b"\xff\x01x\x02", "\udcff") == "x"


names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=6)


@given(st.dictionaries(names, names, max_size=6))
def test_one_property_and_all_properties_agree(properties: dict[str, str]) -> None:
    raw = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    assert decode_properties(raw) == properties
    for name in [*properties, "absent"]:
        assert find_property(raw, name) == properties.get(name)


FULL = Message(
    b"x", topic="t", tags="a", keys=["k1", "k2"], properties={"p": "1"}, sharding_key="s", delay_level=3
)  # fmt: skip


@pytest.mark.parametrize("message", [Message(b"x"), FULL, Message(b"x", properties=MappingProxyType({"p": "1"}))])
def test_message_survives_a_pickle_and_hashes_by_value(message: Message) -> None:
    again = pickle.loads(pickle.dumps(message))
    assert again == message
    assert type(again) is Message
    assert hash(again) == hash(message)
    assert dict(again.properties) == dict(message.properties)


def test_message_fields_after_the_body_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        Message(b"x", "topic")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [({"topic": "u"}, "topic", "u"), ({"keys": ["z"]}, "keys", ("z",)), ({"body": b"y"}, "body", b"y")],
)
def test_replace_changes_one_field_and_keeps_the_others(changes: dict[str, Any], field: str, value: object) -> None:
    changed = FULL.replace(**changes)
    assert type(changed) is Message
    assert changed._asdict() == FULL._asdict() | {field: value}


@pytest.mark.parametrize("value", [RECORD, QUEUE, SendResult(QUEUE, 1, "id", "offset id")])
def test_received_values_survive_a_pickle(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_queue_names_itself() -> None:
    assert str(QUEUE) == "queue orders/broker-a/3"


@pytest.mark.parametrize(
    ("message_filter", "is_all", "tags"),
    [
        (MessageFilter(), True, set()),
        (MessageFilter(" * "), True, set()),
        (MessageFilter(""), True, set()),
        (MessageFilter("a"), False, {"a"}),
        (MessageFilter(" a ||b|| "), False, {"a", "b"}),
        (MessageFilter("TAGS = 'a'", sql=True), False, set()),
        (MessageFilter("*", sql=True), False, set()),
    ],
)
def test_filter_tags(message_filter: MessageFilter, is_all: bool, tags: set[str]) -> None:
    assert message_filter.is_all is is_all
    assert message_filter.tag_set == tags


@pytest.mark.parametrize("tags", [None, "", "*", "a", "a || b", "a||b||"])
def test_tags_of_users_are_a_filter(tags: str | None) -> None:
    assert MessageFilter.of_tags(tags) == MessageFilter(tags or "*")


@pytest.mark.parametrize("tags", ["a | b", "a|b", "a ||| b"])
def test_tags_with_a_single_bar_are_refused(tags: str) -> None:
    with pytest.raises(LocalError, match="write || between two tags".replace("|", r"\|")):
        MessageFilter.of_tags(tags)


def test_route_gives_sorted_queues_that_permission_and_master_allow() -> None:
    route = TopicRoute(
        "t",
        (
            QueueData("z", 2, 1, 6),
            QueueData("a", 1, 2, 6),
            QueueData("read-only", 1, 1, 4),
            QueueData("write-only", 1, 1, 2),
            QueueData("no-master", 1, 1, 6),
            QueueData("no-broker", 1, 1, 6),
        ),
        {name: BrokerData(name, "c", {0: f"{name}:1"}) for name in ("z", "a", "read-only", "write-only")}
        | {"no-master": BrokerData("no-master", "c", {1: "slave:1"})},
    )
    assert [queue[1:] for queue in route.readable()] == [
        ("a", 0),
        ("no-master", 0),
        ("read-only", 0),
        ("z", 0),
        ("z", 1),
    ]
    assert [queue[1:] for queue in route.writable()] == [("a", 0), ("a", 1), ("write-only", 0), ("z", 0)]


def test_keys_that_are_one_text_are_parted_by_white_space_as_in_java() -> None:
    assert Message(b"x", keys="o-17").keys == ("o-17",)
    assert Message(b"x", keys=" a  b\t").keys == ("a", "b")
    assert Message(b"x", keys="").keys == ()
    assert Message(b"x", keys=["a b"]).keys == ("a b",)
