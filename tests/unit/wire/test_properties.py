"""Properties on their way out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError
from rmqio.model import Message, decode_properties
from rmqio.wire.properties import MAX_PROPERTIES_BYTES, RESERVED_NAMES, encode_properties, is_reserved, user_properties

ID = "0123456789ABCDEF0123456789ABCDEF"


@pytest.mark.parametrize(
    ("message", "message_id", "encoded"),
    [
        (Message(b"x"), None, b""),
        (Message(b"x"), ID, b"UNIQ_KEY\x01" + ID.encode() + b"\x02"),
        (Message(b"x", tags="created"), None, b"TAGS\x01created\x02"),
        (Message(b"x", keys=["a", "b"]), None, b"KEYS\x01a b\x02"),
        (Message(b"x", sharding_key="k k"), None, b"__SHARDINGKEY\x01k k\x02"),
        (Message(b"x", delay_level=18), None, b"DELAY\x0118\x02"),
        (Message(b"x", deliver_at_ms=1_700_000_000_000), None, b"TIMER_DELIVER_MS\x011700000000000\x02"),
        (Message(b"x", properties={"source": "web", "größe": "😀"}), None, "source\x01web\x02größe\x01😀\x02".encode()),
        (
            Message(b"x", tags="t", keys=("k",), sharding_key="s", properties={"p": "q"}),
            "id",
            b"UNIQ_KEY\x01id\x02KEYS\x01k\x02TAGS\x01t\x02__SHARDINGKEY\x01s\x02p\x01q\x02",
        ),
    ],
)
def test_stored_form(message: Message, message_id: str | None, encoded: bytes) -> None:
    assert encode_properties(message, message_id=message_id) == encoded


def test_extra_properties_may_be_reserved_and_win() -> None:
    message = Message(b"x", properties={"id": "old", "a": "b"})
    encoded = encode_properties(message, message_id=None, extra={"WAIT": "false", "id": "new"})
    assert encoded == b"a\x01b\x02WAIT\x01false\x02id\x01new\x02"


@pytest.mark.parametrize(
    ("fields", "named", "reason"),
    [
        ({"properties": {"a\x01": "b"}}, "a\\x01", "separator '\\x01'"),
        ({"properties": {"a\x02": "b"}}, "a\\x02", "separator '\\x02'"),
        ({"properties": {"a": "b\x01"}}, "'a'", "separator '\\x01'"),
        ({"properties": {"a": "b\x02c\x01d"}}, "'a'", "separator"),
        ({"properties": {"": "b"}}, "''", "name is empty"),
        ({"properties": {"a": ""}}, "'a'", "value is empty"),
        ({"properties": {"a": 5}}, "'a'", "value must be a str, not int"),
        ({"properties": {"a": 0}}, "'a'", "value must be a str, not int"),
        ({"properties": {"a": None}}, "'a'", "value must be a str, not NoneType"),
        ({"properties": {"a": b"b"}}, "'a'", "value must be a str, not bytes"),
        ({"properties": {"a": ["b"]}}, "'a'", "value must be a str, not list"),
        ({"properties": {5: "b"}}, "5", "name must be a str, not int"),
        ({"properties": {"a": "\ud800"}}, "'a'", "not UTF-8"),
        ({"properties": {"\udc80": "b"}}, "udc80", "not UTF-8"),
        ({"properties": {"KEYS": "k"}}, "'KEYS'", "reserved"),
        ({"properties": {"UNIQ_KEY": "k"}}, "'UNIQ_KEY'", "reserved"),
        ({"properties": {"__SHARDINGKEY": "k"}}, "'__SHARDINGKEY'", "reserved"),
        ({"properties": {"__RMQ.TRANSIENT.X": "k"}}, "'__RMQ.TRANSIENT.X'", "reserved"),
        ({"tags": ""}, "'TAGS'", "value is empty"),
        ({"tags": "a\x02"}, "'TAGS'", "separator"),
        ({"tags": 5}, "'TAGS'", "must be a str, not int"),
        ({"tags": ["a"]}, "'TAGS'", "must be a str, not list"),
        ({"tags": "\ud800"}, "'TAGS'", "not UTF-8"),
        ({"sharding_key": ""}, "'__SHARDINGKEY'", "value is empty"),
        ({"sharding_key": "\x01"}, "'__SHARDINGKEY'", "separator"),
        ({"keys": ("a", "")}, "'KEYS'", "value is empty"),
        ({"keys": ("a", "b c")}, "'KEYS'", "'b c' holds white space"),
        ({"keys": (" a",)}, "'KEYS'", "white space"),
        ({"keys": ("a\u3000b",)}, "'KEYS'", "white space"),
        ({"keys": ("a\x01b",)}, "'KEYS'", "separator"),
        ({"keys": (5,)}, "'KEYS'", "must be a str, not int"),
        ({"delay_level": 0}, "delay_level 0", "1 to 18"),
        ({"delay_level": 19}, "delay_level 19", "1 to 18"),
        ({"delay_level": "3"}, "delay_level '3'", "1 to 18"),
        ({"deliver_at_ms": 0}, "deliver_at_ms 0", "Unix time"),
        ({"deliver_at_ms": 1.5}, "deliver_at_ms 1.5", "Unix time"),
        ({"delay_level": 1, "deliver_at_ms": 1}, "delay_level", "deliver_at_ms"),
    ],
)
def test_what_the_broker_would_drop_or_misread_is_refused_by_name(
    fields: dict[str, object], named: str, reason: str
) -> None:
    message = Message(b"x", **fields)  # type: ignore[arg-type]
    for _ in range(2):  # a cache of names must not let it through the second time
        with pytest.raises(LocalError) as caught:
            encode_properties(message, message_id=ID)
        assert named in str(caught.value)
        assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("message_id", "extra", "named"),
    [
        ("", {}, "UNIQ_KEY"),
        ("a\x01", {}, "UNIQ_KEY"),
        (5, {}, "UNIQ_KEY"),
        (ID, {"WAIT": ""}, "WAIT"),
        (ID, {"": "x"}, "''"),
        (ID, {"a": "\x02"}, "'a'"),
    ],
)
def test_ids_and_extra_properties_are_checked_too(message_id: str, extra: dict[str, str], named: str) -> None:
    with pytest.raises(LocalError, match=named):
        encode_properties(Message(b"x"), message_id=message_id, extra=extra)


def test_the_total_length_is_limited_in_bytes() -> None:
    room = MAX_PROPERTIES_BYTES - len("a\x01\x02")
    assert len(encode_properties(Message(b"x", properties={"a": "v" * room}), message_id=None)) == MAX_PROPERTIES_BYTES
    for value in ("v" * (room + 1), "ä" * (room // 2 + 1)):
        with pytest.raises(LocalError, match=f"at most {MAX_PROPERTIES_BYTES}"):
            encode_properties(Message(b"x", properties={"a": value}), message_id=None)


text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)
words = text.filter(lambda value: value.split() == [value])


@given(
    tags=st.none() | text,
    keys=st.lists(words, max_size=3),
    sharding_key=st.none() | text,
    properties=st.dictionaries(text.filter(lambda name: not is_reserved(name)), text, max_size=4),
    message_id=st.none() | words,
)
def test_what_is_encoded_reads_back(
    tags: str | None, keys: list[str], sharding_key: str | None, properties: dict[str, str], message_id: str | None
) -> None:
    message = Message(b"x", tags=tags, keys=keys, sharding_key=sharding_key, properties=properties)
    found = decode_properties(encode_properties(message, message_id=message_id))
    assert found.pop("TAGS", None) == tags
    assert found.pop("KEYS", "").split() == keys
    assert found.pop("__SHARDINGKEY", None) == sharding_key
    assert found.pop("UNIQ_KEY", None) == message_id
    assert found == properties


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5))
def test_any_text_is_encoded_or_refused(properties: dict[str, str]) -> None:
    try:
        encoded = encode_properties(Message(b"x", properties=properties), message_id=None)
    except LocalError:
        return
    assert decode_properties(encoded) == properties


def test_properties_of_a_record_can_be_sent_again() -> None:
    received = dict.fromkeys(RESERVED_NAMES, "x") | {"__RMQ.TRANSIENT.Y": "x", "empty": "", "mine": "kept"}
    sendable = user_properties(received)
    assert sendable == {"mine": "kept"}
    assert encode_properties(Message(b"x", properties=sendable), message_id=None) == b"mine\x01kept\x02"


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "WAIT", "DELAY", "POP_CK", "INNER_NUM", "__CRC32#", "TRAN_MSG"])
def test_reserved_names(name: str) -> None:
    assert is_reserved(name)
    assert not is_reserved(name.lower() + "x")
