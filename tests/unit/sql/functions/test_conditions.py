"""Conditional functions: Flink 2.3.0 itself gave these values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from tests.unit.sql.evaluating import evaluate

AS_FLINK: list[tuple[str, Any]] = [
    ("IF(TRUE, 1, 2)", 1),
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
]
    ("(CAST(NULL AS INT), 1) = (CAST(NULL AS INT), 1)", None),
    ("(CAST(NULL AS INT), 1) <> (CAST(NULL AS INT), 2)", True),
    ("(CAST(NULL AS INT), 1) IN ((CAST(NULL AS INT), 1))", None),
    ("(CAST(NULL AS INT), 1) IN ((3, 2), (4, 5))", False),
    ("(1, 2) NOT IN ((1, 3), (1, 2))", False),
    ("ROW(ROW(CAST(NULL AS INT)), 1) = ROW(ROW(2), 1)", None),
    ("CASE 2 WHEN 1, 2 THEN 'a' WHEN 3 THEN 'b' END", "a"),
    ("CASE CAST(NULL AS INT) WHEN 1, 2 THEN 'a' ELSE 'b' END", "b"),
    ("CAST('NaN' AS DOUBLE) IN (CAST('NaN' AS DOUBLE), 1)", False),


@pytest.mark.parametrize(("expression", "expected"), AS_FLINK)
def test_a_value_is_that_of_flink(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)
