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


NUMBERS: Final = {
    "W": (1, 2, 4, 10, 11), "V": range(1, 13), "J": range(1, 13), "R": range(1, 11), "B": range(2, 16),
    "T": range(1, 4), "D": range(1, 11), "S": range(1, 12), "K": range(1, 15), "X": range(1, 6),
}  # fmt: skip


def test_no_case_is_without_tests() -> None:
    assert [*CASES] == [f"{letter}{number}" for letter, numbers in NUMBERS.items() for number in numbers]
