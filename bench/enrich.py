"""Dimension tables beside LMDB, RocksDB and a dict of Python: look-ups, build, size. All values are compared.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqio.enrich import Table
from rmqio.enrich.loading import Wanted, load
from rmqio.enrich.table.rows import Spec

TIERS = ("bronze", "silver", "gold", "platinum")
_PART = 100_000
_DICT_ROWS = 2_000_000
_PEER_ROWS = 5_000_000


def key_of(n: int) -> str:
    """Returns the key of a row."""
    return f"user-{n * 2654435761 % (1 << 40):013d}"


def row_of(n: int) -> tuple[str, str, int, str]:
    """Returns the row of a number."""
    return TIERS[n % 4], f"region-{n % 300:03d}", n * 7, f"name of {n}"


def make(path: Path, rows: int) -> None:
    """Writes the source."""
    names, kinds = ("id", "tier", "region", "score", "name"), (pa.string(),) * 3 + (pa.int64(), pa.string())
    schema = pa.schema([*zip(names, kinds, strict=True)])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, _PART):
            numbers = range(start, min(start + _PART, rows))
            columns = list(zip(*map(row_of, numbers), strict=True))
            arrays = [
                pa.array(each, field.type)
                for each, field in zip([list(map(key_of, numbers)), *columns], schema, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def build(folder: Path) -> dict[str, float]:
    """Builds in a process of its own, whose memory is measured."""
    begun, cpu = time.perf_counter(), time.process_time()
    _, table = load(_wanted(folder), newer_than=0)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu, "peak_mb": used,
        "mb": table.manifest.size / 1e6,
    }  # fmt: skip


def _wanted(folder: Path) -> Wanted:
    table = Table.from_parquet(str(folder / "rows.parquet"), cache_dir=str(folder / "cache"))
    return Wanted(table, Spec(("id",)))


def rates(get: Callable[[list[str]], Any], keys: list[str], size: int, repeats: int) -> list[float]:
    """Returns look-ups a second, of each repeat."""
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        for start in range(0, len(keys), size):
            get(keys[start : start + size])
        found.append(len(keys) / (time.perf_counter() - begun))
    return found


def peers(folder: Path, rows: int) -> Iterator[tuple[str, int, Callable[[list[str]], Any], float]]:
    """Yields the name, rows, look-up and bytes a row of each peer. Values are compared by the caller."""
    count = min(rows, _DICT_ROWS)
    before = _rss()
    table = {key_of(n): row_of(n) for n in range(count)}
    yield "dict", count, lambda keys: [table.get(key) for key in keys], (_rss() - before) / count
    table.clear()
    count = min(rows, _PEER_ROWS)
    try:
        import lmdb
    except ImportError:
        print("lmdb is not installed")
    else:
        environment = lmdb.open(str(folder / "lmdb"), map_size=1 << 36, sync=False)
        ordered = sorted((key_of(n).encode(), _packed(n)) for n in range(count))
        with environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(ordered, append=True)
        del ordered
        with environment.begin() as transaction:
            yield (
                "LMDB", count, lambda keys: [_unpacked(transaction.get(key.encode())) for key in keys],
                _disk(folder / "lmdb") / count,
            )  # fmt: skip
        environment.close()
    try:
        import rocksdict
    except ImportError:
        print("rocksdict is not installed")
    else:
        store = rocksdict.Rdict(str(folder / "rocks"), rocksdict.Options(raw_mode=True))
        for start in range(0, count, _PART):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for n in range(start, min(start + _PART, count)):
                batch.put(key_of(n).encode(), _packed(n))
            store.write(batch)
        store.flush()
        yield (
            "RocksDB", count, lambda keys: [_unpacked(each) for each in _all(store, keys)],
            _disk(folder / "rocks") / count,
        )  # fmt: skip
        store.close()


def _all(store: Any, keys: list[str]) -> Any:
    return store.get([key.encode() for key in keys])


def _packed(n: int) -> bytes:
    return "\0".join(map(str, row_of(n))).encode()


def _unpacked(data: bytes | None) -> tuple[str, str, int, str] | None:
    if data is None:
        return None
    tier, region, score, name = data.decode().split("\0")
    return tier, region, int(score), name


def _disk(folder: Path) -> float:
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def waits(folder: Path, keys: list[str]) -> tuple[float, int]:
    """Returns the longest look-up of 512 keys in ms while the table is built again, and the number of look-ups."""
    _, table = load(_wanted(folder), newer_than=0)
    table.get(keys)
    os.utime(folder / "rows.parquet")
    done = threading.Event()

    def again() -> None:
        load(_wanted(folder), newer_than=time.time())
        done.set()

    thread = threading.Thread(target=again)
    longest, count = 0.0, 0
    thread.start()
    while not done.is_set():
        begun = time.perf_counter()
        table.get(keys[:512])
        longest = max(longest, time.perf_counter() - begun)
        count += 1
        time.sleep(0.0005)
    thread.join()
    return longest * 1000, count


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
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
        shutil.rmtree(folder / "cache", ignore_errors=True)
        command = [sys.executable, "-m", "bench.enrich", "--part", "build", "--folder", str(folder)]
        built = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        print(f"build: {given.rows:,} rows in {built['seconds']:.1f} s ({built['cpu']:.1f} s of CPU)")
        size = built["mb"]
        print(f"peak {built['peak_mb']:,.0f} MB, {size:,.0f} MB on disk, {size * 1e6 / given.rows:.0f} B a row")
        rng = random.Random(7)
        numbers = [rng.randrange(given.rows) for _ in range(given.keys)]
        keys = [key_of(n) for n in numbers]
        _, table = load(_wanted(folder), newer_than=0)
        assert table.get(keys) == [row_of(n) for n in numbers]
        assert table.get(["no such key"]) == [None]
        one = table.get_one
        report("rmqio, single", given.rows, rates(lambda some: [one(key) for key in some], keys, 512, given.repeats))
        for size in (512, 2_000, 10_000):
            report(f"rmqio, batches of {size:,}", given.rows, rates(table.get, keys, size, given.repeats))
        longest, count = waits(folder, keys)
        print(f"built again while {count:,} batches of 512 were looked up: the longest took {longest:.1f} ms")
        for name, rows, get, row_bytes in peers(folder, given.rows):
            some = [rng.randrange(rows) for _ in range(given.keys)]
            asked = [key_of(n) for n in some]
            assert get(asked) == [row_of(n) for n in some], name
            report(f"{name}, {row_bytes:.0f} B a row", rows, rates(get, asked, 512, given.repeats))
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def report(name: str, rows: int, found: list[float]) -> None:
    """Prints one line: the median, and the spread."""
    middle = statistics.median(found)
    print(f"{name:32} {rows:>12,} rows {middle:>12,.0f} look-ups/s ({min(found):,.0f}..{max(found):,.0f})", flush=True)


if __name__ == "__main__":
    main()
