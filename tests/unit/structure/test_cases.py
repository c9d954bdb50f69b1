"""tests/cases.toml: which tests show that a case that was once wrong is right. The tests are there, and their rows.

A row is named as pytest names one, `test_a[text]`, but by a text of its parameters or its id: the ids of pytest number
what has no text, and change with the rows before it.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
CASES: Final[dict[str, list[str]]] = tomllib.loads((ROOT / "tests" / "cases.toml").read_text())


@functools.cache
def _tests(path: str) -> tuple[Mapping[str, ast.FunctionDef], Mapping[str, ast.expr]]:
    """The functions of a file, and the values of its names."""
    tree = ast.parse((ROOT / path).read_text())
    values: dict[str, ast.expr] = {}
    for each in tree.body:
        targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
        if isinstance(each, (ast.Assign, ast.AnnAssign)) and each.value is not None:
            values |= {target.id: each.value for target in targets if isinstance(target, ast.Name)}
    return {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}, values


def _texts(node: ast.AST, values: Mapping[str, ast.expr]) -> Iterator[str]:
    """Yields the texts of an expression and of the values of its names; an f-string has {} for each expression."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name) and node.id in values:
        yield from _texts(values[node.id], {name: value for name, value in values.items() if name != node.id})
    else:
        for each in ast.iter_child_nodes(node):
            yield from _texts(each, values)


@pytest.mark.parametrize("number", CASES)
def test_a_case_has_tests(number: str) -> None:
    assert re.fullmatch(r"[A-Z]\d+", number)
    assert CASES[number]
    for test in CASES[number]:
        path, _, rest = test.partition("::")
        name, bracket, row = rest.partition("[")
        functions, values = _tests(path)
        assert name in functions, test
        if bracket:
            texts = {text for each in functions[name].decorator_list for text in _texts(each, values)}
            assert row.endswith("]"), test
            assert row[:-1] in texts, test


NUMBERS: Final = {
    "W": (1, 2, 4, 10, 11), "V": range(1, 13), "J": range(1, 13), "R": range(1, 11), "B": range(2, 16),
    "T": range(1, 4), "D": range(1, 11), "S": range(1, 12), "K": range(1, 15), "X": range(1, 6),
}  # fmt: skip


def test_no_case_is_without_tests() -> None:
    assert [*CASES] == [f"{letter}{number}" for letter, numbers in NUMBERS.items() for number in numbers]
