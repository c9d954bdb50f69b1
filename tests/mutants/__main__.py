"""Plants each fault of this folder into a clone of HEAD, and runs the job of the gate that should see it.

`python3 -m tests.mutants`, with any Python that has venv. A fault is seen if a test of the job fails. The job is run
whole, but for what follows its first failure. This test has to fail again alone, since it may have failed by chance;
and it has to pass without the fault. A run without a failure and without an end, or with tests that are inconclusive
only, says nothing, which is a failure. So is a patch that does not apply, or that an implementation in C may go past:
then nothing is run.

What came out is kept in `build/mutants/results.json`, for the commit and the text of each patch. The last lines are a
table of Markdown. The exit status is 0 if all faults were seen.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.gate.report import ROOT, commit
from tests.mutants.patch import VERDICT, Mutant, mutants

RESULTS: Final = ROOT / "build" / "mutants" / "results.json"
_SEEN: Final = "seen"
_NOT_SEEN: Final = "not seen"
_NOTHING: Final = "inconclusive"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Found = dict[str, Any]
"""`verdict`: seen, not seen or inconclusive; `test`: the one that saw it; `seconds` until then."""


class Clone:
    """A clone of HEAD with the environment of the gate. At most one fault is in it at a time."""

    def __init__(self, folder: Path, head: str) -> None:
        self._folder = folder
        self._git("clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder), at=ROOT)
        self._git("checkout", "--quiet", "--detach", head)

    def takes(self, mutant: Mutant) -> bool:
        """Whether the patch applies."""
        command = ["git", "apply", "--check", str(mutant.file)]
        return subprocess.run(command, cwd=self._folder, capture_output=True, check=False).returncode == 0

    def judged(self, mutant: Mutant) -> Found:
        """Returns what the job of the gate says of the fault."""
        self._git("apply", str(mutant.file))
        try:
            found = self._job(mutant.lane, f"--near={mutant.fault} {' '.join(mutant.changed)}")
            if found["verdict"] != _SEEN:
                return found
            alone = f"--test={found['test']}"
            if self._job(mutant.lane, alone)["verdict"] != _SEEN:
                return {**found, "verdict": _NOTHING, "test": f"alone, it does not fail again: {found['test']}"}
        finally:
            self._git("checkout", "--quiet", "--", ".")
            if left := self._git("status", "--porcelain"):
                sys.exit(f"after {mutant.file.name}, the clone is not clean:\n{left}")
        if self._job(mutant.lane, alone)["verdict"] != _NOT_SEEN:
            return {**found, "verdict": _NOTHING, "test": f"without the fault, it fails too: {found['test']}"}
        return found

    def _job(self, *arguments: str) -> Found:
        file = self._folder / VERDICT
        file.unlink(missing_ok=True)
        # Make knows what the environment is made of: the extensions are built again if their sources are newer.
        if self._run("make", "--no-print-directory", ".venv/.installed"):
            return {"verdict": _NOTHING, "test": "the environment could not be set up", "seconds": 0}
        status = self._run(".venv/bin/python", "-m", "tests.mutants.job", *arguments)
        if status or not file.exists():
            return {"verdict": _NOTHING, "test": f"the job ended with status {status}", "seconds": 0}
        found: Found = json.loads(file.read_text())
        return found

    def _git(self, *arguments: str, at: Path | None = None) -> str:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=at or self._folder, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def _run(self, *command: str) -> int:
        """Returns the exit status. A signal to this process goes on to the program, and this waits for its end."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        process = subprocess.Popen(command, cwd=self._folder, env=environment, start_new_session=True)
        try:
            return process.wait()
        except SystemExit:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise


class Results:
    """What is known of faults, by the text of their patch. Another commit has no results yet."""

    def __init__(self, file: Path, head: str) -> None:
        self._file = file
        self._head = head
        found = json.loads(file.read_text()) if file.exists() else {}
        self._of: dict[str, Found] = found["results"] if found.get("commit") == head else {}

    def of(self, mutant: Mutant) -> Found | None:
        return self._of.get(mutant.digest)

    def is_known(self, mutant: Mutant) -> bool:
        """Whether the fault was seen or not seen: what was inconclusive is tried again."""
        found = self.of(mutant)
        return found is not None and bool(found["verdict"] != _NOTHING)

    def keep(self, mutant: Mutant, found: Found) -> None:
        self._of[mutant.digest] = found
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"commit": self._head, "results": self._of}, indent=2) + "\n")


def table(chosen: Sequence[Mutant], results: Results) -> list[str]:
    """Returns a line of Markdown for each fault, with a head."""
    lines = ["| fault | lane | seen by | seconds |", "|---|---|---|---|"]
    for mutant in chosen:
        found: Found = results.of(mutant) or {"verdict": _NOTHING, "test": "", "seconds": 0}
        test = found["test"].replace("|", r"\|")
        seen_by = f"`{test}`" if found["verdict"] == _SEEN else f"**{found['verdict']}** {test}".rstrip()
        lines.append(f"| {mutant.number} {mutant.fault} | {mutant.lane} | {seen_by} | {found['seconds']} |")
    return lines


def run(chosen: Sequence[Mutant], left: Sequence[Mutant], results: Results, head: str) -> bool:
    """Judges what is left of the chosen ones. Returns whether all patches are whole; if not, nothing is judged."""
    if lacking := [f"{mutant.file.name}: {mutant.lacks}" for mutant in chosen if mutant.lacks]:
        print("these do not say what they have to:\n  " + "\n  ".join(lacking))
        return False
    with tempfile.TemporaryDirectory(prefix="rmqio-mutants-") as folder:
        clone = Clone(Path(folder) / "rmqio", head)
        if refused := [mutant.file.name for mutant in chosen if not clone.takes(mutant)]:
            print(f"these do not apply to {head[:8]}: {', '.join(refused)}")
            return False
        for at, mutant in enumerate(left, 1):
            print(f"mutants: {at} of {len(left)}: {mutant.file.name}, by {mutant.lane}", flush=True)
            found = clone.judged(mutant)
            results.keep(mutant, found)
            print(f"mutants: {mutant.file.name}: {found['verdict']} {found['test']}", flush=True)
    return True


def _end(number: int, frame: object) -> None:
    for each in _SIGNALS:  # the second one has nothing to end
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main(argv: Sequence[str]) -> int:
    known = mutants()
    parser = argparse.ArgumentParser(prog="python3 -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NN,NN", help="the numbers of faults; all others are left out")
    parser.add_argument("--resume", action="store_true", help="go on: leave out what this commit has results of")
    given = parser.parse_args(argv)
    numbers = [mutant.number for mutant in known] if given.only is None else given.only.split(",")
    if unknown := {*numbers} - {mutant.number for mutant in known}:
        parser.error(f"--only: there are no faults with the numbers {', '.join(sorted(unknown))}")
    head = commit().id
    if head is None:
        parser.error("this is no clone, so there is no HEAD to plant faults into")
    for each in _SIGNALS:
        signal.signal(each, _end)
    results = Results(RESULTS, head)
    chosen = [mutant for mutant in known if mutant.number in numbers]
    left = [mutant for mutant in chosen if not (given.resume and results.is_known(mutant))]
    if not run(chosen, left, results, head):
        return 1
    print("\n".join([f"As of {head[:8]}:", "", *table(chosen, results)]))
    return 0 if all((results.of(mutant) or {}).get("verdict") == _SEEN for mutant in chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
