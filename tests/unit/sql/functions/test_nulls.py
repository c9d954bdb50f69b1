"""NULL as an argument of every function: NULL comes out, unless the function is about NULL."""

from __future__ import annotations

from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.functions import registry
from tests.unit.sql.evaluating import bound, evaluate

_COLUMNS: Final[dict[str, tuple[str, Any]]] = {
    "s": ("STRING", "1"), "i": ("INT", 1), "l": ("BIGINT", 1), "n": ("DECIMAL(5, 2)", 1), "f": ("DOUBLE", 1.0),
    "b": ("BOOLEAN", True), "d": ("DATE", 1), "t": ("TIME", 1), "ts": ("TIMESTAMP(3)", 1), "dt": ("DATE", 1),
    "x": ("BYTES", b"1"), "a": ("ARRAY<STRING>", ["1"]), "m": ("MAP<STRING, STRING>", {}), "o": ("STRING", "1"),
    "any": ("STRING", "1"),
}  # fmt: skip


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
        call = f"`{name}`({', '.join(row)})"
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
