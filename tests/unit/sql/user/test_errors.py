"""Statements with functions, UNNEST and LATERAL that are not valid: each with its place and its whole message."""

# ruff: noqa: E501 - a message is one line

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script
from rmqio.sql.user.definition import HOW
from tests.unit.sql.user.test_functions import MODULE, script_of

FUNCTIONS = ["clean", "of_all", "words", "Longest", "Rows", "same_list"]
KINDS = "int, str, float, bool, bytes, Decimal, date, time, datetime, list, dict, NamedTuple, dataclass"

# The path, and the message.
CREATED = [
    ("nothing_here.f", f"there is no module nothing_here; it is looked for in {{folder}} and on Python's path, and {HOW}"),
    (f"{MODULE}:clena", f"the module {MODULE} has no clena: did you mean 'clean'?"),
    (f"{MODULE}.Plain.tripled", "Plain has no tripled; there are doubled"),
    ("clean", "'clean' is not the name of a function; it must be like 'module.name' or 'package.module:name'"),
    ("my module.f", "'my module.f' is not the name of a function; it must be like 'module.name' or 'package.module:name'"),
    (f"{MODULE}.number", "it is int, not a function"),
    (f"{MODULE}.without_hints", "its parameter value has no type hint: write value: str, or state the types with a decorator of rmqio.sql"),
    (f"{MODULE}.without_result", "its result has no type hint: write def f(...) -> str, or state the type with a decorator of rmqio.sql"),
    (f"{MODULE}.of_object", f"its parameter value: object is not a type of SQL; there are {KINDS}"),
    (f"{MODULE}.of_list", "its parameter value: list is not a type of SQL: say of what, such as list[str]"),
    (f"{MODULE}.of_union", f"its parameter value: int | str is not a type of SQL; there are {KINDS}"),
    (f"{MODULE}.of_unknown", "its type hints cannot be resolved: name 'Nowhere' is not defined"),
    (f"{MODULE}.with_keyword", "its parameter value is keyword-only, but SQL passes arguments by position"),
    (f"{MODULE}.without_value", "its result is None: a function must return a value"),
    (f"{MODULE}.rows_of_what", "it returns rows, but its hint does not say of which type: write -> Iterator[tuple[str, int]], or Iterator of a NamedTuple"),
    (f"{MODULE}.later", "it is asynchronous, and a row is computed at once: write def without async"),
    (f"{MODULE}.of_no_type", "its decorator states 'DECIMALL(3)', which is not a type of SQL"),
    (f"{MODULE}.of_two", "input_types has 1 types, and the parameter two has none"),
    (f"{MODULE}.Plain", "it is a class, and no aggregate function: name a function, or a method of the class"),
    (f"{MODULE}.Unmerged", "an aggregate function needs merge: partial results of batches are always merged; the methods are create_accumulator, accumulate, merge, get_value, or those of Beam's CombineFn"),
    (f"{MODULE}.Untyped", "its accumulators are encoded by their type: write def create_accumulator(self) -> tuple[int, float], or @udaf(accumulator=...)"),
    (f"{MODULE}.Unsent", "cannot travel as <class 'object'>: Encoding objects of type object is unsupported; use numbers, text, list, tuple, dict, set, a NamedTuple or a dataclass"),
    (f"{MODULE}.Doomed", f"{MODULE}.Doomed cannot be the function f: it fails before the first row: Panic: not today"),
    ("math.sqrt", "its parameter x has no type hint: write x: str, or state the types with a decorator of rmqio.sql"),
]  # fmt: skip


def refused(statement: str, script: Script) -> SqlError:
    with pytest.raises(SqlError) as caught:
        script.run(statement, "job.sql")
    return caught.value


def marked(error: SqlError) -> str:
    shown, carets = error.shown.splitlines()
    return shown[carets.index("^") : carets.index("^") + carets.count("^")]


@pytest.mark.parametrize(("path", "message"), CREATED, ids=[each[0] for each in CREATED])
def test_what_is_no_function(path: str, message: str) -> None:
    error = refused(f"CREATE FUNCTION f AS '{path}' LANGUAGE PYTHON", script := Script())
    assert error.message.endswith(message.format(folder=script.folders[0]))
    assert marked(error) == f"'{path}'"
    if message.startswith(("it ", "its ", "an aggregate", "input_types")):
        assert error.message.startswith(f"{path} cannot be the function f: ")


STATEMENTS = [
    ("CREATE FUNCTION clean AS 'a.b' LANGUAGE PYTHON", "clean", "there is a function clean already"),
    ("CREATE FUNCTION Upper AS 'a.b' LANGUAGE PYTHON", "Upper", "UPPER is a function of SQL: choose another name"),
    ("CREATE FUNCTION count AS 'a.b' LANGUAGE PYTHON", "count", "COUNT is a function of SQL: choose another name"),
    ("CREATE FUNCTION g AS 'a.B'", None, "LANGUAGE PYTHON is missing: write CREATE FUNCTION g AS 'module.name' LANGUAGE PYTHON"),
    ("CREATE FUNCTION g AS 'a.B' LANGUAGE JAVA", None, "functions of JAVA do not run here: write CREATE FUNCTION g AS 'module.name' LANGUAGE PYTHON"),
    ("DROP FUNCTION claen", "claen", "there is no function claen: did you mean 'clean'?"),
]  # fmt: skip
QUERIES = [
    ("SELECT claen(b) FROM t", "claen(b)", "there is no function CLAEN: did you mean 'clean'?"),
    ("SELECT clean(a) FROM t", "a", "argument 1 of clean(text STRING, [keep BIGINT]) must be STRING, not INT: use CAST"),
    ("SELECT clean(b, b) FROM t", "b) FROM"[:1], "argument 2 of clean(text STRING, [keep BIGINT]) must be BIGINT, not STRING: use CAST"),
    ("SELECT clean() FROM t", "clean()", "clean does not take 0 arguments; it is clean(text STRING, [keep BIGINT])"),
    ("SELECT clean(b, 1, 2) FROM t", "clean(b, 1, 2)", "clean does not take 3 arguments; it is clean(text STRING, [keep BIGINT])"),
    ("SELECT of_all() FROM t", "of_all()", "of_all does not take 0 arguments; it is of_all(first BIGINT, others BIGINT, ...)"),
    ("SELECT same_list(numbers) FROM t", "numbers", "argument 1 of same_list(value ARRAY<ARRAY<BIGINT>>) must be ARRAY<ARRAY<BIGINT>>, not ARRAY<INT>: use CAST"),
    ("SELECT clean(nothing) FROM t", "nothing", "there is no column nothing; there are a, b, n, amount, tags, m, numbers, places, day, at ..."),
    ("SELECT clean(DISTINCT b) FROM t", "clean(DISTINCT b)", "DISTINCT, FILTER and * belong to aggregate functions, but clean is not one"),
    ("SELECT clean(*) FROM t", "clean(*)", "DISTINCT, FILTER and * belong to aggregate functions, but clean is not one"),
    ("SELECT clean(b) OVER () FROM t", "OVER ()", "clean is a function of your own, which cannot be used with OVER"),
    ("SELECT words(b) FROM t", "words(b)", "words is a table function, which is used in FROM: FROM t, LATERAL TABLE(words(...))"),
    ("SELECT a FROM t WHERE longest(b) = 'x'", "longest(b)", "longest is an aggregate function, which cannot be used in WHERE"),
    ("SELECT longest(longest(b)) FROM t", "longest(b)", "longest is an aggregate function, which cannot be used in another one"),
    ("SELECT longest(*) FROM t", "longest(*)", "longest(*) has no meaning: it is longest(word STRING)"),
    ("SELECT longest(a) FROM t", "a", "argument 1 of longest(word STRING) must be STRING, not INT: use CAST"),
    ("SELECT longest(b), n FROM t", "n", "n is neither in GROUP BY nor in an aggregate function"),
    ("SELECT rows(1) FROM t", "rows(1)", "rows does not take 1 arguments; it is rows()"),
    ("SELECT a FROM t, LATERAL TABLE(clean(b))", "clean(b)", "clean is a scalar function, but FROM takes a table function, with the hint Iterator[...] or the decorator @udtf"),
    ("SELECT a FROM t, LATERAL TABLE(longest(b))", "longest(b)", "longest is an aggregate function, but FROM takes a table function, with the hint Iterator[...] or the decorator @udtf"),
    ("SELECT a FROM t, LATERAL TABLE(wrods(b))", "wrods(b)", "there is no function WRODS: did you mean 'words'?"),
    ("SELECT a FROM t, LATERAL TABLE(UPPER(b))", "UPPER(b)", "UPPER is not a table function: UNNEST(...) makes rows of an array"),
    ("SELECT a FROM t, LATERAL TABLE(words(b)) AS w(x)", "x", "1 name for 2 columns"),
    ("SELECT a FROM t, LATERAL TABLE(words(b)) AS t", "t", "two tables of FROM have the name t: give one of them an alias"),
    ("SELECT a FROM t RIGHT JOIN LATERAL TABLE(words(b)) ON TRUE", None, "RIGHT JOIN has no meaning here: the right side is computed from the left side"),
    ("SELECT a FROM t LEFT JOIN UNNEST(tags) AS u ON u = b", "u = b", "LEFT JOIN takes ON TRUE here; put the condition into a CASE, or filter the array"),
    ("SELECT a FROM t JOIN UNNEST(tags) AS u USING (u)", "u", "USING is for two tables: write ON TRUE"),
    ("SELECT a FROM t JOIN UNNEST(tags) AS u ON a", "a", "a condition must be BOOLEAN, not INT"),
    ("SELECT a FROM t, UNNEST(b) AS u", "b", "UNNEST takes an ARRAY or a MAP, not STRING"),
    ("SELECT a FROM t, UNNEST(tag) AS u", "tag", "there is no column tag: did you mean 'tags'?"),
    ("SELECT a FROM UNNEST(tags) AS u", "tags", "there is no column tags"),
    ("SELECT a FROM t, UNNEST(tags) AS u (x, y)", "x", "2 names for 1 column"),
    ("SELECT UNNEST(tags) FROM t", "UNNEST", "unexpected UNNEST: expected"),
    ("SELECT a FROM t, LATERAL (SELECT s.n FROM t AS s WHERE s.n = t.a) AS q", "t",
     "LATERAL (query) can use columns of the row before it only if it reads no table: SELECT ... FROM UNNEST(...), without GROUP BY, DISTINCT and LIMIT. Join instead (otherwise, there is no column t: did you mean 'ts'?)"),
    ("SELECT a FROM t, LATERAL (SELECT COUNT(*) FROM UNNEST(tags) AS u) AS q", "tags", "LATERAL (query) can use columns of the row before it only if it reads no table: SELECT ... FROM UNNEST(...), without GROUP BY, DISTINCT and LIMIT. Join instead (otherwise, there is no column tags)"),
    ("SELECT a FROM t LEFT JOIN LATERAL (SELECT a + 1 AS x) AS q ON TRUE", "LATERAL (SELECT a + 1 AS x) AS q", "LEFT JOIN LATERAL (query) is not supported: use LEFT JOIN UNNEST(...) ON TRUE"),
    ("SELECT a FROM t, LATERAL (SELECT c FROM UNNEST(tags) AS u) AS q", "c", "there is no column c; there are u"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "caret", "message"), STATEMENTS, ids=[each[0] for each in STATEMENTS])
def test_statements(statement: str, caret: str | None, message: str) -> None:
    error = refused(statement, script_of(*FUNCTIONS))
    assert error.message == message
    assert caret in (None, marked(error))


@pytest.mark.parametrize(("query", "caret", "message"), QUERIES, ids=[each[0] for each in QUERIES])
def test_queries(query: str, caret: str | None, message: str) -> None:
    error = refused(f"EXPLAIN {query}", script_of(*FUNCTIONS))
    assert message in error.message
    assert caret in (None, marked(error))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '1' DAY)), UNNEST(ARRAY[window_end]) AS u "
         "GROUP BY window_start, window_end", "columns of the window cannot be used here"),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '1' DAY)) JOIN UNNEST(tags) AS u ON "
         "window_end > ts GROUP BY window_start, window_end", "columns of the window cannot be used here"),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '1' DAY)), LATERAL (SELECT 1) AS q "
         "GROUP BY window_start, window_end", "LATERAL (query) next to rows of a window is not supported: use UNNEST"),
    ],
)  # fmt: skip
def test_windows(query: str, message: str) -> None:
    script = Script()
    script.run("CREATE TABLE w (tags ARRAY<STRING>, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 'w');")
    assert message in refused(f"EXPLAIN {query}", script).message


def test_a_module_that_fails_or_is_misspelt_beside_the_script(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    (folder / "no_python_at_all.py").write_text("def f(:")
    (folder / "leaves.py").write_text("class Gone(BaseException):\n    def __str__(self): raise self\nraise Gone")
    file = folder / "job.sql"
    file.write_text("")
    for path, message in (
        ("no_python_at_all.f", "the module no_python_at_all cannot be imported: SyntaxError: invalid syntax"),
        ("leaves.f", "the module leaves cannot be imported: Gone without a text"),
        ("no_python_at_al.f", "there is no module no_python_at_al: did you mean 'no_python_at_all'?"),
    ):
        with pytest.raises(SqlError) as caught:
            Script().run(f"CREATE FUNCTION f AS '{path}' LANGUAGE PYTHON", str(file))
        assert message in caught.value.message
        assert str(caught.value).startswith(f"{file}:1:22: ")
