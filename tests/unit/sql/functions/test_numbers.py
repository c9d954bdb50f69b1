"""Functions of numbers: Flink 2.3.0 itself gave these values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from tests.unit.sql.evaluating import evaluate

AS_FLINK: list[tuple[str, Any]] = [
    ("COT(1)", 0.6420926159343306),
    ("COT(0)", float("inf")),
    ("LOG(2, 8)", 3.0),
    ("LOG(8)", 2.0794415416798357),
    ("LOG(0)", float("-inf")),
    ("LOG(-1)", float("nan")),
    ("LOG(1, 5)", float("inf")),
    ("LOG10(0)", float("-inf")),
    ("LN(0)", float("-inf")),
    ("LN(-1)", float("nan")),
    ("LOG2(0)", float("-inf")),
    ("SQRT(-1)", float("nan")),
    ("SQRT(2)", 1.4142135623730951),
    ("POWER(2, 0.5)", 1.4142135623730951),
    ("POWER(10, 400)", float("inf")),
    ("EXP(1000)", float("inf")),
    ("ACOS(2)", float("nan")),
    ("TAN(1)", 1.5574077246549023),
    ("SINH(1000)", float("inf")),
    ("DEGREES(1)", 57.29577951308232),
    ("RADIANS(180)", 3.141592653589793),
    ("ATAN2(1, 2)", 0.4636476090008061),
    ("ROUND(1.2345, 2)", Decimal("1.23")),
    ("ROUND(1.2345)", Decimal("1")),
    ("ROUND(1.2345, -1)", Decimal("0")),
    ("ROUND(15.5, -1)", Decimal("20")),
    ("ROUND(CAST(2.5 AS DOUBLE))", 3.0),
    ("ROUND(CAST(2.5 AS DOUBLE), 1)", 2.5),
    ("ROUND(CAST(-2.5 AS DOUBLE), 0)", -3.0),
    ("ROUND(125, -1)", 130),
    ("ROUND(CAST(99.995 AS DECIMAL(5, 3)), 2)", Decimal("100.00")),
    ("ROUND(CAST(99.5 AS DECIMAL(3, 1)), 0)", Decimal("100")),
    ("ROUND(CAST(2.5 AS FLOAT), 0)", 3.0),
    ("ROUND(1.5, CAST(NULL AS INT))", None),
    ("TRUNCATE(42.324, 2)", Decimal("42.32")),
    ("TRUNCATE(42.324)", Decimal("42")),
    ("TRUNCATE(CAST(42.324 AS DOUBLE), 2)", 42.32),
    ("TRUNCATE(CAST(-42.324 AS DOUBLE))", -42.0),
    ("TRUNCATE(42.324, -1)", Decimal("40")),
    ("TRUNCATE(42, -1)", 40),
    ("TRUNCATE(CAST(42.9 AS FLOAT), 0)", 42.0),
    ("CEIL(1.5)", Decimal("2")),
    ("CEIL(CAST(1.5 AS DECIMAL(3, 1)))", Decimal("2")),
    ("FLOOR(-1.5)", Decimal("-2")),
    ("FLOOR(CAST(99.5 AS DECIMAL(3, 1)))", Decimal("99")),
    ("CEIL(CAST(1.5 AS DOUBLE))", 2.0),
    ("CEIL(CAST(1.5 AS FLOAT))", 2.0),
    ("CEIL(5)", 5),
    ("FLOOR(CAST(5 AS BIGINT))", 5),
    ("ABS(-1.5)", Decimal("1.5")),
    ("ABS(-5)", 5),
    ("SIGN(-1.5)", Decimal("-1.0")),
    ("SIGN(-5)", -1),
    ("SIGN(CAST(-5.5 AS DOUBLE))", -1.0),
    ("SIGN(CAST(0 AS DOUBLE))", 0.0),
    ("MOD(7, -3)", 1),
    ("MOD(-7, 3)", -1),
    ("MOD(-7.5, 2)", Decimal("-1.5")),
    ("MOD(7, CAST(2 AS BIGINT))", 1),
    ("MOD(CAST(7 AS BIGINT), 2)", 1),
    ("BIN(12)", "1100"),
    ("BIN(-1)", "1111111111111111111111111111111111111111111111111111111111111111"),
    ("PI()", 3.141592653589793),
    ("E()", 2.718281828459045),
    ("EXP(1)", 2.718281828459045),
    ("ROUND(1.2345, 9)", Decimal("1.2345")),
    ("ROUND(CAST(1.5 AS DOUBLE), -400)", 0.0),
    ("TRUNCATE(-1.999, 1)", Decimal("-1.9")),
    ("TRUNCATE(1.5, 3)", Decimal("1.5")),
    ("ROUND(-2.5)", Decimal("-3")),
    ("ROUND(-0.45, 1)", Decimal("-0.5")),
    ("ROUND(1234567.891, -3)", Decimal("1235000")),
    ("ROUND(CAST(1234567.891 AS DOUBLE), -3)", 1235000.0),
    ("ROUND(CAST(0.285 AS DOUBLE), 2)", 0.29),
    ("TRUNCATE(CAST(-1.999 AS DOUBLE), 1)", -1.9),
    ("TRUNCATE(1999, -3)", 1000),
    ("TRUNCATE(1.999, -1)", Decimal("0")),
    ("CEIL(-1.5)", Decimal("-1")),
    ("FLOOR(CAST(-1.5 AS DOUBLE))", -2.0),
    ("SIGN(CAST(0 AS DECIMAL(5, 2)))", Decimal("0.00")),
    ("POWER(0, -1)", float("inf")),
    ("POWER(-8, 0.5)", float("nan")),
    ("ATAN2(0, 0)", 0.0),
    ("EXP(-1000)", 0.0),
    ("LOG(2, 0)", float("-inf")),
    ("BIN(CAST(-1 AS TINYINT))", "1111111111111111111111111111111111111111111111111111111111111111"),
    (f"ROUND(CAST('{'9' * 38}' AS DECIMAL(38, 0)), -1)", None),
    (f"ROUND(CAST('-{'9' * 38}' AS DECIMAL(38, 0)), -1)", None),
    (f"ROUND(CAST('5{'0' * 37}' AS DECIMAL(38, 0)), -38)", None),
    (f"ROUND(CAST('{'9' * 37}.9' AS DECIMAL(38, 1)), 0)", Decimal(10**37)),
    (f"TRUNCATE(CAST('{'9' * 38}' AS DECIMAL(38, 0)), -1)", Decimal(10**38 - 10)),
    ("SIGN(CAST('NaN' AS DOUBLE))", float("nan")),
    ("POWER(-1, CAST('Infinity' AS DOUBLE))", float("nan")),
    ("POWER(1, CAST('NaN' AS DOUBLE))", float("nan")),
    ("POWER(CAST('NaN' AS DOUBLE), 0)", 1.0),
]


@pytest.mark.parametrize(("expression", "expected"), AS_FLINK)
def test_a_value_is_that_of_flink(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)


@pytest.mark.parametrize(
    ("expression", "row"),
    [
        ("m * -1", {"m": ("DECIMAL(10, 2)", Decimal("0.00"))}),
        ("m / -3", {"m": ("DECIMAL(10, 2)", Decimal("0.00"))}),
        ("-m", {"m": ("DECIMAL(10, 2)", Decimal("0.00"))}),
        ("MOD(m, 1)", {"m": ("DECIMAL(10, 2)", Decimal("-3.00"))}),
        ("ROUND(m)", {"m": ("DECIMAL(10, 2)", Decimal("-0.40"))}),
        ("TRUNCATE(m, 1)", {"m": ("DECIMAL(10, 2)", Decimal("-0.04"))}),
        ("CEIL(m)", {"m": ("DECIMAL(10, 2)", Decimal("-0.40"))}),
        ("CAST(m AS DECIMAL(5, 0))", {"m": ("DECIMAL(10, 2)", Decimal("-0.40"))}),
        ("CAST(s AS DECIMAL(5, 2))", {"s": ("STRING", "-0.001")}),
        ("CAST(d AS DECIMAL(5, 2))", {"d": ("DOUBLE", -0.001)}),
        ("-0.00", {}),
    ],
)
def test_a_decimal_is_never_minus_zero(expression: str, row: Any) -> None:
    """As a key of GROUP BY, or as text, it would be another number than 0."""
    found = evaluate(expression, row)
    assert found == 0
    assert not found.is_signed()
