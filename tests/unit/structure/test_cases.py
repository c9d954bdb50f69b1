"""tests/cases.toml: which tests show that a case that was once wrong is right. The tests are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
CASES: Final[dict[str, list[str]]] = tomllib.loads((ROOT / "tests" / "cases.toml").read_text())


@pytest.mark.parametrize("number", CASES)
def test_a_case_has_tests(number: str) -> None:
    assert re.fullmatch(r"[A-Z]\d+", number)
    assert CASES[number]
    for test in CASES[number]:
        path, _, name = test.partition("::")
        assert re.search(rf"^\s*def {name}\(", (ROOT / path).read_text(), re.MULTILINE), test
