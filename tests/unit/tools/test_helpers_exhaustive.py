"""The list of tests that only `make test-exhaustive` runs names tests that exist, and what `make test` runs instead."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.helpers.exhaustive import REPEATED, Repeated, is_repeated

TESTS = Path(__file__).parents[2]


def in_file(file: str) -> set[str]:
    body = ast.walk(ast.parse((TESTS / file).read_text()))
    return {each.name for each in body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")}


@pytest.mark.parametrize("each", REPEATED, ids=lambda each: f"{each.tests} {' '.join(each.only)}")
def test_it_exists_and_so_does_what_runs_instead(each: Repeated) -> None:
    file, _, name = each.tests.partition("::")
    assert not name or name in in_file(file)
    assert each.only or each.instead
    if each.instead:
        file, _, name = each.instead.partition("::")
        left = {test for test in in_file(file) if not is_repeated(f"tests/{file}::{test}")}
        assert name in left if name else left


def test_parameters_are_compared_as_a_whole() -> None:
    file = "tests/runners/delivery/test_delivery.py"
    assert is_repeated(f"{file}::test_source_goes_on[Spark-savepoint]")
    assert is_repeated(f"{file}::test_source_worker_killed[Spark]")
    assert not is_repeated(f"{file}::test_source_worker_killed[Spark --streaming]")
    assert not is_repeated(f"{file}::test_source_goes_on[Direct-savepoint]")
