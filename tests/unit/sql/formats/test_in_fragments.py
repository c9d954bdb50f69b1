"""Formats as fragments use them: tables of CREATE TABLE, messages in, messages out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.sql import types
from rmqio.sql.catalog.tables import Table, table_of
from rmqio.sql.compile.description import Fragment, FromRows, FromTable, ToRows, ToTable
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import check
from rmqio.sql.planning.plan import Field
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.parser import parse
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure
from tests.unit.sql.formats.protobufs import MONEY, ORDER, descriptor
from tests.unit.sql.formats.support import NAMES, any_types, declared, nested, scalars, shown, values_of

COLUMNS = """
    id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2), ok BOOLEAN, day_of DATE, at_time TIMESTAMP(3), data BYTES,
    ratio DOUBLE, part FLOAT, zone TIMESTAMP_LTZ(3)
"""
ROWS = [
    b'{"id":1,"name":"a","price":1.50,"ok":true,"day_of":"2024-01-31","at_time":"2024-01-31 10:00:00.5","data":"YWI=",'
    b'"ratio":0.5,"part":0.1,"zone":"2024-01-31 10:00:00Z"}',
    '{"id":2,"name":"é, \\"中\\"","price":null,"ok":null,"day_of":null,"at_time":null,"data":null,"ratio":"NaN",'
    '"part":null,"zone":null}'.encode(),
]
FORMATS = {
    "json": "'format' = 'json'",
    "csv": "'format' = 'csv', 'csv.null-literal' = 'n/a'",
    "control": "'format' = 'csv', 'csv.field-delimiter' = '\\u0001', 'csv.disable-quote-character' = 'true', "
    "'csv.null-literal' = '\\N'",
    "pairs": "'format' = 'key-value', 'key-value.pair-delimiter' = '; '",
    "avro": "'format' = 'avro'",
}


def table(options: str, columns: str = COLUMNS) -> Table:
    """Returns the table of CREATE TABLE."""
    text = f"CREATE TABLE t ({columns}) WITH ('topic' = 't', {options})"
    (statement,) = parse(text)
    assert isinstance(statement, statements.CreateTable)
    found = table_of(statement)
    check(found)
    return found


def mapped(source: Table, target: Table, bodies: list[bytes]) -> Any:
    """Returns what a fragment makes of the bodies."""
    run = compiled(Fragment(FromTable(source, source.columns), (), ToTable(target, target.columns)))
    return run([SimpleNamespace(body=body) for body in bodies])


@pytest.mark.parametrize("name", list(FORMATS))
def test_rows_go_through_a_format_and_back(name: str) -> None:
    plain, other = table(FORMATS["json"]), table(FORMATS[name])
    there = mapped(plain, other, ROWS)
    assert not there.failed
    assert mapped(other, plain, there.values).values == ROWS


def test_a_body_fails_alone_with_column_and_value() -> None:
    found = mapped(table(FORMATS["csv"]), table(FORMATS["json"]), [b"x", b"z,a,1,true,,,,,,", b"1,a,1,true,,,,,,"])
    assert found.positions == [2]
    assert {at: str(error) for at, error in found.failed.items()} == {
        0: "the body has only 1 field, but the table has 10 columns",
        1: "column id: 'z' is not a whole number",
    }


def test_a_raw_body() -> None:
    raw, plain = table("'format' = 'raw'", "line STRING"), table("'format' = 'json'", "line STRING")
    assert mapped(raw, plain, ["é".encode()]).values == ['{"line":"é"}'.encode()]


@pytest.mark.parametrize("name", ["json", "avro"])
@pytest.mark.parametrize(
    ("kind", "good", "bad", "part"),
    [
        ("ARRAY<INT NOT NULL>", "[1]", "[1,null]", "ARRAY<INT> is INT"),
        ("MAP<STRING, ARRAY<BIGINT NOT NULL>>", '{"k":[2],"l":null}', '{"k":[null]}', "ARRAY<BIGINT> is BIGINT"),
        ("MAP<STRING, STRING NOT NULL>", '{"k":"v"}', '{"k":null}', "MAP<STRING, STRING> is STRING"),
        (
            "ROW<a INT, b DATE NOT NULL COMMENT 'c'>",
            '{"a":null,"b":"2024-01-31"}',
            '{"a":1}',
            "ROW<a INT, b DATE> is DATE",
        ),
        (
            "ARRAY<ROW(x ROW<y STRING NOT NULL> NOT NULL)>",
            '[{"x":{"y":"s"}},null]',
            '[{"x":null}]',
            "ROW<x ROW<y STRING>> is ROW<y STRING>",
        ),
        ("ARRAY<ROW(x ROW<y STRING NOT NULL> NOT NULL)>", "null", '[{"x":{}}]', "ROW<y STRING> is STRING"),
    ],
)
def test_null_in_a_part_that_is_not_null_is_a_bad_row(name: str, kind: str, good: str, bad: str, part: str) -> None:
    plain = table(FORMATS["json"], f"c {kind.replace(' NOT NULL', '')}")
    strict = table(FORMATS[name], f"c {kind}")
    bodies = [f'{{"c":{each}}}'.encode() for each in (good, bad)]
    there = mapped(plain, strict, bodies)
    assert {at: str(error) for at, error in there.failed.items()} == {
        1: f"column c: a part of {part} NOT NULL, but is NULL"
    }
    assert mapped(strict, plain, there.values).values == [bodies[0]]
    read = mapped(table(FORMATS["json"], f"c {kind}"), plain, bodies)
    assert read.values == [bodies[0]]
    assert [str(each) for each in read.failed.values()] == [str(each) for each in there.failed.values()]


def test_the_schema_of_avro_has_no_union_for_a_part_that_is_not_null() -> None:
    strict = table(FORMATS["avro"], "c ARRAY<INT NOT NULL> NOT NULL, d ROW<a STRING NOT NULL> NOT NULL")
    assert mapped(
        table(FORMATS["json"], "c ARRAY<INT>, d ROW<a STRING>"), strict, [b'{"c":[1],"d":{"a":"x"}}']
    ).values == [b"\x02\x02\x00\x02x"]


def test_records_of_avro_have_names_of_their_own() -> None:
    columns = "a ROW<b ROW<x INT>>, a_b ROW<y INT>, a_b_ ROW<z INT>"
    plain, other = table(FORMATS["json"], columns), table(FORMATS["avro"], columns)
    row = b'{"a":{"b":{"x":1}},"a_b":{"y":2},"a_b_":{"z":3}}'
    assert mapped(other, plain, mapped(plain, other, [row]).values).values == [row]


SHOP = (
    f"'format' = 'protobuf', 'protobuf.descriptor' = '{descriptor(MONEY, ORDER)}', "
    "'protobuf.message-name' = 'shop.Order'"
)
_MONEY = SqlType("ROW", False, elements=(types.BIGINT.nullable(False), types.VARCHAR.nullable(False)),
                 names=("units", "currency"))  # fmt: skip
ORDERS = {
    "id": types.BIGINT, "small": types.INTEGER, "u": types.BIGINT, "big": types.decimal(20, 0), "price": types.DOUBLE,
    "ratio": types.FLOAT, "paid": types.BOOLEAN, "raw": types.BYTES, "status": types.VARCHAR,
    "tags": types.array_of(types.VARCHAR.nullable(False)), "lines": types.array_of(_MONEY),
    "counts": SqlType("MAP", elements=(types.VARCHAR.nullable(False), types.INTEGER.nullable(False))),
}  # fmt: skip
"""Of a message: fields that always have a value. The others can be NULL."""
OPTIONAL = {
    "note": types.VARCHAR, "total": _MONEY.nullable(), "at": SqlType("TIMESTAMP_LTZ", precision=6),
    "limit": types.INTEGER, "card": types.VARCHAR, "cash": types.INTEGER,
}  # fmt: skip
_CSV = "'format' = 'csv', 'csv.null-literal' = '{}'"
_RAW = "'format' = 'raw', 'raw.charset' = '{}', 'raw.endianness' = '{}-endian'"
OF_TEXTS = st.recursive(
    scalars, lambda each: nested(each, keys=scalars.map(lambda kind: kind.nullable(False))), max_leaves=4
)
"""Types of JSON, whose maps can have other keys than texts."""


def _columns(kinds: st.SearchStrategy[SqlType], most: int = 4) -> st.SearchStrategy[dict[str, SqlType]]:
    return st.dictionaries(NAMES, st.builds(SqlType.nullable, kinds, st.booleans()), min_size=1, max_size=most)


def _of_orders() -> st.SearchStrategy[dict[str, SqlType]]:
    never_null = {name: kind.nullable(False) for name, kind in ORDERS.items()}
    return st.lists(st.sampled_from([*(never_null | OPTIONAL).items()]), min_size=1, unique=True).map(dict)


@pytest.mark.parametrize(
    ("options", "tables"),
    [
        ("'format' = 'json'", _columns(OF_TEXTS)),
        ("'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601', 'json.fail-on-missing-field' = 'true', "
         "'json.encode.decimal-as-plain-number' = 'true'", _columns(OF_TEXTS)),
        ("'format' = 'avro'", _columns(any_types)),
        (SHOP, _of_orders()),
        (_CSV.format("NULL"), _columns(scalars)),
        (_CSV.format("\\N") + ", 'csv.escape-character' = '\\', 'csv.field-delimiter' = '\\t'", _columns(scalars)),
        ("'format' = 'key-value'", _columns(scalars)),
        (_RAW.format("utf-8", "big"), _columns(scalars, 1)),
        (_RAW.format("utf-16", "little"), _columns(scalars, 1)),
        (_RAW.format("shift_jis", "big"), _columns(st.just(types.VARCHAR), 1)),
    ],
)  # fmt: skip
@settings(max_examples=20)
@given(st.data())
def test_a_row_of_a_table_comes_back_or_is_a_bad_row(
    options: str, tables: st.SearchStrategy[dict[str, SqlType]], data: st.DataObject
) -> None:
    columns = data.draw(tables)
    text = ", ".join(f"`{name}` {declared(kind)}" for name, kind in columns.items())
    try:
        made = table(options, text)
    except Refusal:
        assert "raw" in options  # which has no times and decimals
        return
    row = tuple(data.draw(values_of(kind)) for kind in columns.values())
    source = FromRows(tuple(Field(name, kind) for name, kind in columns.items()))
    there = compiled(Fragment(source, (), ToTable(made, made.columns)))([row])
    assert all(isinstance(each, ValueFailure) for each in there.failed.values())
    back = compiled(Fragment(FromTable(made, made.columns), (), ToRows()))(
        [SimpleNamespace(body=each) for each in there.values]
    )
    assert not back.failed
    assert [shown(each) for each in back.values] == ([] if there.failed else [shown(row)])
