"""The fast tests that run again with another Python or Beam."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.again import ALL_CASES, LEFT_OUT, Other, fewer_examples, is_left_out, run_again
from tests.helpers.imports import ROOT

IDS = [
    "tests/unit/start/test_strategies.py::test_one",
    "tests/unit/start/test_strategies.py::test_two[a-1]",
    "tests/unit/start/test_strategies.py::test_two[a-2]",
    "tests/unit/start/test_strategies.py::test_two[b-1]",
    "tests/unit/start/test_strategies.py::test_two[b-2]",
    "tests/unit/structure/test_layers.py::test_three",
    "tests/contract/faults/test_sends.py::test_four[x]",
    "tests/unit/wire/test_frame.py::test_five",
    "tests/unit/wire/test_bodies.py::test_six",
    "tests/unit/transforms/test_deduplicate.py::test_seven[a]",
    "tests/unit/transforms/test_deduplicate.py::test_seven[b]",
    "tests/unit/transforms/test_deduplicate.py::test_seven[c]",
]


@pytest.mark.parametrize(
    ("other", "expected"),
    [("python", [0, 1, 7, 8, 9]), ("beam", [0, 1, 4, 8, 9, 10, 11]), ("daily", [0, 1, 4, 5, 7, 8, 9, 11])],
    ids=["python", "beam", "daily"],
)
def test_what_runs_again(other: Other, expected: list[int]) -> None:
    assert run_again(IDS, other) == {IDS[at] for at in expected}


def test_what_none_of_its_tests_need_is_not_imported() -> None:
    """A file that is imported in vain costs time, but one that is not would take its tests with it."""
    files = {each.partition("::")[0] for each in IDS}
    for other in ("python", "beam", "daily"):
        wanted = {each.partition("::")[0] for each in run_again(IDS, other)}
        assert {file for file in files if not is_left_out(file, other)} == wanted
        folders = {f"{parent.as_posix()}/" for file in wanted for parent in PurePosixPath(file).parents[:-1]}
        assert not [folder for folder in folders if is_left_out(folder, other)]
    assert is_left_out("tests/unit/tools/", "python")


def test_what_is_named_is_there() -> None:
    named = [*LEFT_OUT.values(), *ALL_CASES.values()]
    assert [each for given in named for each in given if not (ROOT / each).exists()] == []


WARNS = """
import warnings
def test_other(): warnings.warn_explicit("soon gone", DeprecationWarning, "module.py", 1, module="numpy.core")
def test_ours(): warnings.warn_explicit("soon gone", DeprecationWarning, "module.py", 1, module="rmqio.wire.command")
"""


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ((), ["test_ours"]),
        (("--again", "python", "-n", "1"), ["test_other", "test_ours"]),
    ],
    ids=" ".join,
)
def test_a_warning_of_another_package_is_an_error_only_where_the_versions_are_the_newest(
    options: tuple[str, ...], wrong: list[str], tmp_path: Path
) -> None:
    (tmp_path / "test_warns.py").write_text(WARNS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-q", *options]
    command += ["-c", str(ROOT / "pyproject.toml"), str(tmp_path / "test_warns.py")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True, check=False
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert [line.partition("::")[2].partition(" ")[0] for line in failed] == wrong, done.stdout
    assert all("DeprecationWarning: soon gone" in line for line in failed)


def test_a_property_has_fewer_examples() -> None:
    seen: list[int] = []

    @settings(max_examples=100, database=None)
    @given(st.integers())
    def check(number: int) -> None:
        seen.append(number)

    class Item:
        function = staticmethod(check)

    fewer_examples(cast("pytest.Item", Item))
    check()
    assert len(seen) <= 20
