"""A program, its time and the memory of all that it starts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.common.processes import own_mb, tree
from bench.common.tally import BenchError

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
    return sum(map(own_mb, tree(root)))
