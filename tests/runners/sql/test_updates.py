"""Updates by key, first rows, EMIT and processing time: the same on all runners, by what is in the sinks."""

from __future__ import annotations

import datetime as dt
import json
import sys
import uuid
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.cli.main import main
from rmqio.model import Message, MessageQueue
from rmqio.runners.capabilities import Mode
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import until_found

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

FLAGS = {
    Mode.DIRECT: "DirectRunner",
    Mode.SPARK: "SparkRunner",
    Mode.SPARK_STREAMING: "SparkRunner --streaming",
    Mode.FLINK: "FlinkRunner",
    Mode.FLINK_STREAMING: "FlinkRunner --streaming",
}
RUNNERS = [pytest.param(flags, id=flags, marks=pytest.mark.shows(mode)) for mode, flags in FLAGS.items()]
ENDLESS = [each for each in RUNNERS if "streaming" in str(each.id)]
START = dt.datetime.now(dt.UTC).replace(tzinfo=None, minute=0, second=0, microsecond=0) - dt.timedelta(hours=12)

TABLES = """
SET 'table.exec.source.idle-timeout' = '30 min'; -- or an idle queue would follow the clock, and rows would be late
CREATE TABLE t (
  id BIGINT, k STRING, v BIGINT, ts TIMESTAMP(3), proctime AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('topic' = '{source}');
CREATE TABLE numbered (kind STRING NOT NULL, k STRING NOT NULL, n BIGINT NOT NULL, x BIGINT,
  PRIMARY KEY (kind, k, n) NOT ENFORCED) WITH ('topic' = '{sink}');
CREATE TABLE keyed (kind STRING NOT NULL, k STRING NOT NULL, n BIGINT, x BIGINT, PRIMARY KEY (kind, k) NOT ENFORCED)
WITH ('topic' = '{sink}');
CREATE TABLE windows (kind STRING NOT NULL, k STRING NOT NULL, n BIGINT, x BIGINT, s TIMESTAMP(3) NOT NULL,
  e TIMESTAMP(3) NOT NULL, PRIMARY KEY (kind, k, s, e) NOT ENFORCED) WITH ('topic' = '{sink}');
CREATE TABLE rows (kind STRING, k STRING, n BIGINT, x BIGINT, s TIMESTAMP(3)) WITH ('topic' = '{sink}');
"""

FIRST_ROWS = """
INSERT INTO numbered SELECT 'top', k, rn, id FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS rn FROM t) AS r WHERE rn <= 3;
INSERT INTO keyed SELECT 'last', k, v, id FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC, id DESC) AS rn FROM t) AS r WHERE rn = 1;
INSERT INTO rows SELECT 'first', k, v, id, ts FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM t) AS r WHERE rn = 1;
INSERT INTO rows SELECT 'window', k, rn, id, window_start FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY v, id) AS rn
  FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))) AS r WHERE rn <= 2;
"""

STREAM = """
INSERT INTO keyed SELECT 'having', k, COUNT(*), SUM(v) FROM t GROUP BY k HAVING SUM(v) > 0;
INSERT INTO numbered SELECT 'best', 'all', rn, s FROM (
  SELECT *, ROW_NUMBER() OVER (ORDER BY s DESC, k) AS rn FROM (SELECT k, SUM(v) AS s FROM t GROUP BY k) AS g) AS r
WHERE rn <= 2;
INSERT INTO rows SELECT 'seen', k, 1, 1, ts FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY proctime) AS rn FROM t) AS r WHERE rn = 1;
INSERT INTO rows SELECT 'processing', k, COUNT(*), SUM(id), window_start
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(proctime), INTERVAL '2' SECOND)) GROUP BY k, window_start, window_end;
SET 'table.exec.emit.allow-lateness' = '1 h';
INSERT INTO windows SELECT 'early', k, COUNT(*), SUM(id), window_start, window_end
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end
EMIT WITH DELAY '1' SECOND BEFORE WATERMARK, WITHOUT DELAY AFTER WATERMARK;
"""


class Topics(NamedTuple):
    source: str
    sink: str


@pytest.fixture
def topics(lab: Lab) -> Topics:
    found = Topics(*(f"sql-{kind}-{uuid.uuid4().hex[:10]}" for kind in ("source", "sink")))
    for each in found:
        lab.broker.create_topic(each, queues=2)
    return found


def command(script: str, topics: Topics, lab: Lab, runner: str, folder: Path) -> list[str]:
    file = folder / "job.sql"
    file.write_text((TABLES + script).format(**topics._asdict()), "utf-8")
    name_server = lab.broker.name_server
    flags = ["sql", str(file), f"--name_server={name_server}", "--start=earliest", *f"--runner={runner}".split()]
    return [*flags, f"--checkpoint_dir={folder / 'checkpoint'}"] if runner == "SparkRunner --streaming" else flags


def send(lab: Lab, topic: str, rows: list[dict[str, Any]]) -> None:
    bodies = [Message(json.dumps(each).encode()) for each in rows]
    for number in range(2):
        if bodies[number::2]:
            send_all(lab.broker.broker, MessageQueue(topic, lab.broker.name, number), bodies[number::2])


def some_rows(start: int, count: int, least: int = -5) -> list[dict[str, Any]]:
    """Rows of four keys, a second after each other but for some disorder."""
    random = Random(start)
    return [
        {
            "id": n,
            "k": f"k{random.randrange(4)}",
            "v": random.randrange(least, 7),
            "ts": str(START + dt.timedelta(milliseconds=n * 250 + random.randrange(3000))),
        }
        for n in range(start, start + count)
    ]


def time_of(row: dict[str, Any]) -> dt.datetime:
    return dt.datetime.fromisoformat(row["ts"])


def start_of(row: dict[str, Any]) -> str:
    at = time_of(row)
    return str(at.replace(second=at.second // 10 * 10, microsecond=0))


def by_key(found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {key: [row for row in found if row["k"] == key] for key in sorted({row["k"] for row in found})}


def first_rows(found: list[dict[str, Any]]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows that `FIRST_ROWS` writes, by kind: (k, n, x), of windows and first rows with a time."""
    wanted: dict[str, list[tuple[Any, ...]]] = {"top": [], "last": [], "first": [], "window": []}
    for key, rows in by_key(found).items():
        top = sorted(rows, key=lambda row: (-row["v"], row["id"]))[:3]
        wanted["top"] += [(key, number, row["id"]) for number, row in enumerate(top, 1)]
        last = max(rows, key=lambda row: (time_of(row), row["id"]))
        wanted["last"].append((key, last["v"], last["id"]))
        wanted["first"].append((key, str(min(map(time_of, rows)))))
        windows: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            windows.setdefault(start_of(row), []).append(row)
        for start, members in windows.items():
            least = sorted(members, key=lambda row: (row["v"], row["id"]))[:2]
            wanted["window"] += [(key, number, row["id"], start) for number, row in enumerate(least, 1)]
    return {kind: sorted(rows) for kind, rows in wanted.items()}


def written(lab: Lab, topics: Topics) -> dict[str, list[tuple[Any, ...]]]:
    """The content of the sink, by kind: messages with keys replace each other and delete, in their queue's order."""
    keyed: dict[str, dict[str, Any]] = {}
    found: dict[str, list[tuple[Any, ...]]] = {}
    places: dict[str, int] = {}
    once: list[dict[str, Any]] = []
    for record in read_topic(lab.client, topics.sink):
        if not record.keys:
            once.append(json.loads(record.body))
            continue
        (key,) = record.keys
        assert places.setdefault(key, record.queue_id) == record.queue_id
        if record.body:
            keyed[key] = json.loads(record.body)
        else:
            del keyed[key]  # what is not there is not deleted
    for row in (*keyed.values(), *once):
        kind, key, number, extra = (row[each] for each in ("kind", "k", "n", "x"))
        start = str(dt.datetime.fromisoformat(row["s"])) if "s" in row else ""
        values = (key, start) if kind in ("first", "seen") else (key, number, extra, *([start] if start else []))
        found.setdefault(kind, []).append(values)
    return {kind: sorted(rows) for kind, rows in found.items()}


@pytest.mark.parametrize("runner", RUNNERS)
def test_first_rows_of_what_ends_are_given_once(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four statements share one read: top-n, the last and the first row of each key, and the first ones of windows."""
    found = some_rows(0, 160)
    send(lab, topics.source, found)
    flags = command(FIRST_ROWS, topics, lab, runner, tmp_path)
    assert main([*flags, "--stop=latest"]) == 0, capsys.readouterr().err
    wanted = first_rows(found)
    count = sum(map(len, wanted.values()))

    def found_rows() -> list[tuple[Any, ...]]:
        return [(kind, *row) for kind, rows in written(lab, topics).items() for row in rows]

    until_found(found_rows, [(kind, *row) for kind, rows in wanted.items() for row in rows])
    assert written(lab, topics) == wanted
    assert len(list(read_topic(lab.client, topics.sink))) == count


def streamed(found: list[dict[str, Any]]) -> dict[str, list[tuple[Any, ...]]]:
    """The content of tables of `FIRST_ROWS` and `STREAM` that needs no watermark."""
    wanted = first_rows(found)
    sums = {key: (len(rows), sum(row["v"] for row in rows)) for key, rows in by_key(found).items()}
    best = sorted(((-total, key) for key, (_, total) in sums.items()))[:2]
    groups = Counter((row["k"], start_of(row)) for row in found)
    ids = {group: sum(row["id"] for row in found if (row["k"], start_of(row)) == group) for group in groups}
    return {
        "top": wanted["top"],
        "last": wanted["last"],
        "having": sorted((key, count, total) for key, (count, total) in sums.items() if total > 0),
        "best": [("all", number, -total) for number, (total, _) in enumerate(best, 1)],
        "early": sorted((key, count, ids[key, start], start) for (key, start), count in groups.items()),
    }


def holds(job: Job, lab: Lab, topics: Topics, wanted: dict[str, list[tuple[Any, ...]]], what: str) -> None:
    """Waits until the sink holds what is wanted. Shows what is different if that does not come."""

    def different() -> dict[str, tuple[Any, ...]]:
        now = written(lab, topics)
        pairs = {kind: (Counter(now.get(kind, [])), Counter(wanted[kind])) for kind in wanted}
        return {kind: (now - right, right - now) for kind, (now, right) in pairs.items() if now != right}

    job.wait_until(lambda: not different(), what, details=lambda: f"wrong and missing: {different()}")


@pytest.mark.parametrize("runner", ENDLESS)
def test_a_stream_updates_what_changes_and_deletes_what_goes(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path
) -> None:
    """Nine statements share one read. Spark's job goes on from its checkpoint between the two halves of the rows."""
    first, second = some_rows(0, 120, least=-2), some_rows(120, 120, least=-12)
    second.append({"id": 1000, "k": "k1", "v": 1, "ts": str(START + dt.timedelta(seconds=2))})  # late
    end = [{"id": 2000 + n, "k": "end", "v": 0, "ts": str(START + dt.timedelta(hours=3))} for n in range(2)]
    process = [sys.executable, "-m", "rmqio", *command(FIRST_ROWS + STREAM, topics, lab, runner, tmp_path)]
    everything, restarts = [*first, *second], runner.startswith("Spark")
    send(lab, topics.source, first)
    wanted = streamed(first)
    assert wanted["having"] != [each for each in wanted["having"] if each in streamed(everything)["having"]]

    with started(Job(process, tmp_path)) as job:
        holds(job, lab, topics, streamed(first), "what the first rows make")
        if restarts:
            assert job.interrupt() == 130
        else:
            send(lab, topics.source, second)
            holds(job, lab, topics, streamed(everything), "what all rows make")
            _ends(job, lab, topics, everything, end)
    if restarts:
        with started(Job(process, tmp_path)) as job:
            send(lab, topics.source, second)
            holds(job, lab, topics, streamed(everything), "what all rows make")
            _ends(job, lab, topics, everything, end)


def _ends(job: Job, lab: Lab, topics: Topics, found: list[dict[str, Any]], end: list[dict[str, Any]]) -> None:
    """Rows of a later hour end all windows: what waits for the watermark comes once."""
    send(lab, topics.source, end)
    on_time = first_rows([row for row in found if row["id"] < 1000])
    holds(job, lab, topics, {kind: on_time[kind] for kind in ("window", "first")}, "what the watermark ends")
    now = written(lab, topics)
    assert {each[0] for each in now["seen"]} >= set(by_key(found))

    def counted() -> list[Any]:
        return written(lab, topics).get("processing", [])

    count = len(found) + len(end)
    what = f"windows of processing time of {count} rows"
    job.wait_until(lambda: sum(each[1] for each in counted()) >= count, what, details=counted)
    given = written(lab, topics)["processing"]
    assert len({(each[0], each[3]) for each in given}) == len(given)
    assert sum(each[1] for each in given) == len(found) + len(end)
    assert sum(each[2] for each in given) == sum(row["id"] for row in [*found, *end])
    assert job.interrupt() == 130
