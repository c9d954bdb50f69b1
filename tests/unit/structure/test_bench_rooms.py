"""The benchmarks are in rooms: few modules side by side, a line for each that says what it is, commands that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.imports import ROOT, imports_of

BENCH: Final = ROOT / "bench"
ROOMS: Final = sorted({path.parent for path in BENCH.rglob("*.py")} - {BENCH / "out"})
AT_THE_TOP: Final = 12
IN_A_ROOM: Final = 13
_COMMAND: Final = re.compile(r"python -m (bench(?:\.\w+)*)\b(?!\.\{)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_a_room_is_small_and_says_what_it_is(room: Path) -> None:
    assert len([*room.glob("*.py")]) <= (AT_THE_TOP if room == BENCH else IN_A_ROOM)
    says = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    assert says
    assert "\n" not in says


def test_what_benchmarks_share_imports_none_of_them() -> None:
    """So that a program loads only what it measures."""
    for path in (BENCH / "common").glob("*.py"):
        for each in imports_of(path.read_text(), f"bench.common.{path.stem}", name_of(path)):
            assert not each.is_of("bench") or each.is_of("bench.common"), f"{each.where} imports {each.target}"


def test_commands_that_pages_and_sources_name_are_there() -> None:
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "Makefile"]
    files += [path for path in BENCH.rglob("*") if path.suffix in (".py", ".md", ".java", ".rs")]
    named = {(name_of(path), name) for path in files for name in _COMMAND.findall(path.read_text())}
    assert len(named) > 80
    assert {each for each in named if not is_program(each[1])} == set()


def is_program(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    return file.is_file() and "__name__" in file.read_text()
