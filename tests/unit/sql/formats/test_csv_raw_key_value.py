"""CSV, raw bodies and pairs of keys and values: what is read, written and refused."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.sql import types
from rmqio.sql.catalog.options import table_options
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import decoder_of
from rmqio.sql.formats.base import RowFailure
from rmqio.sql.syntax.statements import Option
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure
from tests.unit.sql.formats.support import decode, encode, fast_row, fields_of, table_with

ABC = {"a": types.BIGINT, "b": types.VARCHAR, "c": types.DOUBLE}
_ESCAPES: Final = {"csv__escape_character": "\\"}
_DUMP: Final = {**_ESCAPES, "csv__null_literal": "\\N"}
"""As MySQL and Hive write their tables."""


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        ("1,x,2.5", {}, (1, "x", 2.5)),
        ("1,x,2.5\n", {}, (1, "x", 2.5)),
        ("1,x,2.5\r\n", {}, (1, "x", 2.5)),
        ('1,"x",2.5\r\n', {}, (1, "x", 2.5)),
        ("\ufeff1,x,2.5", {}, (1, "x", 2.5)),
        (" 1 , x , 2.5 ", {}, (1, " x ", 2.5)),
        (",,", {}, (None, "", None)),
        ('1,"x,y",2', {}, (1, "x,y", 2.0)),
        ('"1","x""y","2"', {}, (1, 'x"y', 2.0)),
        ('1,"x\ny",2', {}, (1, "x\ny", 2.0)),
        ('1,x"y,2', {}, (1, 'x"y', 2.0)),
        ("1,é中,2", {}, (1, "é中", 2.0)),
        ("1\t\\N\t\\N", {"csv__field_delimiter": "\\t", "csv__null_literal": "\\N"}, (1, None, None)),
        ("1\tx\t2", {"csv__field_delimiter": "\t"}, (1, "x", 2.0)),
        ("1\x01x\x012", {"csv__field_delimiter": "\\u0001"}, (1, "x", 2.0)),
        ("1😀x😀2", {"csv__field_delimiter": "\\ud83d\\ude00"}, (1, "x", 2.0)),
        ("1\\u00x\\u002", {"csv__field_delimiter": "\\\\u00"}, (1, "x", 2.0)),
        ("1\x01x\x012", {"fieldDelimiter": "\x01"}, (1, "x", 2.0)),
        ("1||x|y||2", {"csv__field_delimiter": "||"}, (1, "x|y", 2.0)),
        ("1,'x,y',2", {"csv__quote_character": "'"}, (1, "x,y", 2.0)),
        ('1,"x",2', {"csv__disable_quote_character": "true"}, (1, '"x"', 2.0)),
        ("1,x\\,y\\n\\\\,2", {"csv__escape_character": "\\"}, (1, "x,y\n\\", 2.0)),
        ("1,\\N,\\N", _DUMP, (1, None, None)),
        ('1,"\\N",\\N\r\n', _DUMP, (1, "N", None)),
        ("1,\\\\N,2", _DUMP, (1, "\\N", 2.0)),
        ("1,\\Nx,2", _DUMP, (1, "Nx", 2.0)),
        ("1||\\N||2", _DUMP | {"csv__field_delimiter": "||"}, (1, None, 2.0)),
        ("# no row\n1,x,2", {"csv__allow_comments": "true"}, (1, "x", 2.0)),
        ("1,#x,2", {"csv__allow_comments": "true"}, (1, "#x", 2.0)),
        ("1,x,2,3", {"lengthCheck": "CUT"}, (1, "x", 2.0)),
        ("1,x,2,3", {"lengthCheck": "PAD"}, (1, "x", 2.0)),
        ("1", {"lengthCheck": "PAD"}, (1, None, None)),
        ("1," + "x" * 200_000 + ',"2"', {}, (1, "x" * 200_000, 2.0)),
    ],
)
def test_csv_is_read(body: str, options: dict[str, str], expected: tuple[Any, ...]) -> None:
    table = table_with(ABC, format="csv", **options)
    assert decode(table, body.encode()) == expected
    assert decoder_of(table, fields_of(table)).exact(body.encode()) == expected
    assert decode(table, body.encode(), ["c", "a"]) == (expected[2], expected[0])


@pytest.mark.parametrize(
    ("body", "options", "reason"),
    [
        (b"1,x", {}, "the body has only 2 fields, but the table has 3 columns"),
        (b"1,x", {"lengthCheck": "CUT"}, "the body has only 2 fields"),
        (b"1,x,2,3", {}, "the body has 4 fields, but the table has 3 columns"),
        (b"1,x,2\n2,y,3", {}, "the body has several lines"),
        (b"z,x,2", {}, "column a: 'z' is not a whole number"),
        (b"42.7,x,2", {}, "column a: '42.7' is not a whole number"),
        (b"9223372036854775808,x,2", {}, "column a: 9223372036854775808 is out of range of an integer of 64 bits"),
        (b"1,x,y", {}, "column c: 'y' is not a number"),
        (b"1,\xff,2", {}, "the body is not UTF-8 text: invalid start byte at byte 2"),
        (b'1,"x,2', {}, "a quote is missing"),
        (b'1,"x"y,2', {}, "there is text after the quotes of field 2"),
        (b"1,x,2\\", {"csv__escape_character": "\\"}, "the body ends with an escape character"),
        (b"# nothing", {"csv__allow_comments": "true"}, "the body has only comments"),
        (b"z" * 500 + b",x,2", {}, "z\\.\\.\\."),
    ],
)
def test_csv_that_does_not_fit_fails(body: bytes, options: dict[str, str], reason: str) -> None:
    with pytest.raises(RowFailure, match=reason):
        decode(table_with(ABC, format="csv", **options), body)


def test_an_empty_field_of_a_column_that_is_not_null_fails() -> None:
    table = table_with({"a": types.BIGINT.nullable(False), "b": types.VARCHAR.nullable(False)}, format="csv")
    assert decode(table, b"1,") == (1, "")
    with pytest.raises(RowFailure, match="column a: it is NOT NULL, but the field is ''"):
        decode(table, b",x")


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        ((1, "x", 2.5), {}, "1,x,2.5"),
        ((None, None, None), {}, ",,"),
        ((None, "", None), {"csv__null_literal": "NULL"}, "NULL,,NULL"),
        ((None, "\\N", None), _DUMP, '\\N,"\\\\N",\\N'),
        ((None, "\\N", 1.0), _DUMP | {"csv__disable_quote_character": "true"}, "\\N,\\\\N,1.0"),
        ((1, 'x"y', 1e10), {}, '1,"x""y",1.0E10'),
        ((1, "x,y", 1.0), {}, '1,"x,y",1.0'),
        ((1, "x\ny", 1.0), {}, '1,"x\ny",1.0'),
        ((1, "x,y\n", 1.0), {"csv__disable_quote_character": "true", "csv__escape_character": "\\"}, "1,x\\,y\\n,1.0"),
        ((1, "x;y", 1.0), {"csv__field_delimiter": ";"}, '1;"x;y";1.0'),
    ],
)
def test_csv_is_written(row: tuple[Any, ...], options: dict[str, str], expected: str) -> None:
    assert encode(table_with(ABC, format="csv", **options), row) == expected.encode()


@pytest.mark.parametrize(
    ("row", "options", "reason"),
    [
        ((1, "x,y", 1.0), {"csv__disable_quote_character": "true"}, "column b: 'x,y' has a delimiter"),
        ((1, "NULL", 1.0), {"csv__null_literal": "NULL"}, "column b: the text 'NULL' is the null literal"),
        (
            (1, "\n", 1.0),
            {"csv__disable_quote_character": "true", **_ESCAPES, "csv__null_literal": "\\n"},
            r"column b: the text '\\n' is the null literal",
        ),
    ],
)
def test_csv_refuses_what_would_be_lost(row: tuple[Any, ...], options: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueFailure, match=reason):
        encode(table_with(ABC, format="csv", **options), row)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"csv__escape_character": "\\"},
        {"csv__allow_comments": "true"},
        {"csv__disable_quote_character": "true"},
        {"csv__field_delimiter": ",,"},
        {"lengthCheck": "PAD"},
    ],
)
@given(st.text(st.sampled_from('ab,"\\\n\r#é '), max_size=12))
def test_usual_and_exact_reading_of_csv_agree(options: dict[str, str], text: str) -> None:
    table = table_with({"a": types.VARCHAR, "b": types.VARCHAR}, format="csv", **options)
    decoder = decoder_of(table, fields_of(table))
    for body in (text.encode(), f"a,{text}".encode()):
        try:
            row = fast_row(decoder, body)
        except Exception:  # noqa: BLE001 - the exact decoder is asked then
            continue
        assert row == decoder.exact(body)


_NO_QUOTES: Final = {"csv__disable_quote_character": "true"}
_COMMENTS: Final = {"csv__allow_comments": "true"}
_WRITTEN: Final = st.none() | st.text(st.sampled_from("a,\"\\\n\r#|=N' \ufeff"), max_size=5)


@pytest.mark.parametrize(
    "options",
    [
        *({"format": "csv", **each} for each in (
            {}, _NO_QUOTES, _COMMENTS, _ESCAPES, _NO_QUOTES | _COMMENTS, _NO_QUOTES | _ESCAPES,
            _NO_QUOTES | _ESCAPES | _COMMENTS, {"csv__field_delimiter": "||"},
            _NO_QUOTES | {"csv__field_delimiter": "||"}, _COMMENTS | {"csv__null_literal": "N"},
            _NO_QUOTES | {"csv__null_literal": "NULL", "csv__field_delimiter": "|,|"}, {"csv__quote_character": "'"},
            _NO_QUOTES | {"csv__escape_character": "#"}, _DUMP, _NO_QUOTES | _DUMP,
            _NO_QUOTES | _ESCAPES | {"csv__null_literal": "\\n"}, _ESCAPES | {"csv__null_literal": "\\\\"},
        )),
        *({"format": "key-value", **each} for each in (
            {}, {"key_value__pair_delimiter": "||"}, {"key_value__pair_delimiter": " "},
            {"key_value__pair_delimiter": "|", "key_value__key_delimiter": "=="},
        )),
    ],
)  # fmt: skip
@given(_WRITTEN, _WRITTEN)
def test_what_is_written_is_read_again_or_refused(options: dict[str, str], one: str | None, other: str | None) -> None:
    table = table_with({"a": types.VARCHAR, "b": types.VARCHAR}, **options)
    try:
        body = encode(table, (one, other))
    except ValueFailure:
        return
    keeps_null = options["format"] == "key-value" or "csv__null_literal" in options
    expected = (one, other) if keeps_null else (one or "", other or "")
    assert decode(table, body) == expected


@given(st.text(st.sampled_from("ab=, \n"), max_size=12))
def test_usual_and_exact_reading_of_pairs_agree(text: str) -> None:
    table = table_with({"a": types.VARCHAR, "b": types.VARCHAR}, format="key-value")
    decoder = decoder_of(table, fields_of(table))
    try:
        row = fast_row(decoder, text.encode())
    except Exception:  # noqa: BLE001 - the exact decoder is asked then
        return
    assert row == decoder.exact(text.encode())


def test_only_the_first_rocketmq_flink_tables_have_no_quotes() -> None:
    assert decode(table_with(ABC, fieldDelimiter=","), b'1,"x",2') == (1, '"x"', 2.0)
    assert decode(table_with(ABC, fieldDelimiter=",", isJsonData="false"), b'1,"x",2') == (1, "x", 2.0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "json"),
        ({"fieldDelimiter": "\\u0001"}, "csv"),
        ({"isJsonData": "false"}, "raw"),
        ({"field.delimiter": ",", "csv.null-literal": "-"}, "csv"),
        ({"isJsonData": "true", "fieldDelimiter": ",", "lengthCheck": "PAD"}, "json"),
        ({"isJsonData": "false", "fieldDelimiter": ","}, "csv"),
        ({"format": "key_value"}, "key-value"),
        ({"value.format": "csv", "value.csv.null-literal": "n/a"}, "csv"),
    ],
)
def test_the_format_follows_from_options(options: dict[str, str], expected: str) -> None:
    assert table_options([Option("topic", "t"), *map(Option, options, options.values())], "t").format == expected


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        (ABC, {"format": "csv", "csv__quote_character": "ab"}, "csv.quote-character is 'ab'; it must be one character"),
        (ABC, {"format": "csv", "csv__field_delimiter": ""}, "csv.field-delimiter is empty"),
        (ABC, {"format": "csv", "csv__field_delimiter": '"'}, "is the same as another special character"),
        (ABC, {"format": "csv", "csv__escape_character": '"'}, "csv.escape-character is the same as another"),
        (ABC, {"format": "csv", "csv__allow_comments": "maybe"}, "can be true, false"),
        (ABC, {"format": "csv", "csv__field_delimiter": "\n"}, "csv.field-delimiter has a line break"),
        (ABC, {"format": "csv", "csv__quote_character": "\r"}, "csv.quote-character has a line break"),
        (ABC, {"format": "csv", "csv__escape_character": "n"}, "csv.escape-character is 'n', which stands for another"),
        (ABC, {"format": "csv", **_ESCAPES, "csv__null_literal": "N\\"}, "'N\\\\', which escapes what"),
        (ABC, {"format": "csv", "csv__null_literal": '"N"'}, "which has a special character of the format"),
        (ABC, {"format": "csv", "csv__null_literal": "a,b"}, "which has a special character of the format"),
        (ABC, {"format": "csv", "csv__field_delimiter": "||", "csv__null_literal": "|"}, "'|', which has a special"),
        (ABC, {"format": "csv", **_COMMENTS, "csv__null_literal": "#N/A"}, "csv.null-literal begins with #"),
        (ABC, {"format": "csv", **_COMMENTS, "csv__field_delimiter": "#"}, "csv.field-delimiter begins with #"),
        (
            ABC,
            {"format": "csv", "csv__quote_character": "'", "csv__disable_quote_character": "true"},
            "is true, and there is a quote character, too",
        ),
        (ABC, {"format": "json", "csv__null_literal": "x"}, "'csv.null-literal' is of the format csv, not of json"),
        (
            ABC,
            {"csv__field_delimiter": ";"},
            "'csv.field-delimiter' is of the format csv, not of json: leave it out, or write 'format' = 'csv'",
        ),
        (ABC, {"value__csv__field_delimiter": ";"}, "'value.csv.field-delimiter' is of the format csv, not of json"),
        (ABC, {"csv_field_delimiter": ";"}, "'csv-field-delimiter' is of the format csv, not of json"),
        (ABC, {"fieldDelimiter": ";", "json__fail_on_missing_field": "true"}, "is of the format json, not of csv"),
        (ABC, {"fieldDelimiter": ";", "format": "json"}, "'fieldDelimiter' is of the format csv or key-value, not of"),
        (ABC, {"lengthCheck": "PAD"}, "'lengthCheck' is of the format csv, not of json"),
        (ABC, {"schema_registry__url": "http://localhost"}, "or protobuf-confluent, not of json: leave it out"),
        (ABC, {"isJsonData": "true", "format": "csv"}, "isJsonData is 'true', but the format is 'csv': leave one of"),
        (ABC, {"isJsonData": "maybe"}, "isJsonData is 'maybe'; it can be true or false"),
        (
            ABC,
            {"format": "debezium-json", "debezium_json__ignore_parse_errors": "true"},
            "format is 'debezium-json'; it can be json, csv",
        ),
        (ABC, {"key__format": "raw"}, "keys of messages are texts and have no format: name their columns in 'key.fi"),
        (ABC, {"format": "raw"}, "the format raw has one column, the body, and t has 3"),
        ({"a": types.DATE}, {"format": "raw"}, "the format raw has BYTES, STRING, BOOLEAN and numbers, not DATE"),
        ({"a": types.VARCHAR}, {"format": "raw", "raw__charset": "klingon"}, "is not a character set"),
        ({"a": types.VARCHAR}, {"format": "raw", "raw__charset": "base64"}, "is not a character set"),
        *(
            ({"a": types.VARCHAR}, {"format": "raw", "raw__charset": each}, "is not a character set")
            for each in ("idna", "undefined", "a\0b")
        ),
        (
            {"a": types.array_of(types.VARCHAR)},
            {"format": "csv"},
            "the column a is ARRAY<STRING>, which the format csv",
        ),
        ({" a": types.VARCHAR}, {"format": "key-value"}, "it cannot be a key"),
        ({"a=": types.VARCHAR}, {"format": "key-value", "key_value__key_delimiter": "=="}, "it cannot be a key"),
        (ABC, {"format": "key-value", "key_value__key_delimiter": ","}, "is a part of the other delimiter"),
        (ABC, {"json__timestamp_format__standard": "RFC"}, "json.timestamp-format.standard is 'RFC'"),
        (
            {"a": SqlType("MAP", elements=(types.array_of(types.VARCHAR), types.VARCHAR))},
            {},
            "column a: keys of MAP<ARRAY<STRING>, STRING> have no text",
        ),
    ],
)
def test_tables_that_a_format_does_not_have_are_refused(
    columns: dict[str, SqlType], options: dict[str, str], reason: str
) -> None:
    with pytest.raises(Refusal) as refused:
        table_with(columns, **options)
    assert reason in refused.value.message


@pytest.mark.parametrize(
    ("kind", "options", "body", "expected"),
    [
        (types.BYTES, {}, b"\xff\x00", b"\xff\x00"),
        (types.VARCHAR, {}, "é".encode(), "é"),
        (types.VARCHAR, {"raw__charset": "GBK"}, "中".encode("gbk"), "中"),
        (types.INTEGER, {}, b"\0\0\1\0", 256),
        (types.INTEGER, {"raw__endianness": "little-endian"}, b"\0\1\0\0", 256),
        (types.BOOLEAN, {}, b"\1", True),
        (types.DOUBLE, {}, b"?\xf0\0\0\0\0\0\0", 1.0),
    ],
)
def test_raw_bodies(kind: SqlType, options: dict[str, str], body: bytes, expected: Any) -> None:
    table = table_with({"a": kind}, format="raw", **options)
    assert decode(table, body) == (expected,)
    assert encode(table, (expected,)) == body


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (types.VARCHAR, b"a\xff", "column a: the body is not utf-8 text: invalid start byte at byte 1"),
        (types.INTEGER, b"123", "column a: a INT has 4 bytes, and the body 3: 313233"),
    ],
)
def test_raw_bodies_that_do_not_fit_fail(kind: SqlType, body: bytes, reason: str) -> None:
    with pytest.raises(RowFailure, match=reason):
        decode(table_with({"a": kind}, format="raw"), body)


@pytest.mark.parametrize(
    ("value", "charset", "reason"),
    [
        (None, "utf-8", "column a: NULL cannot be a body"),
        ("", "utf-8", "the body would be empty"),
        ("a中b", "latin-1", "column a: '中' is not in the character set iso8859-1"),
        (
            "a¥",
            "shift_jis",
            "column a: 'a¥' is not in the character set shift_jis",
        ),  # written as a\
        ("\u3164", "euc-kr", "is not in the character set euc_kr"),  # which Python cannot read again
    ],
)
def test_raw_does_not_write_what_it_cannot_read(value: str | None, charset: str, reason: str) -> None:
    with pytest.raises(ValueFailure, match=reason):
        encode(table_with({"a": types.VARCHAR}, format="raw", raw__charset=charset), (value,))


BLANK = {"key_value__pair_delimiter": " ", "key_value__key_delimiter": ":"}


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        ("a=1,b=x,c=2.5", {}, (1, "x", 2.5)),
        ("c=2.5,z=9,a=1", {}, (1, None, 2.5)),
        (" a = 1 , b = x ,,", {}, (1, " x ", None)),
        ("a=1,b=x=y", {}, (1, "x=y", None)),
        ("a=,b=,c=", {}, (None, "", None)),
        ("a=1,a=2", {}, (2, None, None)),
        ("a:1  b:x c:2.5 ", BLANK, (1, "x", 2.5)),
        ("a=1;b=x", {"fieldDelimiter": ";"}, (1, "x", None)),
        ("a=-,b=-", {"key_value__null_literal": "-"}, (None, None, None)),
        ("\ufeffa=1,b=x", {}, (1, "x", None)),
        ("a=1,b=x\r\n", {}, (1, "x", None)),
        ("b=x\n\n", {}, (None, "x\n", None)),
        ('b="x,a=1', {}, (1, '"x', None)),  # nothing quotes
    ],
)
def test_pairs_are_read(body: str, options: dict[str, str], expected: tuple[Any, ...]) -> None:
    table = table_with(ABC, format="key-value", **options)
    assert decode(table, body.encode()) == expected
    assert decoder_of(table, fields_of(table)).exact(body.encode()) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"a=1,b", "'b' has no '=' between a key and a value"),
        (b"a=x", "column a: 'x' is not a whole number"),
        (b"\xff", "the body is not UTF-8 text"),
        (b"", "the body has no pair of a key and a value"),
        (b" ,\n", "the body has no pair of a key and a value"),
    ],
)
def test_pairs_that_do_not_fit_fail(body: bytes, reason: str) -> None:
    with pytest.raises(RowFailure, match=reason):
        decode(table_with(ABC, format="key-value"), body)


def test_pairs_without_a_value_for_a_column_that_is_not_null_fail() -> None:
    table = table_with({"a": types.BIGINT.nullable(False)}, format="key-value")
    with pytest.raises(RowFailure, match="column a: it is NOT NULL, but the key is missing"):
        decode(table, b"b=1")
    with pytest.raises(RowFailure, match="column a: it is NOT NULL, but the value is ''"):
        decode(table, b"a=")


def test_pairs_are_written() -> None:
    table = table_with(ABC, format="key-value", **BLANK)
    assert encode(table, (1, "x", None)) == b"a:1 b:x"
    with pytest.raises(ValueFailure, match="column b: 'x y' has the delimiter ' '"):
        encode(table, (1, "x y", None))
    with pytest.raises(ValueFailure, match="the body would be empty"):
        encode(table, (None, None, None))
    assert encode(table, (1, "x\n", 2.5)) == b"a:1 b:x\n c:2.5"
    with pytest.raises(ValueFailure, match="the text of the last column ends with a line break"):
        encode(table, (1, "x\n", None))


def test_names_with_braces_and_quotes_are_keys() -> None:
    table = table_with({"{a}'": types.BIGINT}, format="key-value")
    assert fast_row(decoder_of(table, fields_of(table)), b"{a}'=1") == (1,)
