"""`make test-clone` ends with what the gate on the clone says, and leaves nothing of it or of an earlier run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.gate.report import hold
from tests.helpers.imports import ROOT
from tests.helpers.waiting import runs, until

GATE: Final = """
mkdir -p build/gate
echo '{"result": "failed"}' >build/gate.json
touch build/gate/unit.log
echo "of the gate"
"""
AGAIN: Final = """
runs=$(cat $BEGUN 2>/dev/null || echo 0)
echo $((runs + 1)) >$BEGUN
[ $runs -ne 1 ] || exit 4
mkdir -p build
echo '{"commit": null, "result": "passed", "passed": '$runs', "failed": 0, "inconclusive": 0, "skipped": 5,
    "seconds": {"all": 90}, "flakes": []}' >build/gate.json
"""
"""Its second run leaves no report."""
HANGS: Final = "trap 'kill $!; exit 143' TERM; touch $BEGUN; sleep 600 & wait\n"
SLOW_GIT: Final = """#!/bin/sh
[ "$1" != clone ] || { touch $BEGUN; exec sleep 600; }
exec %s "$@"
"""


class Clone:
    """The program in a repository whose gate is this script. An earlier run has passed.

    `commits`: so many follow the first one. `landed`: the one of `origin/main`. `base`: of the environment. `more`: a
    file that is in none of them.
    """

    def __init__(
        self,
        folder: Path,
        gate: str,
        *arguments: str,
        commits: int = 0,
        landed: str = "",
        base: str = "",
        more: str = "",
    ) -> None:
        self.root, self._temporary, self._begun = folder / "root", folder / "temporary", folder / "begun"
        self._temporary.mkdir()
        code = self.root / "tests" / "gate"
        code.mkdir(parents=True)
        for name in ("__init__", "changed", "clone", "ending", "report"):
            shutil.copy(ROOT / "tests" / "gate" / f"{name}.py", code)
        (self.root / ".ci").mkdir()
        (self.root / ".ci" / "run").write_text(gate)
        (self.root / ".gitignore").write_text("build/\n__pycache__/\n")
        git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
        later = [["commit", "-qm", "x", "--allow-empty"]] * (1 + commits)
        if landed:
            later.append(["update-ref", "refs/remotes/origin/main", landed])
        for command in (["init", "-q"], ["config", "core.quotePath", "false"], ["add", "-A"], *later):
            subprocess.run([*git, *command], cwd=self.root, check=True)
        if more:
            (self.root / more).touch()
        (self.root / "build").mkdir(exist_ok=True)
        (self.root / "build" / "gate.json").write_text('{"result": "passed"}\n')
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-m", "tests.gate.clone", *arguments],
            cwd=self.root,
            env={
                **os.environ,
                "PATH": f"{folder}:{os.environ['PATH']}",
                "TMPDIR": str(self._temporary),
                "BEGUN": str(self._begun),
                "RMQIO_BASE": base,  # else, that of the run that this is a test of
            },
            stdout=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        """Sends SIGTERM when it has begun with what hangs."""
        until(self._begun.exists, "the clone", alive=[runs(self.process)])
        others = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(others)
        assert not alive

    def wait(self) -> tuple[int, list[str], str]:
        """Returns the exit status, the lines, and what gate.json says, or that there is none."""
        lines = self.process.communicate()[0].splitlines()
        report = self.root / "build" / "gate.json"
        assert [*self._temporary.iterdir()] == []
        return self.process.returncode, lines, report.read_text().strip() if report.exists() else "none"


def test_its_status_and_reports_are_those_of_the_gate(tmp_path: Path) -> None:
    clone = Clone(tmp_path, f"{GATE}exit 3\n", more="\udcfc")
    told = ["not in HEAD, so not in the clone:", r"?? \xfc", ""]
    assert clone.wait() == (3, [*told, "of the gate"], '{"result": "failed"}')
    assert (clone.root / "build" / "gate" / "unit.log").exists()


@pytest.mark.parametrize(
    ("commits", "landed", "base", "arguments", "expected"),
    [
        (3, "HEAD~2", "", (), "HEAD~2"),
        (3, "HEAD~2", "", ("--times", "1"), "HEAD~2"),
        (3, "", "", (), "HEAD~1"),
        (3, "HEAD", "", (), "HEAD~1"),
        (3, "HEAD~2", "HEAD~3", (), "HEAD~3"),
        (3, "HEAD~2", "origin/main", (), "HEAD~2"),
        (0, "", "", (), None),
    ],
)
def test_the_clone_compares_with_what_this_folder_comes_after(
    commits: int, landed: str, base: str, arguments: tuple[str, ...], expected: str | None, tmp_path: Path
) -> None:
    """In the clone, `origin/main` is HEAD, or a branch of this folder."""
    says = 'echo "base ${RMQIO_BASE:-none}"\n'
    clone = Clone(tmp_path, says, *arguments, commits=commits, landed=landed, base=base)
    wanted = "none"
    if expected:
        command = ["git", "rev-parse", expected]
        wanted = subprocess.run(command, cwd=clone.root, capture_output=True, text=True, check=True).stdout.strip()
    assert f"base {wanted}" in clone.process.communicate()[0].splitlines()


def test_a_base_that_is_no_commit_is_told(tmp_path: Path) -> None:
    last = ["FAILED the gate cannot begin: RMQIO_BASE=nowhere is no commit", "0 passed, 1 failed, 0 skipped"]
    assert Clone(tmp_path, GATE, base="nowhere").wait() == (1, last, "none")


def test_each_of_several_runs_is_kept_and_told(tmp_path: Path) -> None:
    clone = Clone(tmp_path, AGAIN, "--times", "3")
    status, lines, _ = clone.wait()
    assert status == 4
    assert sorted(file.name for file in (clone.root / "build" / "again").iterdir()) == ["1.json", "2.json", "3.json"]
    rows = ["| 1 | - | passed | 0 | 0 | 0 | 5 | 1.5 | - |", "| 2 | it has left no report |"]
    assert lines[-3:] == [*rows, "| 3 | - | passed | 2 | 0 | 0 | 5 | 1.5 | - |"]


def test_a_signal_goes_on_to_the_gate(tmp_path: Path) -> None:
    clone = Clone(tmp_path, GATE + HANGS, "--busy", "1")
    clone.end()
    assert clone.wait() == (143, ["of the gate"], '{"result": "failed"}')


def test_it_cannot_begin_beside_a_gate_in_this_folder(tmp_path: Path) -> None:
    """Its reports would go where those of the other one are."""
    build = tmp_path / "root" / "build"
    with hold(build):
        status, lines, result = Clone(tmp_path, GATE).wait()
    assert (status, lines[-1], result) == (1, "0 passed, 1 failed, 0 skipped", '{"result": "passed"}')
    assert f"process {os.getpid()} is running in {build}" in lines[-2]


def test_a_signal_ends_it_while_it_clones(tmp_path: Path) -> None:
    (tmp_path / "git").write_text(SLOW_GIT % shutil.which("git"))
    (tmp_path / "git").chmod(0o755)
    clone = Clone(tmp_path, GATE, "--busy", "1")
    clone.end()
    last = ["FAILED the gate cannot begin: SIGTERM", "0 passed, 1 failed, 0 skipped"]
    assert clone.wait() == (143, last, "none")


def test_what_cannot_be_cloned_has_not_passed(tmp_path: Path) -> None:
    (tmp_path / "git").write_text(f'#!/bin/sh\n[ "$1" != clone ] || exit 1\nexec {shutil.which("git")} "$@"\n')
    (tmp_path / "git").chmod(0o755)
    status, lines, result = Clone(tmp_path, GATE).wait()
    assert (status, lines[-1], result) == (1, "0 passed, 1 failed, 0 skipped", "none")
