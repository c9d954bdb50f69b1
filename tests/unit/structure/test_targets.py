"""Each test is in one target of the Makefile, whatever its markers and its folder are."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
TESTS: Final = ROOT / "tests"
_MAKEFILE: Final = (ROOT / "Makefile").read_text()
_MARKERS: Final = ("broker", "slow", "spark", "cluster", "examples", "systems")


def of_target(name: str) -> tuple[str, list[str]]:
    """Returns the markers and the folders of a target's command."""
    recipe = re.search(rf"^test-{name}:.*\n((?:\t.*\n)+)", _MAKEFILE, re.M)
    assert recipe
    markers = re.search(r"-m '([^']+)'", recipe[1])
    assert markers
    return markers[1], re.findall(r" (tests/\w+)", recipe[1])


TARGETS: Final = {name: of_target(name) for name in ("unit", "real", "clusters", "examples", "systems")}


@pytest.mark.parametrize("has", [*itertools.product([False, True], repeat=len(_MARKERS))], ids=str)
def test_its_markers_choose_one_target(has: tuple[bool, ...]) -> None:
    markers = dict(zip(_MARKERS, has, strict=True))
    assert sum(eval(expression, {}, markers) for expression, _ in TARGETS.values()) == 1


@pytest.mark.parametrize(
    ("target", "marker"), [("clusters", "cluster"), ("examples", "examples"), ("systems", "systems")]
)
def test_the_folders_of_a_target_have_all_of_its_tests(target: str, marker: str) -> None:
    marks = re.compile(rf"(= |@|\[|, |\()pytest\.mark\.{marker}\b")
    files = [file for file in TESTS.rglob("test_*.py") if marks.search(file.read_text())]
    folders = [ROOT / each for each in TARGETS[target][1]]
    assert files
    assert [file for file in files if not any(file.is_relative_to(each) for each in folders)] == []


@pytest.mark.parametrize("target", ["unit", "real"])
def test_a_target_without_folders_has_all(target: str) -> None:
    assert TARGETS[target][1] == []
