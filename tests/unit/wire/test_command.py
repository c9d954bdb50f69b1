"""Headers: what the two formats accept, what they refuse, and what a command shows in a log."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError, WireError
from rmqio.wire.command import LANGUAGES, PYTHON, Command, Serialization, decode_header, encode_header

JSON, ROCKETMQ = Serialization.JSON, Serialization.ROCKETMQ


def binary(
    *,
    code: int = 11,
    language: int = 3,
    version: int = 513,
    opaque: int = 7,
    flag: int = 0,
    remark: bytes = b"",
    remark_size: int | None = None,
    fields: bytes = b"",
    fields_size: int | None = None,
) -> bytes:
    """A ROCKETMQ header field by field; the sizes can be set wrong on purpose."""
    return b"".join(
        (
            struct.pack(">h", code),
            struct.pack(">B", language),
            struct.pack(">h", version),
            struct.pack(">i", opaque),
            struct.pack(">i", flag),
            struct.pack(">i", len(remark) if remark_size is None else remark_size),
            remark,
            struct.pack(">i", len(fields) if fields_size is None else fields_size),
            fields,
        )
    )


def field(key: bytes, value: bytes, key_size: int | None = None, value_size: int | None = None) -> bytes:
    key_part = struct.pack(">h", len(key) if key_size is None else key_size) + key
    return key_part + struct.pack(">i", len(value) if value_size is None else value_size) + value


JSON_READ: list[tuple[str, Any, Command]] = [
    ("empty object", {}, Command(0, version=0)),
    ("fields null", {"code": 1, "extFields": None, "version": 1}, Command(1, version=1)),
    ("remark null", {"code": 1, "remark": None}, Command(1, version=0)),
    ("unknown key of a server", {"code": 0, "serializeTypeCurrentRPC": "JSON"}, Command(0, version=0)),
    ("unknown language", {"code": 0, "language": "COBOL"}, Command(0, version=0, language=PYTHON)),
    ("language of no type", {"code": 0, "language": ["JAVA"]}, Command(0, version=0, language=PYTHON)),
    ("known language", {"code": 0, "language": "RUST"}, Command(0, version=0, language=12)),
    ("numbers as field values", {"extFields": {"a": 1, "b": 1.5}}, Command(0, {"a": "1", "b": "1.5"}, version=0)),
    ("booleans as Java writes them", {"extFields": {"a": True}}, Command(0, {"a": "true"}, version=0)),
    ("null as a field value", {"extFields": {"a": None}}, Command(0, {"a": ""}, version=0)),
    (
        "text and numbers as field values",
        {"extFields": {"a": "x", "b": 2}},
        Command(0, {"a": "x", "b": "2"}, version=0),
    ),
    ("nested field value", {"extFields": {"a": [1]}}, Command(0, {"a": "[1]"}, version=0)),
]


@pytest.mark.parametrize(("header", "command"), [row[1:] for row in JSON_READ], ids=[row[0] for row in JSON_READ])
def test_json_header_is_read(header: Any, command: Command) -> None:
    assert decode_header(json.dumps(header).encode(), JSON) == command


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_json_header_is_read_in_every_encoding_of_json(encoding: str) -> None:
    assert decode_header('{"code":5,"remark":"\u00e9"}'.encode(encoding), JSON) == Command(
        5, remark="\u00e9", version=0
    )


def test_white_space_around_a_json_header_is_no_matter() -> None:
    assert decode_header(b' \n{"code":5} \n', JSON) == Command(5, version=0)


JSON_BAD = [
    ("empty", b"", "not JSON"),
    ("no JSON", b"{", "not JSON"),
    ("not UTF-8", b'{"remark":"\xff"}', "not JSON"),
    ("more behind it", b"{}{}", "not JSON"),
    ("a list", b"[]", "a JSON list, not an object"),
    ("a number", b"1", "a JSON int, not an object"),
    ("code as text", b'{"code":"1"}', "field code is '1'"),
    ("code as float", b'{"code":1.0}', "field code is 1.0"),
    ("code as boolean", b'{"code":true}', "field code is True"),
    ("opaque null", b'{"opaque":null}', "field opaque is None"),
    ("flag as list", b'{"flag":[]}', "field flag"),
    ("version as object", b'{"version":{}}', "field version"),
    ("fields as list", b'{"extFields":["a"]}', "extFields or remark has the wrong type"),
    ("remark as number", b'{"remark":1}', "extFields or remark has the wrong type"),
    ("nested without end", b"[" * 100_000, "not JSON"),
    ("nested without end in a field", b'{"extFields":{"a":' + b"[" * 100_000, "not JSON"),
    ("number of many digits", b'{"code":' + b"9" * 5_000 + b"}", "not JSON"),
]


@pytest.mark.parametrize(("header", "message"), [row[1:] for row in JSON_BAD], ids=[row[0] for row in JSON_BAD])
def test_bad_json_header_is_a_wire_error(header: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        decode_header(header, JSON)


BINARY_READ: list[tuple[str, bytes, Command]] = [
    ("no remark and no fields", binary(), Command(11, opaque=7)),
    ("fields", binary(fields=field(b"k", b"v") + field(b"", b"")), Command(11, {"k": "v", "": ""}, opaque=7)),
    (
        "a field twice, the last counts",
        binary(fields=field(b"k", b"1") + field(b"k", b"2")),
        Command(11, {"k": "2"}, opaque=7),
    ),
    ("negative code, unknown language", binary(code=-1, language=255), Command(-1, opaque=7, language=255)),
]


@pytest.mark.parametrize(("header", "command"), [row[1:] for row in BINARY_READ], ids=[row[0] for row in BINARY_READ])
def test_binary_header_is_read(header: bytes, command: Command) -> None:
    assert decode_header(header, ROCKETMQ) == command


BINARY_BAD = [
    ("empty", b"", "cut short at 0 bytes"),
    ("cut in the fixed part", binary()[:16], "cut short"),
    ("cut before the field length", binary()[:19], "cut short"),
    ("negative remark length", binary(remark_size=-1), "a length of -1"),
    ("remark beyond the end", binary(remark_size=1000), "a length of 1000"),
    ("negative field length", binary(fields_size=-1), "field length -1"),
    ("field length beyond the end", binary(fields_size=1), "field length 1"),
    ("bytes behind the fields", binary() + b"x", "field length 0"),
    ("negative key length", binary(fields=field(b"k", b"v", key_size=-1)), "a length of -1"),
    ("key beyond the end", binary(fields=field(b"k", b"v", key_size=999)), "a length of 999"),
    ("negative value length", binary(fields=field(b"k", b"v", value_size=-2)), "a length of -2"),
    ("value beyond the end", binary(fields=field(b"k", b"v", value_size=1 << 30)), "a length of 1073741824"),
    ("key without a value", binary(fields=b"\x00\x01k"), "cut short"),
    ("half a key length", binary(fields=b"\x00"), "cut short"),
    ("remark not UTF-8", binary(remark=b"\xff"), "not UTF-8"),
    ("key not UTF-8", binary(fields=field(b"\xff", b"v")), "not UTF-8"),
    ("value not UTF-8", binary(fields=field(b"k", b"\xff")), "not UTF-8"),
]


@pytest.mark.parametrize(("header", "message"), [row[1:] for row in BINARY_BAD], ids=[row[0] for row in BINARY_BAD])
def test_bad_binary_header_is_a_wire_error(header: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        decode_header(header, ROCKETMQ)


@pytest.mark.parametrize("serialization", [-1, 2, 127])
def test_unknown_serialization_is_a_wire_error(serialization: int) -> None:
    with pytest.raises(WireError, match=f"unknown header serialization {serialization}"):
        decode_header(b"{}", serialization)


@pytest.mark.parametrize("code", [32768, 200050, -32769])
def test_code_that_does_not_fit_the_binary_header_is_refused_and_fits_json(code: int) -> None:
    with pytest.raises(LocalError, match=f"code {code} does not fit"):
        encode_header(Command(code), ROCKETMQ)
    assert decode_header(encode_header(Command(code), JSON), JSON).code == code


@pytest.mark.parametrize("code", [32767, -32768])
def test_the_largest_codes_fit_the_binary_header(code: int) -> None:
    assert decode_header(encode_header(Command(code), ROCKETMQ), ROCKETMQ).code == code


def test_an_absent_remark_is_left_out_of_json() -> None:
    assert "remark" not in json.loads(encode_header(Command(1)))
    assert json.loads(encode_header(Command(1, remark="")))["remark"] == ""


@pytest.mark.parametrize(("number", "name"), [(0, "JAVA"), (3, "PYTHON"), (9, "GO"), (12, "RUST")])
def test_language_numbers_are_those_of_java(number: int, name: str) -> None:
    assert LANGUAGES[number] == name


@pytest.mark.parametrize(
    ("flag", "is_response", "is_oneway"), [(0, False, False), (1, True, False), (2, False, True), (3, True, True)]
)
def test_flag_bits(flag: int, is_response: bool, is_oneway: bool) -> None:
    command = Command(1, flag=flag)
    assert (command.is_response, command.is_oneway) == (is_response, is_oneway)


def test_repr_names_fields_but_shows_neither_their_values_nor_the_body() -> None:
    command = Command(11, {"Signature": "s3cret", "AccessKey": "key0"}, b"payload", opaque=5, remark="r3mark")
    assert repr(command) == "<request code=11 opaque=5 fields=['AccessKey', 'Signature'] body=7 B>"
    assert repr(Command(0, flag=1)) == "<answer code=0 opaque=0 fields=[] body=0 B>"


@given(st.binary(max_size=100), st.integers(-3, 4))
def test_random_bytes_give_a_command_or_a_wire_error(data: bytes, serialization: int) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(decode_header(data, serialization), Command)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
header_keys = st.sampled_from(["code", "language", "version", "opaque", "flag", "remark", "extFields", "other"])


@given(st.dictionaries(header_keys, json_values))
def test_any_json_object_gives_a_command_of_sound_types_or_a_wire_error(header: dict[str, Any]) -> None:
    try:
        command = decode_header(json.dumps(header).encode(), JSON)
    except WireError:
        return
    assert all(type(number) is int for number in (command.code, command.version, command.opaque, command.flag))
    assert all(isinstance(value, str) for value in command.ext.values())
    assert 0 <= command.language < len(LANGUAGES)


@pytest.mark.parametrize("header", ['{"code":%s}', '{"extFields":{"a":%s}}'], ids=["a number", "a field"])
def test_nested_as_deeply_as_can_just_be_parsed_is_a_command_or_a_wire_error(header: str) -> None:
    outcomes: set[type] = set()
    for levels in (*range(500, 1000), 100_000):  # versions of Python differ in how deeply they parse
        try:
            outcomes.add(type(decode_header((header % ("[" * levels + "]" * levels)).encode(), JSON)))
        except WireError as error:
            outcomes.add(type(error))
    assert outcomes == ({WireError} if "code" in header else {Command, WireError})
