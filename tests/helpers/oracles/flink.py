"""Expressions evaluated by Flink and by us, and what differs."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from bench.sql.flink import FlinkFailed, FlinkSql
from rmqio.sql import types, values
from rmqio.sql.analysis.scope import Scope
from rmqio.sql.analysis.values.binder import ExpressionBinder
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.plan import Field
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.syntax.parser import parse
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure
from tests.helpers.oracles.expressions import COLUMNS, as_json, table

FAILED: Final = "failed"
"""Stands for the value of an expression that fails for a row."""


def _parsed(text: str) -> nodes.Expression:
    (statement,) = parse(f"SELECT {text} FROM t")
    assert isinstance(statement, statements.QueryStatement)
    assert isinstance(statement.query.body, nodes.Select)
    (item,) = statement.query.body.items
    assert isinstance(item, nodes.Item)
    return item.expression


def _type(text: str) -> SqlType:
    cast = _parsed(f"CAST(NULL AS {text})")
    assert isinstance(cast, nodes.Cast)
    return types.resolve(cast.type)


_FIELDS: Final = tuple(Field(name, _type(kind)) for name, kind in COLUMNS.items())


def _value(name: str, given: Any) -> Any:
    """A value of a column as it is at run time."""
    if given is None:
        return None
    match name:
        case "m" | "n":
            return Decimal(given)
        case "t":
            return values.timestamp_of_text(given)
        case "e":
            return values.date_of_text(given)
        case "z":
            return values.instant_of_text(given)
    return given


def ours(text: str, rows: Sequence[Mapping[str, Any]]) -> tuple[SqlType, list[Any]]:
    """Returns the type of an expression and its value for each row."""
    bound = ExpressionBinder(Scope.of(_FIELDS, "t")).bind(_parsed(text))
    run = compiled(Fragment(FromRows(_FIELDS), (Step(None, (bound,)),), ToRows()))
    found: list[Any] = []
    for row in rows:
        try:
            mapped = run([tuple(_value(name, row[name]) for name in COLUMNS)])
        except ValueFailure as error:
            found.append((FAILED, str(error)))
            continue
        found.append((FAILED, str(mapped.failed[0])) if mapped.failed else mapped.values[0][0])
    return bound.type, found


class Flink:
    """Evaluates expressions over rows in few jobs."""

    def __init__(self, flink: FlinkSql, rows: Sequence[Mapping[str, Any]], folder: Path, zone: str = "UTC") -> None:
        self._flink = flink
        self._count = len(rows)
        folder.mkdir(exist_ok=True)
        lines = [as_json({"id": number, **row}) for number, row in enumerate(rows)]
        (folder / "rows.json").write_text("".join(f"{each}\n" for each in lines), "utf-8")
        self._before = [f"SET 'table.local-time-zone' = '{zone}'", table("t", str(folder))]

    def columns(self, texts: Sequence[str]) -> list[tuple[str, list[Any]] | str]:
        """Returns type and values of each expression, or why Flink fails for it: then the others are asked again."""
        try:
            selected = ", ".join(f"{text} AS c{n}" for n, text in enumerate(texts))
            found = self._flink.rows([*self._before, f"SELECT id, {selected} FROM t"])
        except FlinkFailed as error:
            if len(texts) == 1:
                return [str(error)]
            half = len(texts) // 2
            return [*self.columns(texts[:half]), *self.columns(texts[half:])]
        ordered = sorted(found.rows)
        assert [row[0] for row in ordered] == list(range(self._count))
        return [(kind, [row[n] for row in ordered]) for n, kind in enumerate(found.types) if n]


def same_type(ours: SqlType, flinks: str) -> bool:
    """Tells whether a type is Flink's, but for NOT NULL and the length of text."""
    plain, flinks_plain = (
        re.sub(r"(VAR)?CHAR(\(\d+\))?| NOT NULL", lambda m: "" if "NULL" in m[0] else "STRING", each)
        for each in (str(ours), flinks)
    )
    return plain == flinks_plain


def same_value(kind: SqlType, our: Any, flinks: Any) -> bool:
    """Tells whether a value is Flink's, which comes as text. Doubles may differ in their last digits."""
    if our is None or flinks is None:
        return our is flinks
    match kind.kind:
        case "DOUBLE" | "FLOAT":
            return _close(our, float(flinks))
        case "DECIMAL":
            return bool(Decimal(flinks) == our)
        case "TIMESTAMP":
            return bool(values.micros_of(dt.datetime.fromisoformat(flinks)) == our)
        case "TIMESTAMP_LTZ":
            return bool(values.micros_of(dt.datetime.fromisoformat(flinks).replace(tzinfo=None)) == our)
        case "DATE":
            return bool(values.date_of_text(flinks) == our)
    return type(our) is type(flinks) and our == flinks


def _close(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= 1e-12 * max(abs(one), abs(other)) or (one != one and other != other)
