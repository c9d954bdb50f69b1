"""A program, its time and the memory of all that it starts."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.tally import BenchError

_SAMPLE_S: Final = 0.25


@dataclass(frozen=True)
class Ran:
    """One run of a program."""

    seconds: float
    peak_mb: float
    """The most memory that it and all below it had for themselves at one time, in 10^6 bytes."""


def run(command: Sequence[str]) -> Ran:
    """Raises `BenchError` if it fails, with the end of what it said."""
    with tempfile.TemporaryFile() as log:
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log)
        peak = 0.0
        try:
            while True:
                try:
                    status = process.wait(_SAMPLE_S)
                    break
                except subprocess.TimeoutExpired:
                    peak = max(peak, tree_mb(process.pid))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        seconds = time.monotonic() - began
        if status:
            log.seek(0)
            said = log.read().decode(errors="replace").splitlines()
            raise BenchError(f"{' '.join(command)} ended with {status}:\n" + "\n".join(said[-20:]))
    return Ran(seconds, peak)


def tree_mb(root: int) -> float:
    """Memory of a process and all below it that is theirs alone: files that they map are not counted."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
            found = re.search(r"RssAnon:\s+(\d+) kB", (folder / "status").read_text())
        except OSError:
            continue  # it has ended meanwhile
        sizes[pid] = int(found[1]) * 1024 if found else 0
    tree = {root}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(sizes.get(pid, 0) for pid in tree) / 1e6
