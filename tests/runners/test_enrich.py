"""`Enrich` gives the same elements on all runners."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")

import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.ledgers.ledger import Lab
from tests.helpers.waiting import at_most, until_found
from tests.runners.sql.test_sql import RUNNERS, Topics, rows_of, send, topics

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]
__all__ = ["topics"]

PROGRAM = Path(__file__).parents[1] / "helpers/pipelines/enriching.py"


@pytest.mark.parametrize("runner", RUNNERS)
def test_all_runners_give_the_same_elements(runner: str, topics: Topics, lab: Lab, tmp_path: Path) -> None:
    """A join with a file (batches) and with a compacted topic (single elements); a bad key is a dead letter."""
    count = 500
    users = {"id": [f"user {n}" for n in range(count)], "tier": ["gold" if n % 3 else None for n in range(count)]}
    pq.write_table(pa.table(users), tmp_path / "users.parquet")
    send(lab, topics.devices, [{"id": n, "town": f"town {n}"} for n in range(5)])
    rows = [{"n": n, "user": f"user {n}" if n else 0, "town": n % 7} for n in range(0, 2 * count, 2)]
    send(lab, topics.readings, rows)
    command = [
        sys.executable, str(PROGRAM), topics.readings, topics.devices, topics.alarms, topics.name_server, str(tmp_path),
        *f"--runner={runner}".split(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(400), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = []
    for n in range(2, 2 * count, 2):
        tier = ("gold" if n % 3 else None) if n < count else None
        town = f"town {n % 7}" if n % 7 < 5 else None
        wanted.append({"n": n, "user": f"user {n}", "town": n % 7, "tier": tier, "in_town": town})
    letter = {"n": 0, "user": 0, "town": 0}
    until_found(lambda: rows_of(lab, topics.alarms), [letter, *wanted])
    found = sorted(rows_of(lab, topics.alarms), key=lambda each: each["n"])
    assert found == [letter, *wanted]
