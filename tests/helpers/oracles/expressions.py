"""Random expressions of SQL over a table with NULLs, as Flink and we both take them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from typing import Any, Final

from rmqio.sql import values

COLUMNS: Final = {
    "b": "BOOLEAN",
    "i": "INT",
    "l": "BIGINT",
    "d": "DOUBLE",
    "m": "DECIMAL(10, 2)",
    "n": "DECIMAL(20, 6)",
    "s": "STRING",
    "u": "STRING",
    "t": "TIMESTAMP(3)",
    "e": "DATE",
    "z": "TIMESTAMP_LTZ(3)",
}
_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "b": (True, False, None),
    "i": (0, 1, -1, 2, 7, -13, 100, None),
    "l": (0, 3, -5, 41, 1000, -999, 123_456, None),
    "d": (0.0, 1.5, -2.25, 0.1, 3.0, 1e7, -1234.5678, 0.001, None),
    "m": ("0.00", "1.50", "-2.25", "99.99", "-0.01", "12345.67", None),
    "n": ("0.000000", "1.500000", "-2.250001", "0.333333", "98765.432100", None),
    "s": ("", "a", "ab", "A_b", "a%c", "Straße", "设备", " x ", "42", "-7.5", "abcabc", None),
    "u": ("a", "b", "B", "12", "1e3", "true", "2024-03-31", "äöü", None),
    "t": (
        "2024-03-31 01:59:59.999", "2024-03-31 02:30:00", "2024-10-27 02:30:00", "2024-02-29 12:00:00.5",
        "1999-12-31 23:59:59.999", "1985-10-26 12:34:56.789", "2024-01-01 00:00:00", None,
    ),
    "e": ("2024-02-29", "2023-12-31", "1970-01-01", "1969-07-20", "2024-03-31", None),
    "z": (
        "2024-03-31 00:59:59.999Z", "2024-03-31 01:00:00Z", "2024-10-27 00:30:00Z", "2024-10-27 01:30:00Z",
        "2024-07-01 12:00:00.25Z", "1999-12-31 23:30:00Z", None,
    ),
}  # fmt: skip

# Left out is what Flink gets wrong (see docs/sql/functions.md): times before 1970, the empty text as a pattern or a
# literal of IN, TRY_CAST of text to DECIMAL. Dates are not made of any text: Flink takes 12 for the year 12.
_RULES: Final[Mapping[str, tuple[str, ...]]] = {
    "cmp": ("=", "<>", "<", "<=", ">", ">="),
    "small": ("0", "1", "2", "3", "-1", "10"),
    "pattern": ("'a%'", "'%b'", "'a_'", "'%a%'", "'%'", "'_b%'", "'a|%c' ESCAPE '|'", "'%设%'"),
    "unit": ("SECOND", "MINUTE", "HOUR", "DAY"),
    "bool": (
        "b", "TRUE", "FALSE", "CAST(NULL AS BOOLEAN)", "{int} {cmp} {int}", "{dec} {cmp} {dec}", "{dbl} {cmp} {dbl}",
        "{str} {cmp} {str}", "{ts} {cmp} {ts}", "{date} {cmp} {date}", "{ltz} {cmp} {ltz}", "{int} {cmp} {dec}",
        "{dec} {cmp} {dbl}", "({bool} AND {bool})", "({bool} OR {bool})", "NOT ({bool})", "({bool}) IS TRUE",
        "({bool}) IS NOT TRUE", "({bool}) IS FALSE", "({bool}) IS NOT FALSE", "({bool}) IS UNKNOWN", "({int}) IS NULL",
        "({str}) IS NOT NULL", "{int} IS DISTINCT FROM {int}", "{str} IS NOT DISTINCT FROM {str}",
        "{int} BETWEEN {int} AND {int}", "{dec} NOT BETWEEN {dec} AND {dec}", "{int} IN (1, 2, {int})",
        "{int} NOT IN (1, -1, {int})", "{str} IN ('a', 'ab', {str})", "{str} LIKE {pattern}",
        "{str} NOT LIKE {pattern}", "STARTSWITH({str}, {str})", "TRY_CAST({str} AS BOOLEAN)",
        "REGEXP({str}, '^[a-c]+$')",
        "IS_DIGIT({str})", "CASE WHEN {bool} THEN {bool} WHEN {bool} THEN {bool} END",
    ),
    "int": (
        "i", "i", "l", "{small}", "({int} + {int})", "({int} - {int})", "({int} * {small})", "-({int})",
        "({int} / NULLIF({int}, 0))", "MOD({int}, 7)", "MOD({int}, NULLIF(l, 0))", "ABS({int})", "SIGN({int})",
        "CHAR_LENGTH({str})", "POSITION('a' IN {str})", "LOCATE('b', {str})",
        "CASE WHEN {bool} THEN {int} ELSE {int} END",
        "COALESCE({int}, {int})", "IF({bool}, {int}, {int})", "NULLIF({int}, {int})", "EXTRACT(YEAR FROM {ts})",
        "EXTRACT(DOY FROM {date})", "EXTRACT(HOUR FROM {ts})", "DAYOFWEEK({date})", "QUARTER({date})", "WEEK({date})",
        "MINUTE({ts})", "TIMESTAMPDIFF({unit}, {ts}, {ts})", "TIMESTAMPDIFF(DAY, {date}, {date})",
        "TRY_CAST({str} AS INT)", "TRY_CAST({str} AS BIGINT)", "CAST({dec} AS BIGINT)", "CAST({dbl} AS BIGINT)",
        "CAST({bool} AS INT)", "GREATEST({int}, {int})", "LEAST({int}, {int}, {int})", "ASCII({str})",
        "CAST(FLOOR({dbl}) AS BIGINT)", "HOUR({ltz})", "DAYOFMONTH({ltz})", "REGEXP_COUNT({str}, 'a')",
        "UNIX_TIMESTAMP(CAST({ts} AS STRING), 'yyyy-MM-dd HH:mm:ss.SSS')",
    ),
    "dec": (
        "m", "n", "1.5", "-0.25", "({dec} + {dec})", "({dec} - {dec})", "({dec} * {dec})", "({dec} * {int})",
        "({dec} / NULLIF({dec}, 0))", "({int} + {dec})", "-({dec})", "ABS({dec})", "ROUND({dec}, 1)", "ROUND({dec})",
        "TRUNCATE({dec}, 1)", "FLOOR({dec})", "CEIL({dec})", "CAST({int} AS DECIMAL(12, 3))",
        "CAST(n AS DECIMAL(8, 1))", "CAST(m AS DECIMAL(4, 2))", "CAST(TRY_CAST({str} AS BIGINT) AS DECIMAL(19, 0))",
        "CASE WHEN {bool} THEN {dec} ELSE {dec} END", "COALESCE({dec}, {dec})", "MOD(n, 3)", "SIGN({dec})",
    ),
    "dbl": (
        "d", "1.5e0", "-2e-3", "({dbl} + {dbl})", "({dbl} - {dbl})", "({dbl} * {dbl})", "({dbl} / NULLIF({dbl}, 0e0))",
        "({dbl} + {int})", "({dbl} * {dec})", "ABS({dbl})", "ROUND({dbl}, 2)", "FLOOR({dbl})", "CEIL({dbl})",
        "CAST({int} AS DOUBLE)", "CAST({dec} AS DOUBLE)", "TRY_CAST({str} AS DOUBLE)", "SQRT(ABS({dbl}))",
        "COALESCE({dbl}, {dbl})", "CASE WHEN {bool} THEN {dbl} ELSE {int} END", "POWER({small}, 2)",
        "TRUNCATE({dbl}, 1)",
    ),
    "str": (
        "s", "u", "'a'", "'Ab'", "({str} || {str})", "CONCAT({str}, {str})", "CONCAT_WS('-', {str}, {str})",
        "UPPER({str})", "LOWER({str})", "SUBSTRING({str}, {small})", "SUBSTRING({str}, {small}, 2)", "TRIM({str})",
        "LTRIM({str})", "REPLACE({str}, 'a', {str})", "REVERSE({str})", "LPAD({str}, 5, '*')", "RPAD({str}, 3, 'xy')",
        "LEFT({str}, 2)", "RIGHT({str}, 2)", "INITCAP({str})", "REPEAT({str}, 2)", "SPLIT_INDEX({str}, 'b', 0)",
        "REGEXP_REPLACE({str}, '[ab]+', '#')", "REGEXP_EXTRACT({str}, '(a)(b)?', 2)", "CASE WHEN {bool} THEN {str} END",
        "COALESCE({str}, {str})", "NULLIF({str}, {str})", "CAST({int} AS STRING)", "CAST({dec} AS STRING)",
        "CAST({dbl} AS STRING)", "CAST({bool} AS STRING)", "CAST({ts} AS STRING)", "CAST({date} AS STRING)",
        "CAST({ltz} AS STRING)", "CAST({str} AS VARCHAR(3))", "DATE_FORMAT({ts}, 'yyyy-MM-dd HH:mm')",
        "DATE_FORMAT({ltz}, 'yyyyMMdd HH')", "GREATEST({str}, {str})", "TO_BASE64({str})", "MD5({str})",
        "SPLIT_INDEX({str}, 'b', {small})", "DATE_FORMAT(SUBSTRING(CAST({ts} AS STRING), 1, 19), 'dd.MM. HH:mm z')",
    ),
    "ts": (
        "t", "TIMESTAMP '2024-03-31 02:00:00.000'", "({ts} + INTERVAL '1' HOUR)", "({ts} - INTERVAL '1' DAY)",
        "({ts} + INTERVAL '1' MONTH)", "({ts} - INTERVAL '1-2' YEAR TO MONTH)", "CAST({date} AS TIMESTAMP(3))",
        "CAST({ltz} AS TIMESTAMP(3))", "FLOOR({ts} TO HOUR)", "FLOOR({ts} TO DAY)", "CEIL({ts} TO MINUTE)",
        "FLOOR({ts} TO MONTH)", "TIMESTAMPADD({unit}, {small}, {ts})", "TO_TIMESTAMP(CAST({ts} AS STRING))",
        "CASE WHEN {bool} THEN {ts} ELSE {ts} END", "COALESCE({ts}, {ts})", "TO_TIMESTAMP({str})",
    ),
    "date": (
        "e", "DATE '2024-02-29'", "({date} + INTERVAL '1' DAY)", "({date} + INTERVAL '1' MONTH)",
        "({date} - INTERVAL '1' YEAR)", "CAST({ts} AS DATE)", "CAST({ltz} AS DATE)", "TO_DATE(CAST({date} AS STRING))",
        "COALESCE({date}, {date})", "FLOOR({date} TO MONTH)", "CAST(CAST({date} AS STRING) AS DATE)",
    ),
    "ltz": (
        "z", "z", "CAST({ts} AS TIMESTAMP_LTZ(3))", "({ltz} + INTERVAL '1' HOUR)", "({ltz} - INTERVAL '1' DAY)",
        "COALESCE({ltz}, {ltz})", "TO_TIMESTAMP_LTZ(ABS({int}) + 1700000000, 0)",
        "CASE WHEN {bool} THEN {ltz} ELSE {ltz} END",
    ),
}  # fmt: skip
KINDS: Final = ("bool", "int", "dec", "dbl", "str", "ts", "date", "ltz")
_PLACE: Final = re.compile(r"\{(\w+)\}")


def expression(random: Random, kind: str, depth: int = 3) -> str:
    """Returns a random expression of a kind of type; deeper than `depth` there are columns and literals only."""
    rules = _RULES[kind]
    if depth <= 0:
        rules = tuple(each for each in rules if kind in ("cmp", "small", "pattern", "unit") or "{" not in each)
    return _PLACE.sub(lambda found: expression(random, found[1], depth - 1), random.choice(rules))


def rows(random: Random, count: int) -> list[tuple[Any, ...]]:
    """Returns random rows: the first has NULL in all columns."""
    return [
        tuple(None if not n else _value(name, random.choice(_VALUES[name])) for name in COLUMNS) for n in range(count)
    ]


_OF_TEXT: Final[Mapping[str, Callable[[str], Any]]] = {
    "m": Decimal, "n": Decimal, "t": values.timestamp_of_text, "e": values.date_of_text, "z": values.instant_of_text,
}  # fmt: skip


def _value(name: str, given: Any) -> Any:
    return given if given is None or name not in _OF_TEXT else _OF_TEXT[name](given)
