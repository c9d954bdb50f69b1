"""Expressions evaluated by Flink and by us, and what differs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from bench.sql.flink import Column, Failed, FlinkSql
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import SqlError
from rmqio.sql.types import SqlType
from tests.unit.sql.evaluating import bound, type_of

Rows = Sequence[Sequence[Any]]


class Difference(NamedTuple):
    """What differs.

    Attributes:
      kind: `refused here`, `refused by Flink`, `type`, `fails here`, `fails in Flink` or `value`.
      detail: what both say, for a person and for `differences.toml`.
      given: the arguments that they say it of, if it is about values.
    """

    form: str
    kind: str
    detail: str
    given: str = ""


class Beside:
    """Evaluates expressions over the rows of one table, in a time zone."""

    def __init__(self, flink: FlinkSql, columns: Mapping[str, str], rows: Rows, zone: str = "UTC") -> None:
        self._flink = flink
        self._columns = columns
        self._rows = rows
        self._zone = zone

    def differences(self, texts: Mapping[str, str]) -> list[Difference]:
        """Returns what differs of expressions: their texts by their forms."""
        found: list[Difference] = []
        for (form, text), theirs in zip(texts.items(), self.flinks(list(texts.values())), strict=True):
            ours = self.ours(text)
            if isinstance(ours, Failed) and isinstance(theirs, Failed):
                continue
            if isinstance(ours, Failed):
                found.append(Difference(form, "refused here", ours.reason))
            elif isinstance(theirs, Failed):
                found.append(Difference(form, "refused by Flink", theirs.reason))
            else:
                kind, values = ours
                if not same_type(kind, theirs.type):
                    found.append(Difference(form, "type", f"{kind} | {theirs.type}"))
                for row, our, flinks in zip(self._rows, values, theirs.values, strict=True):
                    if different := _difference(kind, our, flinks):
                        names = [name for name in self._columns if re.search(rf"\b{name}\b", text)]
                        given = dict(zip(self._columns, row, strict=True))
                        arguments = str([given[each] for each in names])
                        found.append(Difference(form, different, f"{our} | {flinks}", arguments))
        return found

    def flinks(self, texts: Sequence[str]) -> list[Column | Failed]:
        """Returns Flink's type and values of each expression."""
        declared = ", ".join(f"{name} {kind}" for name, kind in self._columns.items())
        before = [
            f"SET 'table.local-time-zone' = '{self._zone}'",
            f"CREATE TABLE t ({declared}) WITH ('connector' = 'datagen')",
        ]
        kinds = [type_of(each) for each in self._columns.values()]
        rows = [[_plain(kind, value) for kind, value in zip(kinds, row, strict=True)] for row in self._rows]
        return self._flink.columns(before, rows, texts)

    def ours(self, text: str) -> tuple[SqlType, list[Any]] | Failed:
        """Returns our type and values of an expression; `Failed` stands for a row that fails."""
        try:
            expression, fields = bound(text, {name: (kind, None) for name, kind in self._columns.items()})
        except SqlError as error:
            return Failed(str(error).splitlines()[0])
        run = compiled(Fragment(FromRows(fields), (Step(None, (expression,)),), ToRows()))
        found: list[Any] = []
        for row in self._rows:
            mapped = run([tuple(row)])
            found.append(Failed(str(mapped.failed[0])) if mapped.failed else mapped.values[0][0])
        return expression.type, found


def _plain(kind: SqlType, value: Any) -> Any:
    """A value as JSON carries it to Flink."""
    if value is None:
        return None
    match kind.kind:
        case "VARBINARY":
            return value.hex()
        case "DECIMAL" | "FLOAT" | "DOUBLE":
            return str(value).replace("inf", "Infinity").replace("nan", "NaN")
        case "ARRAY":
            return [_plain(kind.elements[0], each) for each in value]
        case "MAP":
            return [[_plain(each, x) for each, x in zip(kind.elements, pair, strict=True)] for pair in value.items()]
        case "ROW":
            return [_plain(each, x) for each, x in zip(kind.elements, value, strict=True)]
    return value


def _difference(kind: SqlType, our: Any, flinks: Any) -> str:
    match isinstance(our, Failed), isinstance(flinks, Failed):
        case True, False:
            return "fails here"
        case False, True:
            return "fails in Flink"
        case False, False if not same_value(kind, our, flinks):
            return "value"
    return ""


def same_type(ours: SqlType, flinks: str) -> bool:
    """Tells whether a type is Flink's, but for NOT NULL and the length of text and bytes: only a CAST has them here."""
    plain, flinks_plain = (
        _LENGTH.sub(lambda found: _PLAIN.get(found[1] or "", ""), each) for each in (str(ours), flinks)
    )
    return plain == flinks_plain


_LENGTH: Final = re.compile(r"\b(?:VAR)?(CHAR|BINARY)(?:\(\d+\))?| NOT NULL|`")
_PLAIN: Final = {"CHAR": "STRING", "BINARY": "BYTES"}


def same_value(kind: SqlType, our: Any, flinks: Any) -> bool:
    """Tells whether a value is Flink's. Floats may differ in their last digits."""
    if our is None or flinks is None:
        return our is flinks
    match kind.kind:
        case "DOUBLE" | "FLOAT":
            return _close(our, float(flinks), 1e-12 if kind.kind == "DOUBLE" else 1e-6)
        case "DECIMAL":
            return bool(Decimal(flinks) == our)
        case "VARBINARY":
            return bool(bytes.fromhex(flinks) == our)
        case "ARRAY":
            return len(our) == len(flinks) and all(
                same_value(kind.elements[0], *pair) for pair in zip(our, flinks, strict=True)
            )
        case "MAP":
            return _same_map(kind, our, flinks)
        case "ROW":
            return all(same_value(*each) for each in zip(kind.elements, our, flinks, strict=True))
    return type(our) is type(flinks) and our == flinks


def _same_map(kind: SqlType, our: Mapping[Any, Any], flinks: Sequence[Sequence[Any]]) -> bool:
    """Maps have no order."""

    def found(key: Any) -> list[Any]:
        return [value for each, value in flinks if same_value(kind.elements[0], key, each)]

    return len(our) == len(flinks) and all(
        len(found(key)) == 1 and same_value(kind.elements[1], value, found(key)[0]) for key, value in our.items()
    )


def _close(one: float, other: float, by: float) -> bool:
    return math.isclose(one, other, rel_tol=by) or (math.isnan(one) and math.isnan(other))
