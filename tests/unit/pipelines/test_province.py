"""province.py, on a cluster in memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest

from rmqio import runners
from rmqio.audit.checking import Request, audit
from rmqio.errors import RmqioError
from rmqio.model import Message, Record
from rmqio.pipelines.check import compare
from rmqio.pipelines.common.arguments import ProvinceOptions
from rmqio.pipelines.province import BadAddress, build, refuse, refuse_topic, summary, take_province, to_message
from rmqio.sending.batches import FailedMessage
from rmqio.start import StopAt
from rmqio.testing import InMemoryClientFactory, InMemoryCluster


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
    assert take_province(record(body)) == ("ID-1", found)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "not JSON"),
        (b"secret", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not an object"),
        (b'{"address": "secret"}', "no id"),
        (address(None, "secret"), "no id"),
        (address(True, "secret"), "no id"),
        (address(1.5, "secret"), "no id"),
        (address("", "secret"), "no id"),
        (address("two words", "secret"), "no id"),
        (b'{"id": 1}', "no address"),
        (address(1, None), "no address"),
        (address(1, 7), "no address"),
        (address(1, ""), "no province"),
        (address(1, "secret"), "no province"),
    ],
)
def test_bad_input_is_refused_with_its_kind_and_not_quoted(body: bytes, kind: str) -> None:
    with pytest.raises(BadAddress) as caught:
        take_province(record(body))
    assert caught.value.kind == kind
    assert str(caught.value).startswith(f"{kind}: ")
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


def run(cluster: InMemoryCluster, **changes: Any) -> tuple[Any, ProvinceOptions]:
    given: dict[str, Any] = {"source_topic": "src", "sink_topic": "dst", "stop": StopAt.latest()}
    options = ProvinceOptions(**given | changes)
    pipeline = beam.Pipeline(options=runners.options([]))
    build(pipeline, options, client_factory=InMemoryClientFactory(cluster.name))
    return pipeline.run(), options


def test_provinces_arrive_once_each_with_the_identity_of_their_address(cluster: InMemoryCluster) -> None:
    fill(cluster, *(address(number, "浙江省杭州市") for number in range(50)))
    result, options = run(cluster)
    written = [json.loads(message.body) for message in cluster.records("dst")]
    assert sorted(item["id"] for item in written) == list(range(50))
    assert {item["province"] for item in written} == {"浙江省"}
    assert str(compare(cluster.records("src"), cluster.records("dst"))) == "read 50, wrote 50, lost 0, duplicated 0"
    assert summary(result, options) == "50 addresses read from src, 50 provinces written to dst, 0 bad"


def test_bad_input_goes_to_the_dead_letter_topic_as_it_came(cluster: InMemoryCluster) -> None:
    bad = [b"junk", address(1, "nowhere")]
    fill(cluster, address(0, "上海市"), *bad)
    result, options = run(cluster, dead_letter_topic="bad")
    letters = cluster.records("bad")
    assert sorted(letter.body for letter in letters) == sorted(bad)
    assert {(letter.get_property("RMQIO_ERROR") or "")[:22] for letter in letters} == {
        "BadAddress: not JSON: ",
        "BadAddress: no provinc",
    }
    tally = compare(cluster.records("src"), cluster.records("dst"), letters)
    assert (tally.read, tally.written, tally.is_good) == (3, 3, True)
    assert summary(result, options) == ("3 addresses read from src, 1 province written to dst, 2 bad (went to bad)")


def test_an_audit_names_the_step_that_bad_input_did_not_get_past(cluster: InMemoryCluster) -> None:
    cluster.create_topic("hops")
    fill(cluster, *(address(number, "上海市") for number in range(20)), b"junk")
    run(cluster, dead_letter_topic="bad", audit_topic="hops")
    client = InMemoryClientFactory(cluster.name).queue_client()
    found = audit(client, Request("src", "dst", dead_letter_topic="bad", audit_topic="hops"))
    client.close()
    assert not found.wrong
    assert {name: hop.count for name, hop in found.hops.items()} == {"read": 21, "provinces": 20}
    assert [(fault.edge, fault.lost, fault.letters) for fault in found.faults] == [((("read",), "provinces"), 0, 1)]


def test_bad_input_without_a_dead_letter_topic_is_counted_and_logged(
    cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, b"junk", address(1, "nowhere"), address(2, "nowhere"), address(3, "上海市"))
    with caplog.at_level(logging.WARNING, logger="rmqio.pipelines.province"):
        result, options = run(cluster)
    assert len(cluster.records("dst")) == 1
    assert "bad input: 2 no province, 1 not JSON" in caplog.text
    assert summary(result, options).endswith("1 province written to dst, 3 bad (left out)")


@pytest.mark.parametrize("dead_letter_topic", [None, "bad"])
def test_a_broken_stored_message_does_not_stop_the_job(cluster: InMemoryCluster, dead_letter_topic: str | None) -> None:
    fill(cluster, address(0, "上海市"), address(1, "上海市"))
    broken = cluster.records("src")[0]
    cluster.corrupt(broken.queue, broken.queue_offset)
    result, options = run(cluster, dead_letter_topic=dead_letter_topic)
    assert len(cluster.records("dst")) == 1
    assert len(cluster.records("bad")) == (1 if dead_letter_topic else 0)
    assert "2 addresses read from src, 1 province written to dst, 1 bad" in summary(result, options)


@pytest.mark.parametrize("changes", [{"sink_topic": "none"}, {"dead_letter_topic": "none"}])
def test_a_missing_topic_fails_the_job_and_commits_nothing(cluster: InMemoryCluster, changes: dict[str, str]) -> None:
    fill(cluster, b"junk", address(1, "上海市"))
    with pytest.raises(Exception, match=r"topic 'none' does not exist"):
        run(cluster, consumer_group="g", **changes)
    assert {cluster.committed("g", record.queue) for record in cluster.records("src")} == {None}


def failed(error: str) -> FailedMessage:
    return FailedMessage(None, "element", "dst", error, "the reason")


@pytest.mark.parametrize("error", ["NoPermission", "TopicNotExist", "LocalError"])
def test_a_province_that_cannot_be_sent_fails_the_job(error: str) -> None:
    with pytest.raises(RmqioError, match=f"cannot write to topic 'dst': {error}: the reason"):
        refuse(failed(error))


def test_a_dead_letter_that_cannot_be_sent_fails_the_job_only_if_the_topic_is_at_fault() -> None:
    refuse_topic(failed("LocalError"))
    with pytest.raises(RmqioError, match="NoPermission"):
        refuse_topic(failed("NoPermission"))


def test_a_second_run_of_a_group_goes_on_where_the_first_ended(cluster: InMemoryCluster) -> None:
    fill(cluster, address(1, "上海市"))
    run(cluster, consumer_group="g")
    fill(cluster, address(2, "浙江省"))
    run(cluster, consumer_group="g")
    assert str(compare(cluster.records("src"), cluster.records("dst"))) == "read 2, wrote 2, lost 0, duplicated 0"
