"""Functions of arrays and maps: Flink 2.3.0 itself gave these values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from tests.unit.sql.evaluating import evaluate

AS_FLINK: list[tuple[str, Any]] = [
    ("CARDINALITY(ARRAY[1,2])", 2),
    ("CARDINALITY(MAP['a',1])", 1),
    ("CARDINALITY(CAST(NULL AS ARRAY<INT>))", None),
    ("ELEMENT(ARRAY[1])", 1),
    ("ELEMENT(SPLIT('', ','))", None),
    ("ARRAY_CONTAINS(ARRAY[1,2], 2)", True),
    ("ARRAY_CONTAINS(ARRAY[1,2], 3)", False),
    ("ARRAY_CONTAINS(ARRAY[1,CAST(NULL AS INT)], CAST(NULL AS INT))", True),
    ("ARRAY_CONTAINS(ARRAY[1,2], CAST(NULL AS INT))", False),
    ("ARRAY_CONTAINS(ARRAY[CAST(1 AS BIGINT),2], 1)", True),
    ("ARRAY_DISTINCT(ARRAY[1,2,1,CAST(NULL AS INT),CAST(NULL AS INT)])", [1, 2, None]),
    ("ARRAY_JOIN(ARRAY['a', 'b', CAST(NULL AS STRING)], ',')", "a,b"),
    ("ARRAY_JOIN(ARRAY['a', 'b', CAST(NULL AS STRING)], ',', 'x')", "a,b,x"),
    ("ARRAY_MAX(ARRAY[1,3,2])", 3),
    ("ARRAY_MAX(ARRAY[1,CAST(NULL AS INT)])", 1),
    ("ARRAY_MIN(ARRAY[1,3,2])", 1),
    ("ARRAY_MIN(ARRAY['b','a'])", "a"),
    ("ARRAY_MAX(SPLIT('', ','))", None),
    ("ARRAY_POSITION(ARRAY['a','b','b'], 'b')", 2),
    ("ARRAY_POSITION(ARRAY['a','b','b'], 'z')", 0),
    ("ARRAY_POSITION(ARRAY['a',CAST(NULL AS STRING)], CAST(NULL AS STRING))", None),
    ("ARRAY_REMOVE(ARRAY[1,2,1], 1)", [2]),
    ("ARRAY_REMOVE(ARRAY[1,CAST(NULL AS INT)], CAST(NULL AS INT))", [1]),
    ("ARRAY_REVERSE(ARRAY[1,2])", [2, 1]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], 2, 3)", [2, 3]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], 2)", [2, 3, 4]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], -2)", [3, 4]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], -2, -1)", [3, 4]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], 0, 2)", [1, 2]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], 3, 2)", []),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], 3, 99)", [3, 4]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], -99, 2)", [1, 2]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], 1, 0)", [1]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], 9)", []),
    ("ARRAY_SORT(ARRAY[3,1,CAST(NULL AS INT),2])", [None, 1, 2, 3]),
    ("ARRAY_SORT(ARRAY[3,1,CAST(NULL AS INT),2], FALSE)", [3, 2, 1, None]),
    ("ARRAY_SORT(ARRAY[3,1,CAST(NULL AS INT),2], TRUE, FALSE)", [1, 2, 3, None]),
    ("ARRAY_SORT(ARRAY[3,1,CAST(NULL AS INT),2], FALSE, FALSE)", [3, 2, 1, None]),
    ("ARRAY_SORT(ARRAY[3,1,CAST(NULL AS INT),2], FALSE, TRUE)", [None, 3, 2, 1]),
    ("ARRAY_UNION(ARRAY[1,2,2], ARRAY[2,3,CAST(NULL AS INT)])", [1, 2, 3, None]),
    ("ARRAY_CONCAT(ARRAY[1,2], ARRAY[2,3])", [1, 2, 2, 3]),
    ("ARRAY_CONCAT(ARRAY[1,2], ARRAY[2,3], CAST(NULL AS ARRAY<INT>))", None),
    ("ARRAY_CONCAT(ARRAY[1,2])", [1, 2]),
    ("ARRAY_APPEND(ARRAY[1,2], 3)", [1, 2, 3]),
    ("ARRAY_APPEND(ARRAY[1,2], CAST(NULL AS INT))", [1, 2, None]),
    ("ARRAY_PREPEND(ARRAY[1,2], 3)", [3, 1, 2]),
    ("ARRAY_PREPEND(CAST(NULL AS ARRAY<INT>), 3)", None),
    ("ARRAY_EXCEPT(ARRAY[1,2,2,3], ARRAY[2])", [1, 3]),
    ("ARRAY_EXCEPT(ARRAY[1,1,CAST(NULL AS INT)], ARRAY[2])", [1, None]),
    ("ARRAY_INTERSECT(ARRAY[1,2,2,3], ARRAY[2,2,3])", [2, 3]),
    ("ARRAY_INTERSECT(ARRAY[1,CAST(NULL AS INT)], ARRAY[CAST(NULL AS INT)])", [None]),
    ("MAP_KEYS(MAP['a', 1, 'b', 2])", ["a", "b"]),
    ("MAP_VALUES(MAP['a', 1, 'b', CAST(NULL AS INT)])", [1, None]),
    ("MAP_ENTRIES(MAP['a', 1])", [("a", 1)]),
    ("MAP_FROM_ARRAYS(ARRAY['a','b'], ARRAY[1,2])", {"a": 1, "b": 2}),
    ("MAP_UNION(MAP['a', 1], MAP['b', 2])", {"a": 1, "b": 2}),
    ("MAP_UNION(MAP['a', 1], MAP['a', 2])", {"a": 2}),
    ("MAP_UNION(MAP['a', 1], CAST(NULL AS MAP<STRING, INT>))", None),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], 0, 0)", [1]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], -3, 0)", []),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], 1, -1)", [1, 2, 3, 4]),
    ("ARRAY_SLICE(ARRAY[1,2,3,4], -1, -99)", []),
    ("ARRAY_SORT(ARRAY['b', 'a'])", ["a", "b"]),
    ("ARRAY_CONTAINS(CAST(NULL AS ARRAY<INT>), 1)", None),
    ("ARRAY_DISTINCT(ARRAY[ARRAY[1], ARRAY[1]])", [[1]]),
    ("ARRAY_POSITION(ARRAY[ARRAY[1], ARRAY[2]], ARRAY[2])", 2),
    ("ARRAY_UNION(ARRAY['a'], ARRAY['b', 'a'])", ["a", "b"]),
    ("MAP_ENTRIES(MAP['a', 1, 'b', 2])", [("a", 1), ("b", 2)]),
    ("CARDINALITY(ARRAY[CAST(NULL AS INT)])", 1),
]


@pytest.mark.parametrize(("expression", "expected"), AS_FLINK)
def test_a_value_is_that_of_flink(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)
