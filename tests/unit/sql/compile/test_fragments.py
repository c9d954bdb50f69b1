"""Compiled fragments: three-valued logic, what is computed and what is not, and rows that fail alone."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("msgspec", reason="SQL needs the extra 'sql'")

from hypothesis import given
from hypothesis import strategies as st

from rmqio.sql import types
from rmqio.sql.compile.description import Fragment, FromRows, Mapped, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.expressions import (
    Conditional,
    Constant,
    Expr,
    InputRef,
    Is,
    Logical,
    Membership,
    Not,
    Operation,
)
from rmqio.sql.optimizer import optimize
from rmqio.sql.planning.plan import Calc, Field, Relation, Scan
from rmqio.sql.scripts.script import Script
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.parser import parse

TRUTH = [True, False, None]
COLUMNS = tuple(Field(f"b{i}", types.BOOLEAN) for i in range(3))


def run(expression: Expr, rows: list[tuple[Any, ...]], fields: tuple[Field, ...] = COLUMNS) -> list[Any]:
    found = compiled(Fragment(FromRows(fields), (Step(None, (expression,)),), ToRows()))(rows)
    assert not found.failed
    return [value for (value,) in found.values]


def leaves() -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.integers(0, 2).map(lambda i: InputRef(types.BOOLEAN, i)),
        st.sampled_from(TRUTH).map(lambda value: Constant(types.BOOLEAN.nullable(value is None), value)),
    )


def larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    some = st.lists(inner, min_size=2, max_size=5).map(tuple)
    return st.one_of(
        st.tuples(st.sampled_from(["AND", "OR"]), some).map(
            lambda pair: Logical(types.BOOLEAN.nullable(types.any_nullable(e.type for e in pair[1])), *pair)
        ),
        inner.map(lambda operand: Not(operand.type, operand)),
        st.tuples(inner, st.sampled_from(TRUTH)).map(lambda pair: Is(types.BOOLEAN.nullable(False), *pair)),
        st.lists(inner, min_size=3, max_size=5)
        .filter(lambda parts: len(parts) % 2 == 1)
        .map(
            lambda parts: Conditional(types.BOOLEAN.nullable(types.any_nullable(e.type for e in parts)), tuple(parts))
        ),
    )


def reference(expression: Expr, row: tuple[Any, ...]) -> bool | None:
    """Computes an expression by the tables of three-valued logic."""
    match expression:
        case InputRef():
            return row[expression.index]  # type: ignore[no-any-return]
        case Constant():
            return expression.value  # type: ignore[no-any-return]
        case Not():
            value = reference(expression.operand, row)
            return None if value is None else not value
        case Is():
            return reference(expression.operand, row) is expression.value
        case Logical():
            values = [reference(each, row) for each in expression.operands]
            decided = expression.operator == "OR"
            return decided if decided in values else None if None in values else not decided
        case Conditional():
            *parts, otherwise = expression.parts
            for condition, result in zip(parts[::2], parts[1::2], strict=True):
                if reference(condition, row):
                    return reference(result, row)
            return reference(otherwise, row)
    raise AssertionError(expression)


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@given(st.recursive(leaves(), larger, max_leaves=15))
def test_three_valued_logic(expression: Expr) -> None:
    rows = [(a, b, c) for a in TRUTH for b in TRUTH for c in TRUTH]
    assert run(expression, rows) == [reference(expression, row) for row in rows]


def test_in_is_null_if_it_is_not_found_among_nulls() -> None:
    fields = (Field("n", types.INTEGER),)
    values = tuple(Constant(types.INTEGER.nullable(each is None), each) for each in (1, 2, None))
    expression = Membership(types.BOOLEAN, InputRef(types.INTEGER, 0), values)
    assert run(expression, [(1,), (3,), (None,)], fields) == [True, None, None]


@pytest.mark.parametrize("count", [3, 40, 300])
def test_long_chains_and_cases(count: int) -> None:
    column = InputRef(types.INTEGER, 0)
    fields = (Field("n", types.INTEGER),)

    def equals(n: int) -> Expr:
        return Operation(types.BOOLEAN, "=", (column, Constant(types.INTEGER.nullable(False), n)))

    either = Logical(types.BOOLEAN, "OR", tuple(map(equals, range(count))))
    assert run(either, [(0,), (count - 1,), (count,), (None,)], fields) == [True, True, False, None]
    parts: list[Expr] = []
    for n in range(count):
        parts += [equals(n), Constant(types.INTEGER.nullable(False), -n)]
    case = Conditional(types.INTEGER, (*parts, Constant(types.INTEGER, None)))
    assert run(case, [(0,), (count - 1,), (count,), (None,)], fields) == [0, 1 - count, None, None]


# ---- queries --------------------------------------------------------------------------------------------------------

TABLE = """CREATE TABLE t (a INT, b INT NOT NULL, c STRING, d DOUBLE, e DECIMAL(10, 2), tags ARRAY<STRING>,
  address ROW<city STRING, zip INT>) WITH ('topic' = 't');"""


def query(text: str, rows: list[tuple[Any, ...]]) -> Mapped:
    script = Script()
    script.run(TABLE)
    (statement,) = parse(text)
    assert isinstance(statement, statements.QueryStatement)
    relation: Relation = optimize(script.binder().query(statement.query))
    steps: tuple[Step, ...] = ()
    while isinstance(relation, Calc):
        steps = (Step(relation.condition, relation.projections), *steps)
        relation = relation.input
    assert isinstance(relation, Scan)
    names = [each.name for each in script.catalog.tables["t"].columns]
    read = [names.index(each.name) for each in relation.fields]
    run = compiled(Fragment(FromRows(relation.fields), steps, ToRows()))
    return run([tuple(row[i] for i in read) for row in rows])


def row(a: Any = None, b: int = 0, c: Any = None, d: Any = None, e: Any = None) -> tuple[Any, ...]:
    return a, b, c, d, e, ["x", "y"], ("Rome", 7)


def test_a_row_that_fails_fails_alone() -> None:
    found = query("SELECT 10 / b, CAST(c AS INT) FROM t", [row(b=2, c="1"), row(b=0, c="1"), row(b=5, c="x"), row(b=1)])
    assert found.values == [(5, 1), (10, None)]
    assert found.positions == [0, 3]
    assert {position: str(error) for position, error in found.failed.items()} == {
        1: "10 / b: division by zero",
        2: "CAST(c AS INT): 'x' is not a whole number",
    }


def test_and_or_and_case_compute_only_what_they_need() -> None:
    rows = [row(b=0), row(b=2)]
    assert query("SELECT b FROM t WHERE b <> 0 AND 10 / b > 1", rows).values == [(2,)]
    assert query("SELECT b = 0 OR 10 / b = 5 FROM t", rows).values == [(True,), (True,)]
    assert query("SELECT CASE WHEN b = 0 THEN NULL ELSE 10 / b END FROM t", rows).values == [(None,), (5,)]
    assert query("SELECT COALESCE(NULLIF(b, 2), 10 / b) FROM t", [row(b=2), row(b=1)]).values == [(5,), (1,)]


def test_integers_that_overflow_fail() -> None:
    found = query("SELECT b + 2147483647, b * b, -b FROM t", [row(b=0), row(b=1), row(b=-2147483648)])
    assert found.values == [(2147483647, 0, 0)]
    assert "2147483648 is out of range of INT" in str(found.failed[1])
    assert sorted(found.failed) == [1, 2]


def test_divisions_are_those_of_the_types() -> None:
    found = query("SELECT 7 / 2, -7 / 2, MOD(-7, 2), 7 / 2.0, 7e0 / 2, d / 0 FROM t", [row(d=1.0)])
    (values,) = found.values
    assert values[:3] == (3, -3, -1)
    assert str(values[3]) == "3.500000"
    assert values[4:] == (3.5, float("inf"))


def test_rows_and_arrays() -> None:
    found = query("SELECT address.city, tags[2], tags[3], ARRAY[a, 2], address.zip + 1 FROM t", [row(a=1)])
    assert found.values == [("Rome", "y", None, [1, 2], 8)]


def test_a_row_of_null_is_not_null() -> None:
    assert query("SELECT ROW(a, c), ROW(a, b) IS NULL FROM t", [row(b=1)]).values == [((None, None), False)]


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("'ab%'", {"ab": True, "abc": True, "xab": False}),
        ("'%ab'", {"ab": True, "xab": True, "abx": False}),
        ("'%ab%'", {"xabx": True, "axb": False}),
        ("'ab'", {"ab": True, "abc": False}),
        ("'a_c%'", {"abc": True, "abcd\n": True, "ac": False}),
        ("'50!%' ESCAPE '!'", {"50%": True, "500": False}),
        ("'%'", {"": True, "\n": True}),
        ("'a.c'", {"a.c": True, "abc": False}),
    ],
)
def test_like(pattern: str, texts: dict[str, bool]) -> None:
    found = query(f"SELECT c LIKE {pattern}, c NOT LIKE {pattern} FROM t", [row(c=each) for each in [*texts, None]])
    assert found.values == [*((each, not each) for each in texts.values()), (None, None)]


@given(st.text(max_size=25) | st.integers().map(str) | st.from_regex(r"\s{0,3}[+-]?[0-9]{1,25}\s{0,3}", fullmatch=True))
def test_the_short_way_of_a_cast_gives_what_the_long_way_does(text: str) -> None:
    from rmqio.sql import values

    found = query("SELECT CAST(c AS BIGINT), CAST(SUBSTRING(c, 1, 1000) AS BIGINT) FROM t", [row(c=text)])
    try:
        wanted = values.integer_of_text(text, 64)
    except values.ValueFailure:
        assert found.failed
    else:
        assert found.values == [(wanted, wanted)]
