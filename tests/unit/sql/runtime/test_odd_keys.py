"""NaN, -0.0 and NULL as keys: of joins, as `=` says it of values, and of groups, which do not depend on the order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.scripts.script import Script
from tests.unit.sql.eager import Eager, body_of

_VALUES: Final = ("NaN", 0.0, -0.0, 1.0, None)
_IDS: Final = {1, 2, 3, 4, 5}
"""Their numbers."""
_EQUAL: Final = {(2, 2), (2, 3), (3, 2), (3, 3), (4, 4)}
_BESIDE: Final = "x.t BETWEEN y.t - INTERVAL '1' MINUTE AND y.t + INTERVAL '1' MINUTE"
_COLUMNS: Final = (
    "id INT, d DOUBLE, f FLOAT, r ROW<a DOUBLE, b ARRAY<DOUBLE>>, m MAP<STRING, DOUBLE>, k STRING, t TIMESTAMP(3), "
    "WATERMARK FOR t AS t"
)
_BODIES: Final = [
    {
        "id": number, "d": each, "f": each, "r": {"a": 1.0, "b": [each]}, "k": "k", "t": f"2024-01-01 00:00:0{number}",
        "m": dict([("a", each), ("b", 1)][:: number % 2 * 2 - 1]),
    }
    for number, each in enumerate(_VALUES, 1)
]  # fmt: skip


def found(
    select: str, *, is_endless: bool = False, more: str = "", columns: str = "a INT, b INT", step: int = 1
) -> list[Any]:
    """The rows of a query over tables `x` and `y` with these values, in an order."""
    rows = written(select, is_endless=is_endless, more=more, columns=columns, step=step)
    return [tuple(json.loads(body_of(each)).values()) for each in rows]


def written(select: str, *, is_endless: bool, more: str, columns: str, step: int) -> list[Any]:
    """What a query writes."""
    tables = "".join(f"CREATE TABLE {name} ({_COLUMNS}) WITH ('topic' = '{name}');" for name in "xy")
    script = Script()
    script.run(
        f"SET 'table.exec.state.ttl' = '1 h'; {tables} {more} CREATE TABLE sink ({columns}) WITH ('topic' = 'sink');"
        f"INSERT INTO sink {select};"
    )
    bodies = [json.dumps(each).encode() for each in _BODIES[::step]]
    return Eager({"x": bodies, "y": bodies}, is_endless=is_endless).run(script.sinks[0])


def _alone(pairs: set[tuple[int, int]], kind: str) -> set[tuple[int | None, int | None]]:
    left = {(each, None) for each in _IDS - {one for one, _ in pairs}} if kind in ("LEFT", "FULL") else set()
    right = {(None, each) for each in _IDS - {other for _, other in pairs}} if kind in ("RIGHT", "FULL") else set()
    return {*pairs, *left, *right}


@pytest.mark.parametrize("kind", ["INNER", "FULL"])
@pytest.mark.parametrize(
    "condition",
    [
        "x.d = y.d",
        "x.f = y.f",
        "x.d = y.f",
        "x.d + 1 = y.d + 1",
        "x.k = y.k AND x.d = y.d",
        "(x.k, x.d) = (y.k, y.d)",
        "x.d = y.d AND x.id + y.id > 0",
        f"x.d = y.d AND {_BESIDE}",
        # as a condition on pairs
        "x.k = y.k AND (x.d = y.d OR x.id + y.id < 0)",
        "x.k = y.k AND x.d + 0 * y.id = y.d",
        "x.k = y.k AND x.d IN (y.d, 7.0)",
        "x.k = y.k AND x.d BETWEEN y.d AND y.d",
        "x.k = y.k AND NOT (x.d <> y.d)",
        f"x.k = y.k AND x.d >= y.d AND x.d <= y.d AND {_BESIDE}",
    ],
)
def test_the_same_rows_are_pairs(condition: str, kind: str) -> None:
    rows = found(f"SELECT x.id, y.id FROM x {kind} JOIN y ON {condition}")
    assert (len(rows), {*rows}) == (len({*rows}), _alone(_EQUAL, kind))


@pytest.mark.parametrize("kind", ["INNER", "LEFT"])
@pytest.mark.parametrize(
    "condition",
    [
        "x.r = y.r",
        "x.m = y.m",
        "x.k = y.k AND (x.m = y.m OR x.id + y.id < 0)",
        "x.k = y.k AND (x.r = y.r OR x.id + y.id < 0)",
        "ROW(ROW(x.d)) = ROW(ROW(y.d))",
        "ARRAY[x.d] = ARRAY[y.d] AND x.k = y.k",
        "x.k = y.k AND x.d IS NOT DISTINCT FROM y.d",
        f"x.k = y.k AND x.r IS NOT DISTINCT FROM y.r AND {_BESIDE}",
    ],
)
def test_nulls_are_pairs_in_rows_and_arrays_and_if_they_are_not_distinct(condition: str, kind: str) -> None:
    rows = found(f"SELECT x.id, y.id FROM x {kind} JOIN y ON {condition}")
    assert {*rows} == _alone({*_EQUAL, (5, 5)}, kind)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("FROM x, y WHERE x.d = y.d", _EQUAL),
        ("FROM x, y WHERE x.k = y.k AND x.d = y.d", _EQUAL),
        ("FROM x JOIN y ON x.k = y.k WHERE x.d = y.d", _EQUAL),
        ("FROM x, y WHERE x.k = y.k AND x.d IS NOT DISTINCT FROM y.d", {*_EQUAL, (5, 5)}),
        ("FROM x, y WHERE x.k = y.k AND x.r = y.r", {*_EQUAL, (5, 5)}),
    ],
)
@pytest.mark.parametrize("is_endless", [False, True], ids=["ends", "endless"])
def test_pairs_of_where(query: str, wanted: Any, is_endless: bool) -> None:
    assert {*found(f"SELECT x.id, y.id {query}", is_endless=is_endless)} == wanted


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("x.d IN (SELECT d FROM y)", {2, 3, 4}),
        ("(x.d, x.k) IN (SELECT d, k FROM y)", {2, 3, 4}),
        ("x.r IN (SELECT r FROM y)", {2, 3, 4, 5}),
        ("x.m IN (SELECT m FROM y WHERE id <> x.id)", {2, 3}),
        ("x.d NOT IN (SELECT d FROM y WHERE d IS NOT NULL)", {1}),
        ("x.d NOT IN (SELECT d FROM y)", set()),
        ("x.d = 9 OR x.d IN (SELECT d FROM y)", {2, 3, 4}),
        ("EXISTS (SELECT 1 FROM y WHERE y.d = x.d)", {2, 3, 4}),
        ("EXISTS (SELECT 1 FROM y WHERE y.k = x.k AND y.d = x.d AND y.id >= x.id)", {2, 3, 4}),
        ("EXISTS (SELECT 1 FROM y WHERE y.k = x.k AND y.d IS NOT DISTINCT FROM x.d)", {2, 3, 4, 5}),
        ("NOT EXISTS (SELECT 1 FROM y WHERE y.d = x.d)", {1, 5}),
        ("(SELECT COUNT(*) FROM y WHERE y.d = x.d) = 0", {1, 5}),
        ("(SELECT MAX(y.id) FROM y WHERE y.d = x.d) IS NULL", {1, 5}),
    ],
)
def test_members(condition: str, wanted: Any) -> None:
    assert {each for (each,) in found(f"SELECT x.id FROM x WHERE {condition}", columns="a INT")} == wanted


@pytest.mark.parametrize("condition", ["x.d IN (SELECT d FROM y)", "EXISTS (SELECT 1 FROM y WHERE y.d = x.d)"])
def test_members_of_what_does_not_end(condition: str) -> None:
    rows = found(f"SELECT x.id FROM x WHERE {condition}", columns="a INT", is_endless=True)
    assert {*rows} == {(2,), (3,), (4,)}


@pytest.mark.parametrize("kind", ["INNER", "LEFT"])
@pytest.mark.parametrize(
    "condition", ["x.d = z.d", "x.f = z.f", "x.k = z.k AND x.d = z.d", "x.k = z.k AND (x.d = z.d OR x.id < 0)"]
)
def test_rows_of_a_dimension(condition: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "z.json").write_text("".join(f"{json.dumps(each)}\n" for each in _BODIES))
    more = (
        "CREATE TABLE z (id INT, d DOUBLE, f FLOAT, k STRING) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path}/z.json', 'format' = 'json');"
    )
    query = f"SELECT x.id, z.id FROM x {kind} JOIN z FOR SYSTEM_TIME AS OF PROCTIME() AS z ON {condition}"
    assert {*found(query, more=more)} == _alone(_EQUAL, kind)


_GROUPS: Final = {
    "SELECT CAST(d AS STRING), COUNT(*) FROM x GROUP BY d": {("NaN", 1), ("0.0", 2), ("1.0", 1), (None, 1)},
    "SELECT CAST(f AS STRING), COUNT(*) FROM x GROUP BY f": {("NaN", 1), ("0.0", 2), ("1.0", 1), (None, 1)},
    "SELECT CAST(q AS STRING), COUNT(*) FROM (SELECT ROW(d) AS q FROM x) GROUP BY q": {
        ("(NaN)", 1), ("(0.0)", 2), ("(1.0)", 1), ("(NULL)", 1)
    },
    "SELECT CAST(d AS STRING), COUNT(*) FROM TABLE(TUMBLE(TABLE x, DESCRIPTOR(t), INTERVAL '1' HOUR)) GROUP BY d, "
    "window_start, window_end": {("NaN", 1), ("0.0", 2), ("1.0", 1), (None, 1)},
    "SELECT CAST(d AS STRING), 1 FROM (SELECT DISTINCT d FROM x)": {("NaN", 1), ("0.0", 1), ("1.0", 1), (None, 1)},
    "SELECT CAST(d AS STRING), 1 FROM (SELECT d FROM x UNION SELECT d FROM y)": {
        ("NaN", 1), ("0.0", 1), ("1.0", 1), (None, 1)
    },
    "SELECT CAST(d AS STRING), 1 FROM (SELECT d FROM x INTERSECT SELECT d FROM y)": {
        ("NaN", 1), ("0.0", 1), ("1.0", 1), (None, 1)
    },
    "SELECT CAST(d AS STRING), 1 FROM (SELECT d FROM x EXCEPT SELECT -d FROM y)": {("1.0", 1)},
    "SELECT k, COUNT(DISTINCT d) FROM x GROUP BY k": {("k", 3)},
    "SELECT CAST(MIN(d) AS STRING), 1 FROM x": {("-0.0", 1)},
    "SELECT CAST(MAX(d) AS STRING), 1 FROM x WHERE id IN (2, 3)": {("0.0", 1)},
    "SELECT CAST(MIN(d) OVER (ORDER BY k) AS STRING), 1 FROM x WHERE id IN (2, 3)": {("-0.0", 1)},
    "SELECT CAST(MAX(f) OVER (ORDER BY k) AS STRING), 1 FROM x WHERE id IN (2, 3)": {("0.0", 1)},
    "SELECT CAST(d AS STRING), RANK() OVER (ORDER BY d) FROM x WHERE id IN (2, 3, 4)": {
        ("0.0", 1), ("-0.0", 1), ("1.0", 3)
    },
    # what a row has stays as it is
    "SELECT CAST(FIRST_VALUE(d) AS STRING), COUNT(*) FROM x WHERE id = 3 GROUP BY d": {("-0.0", 1)},
    "SELECT LISTAGG(CAST(d AS STRING)), COUNT(*) FROM x WHERE id = 3 GROUP BY d": {("-0.0", 1)},
    "SELECT CAST(ARRAY_AGG(d) AS STRING), COUNT(*) FROM x WHERE id = 3 GROUP BY d": {("[-0.0]", 1)},
}  # fmt: skip


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "backwards"])
@pytest.mark.parametrize("query", _GROUPS)
def test_what_a_group_shows_does_not_depend_on_the_order_of_rows(query: str, step: int) -> None:
    rows = found(query, columns="a STRING, b BIGINT", step=step)
    assert {*rows} == _GROUPS[query]


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "backwards"])
@pytest.mark.parametrize("order", ["t", "t DESC"])
def test_the_key_of_a_message_is_that_of_its_rows(order: str, step: int) -> None:
    first = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY d ORDER BY {order}) AS rn FROM x WHERE d IS NOT NULL"
    query = f"SELECT d, id FROM ({first}) WHERE rn = 1"
    columns = "d DOUBLE, id INT, PRIMARY KEY (d) NOT ENFORCED"
    messages = written(query, is_endless=True, more="", columns=columns, step=step)
    assert {each.keys for each in messages} == {("NaN",), ("0.0",), ("1.0",)}
