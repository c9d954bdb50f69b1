"""tests/cases.toml: which tests show that a case that was once wrong is right. The tests are there, and their rows.

A row is named as pytest names one, `test_a[text]`, but by a text of its parameters or its id: the ids of pytest number
what has no text, and change with the rows before it. Rows can be in a file of text beside the test.
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


MOST_ROWS: Final = 15
"""Of a test with more of them, a case names its own."""


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


@functools.cache
def _lines(path: str) -> frozenset[str]:
    """The lines of the files of text beside a test that it names."""
    names = re.findall(r'"(\w+\.txt)"', (ROOT / path).read_text())
    files = [file for name in names if (file := (ROOT / path).with_name(name)).exists()]
    return frozenset(line for file in files for line in file.read_text().splitlines())


def _count(node: ast.expr, values: Mapping[str, ast.expr]) -> int:
    """How many rows a table has, without those that are computed."""
    match node:
        case ast.List(items) | ast.Tuple(items) | ast.Set(items):
            return sum(_count(each.value, values) if isinstance(each, ast.Starred) else 1 for each in items)
        case ast.Dict(keys, rows):
            return sum(_count(each, values) if key is None else 1 for key, each in zip(keys, rows, strict=True))
        case ast.BinOp(one, ast.Add(), other):
            return _count(one, values) + _count(other, values)
        case ast.Name(name) if name in values:
            return _count(values[name], {each: value for each, value in values.items() if each != name})
    return 0


@pytest.mark.parametrize("number", CASES)
def test_a_case_has_tests(number: str) -> None:
    assert re.fullmatch(r"[A-Z]\d+", number)
    assert CASES[number]
    for test in CASES[number]:
        path, _, rest = test.partition("::")
        name, bracket, row = rest.partition("[")
        functions, values = _tests(path)
        assert name in functions, test
        tables = [each for each in functions[name].decorator_list if "parametrize" in ast.dump(each)]
        if bracket:
            texts = {text for each in tables for text in _texts(each, values)}
            assert row.endswith("]"), test
            assert row[:-1] in texts | _lines(path), test
        else:
            rows = [_count(each.args[1], values) for each in tables if isinstance(each, ast.Call)]
            assert max([*rows, len(_lines(path)) if tables else 0], default=0) <= MOST_ROWS, f"name the rows: {test}"


NUMBERS: Final = {
    "W": (1, 2, 4, 10, 11), "V": range(1, 13), "J": range(1, 13), "R": range(1, 11), "B": range(2, 16),
    "T": range(1, 4), "D": range(1, 11), "S": range(1, 12), "K": range(1, 15), "X": range(1, 6),
}  # fmt: skip


def test_no_case_is_without_tests() -> None:
    assert [*CASES] == [f"{letter}{number}" for letter, numbers in NUMBERS.items() for number in numbers]
