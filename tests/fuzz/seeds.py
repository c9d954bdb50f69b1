"""Inputs to begin with: what real encoders write, and what has once been taken wrongly."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from rmqio.model import Message, MessageQueue
from rmqio.serde.avro.encoding import confluent_head
from rmqio.wire import requests
from rmqio.wire.bodies import LZ4, ZLIB, ZSTD, compress, compression_flags
from rmqio.wire.command import Command, Serialization, encode_frame, encode_header
from rmqio.wire.properties import encode_properties
from tests.fuzz import avro_target, stored_target
from tests.helpers.wire.batches import encode_batch
from tests.helpers.wire.stored_bytes import V2, Stored, encode_all, encode_member

_ID: Final = "0123456789ABCDEF0123456789ABCDEF"
_TEXT: Final = b"hello rocketmq " * 20
_QUEUE: Final = MessageQueue("orders", "broker-a", 3)
_IPV6: Final = bytes.fromhex("20010db8000000000000000000000001") + b"\x00\x00\x2a\x9f"
_INNER: Final = 0xC0
_COMMANDS: Final = (
    Command(105, {"topic": "orders"}, opaque=7),
    Command(0, {"minOffset": "0", "maxOffset": "5", "k": "\u6d59"}, b"\x00\xff", opaque=-1, flag=1, remark="FOUND"),
    Command(17, {}, b"xyz", flag=1, remark="n\u00f6 \u2028", language=0, version=399),
    requests.send("group", _QUEUE, b"body", born_ms=1, properties="TAGS\x01a\x02"),
)
_MESSAGES: Final = (
    Message(b"a", tags="t", keys=["k1", "k2"], properties={"name": "\u7701"}, sharding_key="s"),
    Message(b"bc"),
    Message(_TEXT, properties={"x": "1", "y": "2"}),
)


def seeds(target: str) -> list[bytes]:
    """Returns the seeds of a target, each once."""
    return list(dict.fromkeys(_SEEDS[target]()))


def _frames() -> Iterator[bytes]:
    kinds = (Serialization.JSON, Serialization.ROCKETMQ)
    frames = [encode_frame(command, kind) for command in _COMMANDS for kind in kinds]
    for step in (0, 4, 255):
        yield bytes([step]) + b"".join(frames)
        for frame in frames:
            yield bytes([step]) + frame
    yield b"\x07" + frames[0] + b"\xff\xff\xff\xff\x00\x00\x00\x00"
    yield b"\x07" + frames[1] + b"\x00\x00\x00\x0a\x00\x00\x00\x07"
    yield b"\x07\x00\x00\x00\x06\x02\x00\x00\x02{}"


def _headers() -> Iterator[bytes]:
    for command in _COMMANDS:
        yield b"\0" + encode_header(command, Serialization.JSON)
        yield b"\1" + encode_header(command, Serialization.ROCKETMQ)
    yield b"\2{}"
    for text in (
        '{"code":1,"code":2,"extFields":{"a":"1"},"extFields":{"b":null,"c":1.5,"d":[true,{}]}}',
        '{"code":true}',
        '{"code":-0,"flag":1e3}',
        '{"code":19,"extFields":{"nextBeginOffset":"5"},"flag":1,"language":"JAVA","remark":"\\ud83d\\ude00\\ud800"}',
        '{"remark":"","extFields":null,"version":497,"serializeTypeCurrentRPC":"JSON"}',
        '{"code":' + "9" * 5000 + "}",
        '{"extFields":{"a":' + "[" * 985 + "]" * 985 + "}}",  # is parsed, and cannot be written
        '{"opaque":' + "[" * 990 + "]" * 990 + "}",
    ):
        yield b"\0" + text.encode()
    yield b"\0" + '{"flag":3}'.encode("utf-16")


def _stored() -> Iterator[bytes]:
    options = stored_target.options
    usual = Stored(_TEXT, properties=encode_properties(_MESSAGES[0], message_id=_ID), queue_offset=7)
    yield options("as it is") + encode_all(usual, usual.but(queue_offset=8))
    yield options("as it is") + encode_all(usual.but(magic=V2, topic=b"o" * 300), usual)
    yield options("as it is") + usual.but(sys_flag=0x30, born_host=_IPV6, store_host=_IPV6).encode()
    yield options("as it is", check_crc=False, topic=False) + encode_all(usual.but(crc=1), usual)
    yield options("as it is") + encode_all(usual, usual.but(crc=1), usual.but(topic=b"other"))
    yield options("as it is") + usual.but(topic=b"\xff").encode()
    for wrong in ({"total_size": 20}, {"total_size": 5000}, {"body_size": -1}, {"properties_size": 3}, {"magic": 1}):
        yield options("as it is") + encode_all(usual, usual.but(**wrong))
    members = b"".join((encode_member(b"a", b"TAGS\x01t\x02"), encode_member(_TEXT, flag=3)))
    yield options("a batch") + members
    yield options("as it is") + Stored(members, sys_flag=_INNER, properties=b"INNER_NUM\x012\x02").encode()
    yield options("as it is") + Stored(members, sys_flag=_INNER, properties=b"INNER_NUM\x013\x02").encode()
    yield options("behind a message") + Stored(members, sys_flag=_INNER, queue_offset=-1).encode()
    for kind in (ZLIB, LZ4, ZSTD):
        flags, compressed = compression_flags(kind), compress(_TEXT, kind=kind)
        yield options("as it is") + Stored(compressed, sys_flag=flags).encode()
        yield options("a body", kind=kind) + _TEXT
        yield options("a compressed body", kind=kind) + _TEXT
        yield options("a compressed batch", kind=kind) + members
        yield options("compressed already", kind=kind) + compressed
        yield options("compressed already", kind=kind) + compressed[:-1]
        yield options("compressed already", kind=kind) + compressed + compressed
        yield options("compressed already", kind=kind) + compress(bytes(100_000), kind=kind)
        bombs = compress(bytes(60_000), kind=kind), compress(bytes(70_000), kind=kind), compressed
        yield options("a batch of compressed members", kind=kind) + b"".join(map(encode_member, bombs))
    yield options("compressed already", kind=ZLIB) + zlib.compress(b"")


def _batches() -> Iterator[bytes]:
    yield encode_batch(_MESSAGES, [_ID] * 3)
    yield encode_batch(_MESSAGES[:1], [_ID])
    yield encode_member(b"", b"") + encode_member(b"x", b"KEYS\x01a b\x02DELAY\x013\x02UNIQ_KEY\x01u\x02", 7)
    yield encode_member(b"x", b"TAGS\x01\x02CLUSTER\x01c\x02a\x01\xff\x02")
    yield b""


def _properties() -> Iterator[bytes]:
    for message in _MESSAGES:
        yield encode_properties(message, message_id=_ID, extra={"WAIT": "true"})
    yield b"TAGS\x01a\x02TAGS\x01b\x02x\x01\x02\x01y\x02z\x02name\x01v\x01w"
    yield b"tag\0shard\0name\0key one\0\xff\0__RMQ.TRANSIENT.x\0\xe2\x80\x83"
    yield b"t\x01\0s\x02\0KEYS\0k\0"


_ELEMENTS: Final[tuple[bytes, ...]] = (
    bytes.fromhex("01d804" + "ffffffffffffffffff01" + "0000c03f" + "000000000000f0bf" + "0400ff" + "06e79c81" + "02")
    + b"four",
    bytes.fromhex("04d431" + "8cb502" + "c88ee6a403" + "80e0b2f3830a" + "80a0b4a8d0b7d802")
    + b"\x48f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    + bytes(12),
    bytes.fromhex("02" + "02" + "02" + "00" + "00" + "00" + "00" + "02" + "0261" + "00" + "00"),
    bytes.fromhex("8801" + "02" + "0673 6b75" + "08" + "01" + "04" + "0261" + "02" + "00" + "00" + "04" + "02"),
)


def _avro() -> Iterator[bytes]:
    options, container = avro_target.options, avro_target.container
    for number, (schema, element) in enumerate(zip(avro_target.SCHEMAS, _ELEMENTS, strict=True)):
        for evolves in (False, True):
            for mode in ("bare", "confluent", "single_object", "container"):
                yield options(mode, number, evolves=evolves) + element
        text = json.dumps(schema).encode()
        yield options("auto", number) + container(text, element)
        yield options("schema and value") + text + b"\0" + element
        yield options("registered schema and value") + text + b"\0" + element
    yield options("auto") + confluent_head(1) + b"unknown"
    yield options("auto") + b"\xc3\x01" + bytes(8)
    yield options("container head") + container(b'"int"', b"\2", number=2)[4:]
    yield options("container head") + container(b'"int"', b"\2", codec=b"deflate")[4:]
    yield options("single_object", 2, evolves=True) + bytes.fromhex("02000001000202000002026100 00")  # a block's size
    for schema, value in _HOSTILE:
        for mode in ("schema and value", "registered schema and value"):
            yield options(mode) + json.dumps(schema, separators=(",", ":")).encode() + b"\0" + value


def _nested(kind: Any, levels: int, wrap: Callable[[int, Any], Any]) -> Any:
    for level in range(levels):
        kind = wrap(level, kind)
    return kind


def _one_field(level: int, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": f"R{level}", "fields": [{"name": "a", "type": kind}]}


def _twice(level: int, kind: Any) -> dict[str, Any]:
    second = kind["name"] if isinstance(kind, dict) else kind
    return {
        "type": "record",
        "name": f"R{level}",
        "fields": [{"name": "a", "type": kind}, {"name": "b", "type": second}],
    }


_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal"}
# Schemas that a body brings along to harm its reader, and a value of each.
_HOSTILE: Final[tuple[tuple[Any, bytes], ...]] = (
    (_nested("int", 300, lambda _, kind: {"type": "array", "items": kind}), b"\0"),
    (_nested("int", 150, _one_field), b"\2"),
    (_nested("null", 20, _twice), b""),  # of no bytes, and of a million records
    (_nested("int", 40, _twice), b"\0\0"),
    ({"type": "array", "items": _nested("null", 40, _twice)}, b"\2\0"),
    ({"type": "array", "items": {"type": "error", "name": "E", "fields": []}}, avro_target.long(10**9) + b"\0"),
    ({**_DECIMAL, "precision": 10**9, "scale": 0}, b"\2a"),
    ({**_DECIMAL, "precision": 5, "scale": None}, b"\2a"),
    ({**_DECIMAL, "precision": 5, "scale": 10**6}, b"\2a"),
    ({"type": "fixed", "name": "F", "size": "x"}, b"abc"),
    ({"type": "int", "logicalType": ["date"]}, b"\0"),
    ({"type": "map", "values": "null"}, b"\x02\x02a\0"),
)
_SEEDS: Final[Mapping[str, Callable[[], Iterator[bytes]]]] = MappingProxyType(
    {
        "frame": _frames,
        "header": _headers,
        "stored": _stored,
        "batch": _batches,
        "properties": _properties,
        "avro": _avro,
    }
)
