"""Nexmark's queries give the rows that DuckDB gives, on all runners: of input that ends, and as streams."""

from __future__ import annotations

import datetime as dt
import json
import sys
import uuid
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("duckdb", reason="the oracle of SQL's tests")

from bench.nexmark import queries
from bench.nexmark.generator import BID, Event, events
from rmqio.cli.main import main
from rmqio.model import Message, MessageQueue
from rmqio.runners.capabilities import Mode
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.oracles.nexmark import Oracle, written
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import until
from tests.runners.sql.test_sql import FLAGS

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 2000
MODES = (Mode.SPARK, Mode.SPARK_STREAMING, Mode.FLINK, Mode.FLINK_STREAMING)
"""On the Direct runner: `tests/unit/sql/runtime/test_nexmark.py`."""
ENDING = [pytest.param(FLAGS[mode], id=FLAGS[mode], marks=pytest.mark.shows(mode)) for mode in MODES]
ENDLESS = [each for each in ENDING if "streaming" in str(each.id)]
APPENDED, UPDATED = ("q0", "q3", "q14", "q20"), ("q9", "q15", "q16", "q17", "q18", "q19")
"""Queries whose rows are all there when all bids are."""
WINDOWED = ("q5", "q7", "q8", "q11")
"""Queries whose rows wait for the watermark: `last` moves it past all windows."""


@pytest.fixture(scope="module")
def made() -> list[Event]:
    return list(events(COUNT))


@pytest.fixture(scope="module")
def oracle(made: list[Event]) -> Oracle:
    return Oracle(made)


@pytest.fixture
def topic(lab: Lab, made: list[Event]) -> str:
    """The topic of events, with topics for all queries beside it."""
    found = f"nexmark-{uuid.uuid4().hex[:10]}"
    for each in (found, *(f"{found}-{name}" for name in queries.ALL)):
        lab.broker.create_topic(each, queues=2)
    for number in range(2):
        bodies = [Message(event.body()) for event in made[number::2]]
        send_all(lab.broker.broker, MessageQueue(found, lab.broker.name, number), bodies)
    return found


def command(names: Iterable[str], topic: str, lab: Lab, runner: str, folder: Path) -> list[str]:
    side_input, file = folder / "side_input.csv", folder / "nexmark.sql"
    queries.write_side_input(side_input)
    file.write_text(queries.script(tuple(names), topic=topic, side_input=side_input), "utf-8")
    name_server = lab.broker.name_server
    flags = ["sql", str(file), f"--name_server={name_server}", "--start=earliest", *f"--runner={runner}".split()]
    return [*flags, f"--checkpoint_dir={folder / 'checkpoint'}"] if runner == "SparkRunner --streaming" else flags


def differences(lab: Lab, topic: str, name: str, oracle: Oracle) -> tuple[Counter[Any], Counter[Any]]:
    """The rows that are too many, and those that are missing."""
    wanted = oracle.rows(name)
    records = list(read_topic(lab.client, f"{topic}-{name}"))
    bodies = [each.body for each in records]
    if name in UPDATED:  # the newest of each key, which is in one queue
        bodies = list({each.keys: each.body for each in records}.values())
    found = written(bodies, wanted)
    return found - wanted, wanted - found


def has_all(lab: Lab, topic: str, name: str, oracle: Oracle) -> bool:
    return not differences(lab, topic, name, oracle)[1]


def is_right(lab: Lab, topic: str, name: str, oracle: Oracle) -> bool:
    return not any(differences(lab, topic, name, oracle))


@pytest.mark.parametrize("runner", ENDING[:3])  # streams of Flink are below
def test_all_queries_of_input_that_ends(
    runner: str, topic: str, lab: Lab, oracle: Oracle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one job, which reads the topic once."""
    job = command(queries.THAT_END, topic, lab, runner, tmp_path)
    assert main([*job, "--stop=latest"]) == 0, capsys.readouterr().err
    for name in queries.THAT_END:
        until(partial(has_all, lab, topic, name, oracle), name, details=partial(differences, lab, topic, name, oracle))
        assert differences(lab, topic, name, oracle) == (Counter(), Counter()), name


@pytest.mark.parametrize("runner", ENDLESS)
def test_streams(runner: str, topic: str, lab: Lab, made: list[Event], oracle: Oracle, tmp_path: Path) -> None:
    """Sinks have all rows when all events are read; by the clock, all bids are counted once."""
    names = (*APPENDED, *UPDATED)
    bids = Counter(event.row["bidder"] for event in made if event.event_type == 2)

    def by_the_clock() -> Counter[int]:
        found: Counter[int] = Counter()
        for record in read_topic(lab.client, f"{topic}-q12"):
            row = json.loads(record.body)
            found[row["bidder"]] += row["bid_count"]
        return found

    flags = [sys.executable, "-m", "rmqio", *command((*names, "q12"), topic, lab, runner, tmp_path)]
    with started(Job(flags, tmp_path)) as job:
        for name in names:
            different = partial(differences, lab, topic, name, oracle)
            job.wait_until(partial(is_right, lab, topic, name, oracle), f"the rows of {name}", details=different)
        job.wait_until(lambda: by_the_clock() == bids, "all bids", details=lambda: bids - by_the_clock())
        assert job.interrupt() == 130


def last(made: list[Event]) -> Event:
    """A bid an hour after all events: those windows that have it do not end."""
    at = max(event.at for event in made) + dt.timedelta(hours=1)
    bid = next(event for event in made if event.event_type == BID)
    return Event(BID, {**bid.row, "dateTime": at}, at)


@pytest.mark.parametrize("runner", ENDLESS)
def test_windows_of_streams(
    runner: str, topic: str, lab: Lab, made: list[Event], oracle: Oracle, tmp_path: Path
) -> None:
    """Each window is there once, with all its rows, when the watermark has passed it: hops, joins and sessions."""
    flags = [sys.executable, "-m", "rmqio", *command(WINDOWED, topic, lab, runner, tmp_path)]
    file = tmp_path / "nexmark.sql"  # an idle queue would follow the clock, and rows would be late
    file.write_text("SET 'table.exec.source.idle-timeout' = '30 min';\n" + file.read_text("utf-8"), "utf-8")
    with started(Job(flags, tmp_path)) as job:
        for number in range(2):
            send_all(lab.broker.broker, MessageQueue(topic, lab.broker.name, number), [Message(last(made).body())])
        for name in WINDOWED:
            different = partial(differences, lab, topic, name, oracle)
            job.wait_until(partial(has_all, lab, topic, name, oracle), f"the rows of {name}", details=different)
        assert job.interrupt() == 130
    for name in WINDOWED:
        assert differences(lab, topic, name, oracle) == (Counter(), Counter()), name
