"""NULL as an argument of every function: NULL comes out, unless the function is about NULL.

Without one, NULL comes out of the functions only of which the page says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import SqlError
from rmqio.sql.functions import registry
from tests.helpers.oracles.grid import VALUES, Call, calls
from tests.unit.sql.evaluating import bound, evaluate

_COLUMNS: Final[dict[str, tuple[str, Any]]] = {
    "s": ("STRING", "1"), "i": ("INT", 1), "l": ("BIGINT", 1), "n": ("DECIMAL(5, 2)", 1), "f": ("DOUBLE", 1.0),
    "b": ("BOOLEAN", True), "d": ("DATE", 1), "t": ("TIME", 1), "ts": ("TIMESTAMP(3)", 1), "dt": ("DATE", 1),
    "x": ("BYTES", b"1"), "a": ("ARRAY<STRING>", ["1"]), "m": ("MAP<STRING, STRING>", {}), "o": ("STRING", "1"),
    "any": ("STRING", "1"),
}  # fmt: skip
_OPERATORS: Final = {"NEGATE": "-c0", "LIKE": "c0 LIKE c1 ESCAPE c2"}


def _calls() -> list[tuple[str, tuple[str, ...]]]:
    found = []
    for name, function in registry.load().items():
        if not name.replace("_", "").isalnum() or not function.is_strict or name == "MOD":
            continue
        for signature in function.signatures:
            kinds = tuple(each.strip("[]") for each in signature.partition("->")[0].split() if each != "...")
            if kinds and name not in ("ARRAY", "MAP", "JSON_STRING"):
                found.append((name, kinds))
    return found


@pytest.mark.parametrize(("name", "kinds"), _calls())
def test_null_in_null_out(name: str, kinds: tuple[str, ...]) -> None:
    for missing in range(len(kinds)):
        row = {
            f"c{i}": (_COLUMNS[kind][0], None if i == missing else _COLUMNS[kind][1]) for i, kind in enumerate(kinds)
        }
        call = _OPERATORS.get(name, f"`{name}`({', '.join(row)})")
        assert evaluate(call, row) is None
        expression, _ = bound(call, row)
        assert expression.type.is_nullable


@pytest.mark.parametrize(
    "call",
    ["UPPER(NULL)", "ABS(NULL)", "CARDINALITY(NULL)", "MAP_KEYS(NULL)", "ROUND(NULL, 1)", "ARRAY_MAX(NULL)",
     "DATE_FORMAT(NULL, 'yyyy')", "TIMESTAMPADD(DAY, NULL, DATE '2020-01-01')", "TIMESTAMPDIFF(DAY, NULL, NULL)",
     "FLOOR(NULL TO DAY)", "YEAR(NULL)", "JSON_VALUE(NULL, '$')", "TO_TIMESTAMP(NULL)", "ELT(NULL, 'a')"],
)  # fmt: skip
def test_the_word_null_fits_everywhere(call: str) -> None:
    assert evaluate(call) is None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("CONCAT_WS(',', a, 'x')", "x"),
        ("CONCAT_WS(a, 'x')", None),
        ("IS_ALPHA(a)", False),
        ("IS_DIGIT(a)", False),
        ("IS_DECIMAL(a)", False),
        ("ELT(1, a, 'x')", None),
        ("ELT(2, a, 'x')", "x"),
        ("KEYVALUE('a=1', ';', '=', a)", None),
        ("KEYVALUE(a, ';', '=', 'a')", None),
        ("ARRAY_CONTAINS(ARRAY['x'], a)", False),
        ("ARRAY_CONTAINS(ARRAY['x', a], a)", True),
        ("ARRAY_CONTAINS(n, 'x')", None),
        ("ARRAY_REMOVE(ARRAY['x', a], a)", ["x"]),
        ("ARRAY_REMOVE(n, 'x')", None),
        ("ARRAY_APPEND(ARRAY['x'], a)", ["x", None]),
        ("ARRAY_PREPEND(ARRAY['x'], a)", [None, "x"]),
        ("ARRAY_APPEND(n, 'x')", None),
        ("JSON_ARRAY(a, 1)", "[1]"),
        ("JSON_OBJECT('k', a)", '{"k":null}'),
        ("JSON_STRING(a)", None),
        ("TYPEOF(a)", "STRING"),
    ],
)
def test_functions_about_null(expression: str, expected: Any) -> None:
    assert evaluate(expression, {"a": ("STRING", None), "n": ("ARRAY<STRING>", None)}) == expected


_PAGE: Final = (Path(__file__).parents[4] / "docs/sql/functions.md").read_text()
DOCUMENTED: Final = {
    name
    for cell in re.findall(
        r"^\| (`[^|]*) \|", _PAGE.partition("## Results that are NULL")[2].partition("\n## ")[0], re.M
    )
    for name in re.findall(r"`([^`]+)`", cell)
}
_TEXTS, _TIMES = ("STRING", "CHAR", "VARCHAR"), ("DATE", "TIME")
_BY_NULLS_ONLY: Final = {"CONCAT_WS", "URL_ENCODE"}
"""Their types say that they can be NULL, as Flink's do."""


def _name(call: Call) -> str:
    """Returns what the page calls a function, or a form."""
    if call.text.startswith("CAST(") and "AS DECIMAL" in call.text and call.types[0] in ("DOUBLE", "FLOAT"):
        return "CAST(double AS DECIMAL)"
    if re.search(r" (=|<>|<|BETWEEN|IN) ", call.text) and all(
        any(kind.startswith(names) for kind in call.types) for names in (_TEXTS, _TIMES)
    ):
        return "time = text"
    if found := re.match(r"`?([A-Z_0-9]+)\b", call.text):
        return found[1]
    if call.text.endswith("]"):
        return "map[key]" if call.types[0].startswith("MAP") else "array[position]"
    return "row.field" if "." in call.text else call.text


@pytest.mark.parametrize(
    ("seed", "rounds"), [(0, 2), *(pytest.param(seed, 40, marks=pytest.mark.exhaustive) for seed in range(1, 4))]
)
def test_a_result_is_null_where_the_page_says_so(seed: int, rounds: int) -> None:
    random, found = Random(seed), set()
    for call in (call for _ in range(rounds) for call in calls(random)):
        try:
            expression, fields = bound(
                call.text, {f"c{i}": (f"{kind} NOT NULL", None) for i, kind in enumerate(call.types)}
            )
        except SqlError:
            continue
        run = compiled(Fragment(FromRows(fields), (Step(None, (expression,)),), ToRows()))
        given = [tuple(random.choice(VALUES[kind]) for kind in call.types) for _ in range(20)]
        if any(value is None for (value,) in run(given).values):
            assert expression.type.is_nullable, call
            found.add(_name(call))
    assert len(found) > 15
    assert found - DOCUMENTED == set()


def test_the_page_names_each_function_that_can_be_null() -> None:
    there = {name for name, function in registry.load().items() if function.can_be_null and " " not in name}
    assert there - DOCUMENTED == _BY_NULLS_ONLY
