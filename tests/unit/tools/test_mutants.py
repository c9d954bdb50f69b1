"""Each planted fault is described, applies to these sources, and is in the code that production runs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.gate.jobs import Result
from tests.gate.selection import LANES
from tests.helpers.imports import ROOT
from tests.mutants import __main__ as program
from tests.mutants import patch
from tests.mutants.job import jobs_of, verdict
from tests.mutants.patch import Mutant, mutants

ALL: Final = mutants()


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.file.stem)
def test_a_planted_fault_is_described_and_applies(mutant: Mutant) -> None:
    assert mutant.lane in {"unit", *LANES}
    assert f"| {mutant.number} {mutant.fault} | {mutant.lane} |" in (ROOT / "tests" / "README.md").read_text()
    assert mutant.lacks == ""
    done = subprocess.run(
        ["git", "apply", "--check", mutant.file], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("header", "changed", "lacks"),
    [
        ("lane: unit", ["rmqio/sql/a.py"], ""),
        ("twin: rmqio/wire/a.c", ["rmqio/sql/a.py"], "no lane"),
        ("lane: unit", [], "it changes nothing"),
        ("lane: unit", ["rmqio/sql/a.py", "rmqio/serde/a.py"], "neither the twin in C"),
        ("lane: unit", ["rmqio/wire/a.c"], "neither the twin in C"),
        ("lane: unit\npython-only: it has none", ["rmqio/serde/a.py"], ""),
        ("lane: unit\ntwin: rmqio/wire/a.c", ["rmqio/wire/a.py", "rmqio/wire/a.c"], ""),
        ("lane: unit\ntwin: rmqio/wire/a.c", ["rmqio/wire/a.py"], "it does not change rmqio/wire/a.c"),
        ("lane: unit\ntwin: rmqio/wire/a.py", ["rmqio/wire/a.py"], "it does not change rmqio/wire/a.py, or"),
    ],
)
def test_what_a_planted_fault_lacks_is_told_before_anything_runs(
    header: str,
    changed: list[str],
    lacks: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "01-x.patch").write_text(f"It.\n{header}\n\n" + "".join(f"+++ b/{each}\n" for each in changed))
    monkeypatch.setattr(patch, "PATCHES", tmp_path)
    (mutant,) = mutants()
    assert mutant.lacks.startswith(lacks) if lacks else mutant.lacks == ""
    if lacks:
        assert not program.run([mutant], [mutant], program.Results(tmp_path / "results.json", "HEAD"), "HEAD")
        assert f"  01-x.patch: {lacks}" in capsys.readouterr().out


def test_their_numbers_go_without_gaps() -> None:
    assert [mutant.number for mutant in ALL] == [f"{number:02}" for number in range(1, len(ALL) + 1)]


@pytest.mark.parametrize("name", ["unit", *LANES])
def test_a_job_ends_at_its_first_failure_and_leaves_out_this_file(name: str) -> None:
    this = str(Path(__file__).relative_to(ROOT))
    assert {each.command[-2:] for each in jobs_of(name)} == {("-x", f"--ignore={this}")}
    assert not any(this in each.command for each in jobs_of(name))


def test_a_job_begins_with_what_is_near_the_fault_and_has_all() -> None:
    numbers = []
    for near, job in zip(jobs_of("unit", "rmqio/sql/runtime/joins/keyed.py"), jobs_of("unit"), strict=True):
        files = [each for each in near.command if each.startswith("tests/")]
        of_joins = {each for each in files if each.startswith("tests/unit/sql/runtime/joins/")}
        assert set(files[: len(of_joins)]) == of_joins
        assert sorted(near.command) == sorted(job.command)
        numbers.append(len(of_joins))
    assert any(numbers)


@pytest.mark.parametrize(
    ("found", "is_whole", "said"),
    [
        (Result(passed=["a"]), True, ("not seen", "")),
        (Result(passed=["a"]), False, ("inconclusive", "")),
        (Result(), True, ("inconclusive", "")),
        (Result(passed=["a"], inconclusive=["b"]), False, ("inconclusive", "b")),
        (Result(passed=["a"], running=["b"]), False, ("inconclusive", "b")),
        (Result(passed=["a"], wrong=["b", "c"], inconclusive=["d"]), False, ("seen", "b")),
    ],
    ids=str,
)
def test_only_a_failure_sees_a_fault(found: Result, is_whole: bool, said: tuple[str, str]) -> None:
    assert verdict(found, is_whole=is_whole) == said


PYTHON: Final = """#!/bin/sh
case "$(cat code) $4" in
6*--test=*) found='"verdict": "not seen", "test": ""' ;;
7*--test=*) found='"verdict": "inconclusive", "test": "test_by_chance"' ;;
6*|7*) found='"verdict": "seen", "test": "test_by_chance"' ;;
2*) found='"verdict": "seen", "test": "test_it[a|b]"' ;;
5*|1*test_always) found='"verdict": "seen", "test": "test_always"' ;;
3*|1*) found='"verdict": "not seen", "test": ""' ;;
*) exit 3 ;;
esac
mkdir -p build/mutants/job
echo "{$found, \\"seconds\\": 4}" >build/mutants/job/verdict.json
"""
"""Stands for the environment of the clone."""


def test_each_fault_is_planted_alone_and_its_result_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, patches = tmp_path / "root", tmp_path / "patches"
    patches.mkdir()
    (root / ".venv" / "bin").mkdir(parents=True)
    files = {".gitignore": "build/\n", "Makefile": ".venv/.installed:\n", "code": "1\n", ".venv/bin/python": PYTHON}
    for name, text in files.items():
        (root / name).write_text(text)
    (root / ".venv/bin/python").chmod(0o755)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
    for command in (["init", "-q"], ["add", "-Af"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    for number in range(2, 8):
        diff = f"--- a/code\n+++ b/code\n@@ -1 +1 @@\n-1\n+{number}\n"
        (patches / f"0{number}-x.patch").write_text(f"It is {number}.\nlane: unit\n\n{diff}")
    monkeypatch.setattr(patch, "PATCHES", patches)
    monkeypatch.setattr(program, "ROOT", root)
    known, file = mutants(), tmp_path / "results.json"

    results = program.Results(file, "HEAD")
    assert program.run(known, known, results, "HEAD")
    assert program.table(known, results)[2:] == [
        r"| 02 It is 2. | unit | `test_it[a\|b]` | 4 |",
        "| 03 It is 3. | unit | **not seen** | 4 |",
        "| 04 It is 4. | unit | **inconclusive** the job ended with status 3 | 0 |",
        "| 05 It is 5. | unit | **inconclusive** without the fault, it fails too: test_always | 4 |",
        "| 06 It is 6. | unit | **inconclusive** alone, it does not fail again: test_by_chance | 4 |",
        "| 07 It is 7. | unit | **inconclusive** alone, it does not fail again: test_by_chance | 4 |",
    ]
    assert [program.Results(file, "HEAD").is_known(each) for each in known] == [True, True, *[False] * 4]
    assert [program.Results(file, "other").is_known(each) for each in known] == [False] * 6

    (patches / "08-x.patch").write_text((patches / "04-x.patch").read_text().replace("-1\n", "-9\n"))
    assert not program.run(mutants(), [], results, "HEAD")
