"""Tests wait by `until` of tests/helpers/waiting.py, which tells what is wrong from what says nothing.

Limits of other calls grow with it on a busy machine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.helpers.imports import ROOT

_WITH_LIMIT = {"awaitTermination", "flush", "join", "result", "settimeout", "wait"}
_SHORT_S, _MILLISECONDS = 4, 1_000
_ELSEWHERE = ("gate", "chaos", "mutants")
"""They run tests, or run for a time that is given."""


def own_waits(tree: ast.AST) -> Iterator[int]:
    """Yields the lines of loops that sleep until something holds: those that have a condition, or leave the loop."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.While):
            inside = [node for part in loop.body for node in ast.walk(part)]
            sleeps = any(isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep" for node in inside)
            leaves = any(isinstance(node, ast.Break | ast.Return | ast.Raise) for node in inside)
            if sleeps and (leaves or not isinstance(loop.test, ast.Constant)):
                yield loop.lineno


def limits(tree: ast.AST) -> Iterator[int]:
    """Yields the lines of limits in seconds that are numbers or constants, without `at_most`."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            given = [each.value for each in call.keywords if each.arg == "timeout"]
            if isinstance(call.func, ast.Attribute) and call.func.attr in _WITH_LIMIT and len(call.args) == 1:
                given += call.args
            yield from (each.lineno for each in given if _is_long(each))


def _is_long(given: ast.expr) -> bool:
    if isinstance(given, ast.Name):
        return given.id.endswith("_S")
    return (
        isinstance(given, ast.Constant)
        and isinstance(given.value, int | float)
        and (_SHORT_S <= given.value < _MILLISECONDS)
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("while not holds():\n    time.sleep(0.1)", True),
        ("while True:\n    if holds():\n        break\n    time.sleep(0.1)", True),
        ("while True:\n    time.sleep(3600)", False),
        ("time.sleep(1)\nuntil(holds, 'it')", False),
        ("while left:\n    clock.sleep(left)", False),
    ],
)
def test_loops_that_wait_are_found(source: str, found: bool) -> None:
    assert any(own_waits(ast.parse(source))) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("process.wait(30)", True),
        ("process.communicate(timeout=4.0)", True),
        ("subprocess.run(command, timeout=LIMIT_S)", True),
        ("process.wait(at_most(30))", False),
        ("client.wait([reader], 5)", False),
        ("call.result(10_000)", False),
        ("thread.join(1)", False),
        ("program.wait(timeout=None)", False),
    ],
)
def test_limits_that_do_not_grow_are_found(source: str, found: bool) -> None:
    assert any(limits(ast.parse(source))) == found


def test_no_test_has_a_wait_or_a_limit_of_its_own() -> None:
    found = {}
    for path in (ROOT / "tests").rglob("*.py"):
        name = path.relative_to(ROOT / "tests").as_posix()
        if not name.startswith(_ELSEWHERE) and name != "helpers/waiting.py":
            tree = ast.parse(path.read_text())
            found[name] = [*own_waits(tree), *limits(tree)]
    assert {name: lines for name, lines in found.items() if lines} == {}
