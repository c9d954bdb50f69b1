"""JSON bodies: what is read and written, by Flink's rules."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from rmqio.sql import types
from rmqio.sql.formats import decoder_of
from rmqio.sql.formats.base import RowFailure
from rmqio.sql.formats.json import JsonDecoder
from rmqio.sql.planning.plan import Field
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure
from tests.unit.sql.formats.support import decode, encode, fast_row, fields_of, table_with

ROW = SqlType("ROW", elements=(types.BIGINT, types.VARCHAR), names=("x", "y"))
MAP = SqlType("MAP", elements=(types.VARCHAR, types.DOUBLE))
COUNTS = SqlType("MAP", elements=(types.INTEGER, types.BIGINT))


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (types.VARCHAR, "1.10", "1.10"),
        (types.VARCHAR, "1E5", "1E5"),
        (types.VARCHAR, "true", "true"),
        (types.VARCHAR, "null", None),
        (types.VARCHAR, '{"a": [1, 2.50, "é\\n", null]}', '{"a":[1,2.50,"é\\n",null]}'),
        (types.VARCHAR, "12345678901234567890123", "12345678901234567890123"),
        (types.VARCHAR, '"a\tb"', "a\tb"),
        (types.BIGINT, '" 42 "', 42),
        (types.BIGINT, "1e3", 1000),
        (types.BIGINT, "1.9", 1),
        (types.DOUBLE, '"NaN"', "nan"),
        (types.DOUBLE, "1e400", float("inf")),
        (types.DOUBLE, "1" + "0" * 400, float("inf")),
        (types.DOUBLE, '"1e3"', 1000.0),
        (types.FLOAT, "0.1", 0.10000000149011612),
        (types.BOOLEAN, '"TRUE"', True),
        (types.decimal(5, 2), "1.005", Decimal("1.01")),
        (types.decimal(5, 2), '"1e2"', Decimal("100.00")),
        (types.decimal(5, 2), "1e5", None),
        (types.decimal(38, 0), "9" * 38, Decimal("9" * 38)),
        (types.BYTES, '"YWI="', b"ab"),
        (types.DATE, '"1970-01-02"', 1),
        (types.TIMESTAMP, '"1970-01-01T00:00:01.5"', 1_500_000),
        (types.TIMESTAMP, '"1970-01-01 00:00:01.9999"', 1_999_000),
        (types.TIMESTAMP_LTZ, '"1970-01-01T08:00:00+08:00"', 0),
        (types.array_of(types.VARCHAR), '["a", 1.0, null]', ["a", "1.0", None]),
        (types.array_of(types.TIMESTAMP), '["1970-01-01 00:00:01", null]', [1_000_000, None]),
        (MAP, '{"a": 1, "b": null}', {"a": 1.0, "b": None}),
        (COUNTS, '{"1": 2}', {1: 2}),
        (ROW, '{"y": "b"}', (None, "b")),
    ],
)  # fmt: skip
def test_reading(kind: SqlType, given: str, expected: Any) -> None:
    body = f'{{"b": 7, "a": {given}}}'.encode()
    (found,) = decode(table_with({"a": kind}), body)
    assert (str(found) if expected == "nan" else found) == expected
    assert type(found) is type(expected) or expected == "nan"


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (types.BIGINT, b'{"a": "4_2"}', "column a: '4_2' is not a whole number"),
        (types.BIGINT, b'{"a": "42.7"}', "column a: '42.7' is not a whole number"),
        (types.BIGINT, b'{"a": true}', "column a: true is not a whole number"),
        (types.BIGINT, b'{"a": 1e400}', "column a: 1e400 is out of range of an integer of 64 bits"),
        (types.TINYINT, b'{"a": 128}', "column a: 128 is out of range of an integer of 8 bits"),
        (types.TINYINT, b'{"a": 1' + b"0" * 1000 + b"}", r"column a: 10{46}\.\.\. is out of range"),
        (types.TINYINT, b'{"a": 1' + b"0" * 5000 + b"}", r"column a: 10{46}\.\.\. is out of range"),
        (types.TINYINT, b'{"a": "1' + b"0" * 5000 + b'"}', r"column a: '10{46}\.\.\.' is out of range"),
        (types.BOOLEAN, b'{"a": 1' + b"0" * 5000 + b"}", r"column a: 10{46}\.\.\. is not a boolean"),
        (types.DOUBLE, b'{"a": [1]}', r"column a: \[1\] is not a number"),
        (types.DOUBLE, b'{"a": NaN}', "the body is not JSON: NaN is not a JSON number"),
        (types.BOOLEAN, b'{"a": 1}', "column a: 1 is not a boolean"),
        (types.VARCHAR, b'{"a": "\\ud800"}', "column a: .* has half of a surrogate pair"),
        (types.DATE, b'{"a": 1}', "column a: 1 is not a string, as DATE is in JSON"),
        (types.TIMESTAMP, b'{"a": "1970-01-01T00:00:00Z"}', "column a: .* is not a timestamp; a zone makes it"),
        (types.TIMESTAMP_LTZ, b'{"a": "1970-01-01 00:00:00"}', "column a: .* is not a timestamp with a zone"),
        (types.decimal(5, 2), b'{"a": "x"}', "column a: 'x' is not a number"),
        (types.decimal(5, 2), b'{"a": 1e9999999999999999999}', "column a: .* is out of range of numbers"),
        (types.BYTES, b'{"a": "?"}', "column a: '\\?' is not base64"),
        (ROW, b'{"a": {"x": "z"}}', "column a: field x: 'z' is not a whole number"),
        (ROW, b'{"a": [1]}', r"column a: \[1\] is not an object"),
        (ROW, b'{"a": "\\ud800"}', r'column a: "\\ud800" is not an object'),  # it can be printed
        (types.BIGINT.nullable(False), b"{}", "column a: it is NOT NULL, but the field is missing"),
        (types.BIGINT.nullable(False), b'{"a": null}', "column a: it is NOT NULL, but the field is null"),
        (types.decimal(3, 1).nullable(False), b'{"a": 12345}', "column a: it is NOT NULL, but 12345 does not fit"),
        (types.BIGINT, b"[1]", "the body is not a JSON object, but an array"),
        (types.BIGINT, b"1", "the body is not a JSON object, but a number"),
        (types.BIGINT, b'{"a": 1', "the body is not JSON: "),
        (types.BIGINT, b'{"a": 1} x', "the body is not JSON: Extra data"),
        (types.BIGINT, b'{"a": "\xff"}', "the body is not JSON: 'utf-8' codec can't decode byte 0xff"),
        (types.VARCHAR, b'{"a": ' + b"[" * 100_000, "the body is not JSON: it is nested too deeply"),
    ],
)
def test_bodies_that_do_not_fit_fail(kind: SqlType, body: bytes, reason: str) -> None:
    with pytest.raises(RowFailure, match=reason) as failed:
        decode(table_with({"a": kind}), body)
    assert len(str(failed.value)) < 200


def test_a_missing_field_can_be_a_failure() -> None:
    table = table_with({"a": types.BIGINT, "b": ROW}, json__fail_on_missing_field="true")
    assert decode(table, b'{"a": null, "b": {"x": 1, "y": null}}') == (None, (1, None))
    with pytest.raises(RowFailure, match="column a: the field is missing"):
        decode(table, b'{"b": null}')
    with pytest.raises(RowFailure, match="column b: the field y is missing"):
        decode(table, b'{"a": 1, "b": {"x": 1}}')


def test_names_that_msgspec_does_not_have_are_read_and_written() -> None:
    table = table_with({'q"': types.BIGINT, "b\\": types.VARCHAR})
    body = encode(table, (1, "x"))
    assert body == b'{"q\\"":1,"b\\\\":"x"}'
    assert decode(table, body) == (1, "x")


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (types.VARCHAR, b'{"a": 1.50}', "1.50"),
        (types.BIGINT, b'{"a": "7"}', 7),
        (types.DOUBLE, b'{"a": "1.5"}', 1.5),
        (types.FLOAT, b'{"a": "1.5"}', 1.5),
        (types.BOOLEAN, b'{"a": "true"}', True),
    ],
)
def test_columns_that_often_are_of_another_type_are_decoded_fast(kind: SqlType, body: bytes, expected: Any) -> None:
    decoder = JsonDecoder([Field("a", kind), Field("b", types.BIGINT)])
    with pytest.raises(Exception, match="Expected"):
        fast_row(decoder, body)
    for _ in range(8):
        assert decoder.exact(body) == (expected, None)
    assert fast_row(decoder, body) == (expected, None)
    assert fast_row(decoder, b'{"a": null}') == (None, None)
    with pytest.raises(Exception, match=r"not a|surrogate|Expected"):
        fast_row(decoder, b'{"a": "\\ud800x", "b": "x"}')


def test_a_column_stays_checked_while_others_are_not() -> None:
    decoder = JsonDecoder([Field("a", types.VARCHAR.nullable(False)), Field("b", types.decimal(5, 1).nullable(False))])
    for _ in range(8):
        decoder.exact(b'{"a": 1, "b": 2}')
    assert fast_row(decoder, b'{"a": 1, "b": 2.25}') == ("1", Decimal("2.3"))
    for body in (b'{"a": null, "b": 1}', b'{"a": 1, "b": null}', b'{"a": 1}', b'{"b": 1}'):
        with pytest.raises((ValueError, msgspec.ValidationError)):  # msgspec 0.19 has errors of its own kind
            fast_row(decoder, body)


@pytest.mark.parametrize(
    ("kind", "value", "options", "expected"),
    [
        (types.DOUBLE, float("nan"), {}, '"NaN"'),
        (types.DOUBLE, float("-inf"), {}, '"-Infinity"'),
        (types.DOUBLE, 1e22, {}, "1e22"),
        (types.FLOAT, 0.10000000149011612, {}, "0.1"),
        (types.decimal(20, 10), Decimal("1E-10"), {}, "0.0000000001"),
        (types.decimal(20, 0), Decimal("1E+2"), {}, "100"),
        (types.decimal(38, 10), Decimal("9" * 28 + ".0123456789"), {"json__encode__decimal_as_plain_number": "true"},
         "9" * 28 + ".0123456789"),
        (types.BYTES, b"ab", {}, '"YWI="'),
        (types.TIMESTAMP, 1_500_000, {}, '"1970-01-01 00:00:01.5"'),
        (types.TIMESTAMP, 1_000_000, {"json__timestamp_format__standard": "ISO-8601"}, '"1970-01-01T00:00:01"'),
        (types.TIMESTAMP_LTZ, 1_500_000, {"json__timestamp_format__standard": "ISO-8601"}, '"1970-01-01T00:00:01.5Z"'),
        (types.VARCHAR, None, {}, "null"),
        (ROW, (None, "b"), {}, '{"x":null,"y":"b"}'),
        (ROW, (None, "b"), {"json__encode__ignore_null_fields": "true"}, '{"y":"b"}'),
        (types.array_of(types.decimal(5, 1)), [Decimal("1.0"), None], {}, "[1.0,null]"),
        (COUNTS, {1: None}, {}, '{"1":null}'),
        (MAP, {None: 1.0, "b": 2.0}, {"json__map_null_key__mode": "DROP"}, '{"b":2.0}'),
        (MAP, {None: 1.0}, {"json__map_null_key__mode": "LITERAL", "json__map_null_key__literal": "x"}, '{"x":1.0}'),
    ],
)  # fmt: skip
def test_writing(kind: SqlType, value: Any, options: dict[str, str], expected: str) -> None:
    assert encode(table_with({"a": kind}, **options), (value,)).decode() == f'{{"a":{expected}}}'


def test_null_fields_are_left_out() -> None:
    table = table_with({"a": types.BIGINT, "b": types.BIGINT}, json__encode__ignore_null_fields="true")
    assert encode(table, (None, 1)) == b'{"b":1}'
    assert encode(table, (None, None)) == b"{}"


def test_null_as_a_key_fails() -> None:
    with pytest.raises(ValueFailure, match=r"json\.map-null-key\.mode"):
        encode(table_with({"a": MAP}), ({None: 1.0},))


def test_only_needed_columns_are_looked_at() -> None:
    table = table_with({"a": types.BIGINT, "b": types.BIGINT.nullable(False)})
    decoder = decoder_of(table, fields_of(table, ["a"]))
    assert fast_row(decoder, b'{"a": 1, "b": "x"}') == decoder.exact(b'{"a": 1, "b": "x"}') == (1,)
