"""Checks whether the tests that a page or a table names exist and run."""

from __future__ import annotations

import importlib
import inspect
import re
import unittest
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from rmqio.runners.capabilities import Mode
from tests.helpers.modes import MARK, shown_by

ROOT: Final = Path(__file__).parents[2]


def problem(test: str, may_fail: bool = False, mode: Mode | None = None) -> str | None:
    """Returns why a test (`path::Class::name` or `path::name`) shows nothing; None: it is collected and cannot skip.

    `mode`: the mode to show. The test must name it in its marker `shows` or in one of its parameters.
    """
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
    overridden = [vars(each)[names[-1]] for kind in classes for each in kind.__mro__[1:] if names[-1] in vars(each)]
    for each in (function, *overridden):
        if re.search(r"skipTest\(|SkipTest|pytest\.(skip|xfail|importorskip)", inspect.getsource(each)):
            return "may skip itself"
    if mode is not None and mode.value not in shown_by([*marks, *_of_parameters(marks)]):
        return f"does not run on {mode.value}: it has no marker {MARK}({mode})"
    return None


def _of_parameters(marks: Iterable[pytest.Mark]) -> Iterator[pytest.Mark]:
    """Yields the marks of the values with which a test is run."""
    for mark in marks:
        if mark.name == "parametrize":
            for value in mark.args[1]:
                yield from (getattr(each, "mark", each) for each in getattr(value, "marks", ()))


def _marks(where: Any) -> list[pytest.Mark]:
    found: Any = getattr(where, "pytestmark", [])
    marks: list[pytest.Mark | pytest.MarkDecorator] = found if isinstance(found, list) else [found]
    return [mark.mark if isinstance(mark, pytest.MarkDecorator) else mark for mark in marks]


def _unittest_skips(where: Any) -> bool:
    return bool(getattr(where, "__unittest_skip__", False) or getattr(where, "__unittest_expecting_failure__", False))
