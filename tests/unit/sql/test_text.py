"""Expressions as text: what SQL takes again, with no name that nobody has written."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rmqio.sql import types
from rmqio.sql.expressions import Constant, Expr, InputRef, Operation
from rmqio.sql.functions import registry
from rmqio.sql.text import text_of
from tests.helpers.oracles import expressions
from tests.unit.sql.evaluating import bound

_WRITTEN: Final = ("SIMILAR TO", "IS NOT DISTINCT FROM", "IS JSON SCALAR", "IS JSON ARRAY", "IS JSON OBJECT")
UNSPOKEN: Final = [each for each in registry.load() if " " in each and each not in _WRITTEN]
"""Names of operations that SQL has not."""
_WORDS: Final[dict[str, dict[int, Any]]] = {
    "FLOOR OF": {0: "DAY"}, "CEIL OF": {0: "DAY"}, "MICROSECONDS BETWEEN": {0: 1000}, "MONTHS BETWEEN": {0: 3},
    "JSON VALUE FAILED": {2: "EMPTY"}, "JSON QUERY": {2: "ALL", 3: "NULL", 4: "ERROR"}, "JSON EXISTS": {2: "TRUE"},
}  # fmt: skip
"""The arguments that are always constants, by how names begin."""


def unspoken(text: str) -> list[str]:
    """Returns the names of operations, other than operators, that are in a text."""
    return [each for each in UNSPOKEN if each[-1] not in "+-*/%" and each in text]


def _text(name: str) -> str:
    parts = registry.load()[name].signatures[0].partition("->")[0].split()
    words = next((words for start, words in _WORDS.items() if name.startswith(start)), {})
    arguments: list[Expr] = []
    for at, part in enumerate(each for each in parts if each != "..."):
        kind = {"t": types.TIME, "d": types.DATE, "ts": types.TIMESTAMP, "l": types.BIGINT}.get(part, types.VARCHAR)
        arguments.append(Constant(kind, words[at]) if at in words else InputRef(kind, at))
    return text_of(Operation(types.BIGINT, name, tuple(arguments)), [f"c{at}" for at in range(9)])


@pytest.mark.parametrize("name", UNSPOKEN)
def test_no_text_has_the_name_of_an_operation(name: str) -> None:
    found = _text(name)
    assert name not in found
    assert not unspoken(found)
    assert name.endswith((" +", " -", " *", " /", " %", "MONTHS")) or found[0] != " "


COLUMNS: Final[dict[str, tuple[str, Any]]] = {
    "i": ("INT", None), "d": ("DATE", None), "t": ("TIME(3)", None), "ts": ("TIMESTAMP(3)", None),
    "l": ("TIMESTAMP_LTZ(3)", None), "s": ("STRING", None), "f": ("DOUBLE", None), "a": ("ARRAY<DOUBLE>", None),
    "m": ("MAP<STRING, INT>", None), "n": ("MAP<DOUBLE, INT>", None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("HOUR(l)", "EXTRACT(HOUR FROM l)"),
        ("FLOOR(l TO HOUR)", "FLOOR(l TO HOUR)"),
        ("CEIL(t TO MINUTE)", "CEIL(t TO MINUTE)"),
        ("EXTRACT(DAY FROM i * INTERVAL '1' DAY)", "EXTRACT(DAY FROM i * INTERVAL '1' DAY)"),
        ("t - INTERVAL '90' SECOND", "t - INTERVAL '90' SECOND"),
        ("d + INTERVAL '2' DAY", "d + INTERVAL '2' DAY"),
        ("d - INTERVAL '3' MONTH", "d - INTERVAL '3' MONTH"),
        ("ts + INTERVAL '24' MONTH", "ts + INTERVAL '2' YEAR"),
        ("ts - INTERVAL '-1.5' SECOND", "ts - INTERVAL '-1.5' SECOND"),
        ("ts + INTERVAL '0.000005' SECOND", "ts + INTERVAL '0.000005' SECOND"),
        ("TIMESTAMPADD(MONTH, 108, d)", "d + INTERVAL '9' YEAR"),
        ("TIMESTAMPADD(DAY, 5, d)", "d + INTERVAL '5' DAY"),
        ("TIMESTAMPADD(DAY, -i, d)", "TIMESTAMPADD(DAY, -i, d)"),
        ("TIMESTAMPADD(MONTH, -i, ts)", "TIMESTAMPADD(MONTH, -i, ts)"),
        ("ts - i * INTERVAL '1' MONTH", "ts - (i * INTERVAL '1' MONTH)"),
        ("ts + INTERVAL '1' SECOND * CAST(1000 AS BIGINT)", "ts + (INTERVAL '1' SECOND * 1000)"),
        ("TIMESTAMPADD(WEEK, i, d)", "TIMESTAMPADD(DAY, i * 7, d)"),
        ("TIMESTAMPADD(QUARTER, i, ts)", "TIMESTAMPADD(MONTH, i * 3, ts)"),
        ("TIMESTAMPADD(HOUR, i, t)", "TIMESTAMPADD(HOUR, i, t)"),
        ("TIMESTAMPDIFF(MONTH, l, l)", "CAST(TIMESTAMPDIFF(MONTH, l, l) AS INT)"),
        ("DATE_FORMAT(l, 'yyyy')", "DATE_FORMAT(l, 'yyyy')"),
        ("-(i + 1)", "-(i + 1)"),
        ("-(-i)", "-(-i)"),
        ("FLOOR((ts + INTERVAL '1' MONTH) TO DAY)", "FLOOR((ts + INTERVAL '1' MONTH) TO DAY)"),
        ("(CASE WHEN i = 1 THEN a ELSE NULL END)[1]", "(CASE WHEN i = 1 THEN a ELSE NULL END)[1]"),
        ("GREATEST(f, 2E0)", "GREATEST(f, 2.0)"),
        ("a = ARRAY[f]", "a = ARRAY[f]"),
        ("MAP['a', i]['b']", "MAP['a', i]['b']"),
        ("n[f]", "n[f]"),
        ("CAST(FROM_BASE64(s) AS BYTES)", "CAST(FROM_BASE64(s) AS BYTES)"),
        ("JSON_VALUE(s, '$.a' RETURNING INT)", "JSON_VALUE(s, '$.a' RETURNING INT)"),
        ("JSON_VALUE(s, '$.a' DEFAULT 'q' ON EMPTY ERROR ON ERROR)",
         "JSON_VALUE(s, '$.a' DEFAULT 'q' ON EMPTY ERROR ON ERROR)"),
        ("JSON_QUERY(s, '$.a' WITH WRAPPER ERROR ON ERROR)", "JSON_QUERY(s, '$.a' WITH ARRAY WRAPPER ERROR ON ERROR)"),
        ("JSON_QUERY(s, '$.a' RETURNING ARRAY<STRING>)", "JSON_QUERY(s, '$.a' RETURNING ARRAY<STRING>)"),
        ("JSON_EXISTS(s, '$.a' TRUE ON ERROR)", "JSON_EXISTS(s, '$.a' TRUE ON ERROR)"),
        ("JSON_ARRAY(i, s NULL ON NULL)", "JSON_ARRAY(i, s NULL ON NULL)"),
        ("JSON_OBJECT('a' VALUE s ABSENT ON NULL)", "JSON_OBJECT('a', s ABSENT ON NULL)"),
        ("s IS NOT JSON", "s IS NOT JSON"),
        ("s LIKE 'a!%' ESCAPE '!'", "s LIKE 'a!%' ESCAPE '!'"),
        ("i IS DISTINCT FROM 2", "i IS DISTINCT FROM 2"),
    ],
)  # fmt: skip
def test_a_text_is_what_sql_takes(expression: str, text: str) -> None:
    for each in (expression, text):
        found, fields = bound(each, COLUMNS)
        assert text_of(found, [field.name for field in fields]) == text


@settings(max_examples=5, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.integers(0, 1 << 32).map(Random))
def test_sql_takes_the_texts_of_random_expressions(random: Random) -> None:
    columns = {name: (kind, None) for name, kind in expressions.COLUMNS.items()}
    for kind in expressions.KINDS:
        expression, fields = bound(expressions.expression(random, kind, 1), columns)
        text = text_of(expression, [field.name for field in fields])
        if "TIMESTAMP_LTZ '" not in text:  # SQL has no literals of this type
            bound(text, columns)
