"""A format reads the SQL values that it has written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rmqio.sql import types
from rmqio.sql.formats import decoder_of
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure
from tests.unit.sql.formats.support import any_types, decode, encode, fields_of, scalars, shown, table_with, values_of

JSON = [
    {},
    {"json__timestamp_format__standard": "ISO-8601"},
    {"json__encode__ignore_null_fields": "true"},
]
CSV = [
    {},
    {"csv__field_delimiter": "\\t"},
    {"csv__field_delimiter": "\\u0001", "csv__disable_quote_character": "true"},
    {"csv__field_delimiter": "||", "csv__escape_character": "\\"},
    {"csv__quote_character": "'", "csv__escape_character": "!"},
    {"csv__disable_quote_character": "true", "csv__escape_character": "\\", "csv__field_delimiter": ";"},
    {"csv__allow_comments": "true"},
]
PAIRS = [{}, {"key_value__pair_delimiter": " ", "key_value__key_delimiter": ":"}]


@st.composite
def rows(draw: st.DrawFn, kinds: st.SearchStrategy[SqlType]) -> tuple[dict[str, SqlType], tuple[Any, ...]]:
    """Columns and a row of them."""
    found = draw(st.lists(kinds, min_size=1, max_size=4))
    columns = {f"c{i}": kind.nullable(draw(st.booleans())) for i, kind in enumerate(found)}
    return columns, tuple(draw(values_of(kind)) for kind in columns.values())


def both_ways(columns: dict[str, SqlType], row: tuple[Any, ...], options: dict[str, str]) -> None:
    """Fails unless the row survives, in usual and in exact decoding, whole and by one column."""
    table = table_with(columns, **options)
    body = encode(table, row)
    assert shown(decode(table, body)) == shown(row), body
    assert shown(decoder_of(table, fields_of(table)).exact(body)) == shown(row), body
    last = list(columns)[-1]
    assert shown(decode(table, body, [last])) == shown(row[-1:])


def refused(columns: dict[str, SqlType], row: tuple[Any, ...], options: dict[str, str]) -> bool:
    """Returns whether the format says that it cannot hold the row."""
    try:
        encode(table_with(columns, **options), row)
    except ValueFailure:
        return True
    return False


@pytest.mark.parametrize("options", JSON)
@given(rows(any_types))
def test_json(options: dict[str, str], case: tuple[dict[str, SqlType], tuple[Any, ...]]) -> None:
    both_ways(*case, options)


@pytest.mark.parametrize("options", CSV)
@given(rows(scalars))
def test_csv(options: dict[str, str], case: tuple[dict[str, SqlType], tuple[Any, ...]]) -> None:
    options = {"format": "csv", "csv__null_literal": "NULL", **options}
    assume(not refused(*case, options))
    both_ways(*case, options)


@pytest.mark.parametrize("options", PAIRS)
@given(rows(scalars))
def test_key_value(options: dict[str, str], case: tuple[dict[str, SqlType], tuple[Any, ...]]) -> None:
    options = {"format": "key-value", **options}
    assume(not refused(*case, options))
    both_ways(*case, options)


@given(rows(any_types))
def test_avro(case: tuple[dict[str, SqlType], tuple[Any, ...]]) -> None:
    both_ways(*case, {"format": "avro"})


@pytest.mark.parametrize("endianness", ["big-endian", "little-endian"])
@given(st.sampled_from([types.BYTES, types.VARCHAR, types.BOOLEAN, types.TINYINT, types.SMALLINT, types.INTEGER,
                        types.BIGINT, types.FLOAT, types.DOUBLE]), st.data())  # fmt: skip
def test_raw(endianness: str, kind: SqlType, data: st.DataObject) -> None:
    value = data.draw(values_of(kind.nullable(False)))
    assume(value not in ("", b""))
    both_ways({"a": kind}, (value,), {"format": "raw", "raw__endianness": endianness})


@given(rows(any_types))
def test_json_has_no_time_that_a_reader_of_iso_cannot_read(case: tuple[dict[str, SqlType], tuple[Any, ...]]) -> None:
    columns, row = case
    written = encode(table_with(columns, json__timestamp_format__standard="ISO-8601"), row)
    assert shown(decode(table_with(columns), written)) == shown(row)
