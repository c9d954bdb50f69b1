"""Bodies that the fast decoder of JSON accepts have the values that the exact one makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rmqio.sql import types
from rmqio.sql.formats.base import Fields, RowFailure
from rmqio.sql.formats.json import JsonDecoder, JsonOptions
from rmqio.sql.planning.plan import Field
from rmqio.sql.types import SqlType
from tests.unit.sql.formats.support import any_types, fast_row, shown, values_of

NUMBERS = [
    "0", "-0", "-0.0", "0.0", "1", "-1", "127", "128", "-128", "-129", "255", "32767", "32768", "2147483647",
    "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "18446744073709551615", "18446744073709551616", "123456789012345678901234567890",
    "1.0", "1.10", "1e3", "1E3", "1E+2", "1e-7", "1.5e300", "1e308", "1e309", "-1e400", "1e-400", "4.9e-324",
    "9007199254740993", "9007199254740993.0", "0.1", "0.30000000000000004", "3.4028235e38", "3.5e38", "99.995", "1e99",
    "1e999999", "1" + "0" * 310, "0." + "0" * 50 + "1", "12345678.905",
]  # fmt: skip
STRINGS = [
    "", " ", "NaN", "Infinity", "-Infinity", "nan", "1", " 1 ", "1_000", "+5", "1.5", "42.7", "1e3", "0x10", "\uff11",
    "true", "FALSE", "t", "yes", "null", "2020-02-29", "2021-02-29", "2020-01-31 23:59:59.123456", "23:59:59",
    "24:00:00", "2020-01-31T23:59:59Z", "2020-01-31T23:59:59+08:00", "2020-1-1", "YWI=", "YWI", "YW I=", "é", "中文",
    "\U0001f600", "\0", "\x7f", 'q"q', "b\\b", "a\nb", "1e999999999999999999999", "sNaN",
]  # fmt: skip

numbers = st.sampled_from(NUMBERS) | st.integers(-(2**70), 2**70).map(str) | st.floats(allow_nan=False).map(repr)
numbers = numbers.filter(lambda each: "inf" not in each)
strings = (st.sampled_from(STRINGS) | st.text(st.characters(codec="utf-8"), max_size=8)).flatmap(
    lambda text: st.booleans().map(lambda is_ascii: json.dumps(text, ensure_ascii=is_ascii))
)
leaves = numbers | strings | st.sampled_from(["null", "true", "false"])


def _containers(each: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arrays = st.lists(each, max_size=3).map(lambda items: f"[{', '.join(items)}]")
    return arrays | _objects(st.sampled_from(["f0", "f1", "f2", "x", "é"]), each)


def _objects(names: st.SearchStrategy[str], each: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(names, each), max_size=5)
    return pairs.map(lambda found: f"{{{','.join(f'{json.dumps(name)}: {value}' for name, value in found)}}}")


any_json = st.recursive(leaves, _containers, max_leaves=6)


def fitting(kind: SqlType) -> st.SearchStrategy[str]:
    """The usual JSON of a type."""
    match kind.kind:
        case "ARRAY":
            return st.lists(_or_null(kind.elements[0]), max_size=3).map(lambda items: f"[{','.join(items)}]")
        case "MAP":
            return _objects(st.sampled_from(["a", "é", "a"]), _or_null(kind.elements[1]))
        case "ROW":
            return st.tuples(*map(_or_null, kind.elements)).map(
                lambda items: f"{{{','.join(f'{json.dumps(n)}:{v}' for n, v in zip(kind.names, items, strict=True))}}}"
            )
        case "VARCHAR" | "DATE" | "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ" | "VARBINARY":
            return strings
        case "BOOLEAN":
            return st.sampled_from(["true", "false"])
    return numbers


def _or_null(kind: SqlType) -> st.SearchStrategy[str]:
    return fitting(kind) | st.just("null")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Fields, bytes]:
    """A table, and a body for it: most values fit, some are anything, some are missing, some are there twice."""
    kinds = draw(st.lists(any_types, min_size=1, max_size=4))
    fields = [Field(f"col{i}", kind.nullable(draw(st.booleans()))) for i, kind in enumerate(kinds)]
    pairs = []
    for each in fields:
        name, kind = each.name, each.type
        for _ in range(draw(st.sampled_from([1, 1, 1, 1, 0, 2]))):
            value = fitting(kind) if draw(st.integers(0, 3)) else any_json
            pairs.append((name, draw(value)))
    pairs += draw(st.lists(st.tuples(st.sampled_from(["x", "y", "Col0"]), any_json), max_size=2))
    pairs = draw(st.permutations(pairs))
    blank = draw(st.sampled_from(["", " ", "\n\t "]))
    text = f"{blank}{{{f',{blank}'.join(f'{json.dumps(name)}{blank}:{value}' for name, value in pairs)}}}{blank}"
    return fields, text.encode()


def widened(fields: Fields, options: JsonOptions) -> JsonDecoder:
    """Returns a decoder that has seen many values of other types than usual in each column."""
    decoder = JsonDecoder(fields, options)
    for position, usual in enumerate(decoder._usual):
        for _ in range(8 if usual else 0):
            decoder._note(position)
    return decoder


def exact_or_failure(decoder: JsonDecoder, body: bytes) -> tuple[Any, ...] | RowFailure:
    """Returns the values of a body, or why there are none."""
    try:
        return decoder.exact(body)
    except RowFailure as error:
        return error


_LONG = b'{"col0": %s, "x": ' + b"1" * 5000 + b"}"
"""A number of more digits than Python converts."""


@pytest.mark.parametrize("fails_if_missing", [False, True])
@given(case=cases())
@example(case=([Field("col0", types.decimal(3, 1).nullable(False))], b'{"col0": 12345}'))
@example(case=([Field("col0", types.decimal(3, 1))], b'{"col0": "1_0"}'))
@example(case=([Field("col0", types.VARCHAR)], b'{"col0": 1.10}'))
@example(case=([Field("col0", types.DOUBLE)], b'{"col0": -0}'))
@example(case=([Field("col0", types.BIGINT)], _LONG % b"1"))
@example(case=([Field("col0", types.BIGINT)], _LONG % b'"1"'))
@example(case=([Field("x", types.VARCHAR)], _LONG % b"1"))
@example(case=([Field("x", types.DOUBLE)], _LONG % b"1"))
@example(case=([Field("x", types.decimal(5, 2))], _LONG % b"1"))
@example(case=([Field("col0", types.decimal(3, 1).nullable(False))], b'{"col0": null}'))
@example(case=([Field('q"uote', types.BIGINT)], b'{"q\\"uote": 1}'))
def test_fast_and_exact_agree(case: tuple[Fields, bytes], fails_if_missing: bool) -> None:
    fields, body = case
    options = JsonOptions(fails_if_missing=fails_if_missing)
    expected = exact_or_failure(JsonDecoder(fields, options), body)
    assert not isinstance(expected, RowFailure) or len(str(expected)) < 250
    for decoder in (JsonDecoder(fields, options), widened(fields, options)):
        try:
            row = fast_row(decoder, body)
        except Exception:  # noqa: BLE001 - the exact decoder is asked then
            continue
        assert not isinstance(expected, RowFailure), f"fast gives {row}, exact says {expected}"
        assert shown(row) == shown(expected)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), strings | numbers), min_size=1, max_size=3), st.data())
def test_usual_bodies_are_decoded_fast(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    fields = [Field(name, types.VARCHAR if value[0] == '"' else types.DOUBLE) for name, value in dict(pairs).items()]
    body = f"{{{','.join(f'{json.dumps(name)}:{value}' for name, value in dict(pairs).items())}}}".encode()
    assume(all(abs(float(value)) < 1e308 for _, value in pairs if value[0] != '"'))
    assert shown(fast_row(JsonDecoder(fields), body)) == shown(JsonDecoder(fields).exact(body))


@given(cases(), st.data())
def test_broken_bodies_that_are_decoded_fast_are_broken_only_in_what_is_skipped(
    case: tuple[Fields, bytes], data: st.DataObject
) -> None:
    fields, body = case
    at = data.draw(st.integers(0, len(body) - 1))
    broken = body[:at] + data.draw(st.binary(max_size=2)) + body[at + data.draw(st.integers(0, 2)) :]
    try:
        row = fast_row(JsonDecoder(fields), broken)
    except Exception:  # noqa: BLE001 - the exact decoder is asked then
        return
    expected = exact_or_failure(JsonDecoder(fields), broken)
    if isinstance(expected, RowFailure):
        assert "codec can't decode" in str(expected)
    else:
        assert shown(row) == shown(expected)


@given(st.data(), any_types)
def test_what_encoders_write_is_decoded_fast(data: st.DataObject, kind: SqlType) -> None:
    from tests.unit.sql.formats.support import encode, table_with

    assume(kind.kind not in ("FLOAT", "DOUBLE"))
    row = (data.draw(values_of(kind)), 7)
    body = encode(table_with({"a": kind, "b": types.BIGINT}), row)
    exact = JsonDecoder([Field("a", kind), Field("b", types.BIGINT)]).exact(body)
    assert shown(exact) == shown(row)
