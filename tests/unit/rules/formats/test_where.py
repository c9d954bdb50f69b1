"""Conditions of SQL as rules: three-valued logic by atoms, and the rest as expressions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("lark", reason="the extra sql is not installed")
pytest.importorskip("msgspec", reason="the extra sql is not installed")

from rmqio.rules.formats import RuleText, parse
from rmqio.rules.ir import Atom, Kind, atoms
from rmqio.rules.where import condition_of, sql_predicate
from rmqio.sql.errors import SqlError
from tests.helpers.rules.meaning import both_hold, holds

_NUMBERS = st.sampled_from(["1", "2", "-1", "1.5", "NULL"])
_TEXTS = st.sampled_from(["'a'", "'ab'", "'b*'", "NULL"])
_OPERATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_NUMBER_FIELD = st.sampled_from(["n", "m"])
_TEXT_FIELD = st.sampled_from(["s", "t"])
_TESTS = st.one_of(
    st.tuples(_NUMBER_FIELD, _OPERATORS, _NUMBERS).map(" ".join),
    st.tuples(_NUMBERS, _OPERATORS, _NUMBER_FIELD).map(" ".join),
    st.tuples(_TEXT_FIELD, st.sampled_from(["=", "<>"]), _TEXTS).map(" ".join),
    st.tuples(_NUMBER_FIELD, st.sampled_from(["IN", "NOT IN"]), st.lists(_NUMBERS, min_size=1, max_size=3)).map(
        lambda parts: f"{parts[0]} {parts[1]} ({', '.join(parts[2])})"
    ),
    st.tuples(_NUMBER_FIELD, st.sampled_from(["", "NOT "]), _NUMBERS, _NUMBERS).map(
        lambda parts: f"{parts[0]} {parts[1]}BETWEEN {parts[2]} AND {parts[3]}"
    ),
    st.tuples(_TEXT_FIELD, st.sampled_from(["LIKE", "NOT LIKE"]), st.sampled_from(["'a%'", "'%b'", "'%a%'", "'_'",
              "'a_'", "'%'", "''", "'b*'", "'a%b'"])).map(" ".join),
    st.tuples(st.sampled_from(["n", "s", "f"]), st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
    st.tuples(st.just("n"), _OPERATORS, st.just("m")).map(" ".join),
    st.tuples(st.just("s"), st.sampled_from(["=", "<>"]), st.just("t")).map(" ".join),
    st.sampled_from(["f", "f = TRUE", "TRUE", "FALSE", "n + 1 > 2", "ABS(n) = 1", "COALESCE(n, 1) = m",
                     "CHAR_LENGTH(s) = 1", "LOWER(s) = t"]),
)  # fmt: skip
_WHERE = st.recursive(
    _TESTS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map(lambda parts: f"({''.join(parts)})"),
        inner.map(lambda text: f"NOT ({text})"),
        st.tuples(inner, st.sampled_from(["IS TRUE", "IS NOT TRUE", "IS FALSE", "IS UNKNOWN", "IS NOT UNKNOWN"])).map(
            lambda parts: f"({parts[0]}) {parts[1]}"
        ),
    ),
    max_leaves=5,
)
_EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.sampled_from([None, 1, 2, 1.5, -1]), "m": st.sampled_from([None, 1, 1.0, 2]),
        "s": st.sampled_from([None, "a", "ab", "b*", "", "B"]), "t": st.sampled_from([None, "a", "b"]),
        "f": st.sampled_from([None, True, False]),
    },
)  # fmt: skip
_LISTS = st.dictionaries(
    st.sampled_from("nm"), st.recursive(st.sampled_from([None, 1, 2, -1]), lambda each: st.lists(each, max_size=3))
).flatmap(
    lambda numbers: st.dictionaries(
        st.sampled_from("stf"),
        st.sampled_from([[], [None], ["a", None], ["a", "ab"], [[], ["b*"]], "a", {}, [{}], 1, "true", [False, 1]]),
    ).map(lambda texts: numbers | texts)
)  # fmt: skip
_COLUMNS = "n DOUBLE, m DOUBLE, s VARCHAR, t VARCHAR, f BOOLEAN"


@given(_WHERE, st.lists(_EVENTS | _LISTS, min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_atoms_say_what_sql_says(where: str, events: list[dict[str, Any]]) -> None:
    condition = condition_of(where)
    predicate = sql_predicate(where)
    for event in events:
        assert holds(condition, event) == predicate(event), event


@given(st.lists(st.tuples(_WHERE, _EVENTS), min_size=20, max_size=40))
@settings(max_examples=4, deadline=None)
def test_duckdb_says_the_same(cases: list[tuple[str, dict[str, Any]]]) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB, the oracle, is not installed")
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE events ({_COLUMNS})")
    for where, event in cases:
        connection.execute("DELETE FROM events")
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", [event.get(name) for name in "nmstf"])
        text = where.replace("CHAR_LENGTH", "LENGTH").replace("UNKNOWN", "NULL")  # the same in its dialect
        ((count,),) = connection.execute(f"SELECT COUNT(*) FROM events WHERE {text}").fetchall()
        assert holds(condition_of(where), event) == bool(count), (where, event)


@pytest.mark.parametrize(
    ("where", "event", "matches"),
    [
        ("a > 5", {"a": "6"}, True),  # a text that spells a number
        ("a > 5", {"a": "many"}, False),
        ("NOT a > 5", {"a": "many"}, True),  # the value is there, and is not greater
        ("NOT a > 5", {"a": None}, False),
        ("NOT a > 5", {}, False),
        ("a = '5'", {"a": 5}, True),
        ("a LIKE '4%'", {"a": 46}, True),
        ("a = 1", {"a": [3, 1]}, True),
        ("a > 1", {"a": [3, 1]}, True),
        ("NOT a > 1", {"a": [3, 1]}, False),  # a member is greater
        ("NOT a > 5", {"a": [3, None]}, True),
        ("NOT ABS(a) > 5", {"a": [3, None]}, True),
        ("NOT ABS(a) > 1", {"a": [3, 1]}, False),
        ("NOT a > 5", {"a": []}, False),  # nothing is compared
        ("a IS NULL", {"a": [3, None]}, True),
        ("a IS NULL", {"a": []}, False),
        ("a <> b", {"a": [1, 2], "b": [2, 3]}, False),
        ("a.b = 1", {"a": {"b": 1}}, True),
        ("a.b = 1", {"a.b": 1}, True),
        ("`a.b` = 1", {"a": {"b": 1}}, True),
        ("a['b'] = 1", {"a": [{"b": 2}, {"b": 1}]}, True),
        ("LOWER(a) = 'x'", {"a": ["y", "X"]}, True),
        ("CAST(a AS INT) % 2 = 1", {"a": "7"}, True),
        ("CAST(a AS INT) % 2 = 1", {"a": "seven"}, False),
        ("NOT CAST(a AS INT) % 2 = 1", {"a": "seven"}, False),
        ("a / 0 > 1", {"a": 1}, True),  # numbers are DOUBLE: infinite
        ("a + 1 = 9007199254740994", {"a": 9007199254740993}, True),  # whole numbers are exact beyond 2^53
        ("a + 1 = 9007199254740994", {"a": "9007199254740992"}, False),
        ("a + 0 = 9007199254740993", {"a": 9007199254740992}, False),
        ("a + b = 9007199254740993", {"a": 9007199254740992, "b": 1}, True),
        ("-a = -9007199254740993", {"a": 9007199254740993}, True),
        ("ABS(a) = 9007199254740993", {"a": -9007199254740992}, False),
        ("a % 10 = 3", {"a": 9007199254740993}, True),
        ("a < b", {"a": 9007199254740992, "b": 9007199254740993}, True),
        ("a + 0 <> 9007199254740993", {"a": [9007199254740992, 9007199254740993]}, False),
        ("a + 0 IN (1, 9007199254740993)", {"a": 9007199254740993}, True),
        ("a + 0 BETWEEN 9007199254740993 AND 9007199254740995", {"a": 9007199254740992}, False),
        ("a + b > 9007199254740993", {"a": 9007199254740993, "b": 0.5}, False),  # one is not whole: DOUBLE
        ("a / 2 = 4503599627370496.5", {"a": 9007199254740993}, True),
        ("a / 0 > 1", {"a": 9007199254740993}, True),
        ("SQRT(a) > 9E7", {"a": 9007199254740993}, True),
        ("a = 9007199254740993", {"a": 9007199254740992}, False),
        ("CAST(a AS INT) / CAST(b AS INT) > 1", {"a": 1, "b": 0}, False),
        ("ts > TIMESTAMP '2020-01-01 00:00:00'", {"ts": "2021-01-01 00:00:00"}, True),
        ("ts > TIMESTAMP '2020-01-01 00:00:00'", {"ts": "soon"}, False),
        ("CASE a WHEN 5 THEN b ELSE 'z' END = 'q'", {"a": 5, "b": "q"}, True),
        ("name < 'm'", {"name": "bob"}, True),
        ("a IS DISTINCT FROM 5", {}, True),
        ("flag", {"flag": True}, True),
        ("flag", {"flag": "yes"}, False),
        ("NOT flag", {"flag": False}, True),
        ("NOT flag", {"flag": "false"}, True),
        ("NOT flag", {"flag": 1}, False),  # no boolean: unknown
        ("NOT flag", {"flag": "x"}, False),
        ("NOT flag", {"flag": [False, True]}, False),
        ("NOT flag", {"flag": ["x", False]}, True),
        ("flag IS UNKNOWN", {"flag": 1}, True),
        ("flag IS NOT TRUE", {"flag": 1}, True),
        ("flag OR NOT flag", {"flag": 1}, False),
        ("f IS JSON", {"f": "x"}, False),
        ("f IS JSON", {"f": '{"a": 1}'}, True),
        ("f IS JSON", {"f": 1}, True),
        ("f IS JSON", {"f": ["x", "1"]}, True),
        ("f IS JSON OBJECT", {"f": "[1]"}, False),
        ("f IS JSON ARRAY", {"f": "[1]"}, True),
        ("f IS NOT JSON", {"f": "x"}, True),
        ("f IS NOT JSON SCALAR", {"f": "1"}, False),
        ("f IS NOT JSON", {}, False),
        ("NOT f IS JSON", {"f": "x"}, True),
        ("NOT f IS NOT JSON", {"f": "{}"}, True),
        ("(f IS JSON) IS UNKNOWN", {"f": None}, True),
        ("UPPER(f) IS JSON", {"f": "{}"}, True),
        ("(f || '}') IS NOT JSON", {"f": "{"}, False),
        ("EXTRACT(YEAR FROM CAST(f AS TIMESTAMP)) = 2020", {"f": "2020-01-02 00:00:00"}, True),
        ("TIMESTAMPADD(DAY, 1, CAST(f AS DATE)) = DATE '2020-01-03'", {"f": "2020-01-02", "DAY": 5}, True),
        ("TIMESTAMPDIFF(DAY, CAST(f AS DATE), DATE '2020-01-03') = 1", {"f": "2020-01-02"}, True),
        ("FLOOR(CAST(f AS TIMESTAMP) TO DAY) = TIMESTAMP '2020-01-02 00:00:00'", {"f": "2020-01-02 03:04:05"}, True),
        ("POSITION('x' IN f) = 2", {"f": "axe"}, True),
        ("POSITION(g IN f) = 2", {"f": ["o", "axe"], "g": "x"}, True),
        ("OVERLAY(f PLACING g FROM 2) = 'aye'", {"f": "axe", "g": "y"}, True),
        ("TRIM(LEADING g FROM f) = 'axx'", {"f": "xaxx", "g": "x"}, True),
        ("SUBSTRING(f FROM CAST(n AS INT) FOR 1) = 'x'", {"f": "axe", "n": 2}, True),
        ("JSON_OBJECT('a' VALUE f) = '{\"a\":\"x\"}'", {"f": "x"}, True),
        ("JSON_VALUE(f, 'lax $.a' DEFAULT g ON EMPTY) = 'y'", {"f": "{}", "g": "y"}, True),
        ("(f, n) = ('x', 1)", {"f": "x", "n": 1}, True),
        ("(f, n) = ('x', 1)", {"f": "x", "n": "many"}, False),
        ("(f, n) <> ('x', 1)", {"f": "x", "n": "many"}, True),
        ("(f, n) <> ('x', 1)", {"f": "x"}, False),
        ("(f, n) <> ('x', 1)", {"f": "y"}, True),
        ("(f, n) IN (('x', 1), (g, 2))", {"f": ["a", "z"], "g": "z", "n": 2}, True),
        ("(f, n) NOT IN (('x', 1), (g, 2))", {"f": ["a", "z"], "g": "z", "n": 2}, False),
        ("(f, n) IS NOT DISTINCT FROM ('x', NULL)", {"f": "x"}, True),
        ("(f, n) IS DISTINCT FROM ('x', 1)", {"f": "x"}, True),
        ("f IS DISTINCT FROM DATE '2020-01-02'", {"f": "soon"}, True),
        ("DATE '2020-01-02' IS NOT DISTINCT FROM f", {"f": "2020-01-02"}, True),
        ("ARRAY[f, 'y'] = ARRAY['x', g]", {"f": "x", "g": "y"}, True),
        ("CARDINALITY(MAP['a', f]) = 1", {"f": "x"}, True),
        ("NOT flag = TRUE", {"flag": 1}, True),  # a comparison: the value is there, and is not equal
        (r"a LIKE '5\%'", {"a": "5%"}, False),
        (r"a LIKE '5\%'", {"a": r"5\0"}, True),
        (r"a LIKE '5\_'", {"a": r"5\0"}, True),
        (r"a LIKE 'c:\x%'", {"a": r"c:\xyz"}, True),
        (r"a LIKE 'c:\x%'", {"a": "c:\\"}, False),
        (r"a LIKE '%\temp\%'", {"a": r"c:\temp\x.exe"}, True),
        (r"a LIKE '%\temp\%'", {"a": r"c:\temp%"}, False),
        (r"a LIKE '%\temp\_'", {"a": r"c:\temp\x"}, True),
        (r"a LIKE '%\temp\_%?'", {"a": r"c:\temp\x*?"}, True),
        (r"NOT a LIKE '%\temp\%'", {"a": r"c:\temp\x.exe"}, False),
        (r"a LIKE '%\_%' ESCAPE '\'", {"a": "x_y"}, True),
        ("a LIKE '5!%' ESCAPE '!'", {"a": "5%"}, True),
        ("a = 5.0", {"a": "5"}, True),
        ("a = 5.0", {"a": 5}, True),
        ("a IN (1.5, 5e0)", {"a": "5"}, True),
        ("a <> 5.0", {"a": "5"}, False),
    ],
)
def test_what_a_condition_means(where: str, event: dict[str, Any], matches: bool) -> None:
    assert both_hold(condition_of(where), event) is matches
    if "NOT a >" not in where or event.get("a") != "many":
        assert sql_predicate(where)(event) is matches


_LIKE = st.text("a\\%_*?\0\n", max_size=5)


@given(_LIKE, _LIKE)
@settings(max_examples=300, deadline=None)
def test_patterns_mean_the_same_to_the_engine_and_to_sql(pattern: str, text: str) -> None:
    where = f"a LIKE '{pattern}'"
    for each in (text, pattern, pattern.replace("\\", "").replace("%", "\n").replace("_", "a")):
        assert both_hold(condition_of(where), {"a": each}) is sql_predicate(where)({"a": each}), (pattern, each)


def test_only_what_is_no_comparison_stays_sql() -> None:
    found = atoms(condition_of("a > 5 AND b IN ('x', 'y') AND c LIKE '%z%' AND UPPER(d) = 'W' AND e IS NOT NULL"))
    sql = [each for each in found if each.kind is Kind.SQL]
    assert sql == [Atom(None, Kind.SQL, "UPPER(d) = 'W'")]


def test_a_long_condition_is_no_problem() -> None:
    condition = condition_of(" OR ".join(f"a = {number}" for number in range(1_000)))
    assert holds(condition, {"a": 999})
    assert holds(condition_of("(" * 100 + "a = 1" + ")" * 100), {"a": 1})


def test_combinations_of_lists_are_bounded() -> None:
    event = {name: list(range(200)) for name in "abcd"}
    assert not sql_predicate("a + b + c + d < 0")(event)


@pytest.mark.parametrize(
    ("where", "column", "message"),
    [
        ("a >", 3, "the statement is not complete"),
        ("LOWR(a) = 'x'", 1, "there is no function LOWR: did you mean 'LOWER'?"),
        ("b = 1 AND SUM(a) > 5", 11, "SUM is an aggregate function"),
        ("a[1] = 2", 1, "contain the name of a field in quotes"),
        (f"a > {1:05000}", 5, "this number has more than 1000 digits"),
        (f"a IN (1, -{1:05000})", 11, "this number has more than 1000 digits"),
        ("a > 5 GROUP BY x", 0, "no other clause and no statement can follow a condition"),
        ("a + 'x' > 2", 5, "takes numbers"),
        ("EXTRACT(YER FROM f) = 1", 9, "YER is not a unit of time"),
        ("EXTRACT(YEAR FROM f) = 1", 1, "YEAR takes a DATE or a TIMESTAMP, not STRING"),
        ("TIMESTAMPADD(DAY, 1, f) > g", 22, "TIMESTAMPADD adds to a time, not STRING"),
        ("FLOOR(f TO DAY) = g", 7, "FLOOR TO rounds a time, not STRING"),
        ("f = ARRAY['x']", 5, "a field is a text, a number, a boolean or a time, and no ARRAY<STRING>"),
        ("f IN (1, ROW('x'))", 10, "and no ROW<"),
        ("INTERVAL '1' DAY <> f", 1, "and no INTERVAL DAY TO SECOND"),
        ("f IS DISTINCT FROM MAP['a', 1]", 20, "and no MAP<STRING, INT>"),
        ("(f, g) = ('x', 1, 2)", 1, "cannot be compared"),
        ("EXISTS (SELECT 1 FROM t)", 1, "a sub-query cannot be used in a condition"),
    ],
)
def test_a_mistake_is_shown_with_a_caret(where: str, column: int, message: str) -> None:
    with pytest.raises(SqlError, match=r".") as caught:
        condition_of(where)
    assert message in caught.value.message
    assert caught.value.column == column


_FILE = """\
-- Rules of the shop; this line is prose.

-- id: large-order
-- title: A large order
-- level: high
-- tags: fraud, orders
amount > 10000
  AND country = 'a;b' -- a comment; with a semicolon
;
/* another; one */
-- id: no-country
country IS NULL
"""


def test_a_file_has_several_rules_with_their_comments() -> None:
    found = parse([RuleText("shop.sql", _FILE)])
    assert not found.problems
    large, other = found.rules
    assert (large.id, large.title, large.level, large.tags) == (
        "large-order",
        "A large order",
        "high",
        ("fraud", "orders"),
    )
    assert (large.place.line, other.place.line) == (1, 11)
    assert holds(large.condition, {"amount": 10001, "country": "a;b"})
    assert holds(other.condition, {})


def test_one_rule_has_the_name_of_its_file() -> None:
    (rule,) = parse([RuleText("rules/big.sql", "a > 5")]).rules
    assert rule.id == "big"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a > 5;\nb > 5", 1, "the rule has no id"),
        ("-- id: x\na > 5 AND\nLOWR(b) = 'x'", 3, "did you mean 'LOWER'?"),
        ("-- id: x\n-- levle: high\na > 5", 2, "the key 'levle' is not known; did you mean level?"),
        ("-- id: x\n-- id: y\na > 5", 2, "the key 'id' is listed twice"),
        ("-- id: x\n-- level: worst\na > 5", 1, "level: 'worst' is not one of"),
    ],
)
def test_a_mistake_in_a_file_has_its_line(text: str, line: int, reason: str) -> None:
    problem = parse([RuleText("r.sql", text)]).problems[0]
    assert problem.line == line
    assert reason in problem.reason
