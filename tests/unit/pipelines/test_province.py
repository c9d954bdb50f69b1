"""province.py, on a cluster in memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest

from pipelines.province import BadAddress, build, program, to_message, to_province
from rmqio import runners
from rmqio.audit.checking import Request, audit
from rmqio.errors import SerdeError
from rmqio.model import Message, Record
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.check import compare


def record(body: bytes) -> Record:
    return Record("src", "broker-a", 3, 42, body, 0, 0, b"UNIQ_KEY\x01ID-1\x02", 0, 0, 0, 0, 0, b"", b"", 0, 0)


def address(number: Any, text: Any) -> bytes:
    return json.dumps({"id": number, "address": text}).encode()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (address(7, "浙江省杭州市西湖区"), {"id": 7, "province": "浙江省"}),
        (address("a-7", "内蒙 呼和浩特市"), {"id": "a-7", "province": "内蒙古自治区"}),
        (b'{"id": 0, "address": "\xe5\x8c\x97\xe4\xba\xac", "other": [1]}', {"id": 0, "province": "北京市"}),
    ],
)
def test_province_is_taken(body: bytes, found: dict[str, Any]) -> None:
    assert to_province(record(body)) == ("ID-1", found)


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (b"", SerdeError, "JSON"),
        (b"secret", SerdeError, "JSON"),
        (b"\xff", SerdeError, "UTF-8"),
        (b"[1]", BadAddress, "no object"),
        (b'{"address": "secret"}', BadAddress, "id must be"),
        (address(None, "secret"), BadAddress, "id must be"),
        (address(True, "secret"), BadAddress, "id must be"),
        (address(1.5, "secret"), BadAddress, "id must be"),
        (address("", "secret"), BadAddress, "id must be"),
        (address("two words", "secret"), BadAddress, "id must be"),
        (b'{"id": 1}', BadAddress, "address must be"),
        (address(1, None), BadAddress, "address must be"),
        (address(1, 7), BadAddress, "address must be"),
        (address(1, ""), BadAddress, "address must be"),
        (address(1, "secret"), BadAddress, "address must be"),
    ],
)
def test_bad_input_is_refused_and_not_quoted(body: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        to_province(record(body))
    assert "secret" not in str(caught.value)


def test_message_for_the_sink_has_the_id_in_body_and_key() -> None:
    message = to_message(("ID-1", {"id": 7, "province": "浙江省"}))
    assert message == Message('{"id":7,"province":"浙江省"}'.encode(), keys=("7",))


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as cluster:
        for topic in ("src", "dst", "bad"):
            cluster.create_topic(topic)
        yield cluster


def fill(cluster: InMemoryCluster, *bodies: bytes) -> None:
    producer = InMemoryClientFactory(cluster.name).producer("test")
    for body in bodies:
        producer.send(Message(body, topic="src"))
    producer.close()


def run(cluster: InMemoryCluster, *more: str) -> Any:
    pipeline = beam.Pipeline(options=runners.options([]))
    topics = ["--name_server=h:1", "--source_topic=src", "--sink_topic=dst", "--stop=latest"]
    build(pipeline, program.options([*topics, *more], client_factory=InMemoryClientFactory(cluster.name)))
    return pipeline.run()


def test_provinces_arrive_once_each_with_the_identity_of_their_address(cluster: InMemoryCluster) -> None:
    fill(cluster, *(address(number, "浙江省杭州市") for number in range(50)))
    result = run(cluster)
    written = [json.loads(message.body) for message in cluster.records("dst")]
    assert sorted(item["id"] for item in written) == list(range(50))
    assert {item["province"] for item in written} == {"浙江省"}
    assert str(compare(cluster.records("src"), cluster.records("dst"))) == "read 50, wrote 50, lost 0, duplicated 0"
    assert program.summary(result) == "50 addresses read, 50 provinces written"


def test_bad_input_goes_to_the_dead_letter_topic_as_it_came(cluster: InMemoryCluster) -> None:
    bad = [b"junk", address(1, "nowhere")]
    fill(cluster, address(0, "上海市"), *bad)
    result = run(cluster, "--dead_letter_topic=bad")
    letters = cluster.records("bad")
    assert sorted(letter.body for letter in letters) == sorted(bad)
    errors = {(letter.get_property("RMQIO_ERROR") or "").partition(": ")[0] for letter in letters}
    assert errors == {"BadAddress", "SerdeError"}
    tally = compare(cluster.records("src"), cluster.records("dst"), letters)
    assert (tally.read, tally.written, tally.is_good) == (3, 3, True)
    assert program.summary(result) == "3 addresses read, 1 province written, 2 dead letters"


def test_an_audit_names_the_step_that_bad_input_did_not_get_past(cluster: InMemoryCluster) -> None:
    cluster.create_topic("hops")
    fill(cluster, *(address(number, "上海市") for number in range(20)), b"junk")
    result = run(cluster, "--dead_letter_topic=bad", "--audit_topic=hops")
    assert program.summary(result) == "21 addresses read, 20 provinces written, 1 dead letter"
    client = InMemoryClientFactory(cluster.name).queue_client()
    found = audit(client, Request("src", "dst", dead_letter_topic="bad", audit_topic="hops"))
    client.close()
    assert not found.wrong
    assert {name: hop.count for name, hop in found.hops.items()} == {"read": 21, "provinces": 20}
    assert [(fault.edge, fault.lost, fault.letters) for fault in found.faults] == [((("read",), "provinces"), 0, 1)]


def test_bad_input_without_a_dead_letter_topic_is_counted_and_logged_once_a_bundle(
    cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, b"junk", address(1, "nowhere"), address(2, "nowhere"), address(3, "上海市"))
    with caplog.at_level(logging.WARNING, logger="rmqio.transforms"):
        result = run(cluster)
    assert len(cluster.records("dst")) == 1
    assert program.summary(result) == "4 addresses read, 1 province written, 3 left out"
    counts = [int(line.split()[0]) for line in caplog.messages if "left out, such as src/" in line]
    assert sum(counts) == 3


@pytest.mark.parametrize("letters", [(), ("--dead_letter_topic=bad",)])
def test_a_broken_stored_message_does_not_stop_the_job(cluster: InMemoryCluster, letters: tuple[str, ...]) -> None:
    fill(cluster, address(0, "上海市"), address(1, "上海市"))
    broken = cluster.records("src")[0]
    cluster.corrupt(broken.queue, broken.queue_offset)
    result = run(cluster, *letters)
    assert len(cluster.records("dst")) == 1
    assert len(cluster.records("bad")) == len(letters)
    assert program.summary(result).endswith("1 province written, " + ("1 dead letter" if letters else "1 left out"))


@pytest.mark.parametrize("option", ["--sink_topic=none", "--dead_letter_topic=none"])
def test_a_missing_topic_fails_the_job_and_commits_nothing(cluster: InMemoryCluster, option: str) -> None:
    fill(cluster, b"junk", address(1, "上海市"))
    with pytest.raises(Exception, match=r"topic 'none' does not exist"):
        run(cluster, "--consumer_group=g", option)
    assert {cluster.committed("g", record.queue) for record in cluster.records("src")} == {None}


def test_a_second_run_of_a_group_goes_on_where_the_first_ended(cluster: InMemoryCluster) -> None:
    fill(cluster, address(1, "上海市"))
    run(cluster, "--consumer_group=g")
    fill(cluster, address(2, "浙江省"))
    run(cluster, "--consumer_group=g")
    assert str(compare(cluster.records("src"), cluster.records("dst"))) == "read 2, wrote 2, lost 0, duplicated 0"
