"""Functions in Python: their types by hints, what they are called with, and what becomes of their results."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from hypothesis import given
from hypothesis import strategies as st

from rmqio.sql import values
from rmqio.sql.compile.description import Fragment, FromRows, Mapped, Step, ToRows, step_of
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.planning.plan import Calc, Constants, Relation, Scan
from rmqio.sql.planning.relations import Expand
from rmqio.sql.scripts.script import Script
from rmqio.sql.user import functions
from rmqio.sql.user.definition import FunctionError
from tests.unit.sql import user_functions

MODULE = "tests.unit.sql.user_functions"
TABLE = """CREATE TABLE t (a INT, b STRING, n BIGINT NOT NULL, amount DECIMAL(10, 2), tags ARRAY<STRING>, m MAP<STRING,
  INT>, numbers ARRAY<INT>, places ARRAY<ROW<city STRING, zip INT>>, day DATE, at TIME(3), ts TIMESTAMP(3), d DOUBLE,
  utc TIMESTAMP_LTZ(3), ok BOOLEAN, x BYTES, place ROW<city STRING, zip INT>) WITH ('topic' = 't');"""


def script_of(*functions: str) -> Script:
    script = Script()
    script.run("".join(f"CREATE FUNCTION {each.lower()} AS '{MODULE}:{each}' LANGUAGE PYTHON;" for each in functions))
    script.run(TABLE)
    return script


@functools.cache
def plan(query: str, *functions: str) -> Relation:
    script = script_of(*functions)
    script.run(f"EXPLAIN {query}")
    return script.explained[0]


@functools.cache
def compiled_query(query: str, *functions: str) -> tuple[Callable[..., Mapped], list[str]]:
    """Returns the function of a query without a shuffle, and the columns that it reads."""
    relation = plan(query, *functions)
    steps: tuple[Step, ...] = ()
    while not isinstance(relation, (Scan, Constants)):
        if isinstance(relation, Expand):
            made: Step = step_of(relation)
        else:
            assert isinstance(relation, Calc)
            made = Step(relation.condition, relation.projections)
        steps = (made, *steps)
        relation = relation.inputs()[0]
    return compiled(Fragment(FromRows(relation.fields), steps, ToRows())), [each.name for each in relation.fields]


def run(query: str, *functions: str, **row: Any) -> Mapped:
    """Runs a query over one row, whose other columns are NULL."""
    run_it, columns = compiled_query(query, *functions)
    return run_it([tuple(row.get(each) for each in columns)])


def value(query: str, *functions: str, **row: Any) -> Any:
    found = run(f"SELECT {query} FROM t", *functions, **row)
    for error in found.failed.values():
        raise error
    ((one,),) = found.values
    return one


def failure(query: str, *functions: str, **row: Any) -> str:
    found = run(f"SELECT {query} FROM t", *functions, **row)
    assert not found.values
    return str(found.failed[0])


# ---- NULL -----------------------------------------------------------------------------------------------------------


def test_null_is_null_without_a_call_unless_the_parameter_can_be_none() -> None:
    user_functions.calls.clear()
    assert value("clean(b)", "clean") is None
    assert user_functions.calls == []
    assert value("clean(b, a)", "clean", b=" Ab ") == "ab"
    assert user_functions.calls == [(" Ab ", None)]
    assert value("known(b)", "known") == "nothing"
    assert value("clean(NULL)", "clean") is None


def test_the_result_can_be_null_if_the_call_can_be_left_out_or_the_hint_says_it() -> None:
    found = plan("SELECT same_int(n), same_int(a), known(b) FROM t", "same_int", "known")
    assert [each.type.is_nullable for each in found.fields] == [False, True, False]


# ---- calls ----------------------------------------------------------------------------------------------------------


def test_arguments_become_the_types_of_the_parameters() -> None:
    assert value("of_all(a, n, 3)", "of_all", a=1, n=2) == 6
    assert value("of_all(a)", "of_all", a=1) == 1
    assert value("same_float(a)", "same_float", a=3) == 3.0
    assert value("same_date('2024-01-31')", "same_date") == values.date_of_text("2024-01-31")
    assert value("tripled(amount)", "tripled", amount=Decimal("1.50")) == Decimal("4.5")


def test_a_function_changes_its_own_lists_only() -> None:
    numbers, names = [1, None, 2], {"x": 1}
    assert value("shares(d, numbers, m)", "shares", d=4.0, numbers=numbers, m=names) == [4.0, 2.0, 4.0]
    assert (numbers, names) == ([1, None, 2], {"x": 1})


def test_times_and_rows_are_pythons_own() -> None:
    moment = dt.datetime(2024, 2, 29, 12, 30, 1, 500_000)
    row = {"day": values.days_of(moment.date()), "at": 45_001_500_000, "ts": values.micros_of(moment)}
    assert value("next_day(day, at, ts)", "next_day", **row) == values.micros_of(moment) + values.DAY_US
    assert value("moved(place, ROW('x', 2))", "moved", place=("Rome", 7)) == ("Romex", 9)
    assert value("moved(place, ROW('x', 2)).zip", "moved", place=("Rome", None)) is None


def test_names_ignore_case_and_a_name_can_be_nested() -> None:
    script = Script()
    script.run(f"{TABLE} CREATE FUNCTION Twice AS '{MODULE}.Plain.doubled' LANGUAGE python;")
    script.run("CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS twice AS 'no.such' LANGUAGE PYTHON;")
    script.run("EXPLAIN SELECT TWICE(a) FROM t; DROP FUNCTION tWICE; DROP FUNCTION IF EXISTS twice;")
    assert "Twice(CAST(a AS BIGINT))" in explain(script.explained)


def test_an_occurrence_is_a_call_unless_the_function_is_deterministic() -> None:
    user_functions.calls.clear()
    run("SELECT clean(b), clean(b) || 'x', UPPER(clean(b)), UPPER(clean(b)) FROM t", "clean", b="x")
    assert len(user_functions.calls) == 4
    run("SELECT c, c || 'x' FROM (SELECT clean(b) AS c FROM t) WHERE c = 'x'", "clean", b="x")
    assert len(user_functions.calls) == 5
    user_functions.calls.clear()
    found = run("SELECT net(amount, 19), net(amount, 19) FROM t WHERE net(amount, 19) > 1", "net", amount=Decimal(119))
    assert found.values == [(Decimal("100.00"),) * 2]
    assert len(user_functions.calls) == 1


def test_conditions_and_case_call_only_what_they_need() -> None:
    user_functions.calls.clear()
    assert value("CASE WHEN a = 1 THEN clean(b) ELSE 'no' END", "clean", a=2, b="x") == "no"
    assert value("a = 1 AND clean(b) = 'x'", "clean", a=2, b="x") is False
    assert user_functions.calls == []


def test_functions_in_computed_columns_and_views() -> None:
    script = script_of("clean")
    script.run("CREATE TABLE c (b STRING, tidy AS clean(b)) WITH ('topic' = 'c'); CREATE VIEW v AS SELECT tidy FROM c;")
    script.run("DROP FUNCTION clean; EXPLAIN SELECT tidy FROM v;")
    assert "clean(b) AS tidy" in explain(script.explained)


ROUND_TRIPS: dict[str, tuple[str, str, st.SearchStrategy[Any]]] = {
    "same_int": ("n", "", st.integers(-(1 << 63), (1 << 63) - 1)),
    "same_text": ("b", "", st.text()),
    "same_float": ("d", "", st.floats(allow_nan=False)),
    "same_truth": ("ok", "", st.booleans()),
    "same_bytes": ("x", "", st.binary()),
    "same_decimal": ("amount", "DECIMAL(10, 2)", st.decimals(-(10**8) + 1, 10**8 - 1, places=2)),
    "same_date": ("day", "", st.integers(-719_162, 2_932_896)),
    "same_time": ("at", "", st.integers(0, values.DAY_US - 1)),
    "same_moment": ("ts", "", st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)),
    "same_instant": ("utc", "", st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda each: each * 1000)),
    "same_row": ("place", "", st.tuples(st.text(), st.none() | st.integers(-(1 << 31), (1 << 31) - 1))),
    "same_map": ("m", "", st.just({})),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
@given(data=st.data())
def test_a_value_comes_back_as_it_went(name: str, data: st.DataObject) -> None:
    column, kind, strategy = ROUND_TRIPS[name]
    given_value = data.draw(st.none() | strategy if column != "n" else strategy)
    if name == "same_map":
        days = data.draw(st.dictionaries(st.text(max_size=3), st.dates(), max_size=3))
        made = {key: values.days_of(each) for key, each in days.items()}
        pairs = ", ".join(f"'{key.replace(chr(39), chr(39) * 2)}', DATE '{each}'" for key, each in days.items())
        assert not pairs or value(f"same_map(MAP[{pairs}])", name) == made
        return
    call = f"CAST({name}({column}) AS {kind})" if kind else f"{name}({column})"
    assert value(call, name, **{column: given_value}) == given_value


# ---- what fails is a bad row ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "function", "row", "message"),
    [
        ("clean(b)", "clean", {"b": "bad"}, "function clean(b): ValueError: no such text"),
        ("clean(b)", "clean", {"b": "exit"}, "function clean(b): SystemExit: 3"),
        ("clean(b)", "clean", {"b": "close"}, "function clean(b): GeneratorExit"),
        ("clean(b)", "clean", {"b": "cancel"}, "function clean(b): CancelledError: too late"),
        (
            "clean(b)",
            "clean",
            {"b": "driver"},
            "function clean(b): OSError: no answer of postgresql://u:***@h/db?password=***",
        ),
        ("clean(b)", "clean", {"b": "bytes"}, "function clean(b): ValueError: b'***'"),
        ("clean(b)", "clean", {"b": "header"}, "function clean(b): ValueError: no header rb'***'"),
        ("clean(b)", "clean", {"b": "array"}, "function clean(b): ValueError: bytearray(b'***')"),
        ("clean(b)", "clean", {"b": "odbc"}, "function clean(b): OSError: not connected: Server=h;Uid=u;Pwd=***"),
        ("clean(b)", "clean", {"b": "jdbc"}, "OSError: no jdbc:sqlserver://h;user=u;password=***"),
        ("clean(b)", "clean", {"b": "sent"}, "function clean(b): OSError: Authorization: ***"),
        ("clean(b)", "clean", {"b": "dict"}, "function clean(b): ValueError: {'host': 'h', 'password': ***}"),
        ("clean(b)", "clean", {"b": "braces"}, "function clean(b): OSError: no login: DRIVER={X};UID=u;PWD=***"),
        ("clean(b)", "clean", {"b": "pair"}, "function clean(b): RuntimeError: ('password', '***')"),
        ("clean(b)", "clean", {"b": "command"}, "RuntimeError: ['psql', '--password', '***'] returned 1"),
        ("clean(b)", "clean", {"b": "names"}, "'password', 'user'"),
        ("clean(b)", "clean", {"b": "words"}, "function clean(b): ValueError: the password must not be empty"),
        ("clean(b)", "clean", {"b": "panic"}, "function clean(b): Panic: at the disco"),
        ("clean(b)", "clean", {"b": "group"}, "function clean(b): BaseExceptionGroup: all (1 sub-exception)"),
        ("clean(b)", "clean", {"b": "silent"}, "function clean(b): Silent without a text"),
        ("clean(b)", "clean", {"b": "leaving"}, "function clean(b): Silent without a text"),
        ("lies(n)", "lies", {"n": 0}, "function lies(n): it returned int, but its result is STRING"),
        ("lies(n)", "lies", {"n": 1}, "it returned None, but its result is STRING: the hint needs | None"),
        ("lies(n)", "lies", {"n": 2}, "function lies(n): it returned bytes, but its result is STRING"),
        ("lies(n)", "lies", {"n": 3}, "function lies(n): KeyError: 3"),
        ("lies(n)", "lies", {"n": 4}, "function lies(n): 'é\\ud800' has half of a surrogate pair, which is not UTF-8"),
        ("lies_within(n)", "lies_within", {"n": 0}, "function lies_within(n): '\\udfff' has half of a surrogate pair"),
        ("lies_within(n)", "lies_within", {"n": 1}, "function lies_within(n): '\\ud800' has half of a surrogate pair"),
        ("too_large(n)", "too_large", {"n": 63}, f"function too_large(n): {1 << 63} is out of range of BIGINT"),
        ("too_large(n)", "too_large", {"n": 99_999}, "too_large(n): int of 100,000 bits is out of range of BIGINT"),
        ("at_no_time(n)", "at_no_time", {"n": 0}, "it returned NaTType, but its result is TIMESTAMP(6)"),
        ("at_no_time(n)", "at_no_time", {"n": 1}, "it returned NAType, but its result is TIMESTAMP(6)"),
        ("endless(n)", "endless", {"n": 0}, "function endless(n): Infinity is out of range of DECIMAL(38, 18)"),
    ],
)  # fmt: skip
def test_a_row_is_bad_with_the_call_and_the_reason(call: str, function: str, row: dict[str, Any], message: str) -> None:
    assert message in failure(call, function, **row)


@pytest.mark.parametrize(("text", "error"), [("memory", MemoryError), ("ctrl-c", KeyboardInterrupt)])
def test_too_little_memory_and_ctrl_c_are_no_fault_of_a_row(text: str, error: type[BaseException]) -> None:
    with pytest.raises(error):
        failure("clean(b)", "clean", b=text)


# ---- table functions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "function", "row", "wanted"),
    [
        ("SELECT word, length FROM t, LATERAL TABLE(words(b))", "words", {"b": "a bc"}, [("a", 1), ("bc", 2)]),
        ("SELECT p, q FROM t CROSS JOIN LATERAL TABLE(words(b)) AS w(p, q)", "words", {"b": "a"}, [("a", 1)]),
        ("SELECT w.word FROM t JOIN LATERAL TABLE(words(b)) w ON w.length > 1", "words", {"b": "a bc"}, [("bc",)]),
        ("SELECT n, word FROM t LEFT JOIN LATERAL TABLE(words(b)) ON TRUE", "words", {"n": 7, "b": ""}, [(7, None)]),
        ("SELECT n, word FROM t LEFT JOIN LATERAL TABLE(words(b)) ON TRUE", "words", {"n": 7}, [(7, None)]),
        ("SELECT n, word FROM t, TABLE(words(b))", "words", {"n": 7}, []),
        ("SELECT f0 FROM t, letters(b) AS l", "letters", {"b": "abc"}, [("a",), ("b",)]),
        ("SELECT l FROM t, letters(b, 3) AS x(l)", "letters", {}, [("?",)]),
        ("SELECT f0, f1 FROM t, LATERAL TABLE(pairs(numbers))", "pairs", {"numbers": [1, 2]}, [(1, "1"), (2, "2")]),
        ("SELECT c.n, text FROM LATERAL TABLE(counted(2)) AS c", "counted", {}, [(0, "0"), (1, "1")]),
        ("SELECT w.length, f0 FROM t, LATERAL TABLE(words(b)) AS w, LATERAL TABLE(letters(w.word, 1))", "words letters",
         {"b": "a bc"}, [(1, "a"), (2, "b")]),
    ],
)  # fmt: skip
def test_table_functions(query: str, function: str, row: dict[str, Any], wanted: list[Any]) -> None:
    found = run(query, *function.split(), **row)
    assert found.values == wanted
    assert found.positions == [0] * len(wanted)


@pytest.mark.parametrize(
    ("query", "row", "message"),
    [
        ("SELECT word FROM t, LATERAL TABLE(words(b))", {"b": "a bad"}, "function words(b): ValueError: no such word"),
        ("SELECT word FROM t, LATERAL TABLE(words(b))", {"b": "a exit"}, "function words(b): SystemExit: so long"),
        ("SELECT word FROM t, LATERAL TABLE(words(b))", {"b": "a cancel"}, "words(b): CancelledError: too late"),
        ("SELECT word FROM t, LATERAL TABLE(words(b))", {"b": "a leaving"}, "words(b): Silent without a text"),
        ("SELECT CAST(word AS INT) FROM t, LATERAL TABLE(words(b))", {"b": "1 2 x"}, "'x' is not a whole number"),
        ("SELECT f0 FROM t, LATERAL TABLE(wrong_rows(n))", {"n": 0}, "1 values, but ROW<f0 BIGINT, f1 STRING> has 2"),
        ("SELECT f0 FROM t, LATERAL TABLE(wrong_rows(n))", {"n": 1}, "it returned int, but its result is STRING"),
        ("SELECT f0 FROM t, LATERAL TABLE(wrong_rows(n))", {"n": 2}, "it returned str, but its result is ROW"),
        ("SELECT f0 FROM t, LATERAL TABLE(wrong_rows(n))", {"n": 4}, "wrong_rows(n): '\\ud800' has half of a"),
        ("SELECT f0 FROM t, LATERAL TABLE(wrong_rows(n))", {"n": 3}, "TypeError: 'int' object is not iterable"),
    ],
)  # fmt: skip
def test_a_row_fails_with_all_that_it_became(query: str, row: dict[str, Any], message: str) -> None:
    found = run(query, "words", "wrong_rows", **row)
    assert (found.values, found.positions) == ([], [])
    assert message in str(found.failed[0])


# ---- modules --------------------------------------------------------------------------------------------------------


def beside(folder: Path, name: str, text: str) -> Script:
    (folder / f"{name}.py").write_text(text)
    file = folder / "job.sql"
    file.write_text("")
    script = Script()
    script.run(TABLE, str(file))
    return script


def test_a_module_beside_the_script_is_found(tmp_path: Path) -> None:
    script = beside(tmp_path, "beside_the_script", "import beside_that\ndef f(x: int) -> int: return beside_that.f(x)")
    (tmp_path / "beside_that.py").write_text("def f(x): return x + 1")
    script.run(
        "CREATE FUNCTION f AS 'beside_the_script.f' LANGUAGE PYTHON; EXPLAIN SELECT f(a) FROM t",
        str(tmp_path / "job.sql"),
    )
    assert sys.path[0] != str(tmp_path)
    assert sys.path[-1] == str(tmp_path)
    sys.path.remove(str(tmp_path))


def test_a_worker_finds_the_module_beside_the_script(tmp_path: Path) -> None:
    script = beside(tmp_path, "beside_for_workers", "def f(x: int) -> int: return x + 1")
    created = "CREATE FUNCTION f AS 'beside_for_workers.f' LANGUAGE PYTHON; EXPLAIN SELECT f(a) FROM t"
    script.run(created, str(tmp_path / "job.sql"))
    calc = script.explained[0]
    assert isinstance(calc, Calc)
    fragment = Fragment(FromRows(calc.input.fields), (Step(None, calc.projections),), ToRows())
    work = "import pickle, sys; from rmqio.sql.compile.fragment import compiled; f = pickle.load(sys.stdin.buffer); "
    done = subprocess.run(
        [sys.executable, "-c", f"{work} print(compiled(f)([(41,)]).values)"],
        input=pickle.dumps(fragment), capture_output=True, check=True, cwd="/",
    )  # fmt: skip
    assert done.stdout == b"[(42,)]\n"
    assert b"return x" not in pickle.dumps(fragment)
    sys.path.remove(str(tmp_path))


def test_a_worker_with_another_module_says_so(tmp_path: Path) -> None:
    function = script_of("clean").catalog.functions["clean"]
    with pytest.raises(FunctionError, match="function clean: there is no module gone; it is looked for"):
        functions.loaded(dataclasses.replace(function, module="gone"))
    with pytest.raises(FunctionError, match="differs from the one that the job was started with"):
        functions.loaded(dataclasses.replace(function, attribute="known"))


def test_a_module_that_hides_the_one_beside_the_script(tmp_path: Path) -> None:
    script = beside(tmp_path, "statistics", "def f(x: int) -> int: return x")
    import statistics

    assert statistics
    with pytest.raises(SqlError, match=r"the module statistics is another one, .*: rename that"):
        script.run("CREATE FUNCTION f AS 'statistics.f' LANGUAGE PYTHON", str(tmp_path / "job.sql"))
    sys.path.remove(str(tmp_path))
