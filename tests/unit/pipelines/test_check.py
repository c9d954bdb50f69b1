"""Lost and duplicated messages are found, whatever a pipeline claims."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.errors import CorruptMessage, TopicNotExist
from rmqio.model import Message, Record
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.check import Tally, compare, read_topic


def message(unique: str, body: str, *, keys: str = "", offset: int = 0, origin: str = "") -> Record:
    properties = {"UNIQ_KEY": unique, "KEYS": keys, "RMQIO_ORIGIN": origin}
    raw = "".join(f"{name}\x01{value}\x02" for name, value in properties.items() if value).encode()
    return Record("src", "broker-a", 0, offset, body.encode(), 0, 0, raw, 0, 0, 0, 0, 0, b"", b"", 0, 0)


SOURCE = [message("A", '{"id": 1}', offset=0), message("B", '{"id": "2"}', offset=1), message("C", "junk", offset=2)]
A, B = message("A", '{"id": 1}', keys="1"), message("B", '{"id": "2"}', keys="2")
C = message("X", "junk", origin="src/broker-a/0/2")


@pytest.mark.parametrize(
    ("sink", "letters", "tally"),
    [
        ([A, B], [C], Tally(3, 3, 0, 0, 0)),
        ([B, A], [C], Tally(3, 3, 0, 0, 0)),
        ([], [], Tally(3, 0, 3, 0, 0)),
        ([A], [C], Tally(3, 2, 1, 0, 0)),
        ([A, B, B, B], [C], Tally(3, 5, 0, 2, 0)),
        ([A, B], [C, C], Tally(3, 4, 0, 1, 0)),
        ([A, A], [], Tally(3, 2, 2, 1, 0)),
        # right number, wrong messages
        ([A, message("Z", '{"id": "2"}', keys="2")], [C], Tally(3, 3, 1, 0, 1)),
        ([A, message("B", '{"id": "3"}', keys="3")], [C], Tally(3, 3, 1, 0, 1)),
        ([A, message("B", '{"id": "2"}', keys="1")], [C], Tally(3, 3, 1, 0, 1)),
        ([A, message("B", "[]")], [C], Tally(3, 3, 1, 0, 1)),
        ([A, B], [message("X", "junk", origin="src/broker-a/0/9")], Tally(3, 3, 1, 0, 1)),
        ([A, B], [message("C", "junk")], Tally(3, 3, 1, 0, 1)),
    ],
)
def test_topics_are_compared_by_identity(sink: list[Record], letters: list[Record], tally: Tally) -> None:
    found = compare(SOURCE, sink, letters)
    assert found == tally
    assert found.is_good == (tally[2:] == (0, 0, 0))


def test_a_message_that_is_in_the_source_twice_is_expected_twice() -> None:
    assert compare([*SOURCE[:2], SOURCE[0]], [A, B, A]) == Tally(3, 3, 0, 0, 0)
    assert compare([*SOURCE[:2], SOURCE[0]], [A, B]) == Tally(3, 2, 1, 0, 0)


def test_report_is_one_line() -> None:
    assert str(Tally(3, 5, 1, 2, 9)) == "read 3, wrote 5, lost 1, duplicated 2"


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as cluster:
        cluster.create_topic("src")
        yield cluster


def fill(cluster: InMemoryCluster, count: int) -> None:
    producer = InMemoryClientFactory(cluster.name).producer("test")
    for number in range(count):
        producer.send(Message(str(number).encode(), topic="src"))
    producer.close()


def test_a_topic_is_read_whole(cluster: InMemoryCluster) -> None:
    fill(cluster, 500)
    client = InMemoryClientFactory(cluster.name).queue_client()
    assert sorted(int(record.body) for record in read_topic(client, "src")) == list(range(500))
    assert cluster.open_readers == 0
    client.close()


def test_reading_stops_at_what_is_there_when_it_starts(cluster: InMemoryCluster) -> None:
    fill(cluster, 8)
    client = InMemoryClientFactory(cluster.name).queue_client()
    records = read_topic(client, "src")
    first = next(records)
    fill(cluster, 8)
    in_first_queue = [record for record in [first, *records] if record.queue == first.queue]
    assert len(in_first_queue) == 2
    client.close()


def test_a_broken_stored_message_is_not_passed_over(cluster: InMemoryCluster) -> None:
    fill(cluster, 4)
    broken = cluster.records("src")[0]
    cluster.corrupt(broken.queue, broken.queue_offset)
    client = InMemoryClientFactory(cluster.name).queue_client()
    with pytest.raises(CorruptMessage):
        list(read_topic(client, "src"))
    with pytest.raises(TopicNotExist):
        list(read_topic(client, "none"))
    client.close()
