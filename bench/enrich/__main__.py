"""Dimension tables beside LMDB, RocksDB and a dict of Python: look-ups, build, memory. All answers are compared.

    python -m bench.enrich --rows 2000000

Needs `pip install lmdb rocksdict`; a peer that is missing is left out, and said to be.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from bench.enrich.peers import peers
from bench.enrich.rows import asked, make, wanted
from bench.enrich.workers import shares
from rmqio.enrich import lookups
from rmqio.enrich.store import load
from rmqio.enrich.table.mapped import MappedTable

_DICT_ROWS = 2_000_000
_PEER_ROWS = 5_000_000
_BATCHES = (512, 2_000, 10_000)
_WAIT_MS = 50.0


def build(folder: Path) -> dict[str, float]:
    """Builds in this process, whose memory is measured."""
    begun, cpu = time.perf_counter(), time.process_time()
    _, table = load(wanted(folder), newer_than=0)
    return {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "mb": table.manifest.size / 1e6,
    }


def builds(folder: Path, rows: int, repeats: int) -> None:
    """Builds some times, each in a process of its own, and prints one line."""
    found = []
    for _ in range(repeats):
        shutil.rmtree(folder / "cache", ignore_errors=True)
        command = [sys.executable, "-m", "bench.enrich", "--part", "build", "--folder", str(folder)]
        found.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    seconds, cpu = _spread([each["seconds"] for each in found]), _spread([each["cpu"] for each in found])
    peak, size = max(each["peak_mb"] for each in found), found[0]["mb"]
    print(f"build: {rows:,} rows in {seconds} s, {cpu} s of CPU; the peak is {peak:,.0f} MB")
    print(f"size: {size:,.0f} MB on disk and in shared memory, {size * 1e6 / rows:.0f} B a row", flush=True)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}..{max(values):.1f})"


def report(name: str, rows: int, get: Callable[[list[str]], Any], keys: list[str], size: int, repeats: int) -> None:
    """Looks up all keys in batches of a size, and prints a line."""
    _report(name, rows, get, [keys[start : start + size] for start in range(0, len(keys), size)], repeats)


def report_columns(name: str, rows: int, table: MappedTable, batches: list[pa.Array], repeats: int) -> None:
    """Looks up columns of keys, and prints a line."""
    _report(name, rows, lambda column: lookups.found_columns(table, [column]), batches, repeats)


def _report(name: str, rows: int, get: Callable[[Any], Any], batches: list[Any], repeats: int) -> None:
    """Looks up all keys some times, and prints one line: the rate with its spread, and that of a second of CPU."""
    rates, cpu_rates = [], []
    keys = sum(map(len, batches))
    for _ in range(repeats):
        begun, cpu = time.perf_counter(), time.thread_time()
        for batch in batches:
            get(batch)
        rates.append(keys / (time.perf_counter() - begun))
        cpu_rates.append(keys / (time.thread_time() - cpu))
    middle, of_cpu = statistics.median(rates), statistics.median(cpu_rates)
    print(
        f"{name:34} {rows:>12,} rows {middle:>11,.0f} look-ups/s ({min(rates):,.0f}..{max(rates):,.0f}); "
        f"{of_cpu:,.0f} in a second of CPU", flush=True,
    )  # fmt: skip


class Waits(NamedTuple):
    """How long look-ups of 512 keys took, in ms."""

    look_ups: int
    usual: float
    longest: float
    over: int

    def __str__(self) -> str:
        return (
            f"{self.look_ups:,} look-ups of 512 keys, the median {self.usual:.2f} ms, the longest "
            f"{self.longest:.1f} ms, {self.over} above {_WAIT_MS:.0f} ms"
        )


def waits(table: MappedTable, keys: list[str], is_done: Callable[[], bool]) -> Waits:
    """Looks up until it is done."""
    taken = []
    rng = random.Random(11)
    while not is_done():
        start = rng.randrange(max(1, len(keys) - 512))
        begun = time.perf_counter()
        table.get(keys[start : start + 512])
        taken.append((time.perf_counter() - begun) * 1000)
        time.sleep(0.0005)
    return Waits(len(taken), statistics.median(taken), max(taken), sum(each > _WAIT_MS for each in taken))


def refresh(folder: Path, table: MappedTable, keys: list[str], rest_s: float) -> None:
    """Prints how long look-ups take while nothing else happens, and while a thread builds the table again."""
    until = time.monotonic() + rest_s
    print(f"at rest: {waits(table, keys, lambda: time.monotonic() > until)}")
    os.utime(folder / "rows.parquet")
    thread = threading.Thread(target=load, args=(wanted(folder),), kwargs={"newer_than": time.time()})
    thread.start()
    found = waits(table, keys, lambda: not thread.is_alive())
    thread.join()
    print(f"while it is built again in this process: {found}", flush=True)


def ours(folder: Path, given: argparse.Namespace, rng: random.Random) -> None:
    """Prints the lines of rmqio."""
    builds(folder, given.rows, given.builds)
    # This process has not mapped the table yet: pages that it shares would count less.
    first, second = shared = shares(folder, given.rows, max(given.keys, min(given.rows, 1_000_000)))
    print(f"memory: a worker takes {first:,.1f} MB, a second one adds {second:,.1f} MB: {shared.added:.1%}", flush=True)
    keys, rows = asked(rng, given.rows, given.keys)
    _, table = load(wanted(folder), newer_than=0)
    one = table.get_one
    if table.get(keys) != rows or [one(key) for key in keys] != rows:
        raise SystemExit("rmqio: the answers are not those of the source")
    report("rmqio, single", given.rows, lambda some: [one(key) for key in some], keys, 512, given.repeats)
    for size in _BATCHES:
        report(f"rmqio, batches of {size:,}", given.rows, table.get, keys, size, given.repeats)
    column = pa.array(keys)
    found = lookups.found_columns(table, [column])
    if found is None or list(zip(*(each.to_pylist() for each in found.columns), strict=True)) != [
        row or (None,) * 4 for row in rows
    ]:
        raise SystemExit("rmqio: the columns are not those of the source")
    for size in _BATCHES:
        slices = [column.slice(start, size) for start in range(0, len(column), size)]
        report_columns(f"rmqio, to Arrow, batches of {size:,}", given.rows, table, slices, given.repeats)
    refresh(folder, table, keys, given.rest_s)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.enrich", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--dict-rows", type=int, default=_DICT_ROWS)
    parser.add_argument("--peer-rows", type=int, default=_PEER_ROWS, help="of LMDB and RocksDB")
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--builds", type=int, default=3)
    parser.add_argument("--rest-s", type=float, default=10.0, help="how long look-ups at rest are measured")
    parser.add_argument("--folder", type=Path, help="keep the source there")
    parser.add_argument("--part", choices=["build"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part == "build":
        print(json.dumps(build(given.folder)))
        return
    folder = given.folder or Path(tempfile.mkdtemp(prefix="bench-enrich-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not (folder / "rows.parquet").exists():
            make(folder / "rows.parquet", given.rows)
        rng = random.Random(7)
        ours(folder, given, rng)
        beside = Path(tempfile.mkdtemp(prefix="peers-", dir=folder))
        few = {"dict_rows": min(given.rows, given.dict_rows), "disk_rows": min(given.rows, given.peer_rows)}
        try:
            for peer in peers(beside, **few):
                keys, rows = asked(rng, peer.rows, given.keys)
                if peer.get(keys) != rows:
                    raise SystemExit(f"{peer.name}: the answers are not those of the source")
                name = f"{peer.name}, {peer.row_bytes:.0f} B a row"
                report(name, peer.rows, peer.get, keys, 512, given.repeats)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        print("all answers were compared with the source's rows")
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
