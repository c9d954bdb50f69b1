"""The master of a broker is gone, and its replica may be read: pipelines read all that it has, on each runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio import ClientOptions, Message, ReadFromRocketMQ, Record, StartFrom, StopAt
from rmqio.client import RemotingProducer
from rmqio.client.connection import Connection
from rmqio.model import MessageFilter
from rmqio.runners import options
from rmqio.wire import requests
from rmqio.wire.command import Command
from tests.helpers.servers.cluster import Cluster
from tests.helpers.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "replicated"
QUEUES = 2
COUNT = 100
"""Messages in each queue."""


def ask(address: str, command: Command) -> Command:
    connection = Connection(address)
    try:
        return connection.request(command, 5_000)
    finally:
        connection.close()


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    """The name server of a cluster whose only master has been killed when its replica had everything."""
    readable = {"slaveReadEnable": True}
    with Cluster(brokers={"a": readable, "a/1": readable}) as cluster:
        cluster.create_topic(TOPIC, QUEUES)
        with RemotingProducer(ClientOptions(cluster.name_server), "replicated") as producer:
            queues = producer.queues(TOPIC)
            for queue in queues:
                producer.send_batch([Message(b"%d" % n, topic=TOPIC) for n in range(COUNT)], queue)
        replica = cluster.brokers["a/1"].address
        for queue in queues:
            command = requests.get_max_offset(queue)
            until(lambda c=command: ask(replica, c).ext.get("offset") == str(COUNT), "the replica", still_s=120)  # type: ignore[misc]
            # It gets the topic itself from its master later than the messages
            pull = requests.pull("a-group", queue, 0, max_messages=1, message_filter=MessageFilter())
            until(lambda c=pull: ask(replica, c).code == 0, "the replica to know the topic", still_s=150)  # type: ignore[misc]
        cluster.brokers["a"].kill()
        yield cluster.name_server


def noted(record: Record, path: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{record.queue_id} {record.body.decode()}\n")


@pytest.mark.parametrize(
    "flags",
    [
        ["--runner=DirectRunner"],
        ["--runner=SparkRunner"],
        ["--runner=SparkRunner", "--streaming"],
        ["--runner=FlinkRunner"],
    ],
    ids=" ".join,
)
def test_a_bounded_read_is_the_replicas_while_the_master_is_gone(
    name_server: str, flags: list[str], tmp_path: Path
) -> None:
    more = [f"--checkpoint_dir={tmp_path / 'checkpoint'}"] if "--streaming" in flags else []
    with beam.Pipeline(options=options([*flags, *more])) as pipeline:
        records = pipeline | ReadFromRocketMQ(
            TOPIC, name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest()
        )
        _ = records | beam.Map(noted, str(tmp_path / "noted"))
    found = (tmp_path / "noted").read_text().splitlines()
    assert sorted(found) == sorted(f"{queue} {number}" for queue in range(QUEUES) for number in range(COUNT))
