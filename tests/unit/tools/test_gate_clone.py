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

from tests.helpers.imports import ROOT
from tests.helpers.waiting import runs, until

GATE: Final = """
mkdir -p build/gate
echo '{"result": "failed"}' >build/gate.json
touch build/gate/unit.log
echo "of the gate"
"""
HANGS: Final = "trap 'kill $!; exit 143' TERM; touch $BEGUN; sleep 600 & wait\n"
SLOW_GIT: Final = """#!/bin/sh
[ "$1" != clone ] || { touch $BEGUN; exec sleep 600; }
exec %s "$@"
"""


class Clone:
    """The program in a repository whose gate is this script. An earlier run has passed."""

    def __init__(self, folder: Path, gate: str, *arguments: str) -> None:
        self.root, self._temporary, self._begun = folder / "root", folder / "temporary", folder / "begun"
        self._temporary.mkdir()
        code = self.root / "tests" / "gate"
        code.mkdir(parents=True)
        for name in ("__init__", "clone", "ending", "report"):
            shutil.copy(ROOT / "tests" / "gate" / f"{name}.py", code)
        (self.root / ".ci").mkdir()
        (self.root / ".ci" / "run").write_text(gate)
        (self.root / ".gitignore").write_text("build/\n__pycache__/\n")
        git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
            subprocess.run([*git, *command], cwd=self.root, check=True)
        (self.root / "build").mkdir()
        (self.root / "build" / "gate.json").write_text('{"result": "passed"}\n')
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-m", "tests.gate.clone", *arguments],
            cwd=self.root,
            env={
                **os.environ,
                "PATH": f"{folder}:{os.environ['PATH']}",
                "TMPDIR": str(self._temporary),
                "BEGUN": str(self._begun),
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
    clone = Clone(tmp_path, f"{GATE}exit 3\n")
    assert clone.wait() == (3, ["of the gate"], '{"result": "failed"}')
    assert (clone.root / "build" / "gate" / "unit.log").exists()


def test_a_signal_goes_on_to_the_gate(tmp_path: Path) -> None:
    clone = Clone(tmp_path, GATE + HANGS, "--busy", "1")
    clone.end()
    assert clone.wait() == (143, ["of the gate"], '{"result": "failed"}')


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
