"""province.py, started by its path as documents write it, and check.py, on the real broker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from pipelines.province import province_of
from rmqio.client.factory import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.runners.capabilities import Mode
from tests.helpers.addresses import addresses
from tests.helpers.check import body_of, compare, read_topic
from tests.helpers.programs import program
from tests.helpers.waiting import at_most, runs, until, until_found

pytestmark = pytest.mark.broker

ROOT: Final = Path(__file__).resolve().parents[3]
"""Programs are named by their paths from here."""
COUNT = 3_000
TIMEOUT_S = 90.0
ENGINE_TIMEOUT_S = 500.0
"""For a program that starts Spark or Flink on a busy machine."""
ENGINE: Final = (pytest.mark.slow, pytest.mark.timeout(600))
RUNNERS: Final = [
    pytest.param("DirectRunner", marks=pytest.mark.shows(Mode.DIRECT)),
    pytest.param("SparkRunner", marks=[*ENGINE, pytest.mark.spark, pytest.mark.shows(Mode.SPARK)]),
    pytest.param("FlinkRunner", marks=[*ENGINE, pytest.mark.shows(Mode.FLINK)]),
]


class Bench:
    """Topics of one test's own, and what is done with them."""

    def __init__(self, rocketmq: LocalRocketMQ) -> None:
        name = uuid.uuid4().hex[:8]
        self.source, self.sink, self.letters = f"src-{name}", f"dst-{name}", f"bad-{name}"
        self.group = f"group-{name}"
        for topic in (self.source, self.sink, self.letters):
            rocketmq.create_topic(topic, queues=3)
        self.name_server = rocketmq.name_server
        factory = RemotingClientFactory(ClientOptions(name_servers=rocketmq.name_server))
        self.client, self.producer = factory.queue_client(), factory.producer("test")

    def close(self) -> None:
        self.client.close()
        self.producer.close()

    def load(self, bodies: Sequence[bytes]) -> None:
        queues = self.producer.queues(self.source)
        for number, queue in enumerate(queues):
            batch = [Message(body, topic=self.source) for body in bodies[number :: len(queues)]]
            for begin in range(0, len(batch), 200):
                self.producer.send_batch(batch[begin : begin + 200], queue)

    def ids(self) -> list[int]:
        """Returns the ids of the addresses in the sink. A broker shows messages after it has acknowledged them."""
        return [body_of(record)["id"] for record in read_topic(self.client, self.sink)]

    def command(self, *arguments: str) -> list[str]:
        topics = [f"--name_server={self.name_server}", f"--source_topic={self.source}", f"--sink_topic={self.sink}"]
        return [sys.executable, "pipelines/province.py", *topics, *arguments]

    def province(self, *arguments: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        command = self.command(*arguments)
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=at_most(timeout_s), check=False
        )

    def submitted(self, runner: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Starts it by the script for the runner, as a user does in an activated environment."""
        name = runner.removesuffix("Runner").lower()
        masters = {"spark": ["local[2]"], "flink": ["[local]"]}
        command = [f"runners/{name}/submit.sh", *masters.get(name, []), *self.command(*arguments)[1:]]
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        limit = at_most(ENGINE_TIMEOUT_S)
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False, env=environment
        )

    def until_tally(self, wanted: str, *letters: str) -> None:
        topics = (self.source, self.sink, *letters)
        until(lambda: str(compare(*(read_topic(self.client, each) for each in topics))) == wanted, wanted)


@pytest.fixture
def bench(rocketmq: LocalRocketMQ) -> Iterator[Bench]:
    with contextlib.closing(Bench(rocketmq)) as bench:
        yield bench


def bodies(count: int) -> list[bytes]:
    return [json.dumps(address).encode() for address in addresses(count)]


@pytest.mark.parametrize("runner", RUNNERS)
def test_every_address_gives_one_province(bench: Bench, runner: str) -> None:
    if runner == "SparkRunner":
        pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    bench.load(bodies(COUNT))
    done = bench.submitted(runner, "--start=earliest", "--stop=latest")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"province.py: {COUNT:,} addresses read, {COUNT:,} provinces written\n"
    assert "Traceback" not in done.stderr
    if runner == "DirectRunner":
        assert done.stderr == ""
    until_found(bench.ids, [address["id"] for address in addresses(COUNT)])
    found = [body_of(record) for record in read_topic(bench.client, bench.sink)]
    expected = Counter((address["id"], province_of(address["address"])) for address in addresses(COUNT))
    assert Counter((each["id"], each["province"]) for each in found) == expected
    bench.until_tally(f"read {COUNT}, wrote {COUNT}, lost 0, duplicated 0")


def test_check_finds_what_is_lost_and_duplicated(bench: Bench) -> None:
    bench.load(bodies(50))
    assert bench.province("--stop=latest").returncode == 0
    assert bench.province("--stop=latest").returncode == 0  # without a group it starts anew: everything twice
    bench.load([b'{"id": "late", "address": "x"}'])
    bench.until_tally("read 51, wrote 100, lost 1, duplicated 50")


def test_bad_input_arrives_in_the_dead_letter_topic(bench: Bench) -> None:
    bench.load([*bodies(100), b"junk", b'{"id": 1}', b'{"id": 2, "address": "nowhere"}'])
    done = bench.province("--stop=latest", f"--dead_letter_topic={bench.letters}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("100 provinces written, 3 dead letters\n")
    bench.until_tally("read 103, wrote 103, lost 0, duplicated 0", bench.letters)


@pytest.mark.shows(Mode.DIRECT)
def test_an_endless_run_writes_while_it_reads_and_ends_on_ctrl_c(bench: Bench) -> None:
    bench.load([*bodies(100), b"junk"])
    process = subprocess.Popen(
        bench.command(f"--consumer_group={bench.group}", f"--dead_letter_topic={bench.letters}"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        more: Any = {"alive": [runs(process, process.communicate)], "still_s": TIMEOUT_S}
        given = list(addresses(150))
        until_found(bench.ids, [address["id"] for address in given[:100]], **more)
        bench.load([json.dumps(address).encode() for address in given[100:]])
        until_found(bench.ids, [address["id"] for address in given], **more)
        until_found(lambda: [each.body for each in read_topic(bench.client, bench.letters)], [b"junk"], **more)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=at_most(TIMEOUT_S))
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert output == ""
    assert errors.splitlines()[-1] == "province.py: interrupted"
    assert "Traceback" not in errors
    bench.until_tally("read 151, wrote 151, lost 0, duplicated 0", bench.letters)


def test_a_group_goes_on_where_it_ended(bench: Bench) -> None:
    bench.load(bodies(100))
    assert bench.province(f"--consumer_group={bench.group}", "--stop=latest").returncode == 0
    bench.load([json.dumps(address).encode() for address in list(addresses(150))[100:]])
    assert bench.province(f"--consumer_group={bench.group}", "--stop=latest").returncode == 0
    bench.until_tally("read 150, wrote 150, lost 0, duplicated 0")


@pytest.mark.parametrize("option", ["source_topic", "sink_topic"])
def test_a_missing_topic_is_one_line_and_status_2(bench: Bench, option: str) -> None:
    bench.load(bodies(1))
    done = bench.province("--stop=latest", f"--{option}=none-such")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("province.py: ")
    assert "none-such" in last


@pytest.mark.slow
def test_the_demo_ends_with_nothing_lost(bench: Bench) -> None:
    command = [sys.executable, program("demo"), "--count=300"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(4 * TIMEOUT_S), check=False)
    assert done.returncode == 0, done.stderr
    assert "addresses -> provinces by id: nothing lost or doubled" in done.stdout.splitlines()
    assert "广东省" in done.stdout
    hops = [line.split()[:2] for line in done.stdout.partition("\nhops:\n")[2].splitlines()]
    assert hops[:2] == [["read", "300"], ["provinces", "300"]]
