"""`rmqio sql` gives the same rows on all runners, by what is in the sinks."""

from __future__ import annotations

import datetime as dt
import json
import sys
import uuid
from decimal import Decimal
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
from tests.helpers.waiting import missing, until_found

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

FLAGS = {
    Mode.DIRECT: "DirectRunner",
    Mode.SPARK: "SparkRunner",
    Mode.SPARK_STREAMING: "SparkRunner --streaming",
    Mode.FLINK: "FlinkRunner",
    Mode.FLINK_STREAMING: "FlinkRunner --streaming",
}
RUNNERS = [pytest.param(flags, id=flags, marks=pytest.mark.shows(mode)) for mode, flags in FLAGS.items()]
MIDNIGHT = dt.datetime(2024, 2, 1)
ENDLESS = [each for each in RUNNERS if "streaming" in str(each.id)]
BOUNDED = [
    pytest.param(*each.values, id=each.id, marks=[*each.marks, *([pytest.mark.exhaustive] if each in ENDLESS else [])])
    for each in RUNNERS
]
"""For statements that other tests run on streams, beside more difficult ones: there only in `make test-all`."""

IOT = """
-- Readings of sensors, with what is known of the sensor: RocketMQ-SQL's own example.
create table 设备 ({{设备编号}} varchar, {{位置}} varchar) with (topic = '{devices}', consumerGroup = '{group}');
create table 数据 ({{设备编号}} varchar, {{类型}} varchar, {{数值}} varchar)
with (topic = '{readings}', consumerGroup = '{group}');
create table 告警 ({{设备编号}} varchar, {{位置}} varchar, {{数值}} bigint) with (topic = '{alarms}');
set 'table.exec.state.ttl' = '1 h';
insert into 告警
select d.{{设备编号}}, s.{{位置}}, cast(d.{{数值}} as bigint)
from 数据 as d inner join 设备 as s on d.{{设备编号}} = s.{{设备编号}}
where cast(d.{{数值}} as bigint) > 90;
"""

BEHAVIOR = """
-- The table of rocketmq-flink's documentation.
CREATE TABLE rocketmq_source (
  `topic` STRING METADATA VIRTUAL, `user_id` BIGINT, `item_id` BIGINT, `behavior` STRING
) WITH (
  'connector' = 'rocketmq', 'topic' = '{readings}', 'consumerGroup' = '{group}', 'nameServerAddress' = '{name_server}',
  'on-error' = 'dead-letter', 'dead-letter-topic' = '{devices}'
);
CREATE TABLE rocketmq_sink (
  `topic` STRING, `user_id` BIGINT, `item_id` BIGINT, `behavior` STRING, `tag` STRING METADATA
) WITH ('connector' = 'rocketmq', 'topic' = '{alarms}', 'produceGroup' = 'p', 'nameServerAddress' = '{name_server}');
INSERT INTO rocketmq_sink
SELECT topic, user_id, item_id, UPPER(behavior), behavior FROM rocketmq_source;
"""


WINDOWS = """
CREATE TABLE orders (
  id BIGINT, customer STRING, amount DECIMAL(10, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('topic' = '{readings}');
CREATE TABLE totals (
  kind STRING, customer STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), orders BIGINT, total DECIMAL(38, 2),
  large BIGINT
) WITH ('topic' = '{alarms}');
INSERT INTO totals
SELECT 'tumble', customer, window_start, window_end, COUNT(*), SUM(amount), COUNT(*) FILTER (WHERE amount > 50)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY customer, window_start, window_end;
INSERT INTO totals
SELECT 'hop', customer, HOP_START(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE),
  HOP_END(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE), COUNT(*), SUM(amount), 0
FROM orders GROUP BY customer, HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE);
INSERT INTO totals
SELECT 'cumulate', customer, window_start, window_end, COUNT(*), SUM(amount), 0
FROM TABLE(CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE))
GROUP BY customer, window_start, window_end;
INSERT INTO totals
SELECT 'session', customer, SESSION_START(ts, INTERVAL '3' SECOND), SESSION_END(ts, INTERVAL '3' SECOND), COUNT(*),
  SUM(amount), 0
FROM orders GROUP BY customer, SESSION(ts, INTERVAL '3' SECOND);
"""


class Topics(NamedTuple):
    """Two topics that are read, or a topic and that of dead letters, and one that is written."""

    devices: str
    readings: str
    alarms: str
    group: str
    name_server: str


@pytest.fixture
def topics(lab: Lab) -> Topics:
    names = [f"sql-{kind}-{uuid.uuid4().hex[:10]}" for kind in ("devices", "readings", "alarms", "group")]
    for name in names[:3]:
        lab.broker.create_topic(name, queues=2)
    devices, readings, alarms, group = names
    return Topics(devices, readings, alarms, group, lab.broker.name_server)


def send(lab: Lab, topic: str, rows: list[dict[str, Any]]) -> None:
    bodies = [Message(json.dumps(each, ensure_ascii=False).encode()) for each in rows]
    for number in range(2):
        if bodies[number::2]:
            send_all(lab.broker.broker, MessageQueue(topic, lab.broker.name, number), bodies[number::2])


def rows_of(lab: Lab, topic: str) -> list[dict[str, Any]]:
    found = [json.loads(record.body) for record in read_topic(lab.client, topic)]
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


UPDATES = """
CREATE TABLE orders (customer STRING, amount BIGINT) WITH ('topic' = '{readings}', 'consumerGroup' = '{group}');
CREATE TABLE spent (customer STRING NOT NULL, n BIGINT, total BIGINT, PRIMARY KEY (customer) NOT ENFORCED)
WITH ('topic' = '{alarms}');
INSERT INTO spent SELECT COALESCE(customer, '?'), COUNT(*), SUM(amount) FROM orders GROUP BY COALESCE(customer, '?');
"""


def devices(start: int, count: int) -> list[dict[str, Any]]:
    return [{"设备编号": f"d{n}", "位置": f"room {n}"} for n in range(start, start + count)]


def readings(start: int, count: int) -> list[dict[str, Any]]:
    return [{"设备编号": f"d{n % 12}", "类型": "温度", "数值": str(70 + n % 40)} for n in range(start, start + count)]


def alarms(known: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rooms = {each["设备编号"]: each["位置"] for each in known}
    wanted = [
        {"设备编号": each["设备编号"], "位置": rooms[each["设备编号"]], "数值": int(each["数值"])}
        for each in found
        if int(each["数值"]) > 90 and each["设备编号"] in rooms
    ]
    return sorted(wanted, key=lambda row: json.dumps(row, sort_keys=True))


def command(script: str, topics: Topics, runner: str, folder: Path) -> list[str]:
    file = folder / "job.sql"
    text = script.format(**topics._asdict())
    if runner == "FlinkRunner":  # offsets of a group are committed by a stream only, and Flink would run one
        text = text.replace(f", consumerGroup = '{topics.group}'", "").replace(
            f" 'consumerGroup' = '{topics.group}',", ""
        )
    file.write_text(text, "utf-8")
    flags = ["sql", str(file), f"--name_server={topics.name_server}", "--start=earliest", *f"--runner={runner}".split()]
    return [*flags, f"--checkpoint_dir={folder / 'checkpoint'}"] if runner == "SparkRunner --streaming" else flags


@pytest.mark.parametrize("runner", BOUNDED)
def test_two_topics_are_joined(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, found = devices(0, 10), readings(0, 200)
    send(lab, topics.devices, known)
    send(lab, topics.readings, found)
    assert main([*command(IOT, topics, runner, tmp_path), "--stop=latest"]) == 0, capsys.readouterr().err
    wanted = alarms(known, found)
    assert len(wanted) > 50
    until_found(lambda: rows_of(lab, topics.alarms), wanted)
    assert rows_of(lab, topics.alarms) == wanted


@pytest.mark.parametrize("runner", BOUNDED)
def test_a_topic_is_selected_from_with_its_metadata_and_bad_rows_go_to_dead_letters(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = [
        {"user_id": n, "item_id": n * 7, "behavior": "buy" if n % 3 else None} for n in range(200)
    ]
    send(lab, topics.readings, [*rows, {"user_id": "many"}, {"user_id": 1 << 63}])
    assert main([*command(BEHAVIOR, topics, runner, tmp_path), "--stop=latest"]) == 0, capsys.readouterr().err
    until_found(lambda: [row["user_id"] for row in rows_of(lab, topics.alarms)], range(200))
    found = list(read_topic(lab.client, topics.alarms))
    written = {
        row["user_id"]: {
            "topic": topics.readings,
            **row,
            "behavior": row["behavior"] and row["behavior"].upper(),
        }
        for row in rows
    }
    assert {json.loads(each.body)["user_id"]: json.loads(each.body) for each in found} == written
    assert {each.tags for each in found} == {None, "buy"}
    assert len(found) == len(rows)
    letters = list(read_topic(lab.client, topics.devices))
    assert sorted(json.loads(each.body)["user_id"] for each in letters if b"many" in each.body) == ["many"]
    reasons = [" ".join(each.properties.values()) for each in letters]
    assert len(reasons) == 2
    assert all("column user_id" in each for each in reasons), reasons


def orders() -> list[dict[str, Any]]:
    """Orders of seven customers around midnight, out of order by up to four seconds."""
    random = Random(20240131)
    return [
        {
            "id": n,
            "customer": f"c{n % 7}",
            "amount": random.randrange(10_000) / 100,
            "ts": str(MIDNIGHT + dt.timedelta(milliseconds=n * 500 - 100_000 + random.randrange(4000))),
        }
        for n in range(400)
    ]


def windows_of(found: list[dict[str, Any]]) -> dict[tuple[str, str, str, str], tuple[int, Decimal, int]]:
    """Returns count, total and large ones by kind, customer, start and end: computed one row at a time."""
    members: dict[tuple[str, str, dt.datetime, dt.datetime], list[dict[str, Any]]] = {}
    minute, second = dt.timedelta(minutes=1), dt.timedelta(seconds=1)
    for row in found:
        at = dt.datetime.fromisoformat(row["ts"])
        start = at.replace(second=0, microsecond=0)
        half = start if at - start < 30 * second else start + 30 * second
        spans = [("tumble", start, start + minute)]
        spans += [("hop", each, each + minute) for each in (half, half - 30 * second)]
        spans += [("cumulate", start, start + n * 20 * second) for n in (1, 2, 3) if start + n * 20 * second > at]
        for kind, begin, end in spans:
            members.setdefault((kind, row["customer"], begin, end), []).append(row)
    for customer in {row["customer"] for row in found}:
        session: list[dict[str, Any]] = []
        for row in sorted((row for row in found if row["customer"] == customer), key=_time):
            if session and _time(row) - _time(session[-1]) > 3 * second:
                members["session", customer, _time(session[0]), _time(session[-1]) + 3 * second] = session
                session = []
            session = [*session, row]
        members["session", customer, _time(session[0]), _time(session[-1]) + 3 * second] = session
    return {
        (kind, customer, str(start), str(end)): (
            len(rows),
            sum((Decimal(str(row["amount"])) for row in rows), Decimal(0)),
            sum(row["amount"] > 50 for row in rows) if kind == "tumble" else 0,
        )
        for (kind, customer, start, end), rows in members.items()
    }


def _time(row: dict[str, Any]) -> dt.datetime:
    return dt.datetime.fromisoformat(row["ts"])


def as_written(text: str) -> str:
    """Python writes a fraction of six digits or none; SQL writes no zeros at its end."""
    return str(dt.datetime.fromisoformat(text))


@pytest.mark.parametrize("runner", RUNNERS)
def test_every_kind_of_window_is_exact(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four statements share one read of the topic, whose rows are out of order."""
    found = orders()
    send(lab, topics.readings, found)
    assert main([*command(WINDOWS, topics, runner, tmp_path), "--stop=latest"]) == 0, capsys.readouterr().err
    wanted = windows_of(found)
    until_found(lambda: rows_of(lab, topics.alarms), wanted)
    rows = rows_of(lab, topics.alarms)
    assert {
        (row["kind"], row["customer"], as_written(row["window_start"]), as_written(row["window_end"])): (
            row["orders"],
            Decimal(str(row["total"])),
            row["large"],
        )
        for row in rows
    } == wanted
    assert len(rows) == len(wanted)


@pytest.mark.parametrize("runner", ENDLESS)
def test_a_stream_joins_what_comes_later(runner: str, topics: Topics, lab: Lab, tmp_path: Path) -> None:
    """Rows of either side find partners that came before them and after them."""
    flags = command(IOT, topics, runner, tmp_path)
    first, second = readings(0, 80), readings(1000, 80)
    send(lab, topics.devices, devices(0, 5))
    send(lab, topics.readings, first)

    def until_all(job: Job, wanted: list[dict[str, Any]]) -> None:
        def left() -> str:
            return missing(wanted, rows_of(lab, topics.alarms))

        job.wait_until(lambda: len(rows_of(lab, topics.alarms)) >= len(wanted), "all alarms", details=left)

    with started(Job([sys.executable, "-m", "rmqio", *flags], tmp_path)) as job:
        wanted = alarms(devices(0, 5), first)
        until_all(job, wanted)
        assert rows_of(lab, topics.alarms) == wanted
        send(lab, topics.readings, second)
        send(lab, topics.devices, devices(5, 5))
        both = alarms(devices(0, 10), [*first, *second])
        until_all(job, both)
        assert rows_of(lab, topics.alarms) == both
        assert job.interrupt() == 130


@pytest.mark.exhaustive  # test_updates updates groups by key, among more, and goes on from a checkpoint
@pytest.mark.parametrize("runner", ENDLESS)
def test_a_group_of_a_stream_is_updated_by_its_key(runner: str, topics: Topics, lab: Lab, tmp_path: Path) -> None:
    """The last message of each key is its newest row, in a stream and when it goes on."""

    def newest() -> dict[str, tuple[int, int]]:
        found = {}
        for record in read_topic(lab.client, topics.alarms):  # queue by queue, and a key is in one
            row = json.loads(record.body)
            assert record.keys == (row["customer"],)
            found[row["customer"]] = row["n"], row["total"]
        return found

    def wanted(count: int) -> dict[str, tuple[int, int]]:
        members = {f"c{key}": range(key, count, 5) for key in range(5)}
        return {key: (len(numbers), sum(numbers)) for key, numbers in members.items()}

    rows: list[dict[str, Any]] = [{"customer": f"c{n % 5}", "amount": n} for n in range(200)]
    rows_before, rows_after = rows[:100], rows[100:]
    send(lab, topics.readings, rows_before)
    with started(Job([sys.executable, "-m", "rmqio", *command(UPDATES, topics, runner, tmp_path)], tmp_path)) as job:
        job.wait_until(lambda: newest() == wanted(100), "totals of the first orders", details=newest)
        send(lab, topics.readings, rows_after)
        job.wait_until(lambda: newest() == wanted(200), "totals of all orders", details=newest)
        assert job.interrupt() == 130
