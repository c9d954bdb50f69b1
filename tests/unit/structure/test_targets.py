"""Each test is in one part of `make test-all`, whatever its markers and its folder are."""

from __future__ import annotations

import argparse
import itertools
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.gate.parts import FOLDERS, MARKERS, PARTS, REAL, named, part_of

ROOT: Final = Path(__file__).parents[3]
FILES: Final = sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py"))
_MARKERS: Final = ("broker", "slow", "spark", "cluster", "examples", "systems")


@pytest.mark.parametrize("has", [*itertools.product([False, True], repeat=len(_MARKERS))], ids=str)
def test_its_markers_choose_one_part(has: tuple[bool, ...]) -> None:
    markers = dict(zip(_MARKERS, has, strict=True))
    assert sum(eval(expression, {}, markers) for expression in MARKERS.values()) == 1


@pytest.mark.parametrize("marker", ["cluster", "examples", "systems"])
def test_the_folders_of_a_part_have_all_of_its_tests(marker: str) -> None:
    marks = re.compile(rf"(= |@|\[|, |\()pytest\.mark\.{marker}\b")
    files = [file for file in FILES if marks.search((ROOT / file).read_text())]
    (folders,) = (FOLDERS[part] for part in FOLDERS if part.startswith(marker))
    assert files
    assert [file for file in files if not file.startswith(tuple(f"{folder}/" for folder in folders))] == []


def test_each_file_with_a_server_is_in_a_part() -> None:
    apart = ("tests/examples/", "tests/programs/")  # they have markers and jobs of their own
    parts = {part_of(file) for file in FILES if not file.startswith(apart)}
    assert parts == {*REAL}
    assert [path for paths in REAL.values() for path in paths if not (ROOT / "tests" / path).exists()] == []


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("tests/runners/spark/batch/test_runner.py", "spark"),
        ("tests/runners/spark/streaming/test_cut.py", "streams"),
        ("tests/runners/test_connect_killed.py", "delivery"),
        ("tests/runners/test_connect.py", "modes"),
        ("tests/integration/cli/test_find.py", "programs"),
    ],
)
def test_the_longest_path_counts(file: str, part: str) -> None:
    assert part_of(file) == part


def test_no_part_runs_what_another_one_has() -> None:
    for part in REAL:
        (job,) = PARTS[part][0].jobs
        ignored = tuple(each.removeprefix("--ignore=") for each in job.command if each.startswith("--ignore="))
        paths = tuple(each for each in job.command if each.startswith("tests/"))
        runs = {file for file in FILES if _is_in(file, paths) and not _is_in(file, ignored)}
        assert {part_of(file) for file in runs} == {part}


def _is_in(file: str, paths: tuple[str, ...]) -> bool:
    return any(file == path or file.startswith(f"{path}/") for path in paths)


def test_each_part_runs_once_a_week() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert jobs["all"]["strategy"]["matrix"]["part"] == [*PARTS]


@pytest.mark.parametrize(
    ("given", "name"), [("sql", "sql"), ("1", next(iter(PARTS))), (f"2/{len(PARTS)}", [*PARTS][1])]
)
def test_a_part_has_a_name_and_a_number(given: str, name: str) -> None:
    assert named(given) == name


@pytest.mark.parametrize("given", ["0", f"{len(PARTS) + 1}", "1/1", "1/", "-1", "sqll", ""])
def test_there_are_no_other_parts(given: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="there is no part"):
        named(given)
