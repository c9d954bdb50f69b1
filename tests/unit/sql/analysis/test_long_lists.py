"""IN with a list of thousands of constants: planned with few steps, to the same as a short one."""

from __future__ import annotations

import pickle
import sys

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.scripts.script import Script
from rmqio.sql.syntax import nodes
from tests.unit.sql.evaluating import _expression, bound, evaluate

TABLE = "CREATE TABLE t (id BIGINT, s STRING, d DECIMAL(10, 2), day DATE) WITH ('topic' = 't');"
MANY = 5_000
MIXED = ["1", "-2", "3.5", ".5", "1e3", "'a'", "'it''s, (so)'", "''", "  4", "5\n"] * 5


@pytest.mark.parametrize(
    "condition",
    [
        f"id IN ({', '.join(map(str, range(MANY)))})",
        f"id NOT IN ({','.join(map(str, range(MANY)))})",
        "s IN (" + ", ".join(f"'k{number}'" for number in range(MANY)) + ")",
        "s NOT IN (" + ",\n".join(f"'it''s {number}'" for number in range(MANY)) + ")",
    ],
    ids=lambda condition: condition[:12],
)
def test_thousands_of_constants_are_planned_with_few_calls_for_each(condition: str) -> None:
    """There are 80; with a token and a node for each, there would be 1,700."""
    script = Script()
    script.run(TABLE)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        script.run(f"EXPLAIN SELECT id FROM t WHERE {condition}")
        explain(script.explained)
    finally:
        sys.setprofile(None)
    assert calls < 200 * MANY


def test_a_long_list_has_the_nodes_of_its_items_at_their_places() -> None:
    items = ",".join(MIXED)
    text = f"SELECT 1 IN ({items}) FROM t"
    found = _expression(text)
    assert isinstance(found, nodes.InList)
    places = [text[each.span.start : each.span.end] for each in found.items]
    assert places == [each.strip() for each in MIXED]
    numbers, texts = [1, -2, 3.5, 0.5, 1e3, 4, 5], ["a", "it's, (so)", ""]
    values = [each.value if each.kind == "string" else float(each.value) for each in found.items]  # type: ignore[attr-defined]
    assert values == [*numbers[:5], *texts, *numbers[5:]] * 5


@pytest.mark.parametrize(
    ("expression", "row", "expected"),
    [
        ("a IN ({})", {"a": ("INT", 39)}, True),
        ("a IN ({})", {"a": ("BIGINT", -7)}, True),
        ("a NOT IN ({})", {"a": ("BIGINT", 40)}, True),
        ("a IN ({})", {"a": ("DOUBLE", 39.0)}, True),
        ("a IN ({})", {"a": ("DECIMAL(10, 2)", None)}, None),
        ("a IN ({}, 5000000000)", {"a": ("INT", 3)}, True),
        ("a IN ({}, 2.5)", {"a": ("INT", 3)}, True),
        ("a IN ({}, NULL)", {"a": ("INT", 99)}, None),
        ("a IN ({}, a)", {"a": ("INT", 99)}, True),
        ("a IN ({} /* no more */)", {"a": ("INT", 99)}, False),
    ],
)
def test_lists_long_and_short_are_equal(expression: str, row: dict[str, tuple[str, object]], expected: object) -> None:
    items = [*map(str, range(40)), "-7"]
    assert evaluate(expression.format(", ".join(items)), row) is expected
    short = " OR ".join(f"({expression.format(','.join(items[at : at + 10]))})" for at in range(0, len(items), 10))
    if "NOT" not in expression:
        assert evaluate(short, row) is expected


@pytest.mark.parametrize(
    ("condition", "marked", "message"),
    [
        ("id IN ({numbers}, 'x')", "'x'", "BIGINT and STRING cannot be compared: use CAST"),
        ("day IN ({days}, '2024-13-01')", "'2024-13-01'", "'2024-13-01' is not a date"),
        ("id IN ({numbers},, 7)", ",", "unexpected ,: expected an expression"),
        ("id IN ({numbers} 7)", "7", "unexpected 7"),
    ],
)
def test_errors_in_long_lists_have_their_place(condition: str, marked: str, message: str) -> None:
    numbers = ", ".join(map(str, range(50)))
    days = ", ".join(f"'2024-01-{day:02}'" for day in [*range(1, 32), 1, 2, 3])
    text = f"{TABLE}\nEXPLAIN SELECT id FROM t WHERE {condition.format(numbers=numbers, days=days)}"
    with pytest.raises(SqlError) as raised:
        Script().run(text)
    assert message in str(raised.value)
    assert raised.value.shown.split("\n")[1].count("^") == len(marked)


def test_a_membership_travels_as_it_is() -> None:
    found, _ = bound(f"a IN ({', '.join(map(str, range(40)))}, NULL)", {"a": ("BIGINT", 1)})
    copied = pickle.loads(pickle.dumps(found))
    assert (copied, hash(copied)) == (found, hash(found))
