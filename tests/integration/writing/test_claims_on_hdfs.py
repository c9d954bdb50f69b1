"""Claim checks on a real Hadoop file system: bodies come back, a node that is away loses nothing, old objects go."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

pytest.importorskip("hdfs", reason="Beam's file system for HDFS needs the package hdfs")
pytest.importorskip("pyspark", reason="the nodes run on Spark's jars")

from rmqio import ClaimCheck, Message, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.claims import clean
from rmqio.runners import options
from tests.helpers.check import read_topic
from tests.helpers.command_line import Tool
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.hadoop import Hadoop, hadoop

pytestmark = [pytest.mark.systems, pytest.mark.slow, pytest.mark.broker]

BODIES = [b"%02d" % number * 20_000 for number in range(10)]
WEEK_S = 7 * 86_400


@pytest.fixture(scope="module")
def files() -> Iterator[Hadoop]:
    with hadoop() as found:
        yield found


@pytest.fixture
def topic(lab: Lab) -> str:
    name = f"claims-{uuid.uuid4().hex[:8]}"
    lab.broker.create_topic(name, queues=2)
    return name


def write(topic: str, claims: ClaimCheck, lab: Lab, flags: list[str]) -> None:
    with beam.Pipeline(options=options(flags)) as pipeline:
        made = pipeline | beam.Create([Message(body, keys=(body[:2].decode(),)) for body in (*BODIES, b"small")])
        _ = made | WriteToRocketMQ(topic, name_server=lab.broker.name_server, claim_check=claims)


def check(topic: str, claims: ClaimCheck, lab: Lab, flags: list[str]) -> None:
    """Fails if a read does not give all bodies once."""
    with beam.Pipeline(options=options(flags)) as pipeline:
        read = ReadFromRocketMQ(
            topic,
            name_server=lab.broker.name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            claim_check=claims,
        )
        bodies = pipeline | read | beam.Map(lambda record: record.body)
        assert_that(bodies, equal_to([*BODIES, b"small"]))


@pytest.mark.parametrize("runner", ["DirectRunner", "SparkRunner"])
def test_bodies_come_back_and_old_objects_go(
    runner: str, files: Hadoop, topic: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = f"hdfs://{topic}/claims"
    claims, flags = ClaimCheck(folder, above_bytes=10_000), [f"--runner={runner}", *files.flags]
    write(topic, claims, lab, flags)
    stored = [*read_topic(lab.client, topic)]
    assert len(stored) == len(BODIES) + 1
    assert sum(len(each.body) > 1_000 for each in stored) == 0, "all large bodies are references"
    check(topic, claims, lab, flags)
    rmqio = Tool(lab.broker.name_server, capsys)
    assert rmqio("claims", "clean", folder, "--older_than", "7d", *files.flags).startswith("0 objects")
    cleaned = clean(folder, older_than_s=WEEK_S, now_s=time.time() + 2 * WEEK_S)
    assert (cleaned.objects, cleaned.bytes) == (len(BODIES), sum(map(len, BODIES)))


def test_while_no_node_takes_bodies_nothing_is_sent_and_nothing_is_dropped(files: Hadoop, topic: str, lab: Lab) -> None:
    claims, flags = ClaimCheck(f"hdfs://{topic}", above_bytes=10_000), ["--runner=DirectRunner", *files.flags]
    files.data.kill()
    try:
        with pytest.raises(Exception, match=r"claim check: cannot write hdfs://.*refused"):
            write(topic, claims, lab, flags)
        assert not any(len(each.body) != len(b"small") for each in read_topic(lab.client, topic))
        files.data.start()
        write(topic, claims, lab, flags)
        files.data.kill()
        with pytest.raises(Exception, match=r"claim check: cannot read hdfs://.*refused"):
            check(topic, claims, lab, flags)
    finally:
        files.data.start()
    sent = [*read_topic(lab.client, topic)]
    assert sum(each.get_property("RMQIO_CLAIM") is not None for each in sent) == len(BODIES)
