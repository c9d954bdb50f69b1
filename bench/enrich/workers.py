"""The memory of workers that look up in one table: what the first takes, and what the second adds."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from bench.enrich.rows import key_of, row_of, wanted
from rmqio.enrich import Table
from rmqio.enrich.store import Wanted, load
from rmqio.enrich.table.rows import Spec

_BATCH = 512


class Shares(NamedTuple):
    """MB that two workers take for a table. A page of it that both map counts once."""

    first: float
    second: float

    @property
    def added(self) -> float:
        """The second worker's part, as a share of the first."""
        return self.second / self.first


def shares(folder: Path, rows: int, keys: int) -> Shares:
    """Starts two workers, lets one after the other look up, and measures what all take."""
    command = [sys.executable, "-m", "bench.enrich.workers", str(folder), str(rows), str(keys)]
    started: list[subprocess.Popen[str]] = []
    try:
        for _ in range(2):
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            _said(started[-1], "ready")  # all that a worker has without a table
        totals = [_taken_mb(started, folder)]
        for each in started:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
            _said(each, "done")
            totals.append(_taken_mb(started, folder))
    finally:
        for each in started:
            each.kill()
            each.communicate()
    return Shares(totals[1] - totals[0], totals[2] - totals[1])


def _said(process: subprocess.Popen[str], wanted_line: str) -> None:
    assert process.stdout is not None
    found = process.stdout.readline().strip()
    if found != wanted_line:
        raise RuntimeError(f"a worker said {found!r} instead of {wanted_line!r}")


def _taken_mb(processes: list[subprocess.Popen[str]], folder: Path) -> float:
    """Anonymous memory, and the mapped files of the folder. Libraries do not count: other processes map them, too."""
    total = 0
    for each in processes:
        is_of_folder = False
        for line in Path(f"/proc/{each.pid}/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in ("Pss", "Anonymous"):
                total += int(value.split()[0]) if is_of_folder == (name == "Pss") else 0
            elif not name.isalpha() and "-" in line.split(maxsplit=1)[0]:  # the range of a mapping, and its file
                is_of_folder = str(folder) in line
    return total * 1024 / 1e6


def _work(folder: Path, rows: int, keys: int) -> None:
    with tempfile.TemporaryDirectory() as small:  # it brings what any table needs: modules, and memory that they keep
        tiny = Table.from_arrow(pa.table({"id": ["a"], "name": ["b"]}), cache_dir=small)
        load(Wanted(tiny, Spec(("id",))), newer_than=0)[1].get(["a"] * _BATCH)
    print("ready", flush=True)
    sys.stdin.readline()
    _, table = load(wanted(folder), newer_than=0)
    step = max(1, rows // keys)
    for start in range(0, rows, step * _BATCH):
        numbers = range(start, min(start + step * _BATCH, rows), step)
        found: list[Any] = table.get([key_of(n) for n in numbers])
        assert found == [row_of(n) for n in numbers]
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
