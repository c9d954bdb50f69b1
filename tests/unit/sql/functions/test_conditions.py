"""Conditional functions: Flink 2.3.0 itself gave these values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.values import ValueFailure, in_zone
from tests.unit.sql.evaluating import evaluate

AS_FLINK: list[tuple[str, Any]] = [
    ("IF(TRUE, 1, 2)", 1),
    ("CASE WHEN TRUE THEN 1 ELSE CAST('a' AS INT) END", 1),
    ("CASE WHEN 1 = 2 THEN CAST('a' AS DATE) END", None),
    ("1 IN (1, CAST('a' AS INT))", True),
    ("(1, 1) IN ((1, 1), (CAST('a' AS INT), 1))", True),
    ("CASE 1 WHEN 1 THEN 1 WHEN CAST('a' AS INT) THEN 2 END", 1),
    ("3 NOT BETWEEN 4 AND CAST('a' AS INT)", True),
    ("1 BETWEEN 2 AND CAST('a' AS INT)", False),
    ("IF(FALSE, CAST('b' AS BOOLEAN), TRUE)", True),
    ("COALESCE(1, CAST('a' AS INT))", 1),
    ("TRUE OR CAST('a' AS INT) = 1", True),
    ("FALSE AND CAST('a' AS INT) = 1", False),
    ("CASE WHEN TRUE THEN 1 ELSE 5 / 0 END", 1),
    ("IFNULL(CAST(NULL AS INT), 5)", 5),
    ("TYPEOF(1)", "INT NOT NULL"),
    ("TYPEOF(CAST(1 AS DECIMAL(5,2)))", "DECIMAL(5, 2) NOT NULL"),
    ("TYPEOF(CAST(NULL AS STRING))", "STRING"),
    ("TYPEOF(NULL)", "NULL"),
    ("TYPEOF(DATE '2020-01-01')", "DATE NOT NULL"),
    ("TYPEOF(CAST(1 AS BIGINT))", "BIGINT NOT NULL"),
    ("TYPEOF(1, TRUE)", "INT NOT NULL"),
    ("TYPEOF(TO_TIMESTAMP_LTZ(0, 3))", "TIMESTAMP_LTZ(3)"),
    ("GREATEST(1, CAST(NULL AS INT))", None),
    ("GREATEST(1, 2.5)", Decimal("2.5")),
    ("LEAST('a', 'b')", "a"),
    ("NULLIF(5, 5)", None),
    ("COALESCE(NULL, 'x')", "x"),
    ("(CAST(NULL AS INT), 1) = (CAST(NULL AS INT), 1)", None),
    ("(CAST(NULL AS INT), 1) <> (CAST(NULL AS INT), 2)", True),
    ("(CAST(NULL AS INT), 1) IN ((CAST(NULL AS INT), 1))", None),
    ("(CAST(NULL AS INT), 1) IN ((3, 2), (4, 5))", False),
    ("(1, 2) NOT IN ((1, 3), (1, 2))", False),
    ("ROW(ROW(CAST(NULL AS INT)), 1) = ROW(ROW(CAST(NULL AS INT)), 1)", True),
    ("ROW(CAST(NULL AS INT), 1) <> ROW(CAST(NULL AS INT), 1)", False),
    ("ROW(CAST(NULL AS INT), 1) IS NOT DISTINCT FROM ROW(CAST(NULL AS INT), 1)", True),
    ("(CAST(NULL AS INT), 1) NOT IN ((CAST(NULL AS INT), 1))", None),
    ("(CAST(NULL AS INT), 1) NOT IN ((CAST(NULL AS INT), 2))", True),
    ("ARRAY[CAST(NULL AS INT)] = ARRAY[CAST(NULL AS INT)]", True),
    ("CAST(ROW(1, NULL) AS ROW<a INT, b STRING>) = ROW(1, NULL)", True),
    ("CASE CAST(ROW(1, NULL) AS ROW<a INT, b STRING>) WHEN ROW(1, NULL) THEN 1 ELSE 0 END", 1),
    ("NULLIF(CAST(ROW(1, NULL) AS ROW<a INT, b STRING>), ROW(1, NULL))", None),
    ("CASE WHEN 1 = 1 THEN ROW(1, NULL) ELSE ROW(2, 'a') END", (1, None)),
    ("ARRAY[CAST(NULL AS ROW<a INT, b STRING>), ROW(1, NULL)]", [None, (1, None)]),
    ("(CASE WHEN 1 = 2 THEN ROW(1) ELSE ROW(CAST(NULL AS INT)) END).EXPR$0 + 1", None),
    ("ROW(ROW(NULL)) = ROW(ROW(NULL))", True),
    ("TIMESTAMP '2024-01-01 00:00:00' = '2024-01-01 00:00:00.5'", True),  # text gets the digits of the time
    ("CAST(TIMESTAMP '2024-01-01 00:00:00' AS TIMESTAMP(3)) < '2024-01-01 00:00:00.0001'", False),
    ("CAST(TIMESTAMP '2024-01-01 00:00:00' AS TIMESTAMP(3)) IN ('2024-01-01 00:00:00.0001', '2024-01-02')", True),
    ("CAST(TIMESTAMP '2024-01-01 00:00:00' AS TIMESTAMP_LTZ(3)) = '2024-01-01 00:00:00.0001'", True),
    ("CAST(TIMESTAMP '2024-01-01 00:00:00' AS TIME) = '00:00:00.5'", True),
    ("CAST(TIMESTAMP '2024-01-01 00:00:00.123456000' AS STRING)", "2024-01-01 00:00:00.123456"),
    ("CAST(TIMESTAMP '2024-01-01 00:00:00' + INTERVAL '0.5' SECOND AS STRING)", "2024-01-01 00:00:00"),
    ("CASE 2 WHEN 1, 2 THEN 'a' WHEN 3 THEN 'b' END", "a"),
    ("CASE CAST(NULL AS INT) WHEN 1, 2 THEN 'a' ELSE 'b' END", "b"),
]


REFUSED_BY_FLINK: list[tuple[str, Any]] = [
    ("(2, 'a') IN ((1, NULL), (2, 'a'))", True),
    ("(1, 'a') IN ((1, NULL), (2, 'a'))", None),
    ("(1, 'a') NOT IN ((1, NULL), (2, 'a'))", None),
    ("(3, 'a') NOT IN ((1, NULL), (2, 'a'))", True),
    ("(1, NULL) <> (1, 2)", True),
    ("(1, NULL) IS DISTINCT FROM (1, 2)", True),
    ("(1, NULL) IS NOT DISTINCT FROM (1, CAST(NULL AS INT))", True),
    ("ROW(ROW(NULL), 1) = ROW(ROW(5), 1)", False),
    ("ARRAY[ARRAY[NULL], ARRAY[1]]", [[None], [1]]),
    ("ARRAY[NULL] = ARRAY[1]", False),
    ("MAP['a', NULL] = MAP['a', CAST(NULL AS INT)]", True),
    ("ARRAY_CONTAINS(ARRAY[ROW(1, CAST(NULL AS STRING))], ROW(1, NULL))", True),
]
"""With NULL in rows, arrays and maps: Flink has no type for it there, with most operators."""


@pytest.mark.parametrize(("expression", "expected"), AS_FLINK + REFUSED_BY_FLINK)
def test_a_value_is_that_of_flink(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)


_LOGIC: dict[str, tuple[str, Any]] = {
    "t": ("BOOLEAN", True), "f": ("BOOLEAN", False), "u": ("BOOLEAN", None), "x": ("INT", 3), "n": ("INT", None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        *(("u OR f", None), ("f OR u", None), ("u OR t", True), ("t OR u", True), ("u OR u", None)),
        *(("u AND t", None), ("t AND u", None), ("u AND f", False), ("f AND u", False), ("NOT u", None)),
        *(("x IN (1, CAST(NULL AS INT))", None), ("x NOT IN (1, CAST(NULL AS INT))", None), ("n IN (1, 3)", None)),
        *(("x IN (3, CAST(NULL AS INT))", True), ("x NOT IN (3, CAST(NULL AS INT))", False), ("x <> n", None)),
    ],
)
def test_of_columns_that_are_null_nothing_is_known(expression: str, expected: Any) -> None:
    assert evaluate(expression, _LOGIC) is expected


def test_of_rows_only_equality_ends_at_the_first_value_that_differs() -> None:
    """As in Flink 2.3.0."""
    row: dict[str, tuple[str, Any]] = {"x": ("INT", 3), "o": ("INT", 0)}
    for expression in ("(x, 1) {} (1, 1 / o){}", "(x, 1) {} (1, 1 / 0){}", "(x, 1) {} (1, CAST('a' AS INT)){}"):
        assert evaluate(expression.format("=", ""), row) is False, expression
        assert evaluate(expression.format("IN (", ")"), row) is False, expression
    for expression in ("(x, 1) <> (1, 1 / o)", "(x, 1) IS DISTINCT FROM (1, 1 / o)"):
        with pytest.raises(ValueFailure, match="1 / o: division by zero"):
            evaluate(expression, row)


_TIMES: dict[str, tuple[str, Any]] = {
    "e": ("DATE", 9810), "tm": ("TIME", 45_296_000_000), "ts": ("TIMESTAMP(3)", 847_629_296_000_000),
    "z": ("TIMESTAMP_LTZ(3)", 847_625_696_000_000), "d": ("STRING", "1996-11-10"), "t": ("STRING", "12:34:56"),
    "at": ("STRING", "1996-11-10 12:34:56"), "bad": ("STRING", "nope"), "n": ("STRING", None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("time", "text"), [("e", "d"), ("tm", "t"), ("ts", "at"), ("z", "at"), ("z", "'1996-11-10 12:34:56'")]
)
def test_a_time_is_compared_with_text_in_the_zone_of_the_session(time: str, text: str) -> None:
    """Text that is no time is NULL there."""
    with in_zone("Europe/Berlin"):
        for true in ("{0} = {1}", "{1} >= {0}", "{0} BETWEEN {1} AND {1}", "{0} IN ({1})", "{1} IN ({0})",
                     "{0} IS NOT DISTINCT FROM {1}", "({0}, 1) IN (({1}, 1.0))", "({1}, 1) = ANY (({0}, 2), ({0}, 1))",
                     "CASE ({0}, 1) WHEN ({1}, 1) THEN TRUE END"):  # fmt: skip
            assert evaluate(true.format(time, text), _TIMES) is True, true
        for false in (
            f"{time} <> {text}",
            f"({time}, 1) NOT IN ((n, 1), ({text}, 1))",
            f"({time}, 1) IN (({text}, 2))",
        ):
            assert evaluate(false, _TIMES) is False, false
        for unknown in (
            f"{time} = bad",
            f"n < {time}",
            f"{time} NOT IN (bad)",
            f"({time}, 1) IN ((bad, 1), ({text}, 2))",
        ):
            assert evaluate(unknown, _TIMES) is None, unknown
