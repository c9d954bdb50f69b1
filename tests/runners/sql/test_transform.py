"""`SqlTransform` gives the same rows on all runners: messages and rows of Python, joins, windows, bad rows."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam

from rmqio import ReadFromRocketMQ, ReadOptions, StartFrom, StopAt, WriteToRocketMQ
from rmqio.model import Message, MessageQueue
from rmqio.runners import options
from rmqio.runners.capabilities import Mode
from rmqio.sql import SqlTransform, element_time, row_time
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.waiting import until_found
from tests.runners.sql.test_sql import MIDNIGHT, Topics, rows_of, topics  # noqa: F401 - the last is a fixture
from tests.unit.sql.transform.row_kinds import Right

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]
FLAGS = {
    Mode.DIRECT: "--runner=DirectRunner",
    Mode.SPARK: "--runner=SparkRunner",
    Mode.SPARK_STREAMING: "--runner=SparkRunner --streaming",
    Mode.FLINK: "--runner=FlinkRunner",
}
RUNNERS = [pytest.param(flags, id=flags, marks=pytest.mark.shows(mode)) for mode, flags in FLAGS.items()]
DDL = "(k STRING, n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)"
COUNTS = """
SELECT window_start AS s, k, COUNT(*) AS c, SUM(n) AS total
FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end
"""
FIRST = """
SELECT s, k AS most FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY c DESC, k) AS rn
  FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(at), INTERVAL '1' MINUTE))
) WHERE rn = 1
"""
NEXT = "SELECT c.k, c.s, d.c AS next FROM c JOIN d ON c.k = d.k AND d.at = c.at + INTERVAL '1' MINUTE"


def as_json(row: Any) -> bytes:
    return json.dumps({name: str(value) for name, value in row._asdict().items()}).encode()


@pytest.mark.parametrize("runner", RUNNERS)
def test_rows_of_messages_and_of_python(runner: str, topics: Topics, lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    random = Random(7)
    rows = [
        {"k": f"k{n % 5}", "n": n, "ts": str(MIDNIGHT + dt.timedelta(milliseconds=700 * n + random.randrange(4000)))}
        for n in range(300)
    ]
    for number in range(2):
        found = [json.dumps(each).encode() for each in rows[number::2]] + ([b"{"] if number else [])
        send_all(lab.broker.broker, MessageQueue(topics.readings, lab.broker.name, number), [Message(b) for b in found])
    flags = (
        [*runner.split(), f"--checkpoint_dir={tmp_path / 'checkpoint'}"] if "streaming" in runner else runner.split()
    )
    place: dict[str, Any] = {"name_server": topics.name_server}
    with beam.Pipeline(options=options(flags)) as pipeline:
        messages = pipeline | ReadFromRocketMQ(
            topics.readings, start=StartFrom.earliest(), stop=StopAt.latest(), batches=True,
            timestamp=row_time(DDL), options=ReadOptions(max_out_of_orderness_ms=5000), **place,
        )  # fmt: skip
        known = pipeline | beam.Create([Right(f"k{n}", n or None) for n in range(4)]).with_output_types(Right)
        inputs = {"m": messages, "known": known}
        joined = inputs | "Join" >> SqlTransform(
            "SELECT m.k, m.n * known.t AS x FROM m JOIN known ON m.k = known.k WHERE m.n < 100", {"m": DDL},
            on_error="skip", settings={"table.exec.state.ttl": "1 h"},
        )  # fmt: skip
        counted = messages | "Count" >> SqlTransform(COUNTS, {"m": DDL}, on_error="output")
        again = counted.rows | "Again" >> SqlTransform("SELECT k, c * 2 AS c2, s FROM c WHERE c > 0", "c", rowtime="s")
        of_elements = {each: element_time("at") for each in ("c", "d")}
        first = counted.rows | "First" >> SqlTransform(FIRST, "c", rowtime=of_elements["c"])
        pairs = {"c": counted.rows, "d": counted.rows} | "Next" >> SqlTransform(NEXT, rowtime=of_elements)
        bodies = [
            first | "Firsts" >> beam.Map(as_json), pairs | "Pairs" >> beam.Map(as_json),
            joined | "Joined" >> beam.Map(as_json), counted.rows | "Counted" >> beam.Map(as_json),
            again | "Twice" >> beam.Map(as_json), counted.errors | "Bad" >> beam.Map(as_json),
        ]  # fmt: skip
        _ = bodies | beam.Flatten() | WriteToRocketMQ(topics.alarms, **place)
    wanted = expected(rows)
    until_found(lambda: [each.get("row", each) for each in rows_of(lab, topics.alarms)], [*wanted, "{"])
    found_rows = rows_of(lab, topics.alarms)
    bad = [each for each in found_rows if "reason" in each]
    assert [each["row"] for each in bad] == ["{"]
    assert sorted(map(str, (each for each in found_rows if "reason" not in each))) == sorted(map(str, wanted))


def expected(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    found = []
    for row in rows:
        number = int(row["k"][1:])
        if row["n"] < 100 and number < 4:
            found.append({"k": row["k"], "x": str(row["n"] * number if number else None)})
    groups: dict[tuple[str, dt.datetime], list[int]] = {}
    for row in rows:
        start = dt.datetime.fromisoformat(row["ts"]).replace(second=0, microsecond=0)
        groups.setdefault((row["k"], start), []).append(row["n"])
    for (key, start), numbers in groups.items():
        at = _shown(start)
        found.append({"s": at, "k": key, "c": str(len(numbers)), "total": str(sum(numbers))})
        found.append({"k": key, "c2": str(2 * len(numbers)), "s": at})
        following = groups.get((key, start + dt.timedelta(minutes=1)))
        found += [] if following is None else [{"k": key, "s": at, "next": str(len(following))}]
    for start in {start for _, start in groups}:
        _, most = min((-len(numbers), key) for (key, of), numbers in groups.items() if of == start)
        found.append({"s": _shown(start), "most": most})
    return found


def _shown(start: dt.datetime) -> str:
    return f"Timestamp({(start - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1)})"
