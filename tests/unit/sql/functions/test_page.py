"""The page of functions names each function, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="SQL needs the extra 'sql'")

from rmqio.sql.analysis.aggregates import AGGREGATES, INSTEAD
from rmqio.sql.analysis.functions import ELSEWHERE, SPECIAL
from rmqio.sql.functions import registry

_TEXT = (Path(__file__).parents[4] / "docs/sql/functions.md").read_text()
PAGE = re.sub(r"```.*?```", "", _TEXT, flags=re.DOTALL)
TYPES = {"STRING", "VARCHAR", "BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL", "BYTES", "TIMESTAMP", "TIME", "DATE"}
JSON = {"IS", "JSON", "VALUE", "SCALAR", "OBJECT", "NOT", "ON", "ABSENT", "OVER", "AS", "CAST", "FALSE"}
OPERATORS = (
    JSON
    | {"NEGATE", "SIMILAR", "TO", "CASE", "NULL", "DISTINCT", "FILTER", "WHERE", "FROM", "RETURNING", "ESCAPE"}
    | {"ELSE", "TRY_CAST", "OVERLAPS", "INTERVAL", "DAY"}
    | {"GROUP", "BY", "IN", "ROW", "TUMBLE", "EPOCH", "TIMESTAMP_LTZ", "N", "U", "FFFF", "FLOAT", "CHAR", "BINARY"}
    | TYPES
)


def test_the_page_names_all_functions_and_no_others() -> None:
    there = {name for name in registry.load() if re.fullmatch(r"[A-Z][A-Z0-9_]*", name)} | set(SPECIAL) | AGGREGATES
    there -= set(INSTEAD)
    named = {word for code in re.findall(r"`([^`]+)`", PAGE) for word in re.findall(r"[A-Z][A-Z0-9_]*", code)}
    assert there - named - OPERATORS == set()
    assert named - there - OPERATORS == set()


def test_functions_of_other_systems_are_none_here() -> None:
    assert set(ELSEWHERE) & (set(registry.load()) | set(SPECIAL) | AGGREGATES) == set()
