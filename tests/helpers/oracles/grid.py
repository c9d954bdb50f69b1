"""A small grid of types with their extreme values, and calls of every function on it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final, NamedTuple

from rmqio.sql.functions import registry

_MOMENTS: Final = (
    0, 1_000, -1_000, 1_000_000_123_000, -62_135_596_800_000_000, 253_402_300_799_999_000,
    1_711_846_799_999_000, 1_711_852_200_000_000, 1_729_989_000_000_000, 1_729_992_600_000_000,
)  # fmt: skip
"""The last ones: where the clocks of Berlin change, as an instant, and as what they show or show twice."""
VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "STRING": (
        "", "a", "\\", "%", "Straße", "设备", "😀", "\x00", "\ufeff", "\ud800", "a" * 300, "12", "-7.5", "+", "1e400",
        "9" * 400, "NaN", "2024-02-30", "2024-03-31 02:30:00.5", "yyyy-MM-dd", "Europe/Berlin", "utf-16", "[", "(",
        '{"a": [1, {"b": null}]}', "$.a[*]", "%d %s %z", "http://[::1", "http://u@h:99999/p?q=1#f", "a=1&b",
    ),
    "TINYINT": (0, 127, -128), "SMALLINT": (0, 32767, -32768), "INT": (0, 1, -1, 7, 2**31 - 1, -(2**31)),
    "BIGINT": (0, 1, -1, 40, 2**63 - 1, -(2**63)),
    "DECIMAL(5, 2)": (Decimal("0.00"), Decimal("999.99"), Decimal("-0.01")),
    "DECIMAL(38, 0)": (Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0)),
    "DECIMAL(38, 38)": (Decimal("0." + "9" * 38),),
    "DOUBLE": (0.0, -0.0, 1.5, -2.5, 1e18, 1e308, 5e-324, math.inf, -math.inf, math.nan),
    "FLOAT": (0.0, 3.4028234663852886e38, math.inf, math.nan), "BOOLEAN": (True, False),
    "DATE": (0, 19_782, -719_162, 2_932_896), "TIME": (0, 86_399_000_000),
    "TIMESTAMP(3)": _MOMENTS, "TIMESTAMP_LTZ(3)": _MOMENTS, "BYTES": (b"", b"\x00", b"\xff\xfe", b"a" * 100),
    "CHAR(3)": ("abc", "   ", "é设 "), "VARCHAR(2)": ("", "ab", "😀"), "BINARY(2)": (b"\x00\x00", b"\xffa"),
    "TIMESTAMP(0)": tuple(each // 1_000_000 * 1_000_000 for each in _MOMENTS),
    "TIMESTAMP(6)": (*_MOMENTS, 1, -1, 253_402_300_799_999_999), "TIMESTAMP_LTZ(6)": (*_MOMENTS, 1, -1),
    "ARRAY<STRING>": ([], [None], ["a", "b", "a"], [""]), "ARRAY<INT>": ([], [None, 1], [2**31 - 1]),
    "ARRAY<DOUBLE>": ([math.nan, 1.0, math.nan], [math.inf, -math.inf]), "ARRAY<ARRAY<INT>>": ([], [[1], None, []]),
    "ARRAY<DECIMAL(38, 0)>": ([Decimal("9" * 38)] * 3,), "ARRAY<ROW<a INT>>": ([(1,), None, (None,)],),
    "MAP<STRING, STRING>": ({}, {"a": None, "": "x"}, {None: "x", "b": "y"}), "MAP<INT, DOUBLE>": ({1: math.nan},),
    "ROW<a INT, b STRING>": ((1, "x"), (None, None)),
}  # fmt: skip
TYPES: Final = tuple(VALUES)
_ARRAYS: Final = tuple(each for each in TYPES if each.startswith("ARRAY"))
_NUMBERS: Final = (
    "TINYINT", "INT", "BIGINT", "DECIMAL(5, 2)", "DECIMAL(38, 0)", "DECIMAL(38, 38)", "DOUBLE", "FLOAT",
)  # fmt: skip
_TIMES: Final = ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "TIMESTAMP(0)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(6)")
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "s": ("STRING", "STRING", "CHAR(3)", "VARCHAR(2)"), "i": ("INT", "BIGINT", "TINYINT"), "l": ("BIGINT", "INT"),
    "n": _NUMBERS, "f": _NUMBERS, "b": ("BOOLEAN",), "d": ("DATE",), "t": ("TIME",), "ts": _TIMES,
    "dt": ("DATE", *_TIMES), "x": ("BYTES", "BINARY(2)"), "a": _ARRAYS, "any": TYPES,
    "m": ("MAP<STRING, STRING>", "MAP<INT, DOUBLE>"),
    "o": (*_NUMBERS, "STRING", "DATE", "TIME", *_TIMES, "BOOLEAN", "BYTES"),
}  # fmt: skip
"""The types of a parameter, by its letters in a signature (`rmqio.sql.functions.registry`)."""

_UNITS: Final = (
    "MILLENNIUM", "CENTURY", "DECADE", "YEAR", "ISOYEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOW", "ISODOW", "DOY",
    "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "EPOCH",
)  # fmt: skip
_FORMS: Final = (
    "CAST({0} AS {type})", "TRY_CAST({0} AS {type})", "{0} = {1}", "{0} <> {1}", "{0} < {1}",
    "{0} IS DISTINCT FROM {1}", "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "{0} % {1}", "{0} || {1}",
    "{0} LIKE {1}", "{0} LIKE {1} ESCAPE {0}", "{0} SIMILAR TO {1}", "{0} IN ({1}, {0})", "{0} BETWEEN {1} AND {0}",
    "CASE WHEN {0} = {1} THEN {0} ELSE {1} END", "NULLIF({0}, {1})", "COALESCE({0}, {1})", "GREATEST({0}, {1})",
    "LEAST({1}, {0}, {1})", "IF({0} = {1}, {0}, {1})", "ROW({0}, {1}) = ROW({1}, {0})", "({0}, 1) IN (({1}, 1))",
    "ARRAY[{0}, {1}]", "MAP[{0}, {1}]", "{0}[{1}]", "{0}[0]", "{0}['a']", "{0}.a", "-{0}", "NOT {0}", "{0} IS NULL",
    "{0} IS TRUE", "{0} IS JSON", "TYPEOF({0})", "EXTRACT({unit} FROM {0})", "FLOOR({0} TO {unit})",
    "CEIL({0} TO {unit})", "TIMESTAMPADD({unit}, {1}, {0})", "TIMESTAMPDIFF({unit}, {0}, {1})",
    "{0} + INTERVAL '5' {unit}", "{0} - {1} * INTERVAL '5' {unit}",
    "JSON_OBJECT(KEY 'a' VALUE {0}, KEY 'b' VALUE {1} ABSENT ON NULL)", "JSON_ARRAY({0}, {1} NULL ON NULL)",
    "JSON_STRING({0})", "JSON_EXISTS({0}, '$.a')", "JSON_QUERY({0}, 'lax $.a' WITH WRAPPER)",
    "JSON_VALUE({0}, 'strict $.a' RETURNING INT ERROR ON ERROR)",
    "JSON_VALUE({0}, '$' RETURNING DOUBLE DEFAULT 1 ON EMPTY)", "TRIM(BOTH {1} FROM {0})",
    "TRIM(LEADING 'a' FROM {0})", "POSITION({0} IN {1})", "SUBSTRING({0} FROM {1} FOR 3)",
    "SUBSTRING({0} FROM -5 FOR 2147483647)", "OVERLAY({0} PLACING 'x' FROM {1} FOR -1)", "CARDINALITY({0})",
    "ELEMENT({0})",
)  # fmt: skip
"""What is no call of a function by its name."""

_ALWAYS: Final = (
    ("JSON_QUERY(c0, '$.a[1].b' WITH WRAPPER EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR)", "STRING"),
    ("JSON_VALUE(c0, 'lax $.a[1].b' DEFAULT 'x' ON EMPTY DEFAULT 'y' ON ERROR)", "STRING"),
    ("JSON_EXISTS(c0, '$[*].b[*]' TRUE ON ERROR)", "STRING"),
    ("c0 IN (c1)", "INT", "DOUBLE"), ("(c0, 1) IN ((c1, 1))", "STRING", "TIMESTAMP(3)"),
    ("c0 = CAST(c0 AS TIMESTAMP_LTZ(3))", "TIMESTAMP(3)"), ("EXTRACT(EPOCH FROM c0)", "TIMESTAMP_LTZ(3)"),
    ("TRY_CAST(c0 || 'd' AS DOUBLE)", "STRING"), ("(c0, c1) OVERLAPS (c1, c0)", "DATE", "DATE"),
    ("c0 = c1", "BOOLEAN", "STRING"),
    ("EXTRACT(DAY FROM (c0 - c1) DAY TO SECOND)", "TIMESTAMP(3)", "TIMESTAMP(3)"),
)  # fmt: skip
"""Calls and types of arguments that were wrong, or differ from Flink, and are seldom among the random ones."""

_COLUMN: Final = re.compile(r"\bc(\d)\b")


class Call(NamedTuple):
    """An expression over columns `c0`, `c1` and so on, and their types."""

    text: str
    types: tuple[str, ...]

    @property
    def form(self) -> str:
        """The expression with types instead of columns: `ABS(INT)`."""
        return _COLUMN.sub(lambda found: self.types[int(found[1])], self.text).replace("`", "")


def calls(random: Random) -> Iterator[Call]:
    """Yields a call of each function and form, with arguments of random types; not all of them can be bound."""
    for name, function in sorted(registry.load().items()):  # the order of imports makes no difference
        if not name.replace("_", "").isalnum():
            continue
        for signature in function.signatures:
            types = _arguments(signature.partition("->")[0].split(), random)
            yield Call(f"`{name}`({', '.join(f'c{at}' for at in range(len(types)))})", types)
    for form in _FORMS * 4:
        types = tuple(random.choice(TYPES) for _ in range(2 if "{1}" in form else 1))
        if random.random() < 0.5:
            types = types[:1] * len(types)
        text = form.format(*(f"c{at}" for at in range(2)), type=random.choice(TYPES), unit=random.choice(_UNITS))
        yield Call(text, types)
    for text, *always in _ALWAYS:
        yield Call(text, tuple(always))


def _arguments(parameters: list[str], random: Random) -> tuple[str, ...]:
    kinds: list[str] = []
    for each in parameters:
        if each == "...":
            kinds += kinds[-1:] * random.randrange(3)
        elif each.startswith("[") and random.random() < 0.5:
            break
        else:
            kinds.append(each.strip("[]"))
    types = [random.choice(_KINDS[kind]) for kind in kinds]
    if random.random() < 0.5:  # arguments of one type are the usual ones
        types = [types[0] if types[0] in _KINDS[kind] else each for kind, each in zip(kinds, types, strict=True)]
    return tuple(types)


def row(types: tuple[str, ...], random: Random) -> tuple[Any, ...]:
    """Returns a row of columns of these types: NULLs and extremes."""
    return tuple(random.choice((None, *VALUES[each])) for each in types)


class Grid:
    """One table for many calls: a column for each position and type of an argument.

    Attributes:
      columns: their names and types.
      rows: each column has NULL and all values of its type, if there are as many rows.
    """

    def __init__(self, calls: Sequence[Call], random: Random, count: int) -> None:
        self.columns = {_name(at, each): each for call in calls for at, each in enumerate(call.types)}
        columns = [_shuffled(VALUES[each], random, count) for each in self.columns.values()]
        self.rows = list(zip(*columns, strict=True))

    def text(self, call: Call) -> str:
        """Returns a call over columns of this table."""
        return _COLUMN.sub(lambda found: _name(int(found[1]), call.types[int(found[1])]), call.text)


def _name(at: int, kind: str) -> str:
    return f"c{at}_{TYPES.index(kind)}"


def sendable(values: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the values that JSON in UTF-8 can have: no half of a surrogate pair, and no NULL as a key."""
    return tuple(each for each in values if each != "\ud800" and not (isinstance(each, dict) and None in each))


def _shuffled(values: Sequence[Any], random: Random, count: int) -> list[Any]:
    some = [None, *sendable(values)]
    return random.sample((some * count)[:count], count)
