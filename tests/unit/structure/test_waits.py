"""Tests wait by `until` of tests/helpers/waiting.py, which tells what is wrong from what says nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.helpers.imports import ROOT

_NAMES = {"wait_until", "wait_for", "eventually", "_until"}


def own_waits(source: str) -> Iterator[str]:
    """Yields the functions that sleep in a loop of their own under a name of a wait."""
    if not any(f"def {name}(" in source for name in _NAMES):  # most files, which then need not be parsed
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name in _NAMES:
            loops = (each for each in ast.walk(node) if isinstance(each, ast.While | ast.For))
            if any("sleep(" in ast.unparse(loop) for loop in loops):
                yield node.name


def test_no_test_has_a_wait_of_its_own() -> None:
    old = "def eventually(holds):\n    while not holds():\n        time.sleep(0.1)\n"
    assert [*own_waits(old)] == ["eventually"]
    assert [*own_waits("def wait_for(holds):\n    time.sleep(1)\n    until(holds, 'it')\n")] == []
    found = {str(path.relative_to(ROOT)): [*own_waits(path.read_text())] for path in (ROOT / "tests").rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}
