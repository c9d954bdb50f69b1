"""A row that fails after a join or in a group goes to the dead letters with its values, and the others are written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from tests.helpers.check import read_topic
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.waiting import at_most, until, until_found
from tests.runners.sql.test_sql import RUNNERS, Topics, rows_of, send, topics

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]
__all__ = ["topics"]

JOB = """
CREATE TABLE v (id BIGINT, text STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('topic' = '{readings}', 'on-error' = 'dead-letter', 'dead-letter-topic' = '{devices}');
CREATE TABLE sink (kind STRING, id BIGINT, x BIGINT) WITH ('topic' = '{alarms}');
INSERT INTO sink
SELECT 'group', id, 100 / SUM(id - 1) FROM v GROUP BY id, TUMBLE(ts, INTERVAL '1' HOUR);
INSERT INTO sink
SELECT 'join', a.id, CAST(a.text AS BIGINT) + CAST(b.text AS BIGINT) FROM v AS a JOIN v AS b
ON a.id = b.id AND a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts + INTERVAL '1' MINUTE;
"""
NULLS = """
CREATE TABLE w (id BIGINT, text STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('topic' = '{readings}', 'on-error' = 'null');
INSERT INTO sink SELECT 'null', id, CAST(text AS BIGINT) FROM w;
""" + "".join(
    f"{each};\n"
    for each in JOB.replace("'group'", "'null group'")
    .replace("'join'", "'null join'")
    .replace("FROM v", "FROM w")
    .replace("JOIN v", "JOIN w")
    .split(";")[2:4]
)
"""The same of a table whose values that cannot be computed are NULL."""


@pytest.mark.parametrize("runner", RUNNERS)
def test_rows_that_fail_after_a_join_or_a_group_are_dead_letters(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path
) -> None:
    """And in a table with `'on-error' = 'null'`, the value is `NULL`, before a join and a group and after them."""
    rows = [{"id": n, "text": "abc" if n == 7 else str(n), "ts": "2024-02-01 00:00:01"} for n in range(10)]
    send(lab, topics.readings, rows)
    file = tmp_path / "job.sql"
    file.write_text((JOB + NULLS).format(**topics._asdict()))
    flags = [*f"--runner={runner}".split(), f"--name_server={topics.name_server}", "--start=earliest", "--stop=latest"]
    flags += [f"--checkpoint_dir={tmp_path}/checkpoint"] if runner == "SparkRunner --streaming" else []
    command = [sys.executable, "-m", "rmqio", "sql", str(file), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(400), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = [{"kind": "group", "id": n, "x": int(100 / (n - 1))} for n in range(10) if n != 1]
    wanted += [{"kind": "join", "id": n, "x": 2 * n} for n in range(10) if n != 7]
    values = {"null": 1, "null join": 2}
    wanted += [
        {"kind": kind, "id": n, "x": n * by if n != 7 else None} for kind, by in values.items() for n in range(10)
    ]
    wanted += [{"kind": "null group", "id": n, "x": int(100 / (n - 1)) if n != 1 else None} for n in range(10)]
    until_found(lambda: rows_of(lab, topics.alarms), wanted)
    assert rows_of(lab, topics.alarms) == sorted(wanted, key=lambda row: json.dumps(row, sort_keys=True))

    def letters() -> set[str]:
        return {str(each.properties["RMQIO_ERROR_REASON"]) for each in read_topic(lab.client, topics.devices)}

    until(lambda: len(letters()) >= 2, "both letters", details=letters)
    assert len(letters()) == 2
    assert any("division by zero" in each and "SUM" in each for each in letters()), letters()
    assert any("'abc' is not a whole number" in each for each in letters()), letters()


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_bad_message_is_told_with_its_place_in_the_last_line(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path
) -> None:
    send(lab, topics.readings, [{"id": "a"}])
    (bad,) = read_topic(lab.client, topics.readings)
    file = tmp_path / "job.sql"
    file.write_text(
        f"CREATE TABLE v (id BIGINT) WITH ('topic' = '{topics.readings}');"
        f"CREATE TABLE sink (id BIGINT) WITH ('topic' = '{topics.alarms}');"
        "INSERT INTO sink SELECT id FROM v;"
    )
    flags = [*f"--runner={runner}".split(), f"--name_server={topics.name_server}", "--start=earliest", "--stop=latest"]
    flags += [f"--checkpoint_dir={tmp_path}/checkpoint"] if runner == "SparkRunner --streaming" else []
    command = [sys.executable, "-m", "rmqio", "sql", str(file), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(400), check=False)
    assert done.returncode == 1, done.stderr[-3000:]
    last = done.stderr.splitlines()[-1]
    assert last.startswith("rmqio sql: ")
    assert f"{bad.queue}, offset {bad.queue_offset}" in last
    assert "column id: 'a' is not a whole number" in last
