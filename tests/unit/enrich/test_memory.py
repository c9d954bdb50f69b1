"""Memory of tables: a million rows in a process that may take 1 GB; two workers that share the pages of a table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.waiting import at_most

ROWS = 1_000_000
PROGRAM = f"""
import resource, sys
limit = 1 << 30
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))  # private memory: pages of mapped files are the page cache's
import apache_beam as beam
from rmqio.enrich import Enrich, Table

table = Table.from_parquet(sys.argv[1] + "/users.parquet", cache_dir=sys.argv[1] + "/cache")

def keys():
    return ({{"of": n, "id": f"user-{{n:010d}}"}} for n in range(0, {ROWS + 97_000}, 97))

def check(element):
    n = element["of"]
    assert element["name"] == (f"the name of user {{n}}" if n < {ROWS} else None), element
    return n

with beam.Pipeline(runner="DirectRunner") as pipeline:
    elements = pipeline | beam.Create([0]) | beam.FlatMap(lambda _: keys())
    checked = elements | Enrich(table, "id", ["name"]) | beam.Map(check)
    _ = checked | beam.combiners.Count.Globally() | beam.Map(lambda count: print("count", count))
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


@pytest.mark.slow
def test_a_million_rows_fit_into_a_gigabyte(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("name", pa.string()), ("n", pa.int64())])
    with pq.ParquetWriter(tmp_path / "users.parquet", schema) as writer:
        for start in range(0, ROWS, 100_000):
            numbers = np.arange(start, start + 100_000)
            ids = [f"user-{n:010d}" for n in numbers]
            names = [f"the name of user {n}" for n in numbers]
            writer.write_table(pa.table({"id": ids, "name": names, "n": numbers}))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(250), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"count {len(range(0, ROWS + 97_000, 97))}" in done.stdout
    (peak,) = re.findall(r"peak (\d+)", done.stdout)
    assert int(peak) < 1024, "with the mapped pages that it has touched"
    print(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system has no proportional set sizes")
def test_a_second_worker_shares_the_pages_of_the_first(tmp_path: Path) -> None:
    from bench.enrich.rows import make, wanted
    from bench.enrich.workers import shares
    from rmqio.enrich.store import load

    rows = 250_000
    make(tmp_path / "rows.parquet", rows)
    _, table = load(wanted(tmp_path), newer_than=0)
    size = table.manifest.size / 1e6
    del table  # pages that this process maps, too, would count less
    found = shares(tmp_path, rows, rows)
    assert 0.9 * size < found.first < 1.3 * size, "the first one has touched all pages"
    assert found.added <= 0.1
