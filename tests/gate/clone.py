"""Runs the gate on a fresh clone of HEAD, in a temporary folder: `python3 -m tests.gate.clone`.

Its log is shown here, and its `gate.json`, `junit.xml` and logs go to `build/`. With `--times 10`, it runs so often;
each `gate.json` is kept in `build/again/`, and a table of all that are there comes last. With `--busy 2`, so many
endless loops run beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.gate.changed import BASE, base_of
from tests.gate.ending import Ended, heed_signals
from tests.gate.report import CANNOT_BEGIN, ROOT, git, hold

BUILD: Final = ROOT / "build"
_REPORTS: Final = ("junit.xml", "gate.json")  # the result comes last: the others can fail to be copied
_COLUMNS: Final = ("passed", "failed", "inconclusive", "skipped")


def run_in_clone() -> int:
    """Returns the exit status of the gate. A signal goes on to it, and this waits for its end.

    The clone's `origin` is this folder, which is no commit that landed. So the gate is told what to compare with.
    """
    for name in _REPORTS:
        (BUILD / name).unlink(missing_ok=True)
    shutil.rmtree(BUILD / "gate", ignore_errors=True)
    if changes := git(ROOT, "status", "--porcelain"):
        print(f"not in HEAD, so not in the clone:\n{changes}", flush=True)
    base = base_of(ROOT)
    environment = {**os.environ, **({BASE: base} if base else {})}
    with tempfile.TemporaryDirectory(prefix="rmqio-gate-") as folder:
        clone = Path(folder) / "rmqio"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
        gate = subprocess.Popen(["bash", ".ci/run"], cwd=clone, env=environment, start_new_session=True)
        try:
            status = gate.wait()
        except Ended as ended:
            gate.send_signal(ended.number)
            status = gate.wait()
        for name in _REPORTS:
            with suppress(FileNotFoundError):
                shutil.copy(clone / "build" / name, BUILD)
        with suppress(FileNotFoundError):
            shutil.copytree(clone / "build" / "gate", BUILD / "gate")
    return status if status >= 0 else 128 - status


def table(folder: Path) -> list[str]:
    """Returns a line of Markdown for each `gate.json` of a folder, with a head."""
    lines = [f"| run | commit | result | {' | '.join(_COLUMNS)} | minutes | flakes |", "|" + "---|" * 9]
    for file in sorted(folder.glob("*.json"), key=lambda file: int(file.stem)):
        try:
            found = json.loads(file.read_text())
        except ValueError:
            lines.append(f"| {file.stem} | it has left no report |")
            continue
        counts = " | ".join(str(found[each]) for each in _COLUMNS)
        minutes = f"{found['seconds']['all'] / 60:.1f}"
        flakes = ", ".join(found["flakes"]) or "-"
        commit = (found["commit"] or "-")[:8]
        lines.append(f"| {file.stem} | {commit} | {found['result']} | {counts} | {minutes} | {flakes} |")
    return lines


_LOOP: Final = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(1000))"


@contextmanager
def busy(loops: int) -> Iterator[None]:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(loops):
            processes.append(subprocess.Popen([sys.executable, "-S", "-c", _LOOP]))
        yield
    finally:
        for each in processes:
            each.kill()
            each.wait()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.gate.clone", description=__doc__)
    parser.add_argument("--times", type=int, default=0, help="run so often, and keep each gate.json")
    parser.add_argument("--busy", type=int, default=0, help="so many endless loops beside it")
    given = parser.parse_args(argv)
    try:
        heed_signals()
        with hold(BUILD):
            return run(given.times, given.busy)
    except (Ended, OSError, ValueError, subprocess.CalledProcessError) as error:
        print(CANNOT_BEGIN.format(error), flush=True)
        return error.status if isinstance(error, Ended) else 1


def run(times: int, loops: int) -> int:
    """Returns the exit status of the gate, or the worst one. `times`: 0 keeps nothing.

    Raises:
      Ended, OSError, ValueError, CalledProcessError: a gate has not begun.
    """
    if not times:
        with busy(loops):
            return run_in_clone()
    again = BUILD / "again"
    again.mkdir(exist_ok=True)
    worst = 0
    for _ in range(times):
        with busy(loops):
            worst = max(worst, status := run_in_clone())
        number = 1 + max((int(file.stem) for file in again.glob("*.json")), default=0)
        report = BUILD / "gate.json"
        (again / f"{number}.json").write_text(report.read_text() if report.exists() else "")
        if status > 128:  # ended by a signal
            break
    print("\n".join(table(again)))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
