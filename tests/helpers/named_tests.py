"""Tests that a page or a table names: whether they are there, and run."""

from __future__ import annotations

import importlib
import inspect
import re
import unittest
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]


def problem(test: str, may_fail: bool = False) -> str | None:
    """Why a test (`path::Class::name` or `path::name`) shows nothing; None: it is collected and has no way to skip."""
    file, *names = test.split("::")
    if not (ROOT / file).is_file() or not Path(file).name.startswith("test_") or not names:
        return "is in no test file here"
    module: Any = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    path = [module]
    for name in names:
        if not hasattr(path[-1], name):
            return "does not exist"
        path.append(getattr(path[-1], name))
    classes, function = path[1:-1], path[-1]
    if not names[-1].startswith("test") or not inspect.isfunction(function):
        return "is not a test"
    if not all(each.__name__.startswith("Test") or issubclass(each, unittest.TestCase) for each in classes):
        return "is in a class that pytest does not collect"
    if may_fail:
        return None
    marks = [mark for each in path for mark in _marks(each)]
    if any(mark.name in ("skip", "xfail") for mark in marks) or any(_unittest_skips(each) for each in path[1:]):
        return "is skipped or expected to fail"
    if any(mark.name == "skipif" and (isinstance(mark.args[0], str) or mark.args[0]) for mark in marks):
        return "is skipped here"
    if re.search(r"skipTest\(|SkipTest|pytest\.(skip|xfail|importorskip)", inspect.getsource(function)):
        return "may skip itself"
    return None


def _marks(where: Any) -> list[pytest.Mark]:
    marks = getattr(where, "pytestmark", [])
    return [getattr(mark, "mark", mark) for mark in (marks if isinstance(marks, list) else [marks])]


def _unittest_skips(where: Any) -> bool:
    return bool(getattr(where, "__unittest_skip__", False) or getattr(where, "__unittest_expecting_failure__", False))
