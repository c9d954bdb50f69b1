"""Aggregates: whatever the batches and the order of merging, the result is that of all rows at once."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="SQL needs the extra 'sql'")

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rmqio.sql import types
from rmqio.sql.analysis.aggregates import AGGREGATES, INSTEAD
from rmqio.sql.compile.accumulators import merged_floats
from rmqio.sql.compile.aggregation import Merger
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToGroups
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.expressions import InputRef
from rmqio.sql.planning.plan import VARIANCES, AggregateCall, Field
from rmqio.sql.rows import pack
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure

INTEGER, DECIMAL, DOUBLE = types.BIGINT, types.decimal(10, 2), types.DOUBLE
VALUES: dict[str, tuple[SqlType, st.SearchStrategy[Any]]] = {
    "BIGINT": (INTEGER, st.integers(-(10**12), 10**12)),
    "DECIMAL": (DECIMAL, st.decimals(-1000, 1000, places=2)),
    "DOUBLE": (DOUBLE, st.floats(allow_nan=False, allow_infinity=False, width=64, min_value=-1e200, max_value=1e200)),
}
NAMES = ["COUNT", "SUM", "AVG", "MIN", "MAX"]


def result(kind: SqlType, calls: list[AggregateCall], batches: list[list[Any]], kept: Any = None) -> list[Any]:
    """Aggregates each batch by itself, sends the results as bytes, and merges them. `kept`: with these accumulators."""
    fields = (Field("v", kind), Field("wanted", types.BOOLEAN))
    columns = tuple(InputRef(each.type, i) for i, each in enumerate(fields))
    run = compiled(Fragment(FromRows(fields), (Step(None, columns),), ToGroups((), None, tuple(calls), fields)))
    merger = Merger((call, None if call.argument is None else kind) for call in calls)
    decode = msgspec.msgpack.Decoder(merger.hint).decode
    merged: Any = None if kept is None else decode(pack(kept))
    for batch in batches:
        for _, accumulators in run([(value, n % 3 == 0) for n, value in enumerate(batch)]).values:
            found = decode(pack(accumulators))
            merged = found if merged is None else decode(pack(merger.merge(merged, found)))
    return [] if merged is None else merger.finish(merged)


def type_of(name: str, kind: SqlType) -> SqlType:
    if name == "COUNT":
        return types.BIGINT
    if kind.kind == "DECIMAL" and name in ("SUM", "AVG"):
        return types.decimal(38, 6 if name == "AVG" else 2)
    return kind


def wanted(name: str, kind: SqlType, values: list[Any]) -> Any:
    values = [each for each in values if each is not None]
    if name == "COUNT":
        return len(values)
    if not values:
        return None
    if name in ("MIN", "MAX"):
        return min(values) if name == "MIN" else max(values)
    if kind is DOUBLE:
        return math.fsum(values) if name == "SUM" else math.fsum(values) / len(values)
    total = sum((Fraction(each) for each in values), Fraction(0))
    if name == "SUM":
        return int(total) if kind is INTEGER else Decimal(int(total * 100)) / 100
    if kind is INTEGER:
        return int(total / len(values))  # toward zero
    exact = total / len(values) * 10**6
    rounded = math.floor(abs(exact) + Fraction(1, 2))
    return Decimal(rounded if exact >= 0 else -rounded) / 10**6


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_batches_do_not_matter(kind: str, data: st.DataObject) -> None:
    sql_type, strategy = VALUES[kind]
    batches = data.draw(st.lists(st.lists(st.none() | strategy, max_size=6), max_size=4))
    calls = [AggregateCall(name, type_of(name, sql_type), 0) for name in NAMES]
    calls += [AggregateCall(name, type_of(name, sql_type), 0, is_distinct=True) for name in NAMES[:3]]
    calls += [AggregateCall("COUNT", types.BIGINT), AggregateCall("SUM", type_of("SUM", sql_type), 0, 1)]
    found = result(sql_type, calls, batches)
    rows = [value for batch in batches for value in batch]
    if not rows:
        assert found == []
        return
    once = list({value: None for value in rows if value is not None})
    chosen = [value for batch in batches for n, value in enumerate(batch) if n % 3 == 0]
    expected = [wanted(name, sql_type, rows) for name in NAMES]
    expected += [wanted(name, sql_type, once) for name in NAMES[:3]]
    expected += [len(rows), wanted("SUM", sql_type, chosen)]
    assert found == expected


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)), st.randoms())
def test_a_sum_of_doubles_does_not_depend_on_the_order(values: list[float], random: Any) -> None:
    cut = random.randrange(len(values) + 1)
    assert math.fsum(merged_floats(values[:cut], values[cut:])) == math.fsum(values)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays(odd: float) -> None:
    (found,) = result(DOUBLE, [AggregateCall("SUM", DOUBLE, 0)], [[1.0, odd], [2.0]])
    assert found == odd or (found != found and odd != odd)


NAN = float("nan")


@pytest.mark.parametrize(
    "batches", [[[NAN, 1.0, NAN]], [[1.0, NAN, float("nan")]], [[1.0], [NAN], [NAN]], [[NAN], [1.0, float("nan")]]]
)
def test_a_nan_is_one_value_and_the_largest(batches: list[list[float]]) -> None:
    calls = [AggregateCall(name, DOUBLE, 0) for name in ("MIN", "MAX")]
    calls += [AggregateCall(name, types.BIGINT, 0, is_distinct=True) for name in ("COUNT", "ARRAY_AGG")]
    least, most, count, once = result(DOUBLE, calls, batches)
    assert (least, str(most), count, sorted(map(str, once))) == (1.0, "nan", 2, ["1.0", "nan"])
    row = SqlType("ROW", elements=(DOUBLE, types.VARCHAR), names=("a", "b"))
    rows = [[(each, "x") for each in batch] for batch in batches]
    assert result(row, [AggregateCall("COUNT", types.BIGINT, 0, is_distinct=True)], rows) == [2]


@pytest.mark.parametrize("batches", [[[0.0, -0.0]], [[-0.0, 0.0]], [[0.0], [-0.0]], [[-0.0], [0.0, -0.0]]])
def test_which_zero_comes_first_does_not_matter(batches: list[list[float]]) -> None:
    """Flink keeps the first one in MIN and MAX; its LEAST and GREATEST are these."""
    calls = [AggregateCall(name, DOUBLE, 0) for name in ("MIN", "MAX", "SUM")]
    calls += [AggregateCall(name, types.BIGINT, 0, is_distinct=True) for name in ("COUNT", "ARRAY_AGG")]
    assert list(map(str, result(DOUBLE, calls, batches))) == ["-0.0", "0.0", "0.0", "1", "[0.0]"]
    same = [[abs(each) * sign for batch in batches for each in batch] for sign in (1, -1)]
    for each, zero in zip(same, ("0.0", "-0.0"), strict=True):
        assert list(map(str, result(DOUBLE, calls[:2], [each, each]))) == [zero, zero]


def test_a_sum_that_is_too_large_fails() -> None:
    with pytest.raises(ValueFailure, match="out of range of BIGINT: CAST the argument"):
        result(INTEGER, [AggregateCall("SUM", INTEGER, 0)], [[(1 << 63) - 1], [1]])


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("is_distinct", [False, True], ids=["all", "distinct"])
@given(data=st.data())
def test_variances_are_exact_whatever_the_batches(kind: str, is_distinct: bool, data: st.DataObject) -> None:
    sql_type, strategy = VALUES[kind]
    if kind == "BIGINT":
        strategy = st.integers(-(10**8), 10**8)
    elif kind == "DOUBLE":
        strategy = (
            st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e90, 1e90) | st.floats(-1, 1, width=16)
        )
    batches = data.draw(st.lists(st.lists(st.none() | strategy, max_size=6), min_size=1, max_size=4))
    names = ["VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"]
    wide = types.decimal(38, 6) if kind == "DECIMAL" else sql_type
    found = result(sql_type, [AggregateCall(name, wide, 0, is_distinct=is_distinct) for name in names], batches)
    values = [value for batch in batches for value in batch if value is not None]
    exact = [Fraction(each) for each in (set(values) if is_distinct else values)]
    for name, given_ in zip(names, found, strict=False):
        count = len(exact) - name.endswith("SAMP")
        if count < 1:
            assert given_ is None
            continue
        squares, total = sum((each * each for each in exact), Fraction()), sum(exact, Fraction())
        variance = (squares - total * total / len(exact)) / count
        if kind == "BIGINT":  # cut off at the end, as in Flink
            whole = math.floor(variance)
            assert given_ == (math.isqrt(whole) if name.startswith("STDDEV") else whole)
            continue
        if kind == "DOUBLE":
            assert is_rounded(given_, variance, 2 if name.startswith("STDDEV") else 1)
        else:
            near = float(variance) ** 0.5 if name.startswith("STDDEV") else float(variance)
            assert abs(float(given_) - near) <= 1e-6 + 1e-12 * abs(near)
            assert given_.as_tuple().exponent == -6


@pytest.mark.parametrize("is_distinct", [False, True])
def test_a_variance_of_integers_is_cut_off_at_the_end_only(is_distinct: bool) -> None:
    names = ["VAR_POP", "VAR_SAMP", "STDDEV_SAMP"]
    calls = [AggregateCall(name, INTEGER, 0, is_distinct=is_distinct) for name in names]
    assert result(INTEGER, calls, [[5, -1], [0]]) == [6, 10, 3]
    assert result(INTEGER, calls, [[1, 2, 4], [0]]) == [2, 2, 1]


def is_rounded(number: float, exact: Fraction, root: int) -> bool:
    """Tells whether the number, or its square for the root 2, is the exact one, but for its last digit."""
    below, above = (Fraction(each) for each in (math.nextafter(number, 0), min(math.nextafter(number, math.inf), MOST)))
    return below**root <= exact and (exact <= above**root or number == math.inf)


MOST = sys.float_info.max


@pytest.mark.parametrize("is_distinct", [False, True])
@pytest.mark.parametrize(
    ("name", "batches", "expected"),
    [
        ("VAR_POP", [[1e308, 1e308]], 0.0),
        ("VAR_POP", [[1e308], [-1e308]], math.inf),
        ("STDDEV_POP", [[1e308], [-1e308]], 1e308),
        ("STDDEV_SAMP", [[MOST, -MOST]], math.inf),
        ("STDDEV_SAMP", [[0.0, -1e300]], 7.0710678118654755e299),
        ("STDDEV_SAMP", [[0.0], [-1e300]], 7.0710678118654755e299),
        ("STDDEV_SAMP", [[1e-200, 3e-200]], 1.414213562373095e-200),
        ("VAR_POP", [[2.0**-500], [3 * 2.0**-500]], 2.0**-1000),
        ("STDDEV_POP", [[5e-324], [15e-324]], 5e-324),
        ("STDDEV_POP", [[1e-200], [1e200, 1.0]], 4.714045207910317e199),
        ("VAR_POP", [[1.0, math.nan]], math.nan),
        ("VAR_POP", [[1.0], [math.inf]], math.nan),
        ("STDDEV_POP", [[-math.inf, 1e200]], math.nan),
    ],
)
def test_a_variance_of_extremes_is_exact(
    name: str, batches: list[list[float]], expected: float, is_distinct: bool
) -> None:
    (found,) = result(DOUBLE, [AggregateCall(name, DOUBLE, 0, is_distinct=is_distinct)], batches)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


PAIR = SqlType("ROW", elements=(types.VARCHAR, types.VARCHAR), names=("key", "json"))
TIMED = SqlType("ROW", elements=(INTEGER, types.TIMESTAMP, INTEGER), names=("value", "time", "offset"))
BEFORE: dict[str, tuple[SqlType, list[Any], Any]] = {
    "BIGINT": (INTEGER, [1, 3], 7),
    "DECIMAL": (DECIMAL, [Decimal("1.50"), Decimal("2.50")], Decimal("4.25")),
    "DOUBLE": (DOUBLE, [1.5, 2.5], 1e200),
    "BIGINT or NULL": (INTEGER, [1, None], 7),
    "VARCHAR": (types.VARCHAR, ["a", "b"], "c"),
    "PAIR": (PAIR, [("a", "1")], ("b", "2")),
    "TIMED": (TIMED, [(5, 1000, 7)], (6, 2000, 8)),
}
"""By the argument: its type, the rows of which a state was kept, and the one that comes after them."""
VARIANCES_OF_ALL = tuple(sorted(VARIANCES))
DISTINCT = tuple(f"{name} DISTINCT" for name in ("COUNT", "SUM", "AVG", *VARIANCES_OF_ALL))
KEPT: list[tuple[tuple[str, ...], str, Any]] = [
    (("COUNT",), "BIGINT", 2),
    (("SUM",), "BIGINT", 4),
    (("SUM",), "DECIMAL", "4.00"),
    (("SUM",), "DOUBLE", [1.5, 2.5]),
    (("AVG",), "BIGINT", [2, 4]),
    (("AVG",), "DECIMAL", [2, "4.00"]),
    (("AVG",), "DOUBLE", [2, [1.5, 2.5]]),
    (("MIN",), "BIGINT", 1),
    (("MIN",), "DECIMAL", "1.50"),
    (("MIN",), "DOUBLE", 1.5),
    (("MAX",), "BIGINT", 3),
    (("MAX",), "DECIMAL", "2.50"),
    (("MAX",), "DOUBLE", 2.5),
    (VARIANCES_OF_ALL, "BIGINT", [2, 4, 10]),
    (VARIANCES_OF_ALL, "DECIMAL", [2, "4.00", "8.5000"]),
    (VARIANCES_OF_ALL, "DOUBLE", [2, [1.5, 2.5], [2.25, 0.0, 6.25, 0.0]]),  # before there were sums for extremes
    (VARIANCES_OF_ALL, "DOUBLE", [2, [1.5, 2.5], [2.25, 0.0, 6.25, 0.0], [], []]),
    (DISTINCT, "BIGINT", [1, 3]),
    (DISTINCT, "DECIMAL", ["1.50", "2.50"]),
    (DISTINCT, "DOUBLE", [1.5, 2.5]),
    (("LISTAGG", "LISTAGG DISTINCT"), "VARCHAR", ["a", "b"]),
    (("ARRAY_AGG", "ARRAY_AGG DISTINCT"), "BIGINT or NULL", [1, None]),
    (("JSON_ARRAYAGG",), "VARCHAR", ["a", "b"]),
    (("JSON_OBJECTAGG",), "PAIR", [["a", "1"]]),
    (("FIRST_VALUE", "LAST_VALUE"), "TIMED", [5, 1000, 7]),
]
"""The states that versions have kept, as msgpack has them: streams go on with them in their checkpoints."""


@pytest.mark.parametrize(("names", "kind", "kept"), KEPT, ids=str)
def test_a_state_that_another_version_has_kept_goes_on(names: tuple[str, ...], kind: str, kept: Any) -> None:
    argument, before, after = BEFORE[kind]
    for name in names:
        word, _, distinct = name.partition(" ")
        given_type = types.decimal(38, 6) if argument is DECIMAL else types.BIGINT if word == "COUNT" else argument
        calls = [AggregateCall(word, given_type, 0, is_distinct=bool(distinct))]
        assert result(argument, calls, [[after]], [kept]) == result(argument, calls, [[*before, after]]), name
        assert result(argument, calls, [], [kept]) == result(argument, calls, [before]), name


def test_the_kept_state_of_each_aggregate_is_tested() -> None:
    tested = {name.partition(" ")[0] for names, _, _ in KEPT for name in names}
    assert tested == AGGREGATES.difference(INSTEAD, {"APPROX_COUNT_DISTINCT"}), "it is COUNT(DISTINCT)"


def test_a_variance_that_is_too_large_fails() -> None:
    with pytest.raises(ValueFailure, match=r"VAR_POP is \d+, out of range of BIGINT: CAST the argument to DOUBLE"):
        result(INTEGER, [AggregateCall("VAR_POP", INTEGER, 0, is_distinct=True)], [[0, 1 << 33], [1 << 32]])
