"""SQL types: names, text, and the rules by which two types become one.

Values at run time: integers are int; FLOAT and DOUBLE float; DECIMAL `decimal.Decimal`; text str; bytes bytes; DATE is
days since 1970, TIME microseconds of the day, TIMESTAMP and TIMESTAMP_LTZ microseconds since 1970 (the first without a
zone, the second in UTC), intervals microseconds or months; ARRAY and MULTISET list; MAP dict; ROW tuple. NULL is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rmqio.sql.errors import Refusal, nearest
from rmqio.sql.syntax.nodes import TypeName

MAX_DECIMAL: Final = 38
MAX_FRACTION: Final = 6
"""Digits of a second's fraction: microseconds."""


@dataclass(frozen=True, slots=True, repr=False)
class SqlType:
    """A type.

    Attributes:
      precision: digits of a DECIMAL, of a second's fraction, or characters of text (0: any number).
      is_fixed: CAST fills up text or bytes to that length: CHAR and BINARY.
    """

    kind: str
    is_nullable: bool = True
    precision: int = 0
    scale: int = 0
    elements: tuple[SqlType, ...] = ()
    names: tuple[str, ...] = ()
    is_fixed: bool = False

    def __str__(self) -> str:
        return self.text + ("" if self.is_nullable or self.kind == "NULL" else " NOT NULL")

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def text(self) -> str:
        """The type as SQL writes it, without NOT NULL."""
        match self.kind:
            case "DECIMAL":
                return f"DECIMAL({self.precision}, {self.scale})"
            case "VARCHAR":
                return f"{'CHAR' if self.is_fixed else 'VARCHAR'}({self.precision})" if self.precision else "STRING"
            case "VARBINARY":
                return f"{'BINARY' if self.is_fixed else 'VARBINARY'}({self.precision})" if self.precision else "BYTES"
            case "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
                return f"{self.kind}({self.precision})"
            case "INTERVAL_DAY":
                return "INTERVAL DAY TO SECOND"
            case "INTERVAL_MONTH":
                return "INTERVAL YEAR TO MONTH"
            case "ARRAY" | "MAP" | "MULTISET":
                return f"{self.kind}<{', '.join(each.text for each in self.elements)}>"
            case "ROW":
                return f"ROW<{', '.join(f'{n} {t.text}' for n, t in zip(self.names, self.elements, strict=True))}>"
        return "INT" if self.kind == "INTEGER" else self.kind

    def nullable(self, is_nullable: bool = True) -> SqlType:
        """Returns the same type that can, or cannot, be NULL."""
        if self.is_nullable == is_nullable:
            return self
        # `replace` takes several times as long, and a list of IN has a type for each of its items
        return SqlType(self.kind, is_nullable, self.precision, self.scale, self.elements, self.names, self.is_fixed)


BOOLEAN: Final = SqlType("BOOLEAN")
TINYINT: Final = SqlType("TINYINT")
SMALLINT: Final = SqlType("SMALLINT")
INTEGER: Final = SqlType("INTEGER")
BIGINT: Final = SqlType("BIGINT")
FLOAT: Final = SqlType("FLOAT")
DOUBLE: Final = SqlType("DOUBLE")
VARCHAR: Final = SqlType("VARCHAR")
BYTES: Final = SqlType("VARBINARY")
DATE: Final = SqlType("DATE")
TIME: Final = SqlType("TIME")
TIMESTAMP: Final = SqlType("TIMESTAMP", precision=3)
TIMESTAMP_LTZ: Final = SqlType("TIMESTAMP_LTZ", precision=3)
INTERVAL_DAY: Final = SqlType("INTERVAL_DAY")
INTERVAL_MONTH: Final = SqlType("INTERVAL_MONTH")
NULL: Final = SqlType("NULL")

BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
APPROXIMATE: Final = ("FLOAT", "DOUBLE")
NUMERIC: Final = (*INTEGERS, "DECIMAL", *APPROXIMATE)
TIMESTAMPS: Final = ("TIMESTAMP", "TIMESTAMP_LTZ")
INTERVALS: Final = ("INTERVAL_DAY", "INTERVAL_MONTH")
ORDERED: Final = (*NUMERIC, "VARCHAR", "VARBINARY", "BOOLEAN", "DATE", "TIME", *TIMESTAMPS, *INTERVALS)
DIGITS: Final = {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19}

_BY_NAME: Final = {
    "BOOLEAN": BOOLEAN, "BOOL": BOOLEAN, "TINYINT": TINYINT, "BYTE": TINYINT, "SMALLINT": SMALLINT, "SHORT": SMALLINT,
    "INT": INTEGER, "INTEGER": INTEGER, "BIGINT": BIGINT, "LONG": BIGINT, "FLOAT": FLOAT, "REAL": FLOAT,
    "DOUBLE": DOUBLE, "STRING": VARCHAR, "VARCHAR": VARCHAR, "TEXT": VARCHAR,
    **dict.fromkeys(("CHAR", "CHARACTER"), replace(VARCHAR, precision=1, is_fixed=True)),
    "BYTES": BYTES, "VARBINARY": BYTES, "BINARY": replace(BYTES, precision=1, is_fixed=True),
    "DATE": DATE, "TIME": TIME,
    "TIMESTAMP": replace(TIMESTAMP, precision=6), "TIMESTAMP_LTZ": replace(TIMESTAMP_LTZ, precision=6),
    "DATETIME": replace(TIMESTAMP, precision=6),
    "DECIMAL": SqlType("DECIMAL", precision=10), "DEC": SqlType("DECIMAL", precision=10),
    "NUMERIC": SqlType("DECIMAL", precision=10),
}  # fmt: skip


def decimal(precision: int, scale: int, is_nullable: bool = True) -> SqlType:
    """Returns a DECIMAL that fits into 38 digits; of a wider one, digits of the fraction go first, down to six."""
    if precision > MAX_DECIMAL:
        whole = precision - scale
        scale = max(MAX_DECIMAL - whole, min(scale, 6))
        precision = MAX_DECIMAL
    return SqlType("DECIMAL", is_nullable, precision, scale)


def array_of(element: SqlType, is_nullable: bool = True) -> SqlType:
    """Returns ARRAY<element>."""
    return SqlType("ARRAY", is_nullable, elements=(element,))


def resolve(name: TypeName, *, keeps_not_null: bool = False) -> SqlType:
    """Returns the type that is written there. Raises `Refusal` for an unknown one, and for wrong parameters.

    Args:
      keeps_not_null: whether NOT NULL of its parts counts, as for columns, whose values are checked.
    """
    if name.name in ("ARRAY", "MAP", "ROW"):
        names = tuple(each.text for each in name.fields)
        if name.name == "MAP" and not is_key(key := resolve(name.elements[0])):
            raise Refusal(f"a key of a MAP cannot be {key.text}", name.span)
        if doubled := next((each for each in name.fields if names.count(each.text) > 1), None):
            raise Refusal(f"the field {doubled.text} is in the row twice", doubled.span)
        elements = tuple(
            resolve(each, keeps_not_null=keeps_not_null).nullable(each.is_nullable or not keeps_not_null)
            for each in name.elements
        )
        return SqlType(name.name, elements=elements, names=names)
    found = _BY_NAME.get(name.name)
    if found is None:
        raise Refusal(f"{name.name} is not a type{nearest(name.name, _BY_NAME)}", name.span)
    return _with_parameters(found, name) if name.parameters else found


def _with_parameters(found: SqlType, name: TypeName) -> SqlType:
    first, *rest = name.parameters
    match found.kind:
        case "DECIMAL":
            scale = rest[0] if rest else 0
            if not 1 <= first <= MAX_DECIMAL:
                raise Refusal(f"DECIMAL has 1 to {MAX_DECIMAL} digits, not {first}", name.span)
            if scale > first:
                raise Refusal(f"DECIMAL({first}, {scale}) has more digits after the point than digits", name.span)
            return SqlType("DECIMAL", precision=first, scale=scale)
        case "VARCHAR" | "VARBINARY" if not rest and first:
            return replace(found, precision=0 if first == 2147483647 else first)
        case "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ" if not rest:
            if first > 9:
                raise Refusal(f"{name.name} has 0 to 9 digits of a second's fraction, not {first}", name.span)
            if first > MAX_FRACTION:
                raise Refusal(
                    f"{name.name}({first}) would lose digits: times are kept in microseconds, so use "
                    f"{name.name}({MAX_FRACTION})",
                    name.span,
                )
            return replace(found, precision=first)
    raise Refusal(f"{name.name} does not take ({', '.join(map(str, name.parameters))})", name.span)


def as_decimal(kind: SqlType) -> SqlType:
    """Returns the DECIMAL that holds every value of an integer type."""
    return kind if kind.kind == "DECIMAL" else decimal(DIGITS[kind.kind], 0, kind.is_nullable)


def common_type(types: Sequence[SqlType]) -> SqlType | None:
    """Returns the type to which all of them are converted in CASE, UNION, IN and comparisons; None: there is none."""
    known = [each for each in types if each.kind != "NULL"]
    is_nullable = len(known) < len(types) or any(each.is_nullable for each in known)
    if not known:
        return NULL
    found = known[0]
    for each in known[1:]:
        joined = _join(found, each)
        if joined is None:
            return None
        found = joined
    return found.nullable(is_nullable)


def _join(left: SqlType, right: SqlType) -> SqlType | None:
    if left.kind in NUMERIC and right.kind in NUMERIC:
        return _join_numbers(left, right)
    if left.kind != right.kind:
        if {left.kind, right.kind} == {"DATE", "TIMESTAMP"}:
            return left if left.kind == "TIMESTAMP" else right
        if {left.kind, right.kind} == set(TIMESTAMPS):
            return replace(TIMESTAMP_LTZ, precision=max(left.precision, right.precision))
        return None
    if left.kind in ("ARRAY", "MAP", "ROW", "MULTISET"):
        if len(left.elements) != len(right.elements):
            return None
        elements = [common_type(each) for each in zip(left.elements, right.elements, strict=True)]
        return None if None in elements else replace(left, elements=tuple(each for each in elements if each))
    if left.kind in ("VARCHAR", "VARBINARY"):
        precision = max(left.precision, right.precision) if left.precision and right.precision else 0
        return replace(left, precision=precision, is_fixed=left == right and left.is_fixed)
    return replace(left, precision=max(left.precision, right.precision))


def _join_numbers(left: SqlType, right: SqlType) -> SqlType:
    kinds = {left.kind, right.kind}
    if kinds & set(APPROXIMATE):
        return FLOAT if kinds <= {"FLOAT", *INTEGERS} else DOUBLE
    if "DECIMAL" in kinds:
        left, right = as_decimal(left), as_decimal(right)
        whole = max(left.precision - left.scale, right.precision - right.scale)
        scale = min(max(left.scale, right.scale), MAX_DECIMAL - whole)  # all whole digits have room
        return SqlType("DECIMAL", precision=whole + scale, scale=scale)
    return max(left, right, key=lambda each: BITS[each.kind])


def is_key(kind: SqlType) -> bool:
    """Returns whether values of the type can be told apart as keys."""
    return kind.kind not in ("ARRAY", "MAP", "MULTISET") and all(map(is_key, kind.elements))


def has_required_parts(kind: SqlType) -> bool:
    """Returns whether a part of the values is NOT NULL: an item, a key, a value, a field."""
    return any(not each.is_nullable or has_required_parts(each) for each in kind.elements)


def any_nullable(types: Iterable[SqlType]) -> bool:
    """Returns whether one of them can be NULL."""
    return any(each.is_nullable for each in types)
