"""`province.py --streaming` on Spark and a real RocketMQ, as a user runs it: ends where it should, loses nothing."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from pipelines.province import province_of
from tests.helpers.addresses import addresses
from tests.helpers.check import body_of, compare, read_topic
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import missing
from tests.integration.pipelines import test_province
from tests.integration.pipelines.test_province import ROOT, Bench
from tests.runners.spark.streaming.test_word_count import PATIENCE_S

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 1_000
MANY = 30_000
"""Enough messages for a micro-batch that takes a while."""
BAD = [b"junk", b"\xff", b'{"id": 1}', b'{"id": 2, "address": "nowhere"}']
bench = test_province.bench


def province(bench: Bench, folder: Path, *more: str) -> Job:
    options = ["--runner=SparkRunner", "--streaming", f"--checkpoint_dir={folder / 'checkpoint'}"]
    return Job(bench.command(f"--consumer_group={bench.group}", *options, *more), folder, ROOT)


def bodies(begin: int, end: int) -> list[bytes]:
    return [json.dumps(address).encode() for address in list(addresses(end))[begin:]]


def committed(bench: Bench) -> int:
    return sum(bench.client.committed_offset(bench.group, queue) or 0 for queue in bench.client.queues(bench.source))


def until_written(job: Job, bench: Bench, count: int) -> None:
    wanted = [address["id"] for address in addresses(count)]
    job.wait_until(
        lambda: len(bench.ids()) >= count, f"{count} provinces", details=lambda: missing(wanted, bench.ids())
    )


def assert_all_written_once(bench: Bench, count: int, bad: int = 0) -> None:
    """Asserts that each address has its province, each bad message has its letter, and nothing is there twice."""
    source, sink, letters = (list(read_topic(bench.client, at)) for at in (bench.source, bench.sink, bench.letters))
    tally = compare(source, sink, letters)
    assert str(tally) == f"read {count + bad}, wrote {count + bad}, lost 0, duplicated 0"
    assert tally.is_good
    provinces = {address["id"]: province_of(address["address"]) for address in addresses(count)}
    assert {body_of(record)["id"]: body_of(record)["province"] for record in sink} == provinces


def test_a_run_with_a_stop_ends_by_itself_and_bad_input_goes_to_the_dead_letter_topic(
    bench: Bench, tmp_path: Path
) -> None:
    bench.load([*bodies(0, COUNT), *BAD])
    with started(province(bench, tmp_path, "--stop=latest", f"--dead_letter_topic={bench.letters}")) as job:
        job.done(PATIENCE_S)
    assert job.output.read_text() == (
        f"province.py: {COUNT + len(BAD):,} addresses read, {COUNT:,} provinces written, {len(BAD)} dead letters\n"
    )
    assert_all_written_once(bench, COUNT, len(BAD))
    letters = list(read_topic(bench.client, bench.letters))
    assert Counter(letter.body for letter in letters) == Counter(BAD)
    kinds = Counter((letter.get_property("RMQIO_ERROR") or "").split(": ")[0] for letter in letters)
    assert kinds == {"SerdeError": 2, "BadAddress": 2}
    assert committed(bench) == COUNT + len(BAD)


@pytest.mark.exhaustive
def test_an_endless_run_ends_on_sigterm_and_a_later_one_takes_what_came_since(bench: Bench, tmp_path: Path) -> None:
    bench.load(bodies(0, COUNT))
    with started(province(bench, tmp_path)) as job:
        until_written(job, bench, COUNT)
        bench.load(bodies(COUNT, COUNT + 100))
        until_written(job, bench, COUNT + 100)
        assert job.end(signal.SIGTERM) == 130, job.log.read_text()
    assert "province.py: interrupted" in job.log.read_text().splitlines()
    assert job.output.read_text() == ""
    assert committed(bench) == COUNT + 100
    assert_all_written_once(bench, COUNT + 100)

    bench.load(bodies(COUNT + 100, COUNT + 200))
    with started(province(bench, tmp_path, "--available_now")) as job:
        job.done(PATIENCE_S)
    assert job.output.read_text() == ("province.py: 100 addresses read, 100 provinces written\n")
    assert committed(bench) == COUNT + 200
    assert_all_written_once(bench, COUNT + 200)


def test_ctrl_c_lets_the_running_micro_batch_finish(bench: Bench, tmp_path: Path) -> None:
    """The group has committed exactly what was written, whatever part of the queues was in the micro-batch."""
    bench.load([*bodies(0, MANY), *BAD])
    with started(province(bench, tmp_path)) as job:
        job.wait_until(bench.ids, "the first provinces")
        assert len(bench.ids()) < MANY
        assert job.end(signal.SIGINT) == 130, job.log.read_text()
    lines = job.log.read_text().splitlines()
    assert "province.py: interrupted" in lines
    assert [line for line in lines if "Spark failed" in line] == []
    read_to = {
        queue: bench.client.committed_offset(bench.group, queue) or 0 for queue in bench.client.queues(bench.source)
    }
    read = [
        record.body for record in read_topic(bench.client, bench.source) if record.queue_offset < read_to[record.queue]
    ]
    assert len(read) == sum(read_to.values()) > 0, job.log.read_text()
    assert any(" left out, such as " in line for line in lines) == any(body in BAD for body in read), (
        "left out, not in silence"
    )
    sink = list(read_topic(bench.client, bench.sink))
    expected = sorted(json.loads(body)["id"] for body in read if body not in BAD)
    assert sorted(body_of(record)["id"] for record in sink) == expected, job.log.read_text()
