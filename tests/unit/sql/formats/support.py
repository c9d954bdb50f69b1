"""Tables, values of every type, and decoders and encoders run as generated code runs them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from rmqio.sql import types
from rmqio.sql.casts import single
from rmqio.sql.catalog.options import table_options
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.formats import check, decoder_of, encoder_of
from rmqio.sql.formats.base import Decoder, Fields
from rmqio.sql.planning.plan import Field
from rmqio.sql.syntax.statements import Option
from rmqio.sql.types import BITS, SqlType

Columns = Mapping[str, SqlType] | Sequence[tuple[str, SqlType]]


def table_with(columns: Columns, **options: str) -> Table:
    """Returns a checked table; of an option's name, `__` is a dot and `_` a hyphen."""
    pairs = columns.items() if isinstance(columns, Mapping) else columns
    given = [Option(name.replace("__", ".").replace("_", "-"), text) for name, text in options.items()]
    found = table_options([Option("topic", "t"), *given], "t")
    table = Table("t", tuple(Column(name, kind) for name, kind in pairs), found)
    check(table)
    return table


def fields_of(table: Table, names: Iterable[str] | None = None) -> Fields:
    """Returns the physical columns, or those with these names."""
    fields = {each.name: Field(each.name, each.type) for each in table.columns}
    return list(fields.values()) if names is None else [fields[each] for each in names]


def fast_row(decoder: Decoder, body: bytes) -> tuple[Any, ...]:
    """Returns what a fragment makes of a body without `exact`."""
    row = decoder.fast(body)
    found = []
    for code, convert in zip(decoder.columns, decoder.converters, strict=True):
        value = eval(code.format("row"), {"row": row})
        found.append(value if convert is None or value is None else convert(value))
    return tuple(found)


def decode(table: Table, body: bytes, names: Iterable[str] | None = None) -> tuple[Any, ...]:
    """Returns the values of a body, as a fragment decodes it."""
    decoder = decoder_of(table, fields_of(table, names))
    try:
        return fast_row(decoder, body)
    except Exception:  # noqa: BLE001 - as a fragment does
        return decoder.exact(body)


def encode(table: Table, row: Sequence[Any]) -> bytes:
    """Returns the body of a row."""
    encoder = encoder_of(table, fields_of(table))
    names = [f"v{position}" for position in range(len(row))]
    scope = {**encoder.constants, **dict(zip(names, row, strict=True))}
    body = eval(encoder.source(names), scope)
    assert isinstance(body, bytes)
    return body


SCALARS = [
    types.BOOLEAN, types.TINYINT, types.SMALLINT, types.INTEGER, types.BIGINT, types.FLOAT, types.DOUBLE,
    types.VARCHAR, types.BYTES, types.DATE, types.TIME, SqlType("TIME", precision=3), types.TIMESTAMP,
    SqlType("TIMESTAMP", precision=0), SqlType("TIMESTAMP", precision=6), types.TIMESTAMP_LTZ, types.decimal(10, 2),
    types.decimal(38, 18), types.decimal(5, 0), types.decimal(38, 38),
]  # fmt: skip


NAMES = st.sampled_from(["a", "b", "a_b", "A", "x y", "a.b", "é", 'q"', "{x}", "b\\s", "$d", "row", "v0", "_"])
"""Names of columns and fields that a format, or the code that is made of it, could take for others."""
_TEXTS = st.just(types.VARCHAR)


def nested(each: st.SearchStrategy[SqlType], keys: st.SearchStrategy[SqlType] = _TEXTS) -> st.SearchStrategy[SqlType]:
    """Types of whose parts some are NOT NULL. `keys`: those of maps."""
    each = st.builds(SqlType.nullable, each, st.booleans())
    rows = st.dictionaries(NAMES, each, min_size=1, max_size=3).map(
        lambda found: SqlType("ROW", elements=tuple(found.values()), names=tuple(found))
    )
    maps = st.builds(lambda *found: SqlType("MAP", elements=found), keys, each)
    return each.map(types.array_of) | maps | rows


scalars = st.sampled_from(SCALARS)
any_types = st.recursive(scalars, nested, max_leaves=4)
TEXT = st.text(st.sampled_from("aN,;|=#'\"\\ \t\r\n\0\ufeff¥") | st.characters(codec="utf-8"), max_size=12)


def declared(kind: SqlType) -> str:
    """Returns a type as CREATE TABLE takes it, with the names of fields in quotes and NOT NULL."""
    text = kind.text
    if kind.kind == "ROW":
        fields = zip(kind.names, kind.elements, strict=True)
        text = f"ROW<{', '.join(f'`{name}` {declared(each)}' for name, each in fields)}>"
    elif kind.elements:
        text = f"{kind.kind}<{', '.join(map(declared, kind.elements))}>"
    return text if kind.is_nullable else f"{text} NOT NULL"


def values_of(kind: SqlType) -> st.SearchStrategy[Any]:
    """Values of a type, and NULL if it can be."""
    found = _not_null(kind)
    return st.none() | found if kind.is_nullable else found


def _not_null(kind: SqlType) -> st.SearchStrategy[Any]:
    if kind.kind in BITS:
        limit = 1 << (BITS[kind.kind] - 1)
        return st.integers(-limit, limit - 1)
    unit = 10 ** (6 - kind.precision)
    match kind.kind:
        case "BOOLEAN":
            return st.booleans()
        case "FLOAT":
            return st.floats(width=32).map(single)
        case "DOUBLE":
            return st.floats()
        case "VARCHAR":
            return TEXT
        case "VARBINARY":
            return st.binary(max_size=12)
        case "DATE":
            return st.integers(-700_000, 2_900_000)
        case "TIME":
            return st.integers(0, 86_400_000_000 // unit - 1).map(lambda each: each * unit)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return st.integers(-62_000_000_000_000_000 // unit, 253_000_000_000_000_000 // unit).map(
                lambda each: each * unit
            )
        case "DECIMAL":
            limit = 10**kind.precision - 1
            return st.integers(-limit, limit).map(lambda each: _scaled(each, kind.scale))
        case "ARRAY":
            return st.lists(values_of(kind.elements[0]), max_size=4)
        case "MAP":
            return st.dictionaries(_not_null(kind.elements[0]), values_of(kind.elements[1]), max_size=4)
    return st.tuples(*map(values_of, kind.elements))


def _scaled(number: int, scale: int) -> Decimal:
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -scale))


def shown(row: Sequence[Any]) -> str:
    """Returns a text that is the same for the same values: NaN equals NaN, 0.0 is not -0.0, 1 is not True."""
    return repr(tuple(map(_plain, row)))


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return "decimal", format(value, "f")
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return sorted(((_plain(key), _plain(each)) for key, each in value.items()), key=repr)  # in any order
    return value
