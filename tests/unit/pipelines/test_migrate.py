"""The programs of docs/migrate as they are printed, without an end, on the Direct runner: a file each, stopped by us.

tests/runners/test_migrate.py runs one with windows on Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.doc_blocks import program_with
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.waiting import at_most, runs, until


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        for topic in ("orders", "provinces", "copies"):
            broker.cluster.create_topic(topic)
        yield broker


def start(page: str, text: str, broker: FakeBroker, folder: Path, *more: str) -> subprocess.Popen[str]:
    path = folder / "program.py"
    path.write_text(program_with(page, text, broker.name_server))
    return subprocess.Popen(
        [sys.executable, str(path), *more],
        env={**os.environ, "NAMESRV_ADDR": broker.name_server},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("rocketmq-streams", "FlatMap(words)"),
        ("rocketmq-streams", 'consumer_group="totals"'),
        ("rocketmq-spark", 'consumer_group="spark"'),
    ],
)
def test_a_program_with_windows_is_refused_at_once(page: str, text: str, broker: FakeBroker, tmp_path: Path) -> None:
    """The Direct runner closes no window of a read without end: it would run, and print nothing."""
    program = start(page, text, broker, tmp_path)
    _, error = program.communicate(timeout=at_most(180))
    assert program.returncode == 1
    assert "it would wait forever for the end of the read" in error
    assert "SparkRunner --streaming or FlinkRunner" in error


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("rocketmq-streams", "FlatMap(words)"),
        ("rocketmq-flink", "exactly_once="),
        ("rocketmq-storm", "CountWords()"),
        ("rocketmq-spark", 'consumer_group="spark"'),
    ],
)
def test_a_program_takes_the_options_of_the_command_line(
    page: str, text: str, broker: FakeBroker, tmp_path: Path
) -> None:
    """Without `options()`, it would ignore them, and run on the Direct runner."""
    program = start(page, text, broker, tmp_path, "--runner=FlinkRunner", "--report")
    try:
        shown, error = program.communicate(timeout=at_most(180))
    finally:
        program.kill()
    assert program.returncode == 0, error
    assert "on FlinkRunner" in shown


@pytest.mark.parametrize(
    ("page", "text", "sink", "wanted"),
    [
        ("rocketmq-flink", 'consumer_group="provinces"', "provinces", {"id": "k", "province": "Hangzhou"}),
        ("rocketmq-flink", "exactly_once=", "copies", {"id": "k", "province": "Hangzhou"}),
        ("rocketmq-storm", "CountWords()", "copies", {"word": "west", "count": 1}),
    ],
)
def test_a_program_without_windows_goes_on_until_it_is_stopped(
    page: str, text: str, sink: str, wanted: dict[str, object], broker: FakeBroker, tmp_path: Path
) -> None:
    program = start(page, text, broker, tmp_path)
    try:

        def is_there() -> bool:
            broker.cluster.append("orders", "1 West\u3000Lake Hangzhou ".encode(), queue_id=0, keys=["k"])
            return wanted in [json.loads(record.body) for record in broker.cluster.records(sink)]

        # It starts at the newest message: sent again and again.
        alive = [runs(program, program.communicate)]
        until(is_there, "the result", alive=alive, details=lambda: broker.cluster.records(sink), still_s=180)
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=at_most(180))
    finally:
        if program.poll() is None:
            program.kill()
            program.communicate()
