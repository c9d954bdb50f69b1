"""`ReadFromKafka` and `WriteToKafka` on a real broker: there and back, keys, starts and stops, copies, the pages."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

pytest.importorskip("confluent_kafka", reason="Kafka needs the extra 'kafka'")

from rmqio.connect import KafkaRecord, ReadFromKafka, WriteToKafka
from rmqio.errors import LocalError
from rmqio.model import Message, Record
from rmqio.start import StartFrom, StopAt
from tests.helpers.check import read_topic
from tests.helpers.command_line import Tool
from tests.helpers.doc_blocks import Block, blocks_that_need
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.pipelines.kafka import new_topic, read, write
from tests.helpers.servers.kafka import SECRET, Kafka
from tests.helpers.waiting import runs, until, until_found

pytestmark = [pytest.mark.systems, pytest.mark.slow]


def test_messages_come_back_with_all_that_they_have(broker: Kafka) -> None:
    topic, other = new_topic(broker, 1), new_topic(broker)
    given = [
        KafkaRecord(b"v", b"k", (("h", b"1"), ("h", None)), timestamp_ms=1_700_000_000_123),
        KafkaRecord(None, b"k", timestamp_ms=5),
        KafkaRecord(b"elsewhere", topic=other, timestamp_ms=7),
    ]
    write(broker, topic, given)
    assert read(broker, topic) == [given[n]._replace(topic=topic, partition=0, offset=n) for n in (0, 1)]
    (found,) = read(broker, other)
    assert (found.value, found.topic, found.timestamp_ms) == (b"elsewhere", other, 7)
    assert len(read(broker, [topic, other])) == 3


def test_elements_of_every_kind_are_written(broker: Kafka) -> None:
    topic = new_topic(broker)
    write(broker, topic, [b"bytes", "text", Message(b"message", keys=("a", "b")), {"id": 7, "n": 1}])
    found = {(each.value, each.key) for each in read(broker, topic)}
    assert found == {(b"bytes", None), (b"text", None), (b"message", b"a"), (b'{"id":7,"n":1}', None)}


def test_messages_of_one_key_keep_their_order_in_one_partition(broker: Kafka) -> None:
    topic = new_topic(broker, 3)
    write(broker, topic, [{"id": number % 5, "n": number} for number in range(500)], key="id")
    found = sorted(read(broker, topic), key=lambda each: each.offset)
    for key in range(5):
        mine = [each for each in found if each.key == b"%d" % key]
        assert len({each.partition for each in mine}) == 1
        assert [each.value for each in mine] == [b'{"id":%d,"n":%d}' % (key, n) for n in range(key, 500, 5)]


def test_starts_and_stops(broker: Kafka) -> None:
    topic = new_topic(broker, 1)
    write(broker, topic, [KafkaRecord(b"%d" % n, timestamp_ms=1_700_000_000_000 + n) for n in range(10)])

    def values(**options: Any) -> list[int]:
        return [int(each.value or b"") for each in read(broker, topic, **options)]

    assert values(start=StartFrom.timestamp(1_700_000_000_004)) == [*range(4, 10)]
    assert values(stop=StopAt.timestamp(1_700_000_000_004)) == [*range(4)]
    assert values(start=StartFrom.timestamp(1_700_000_000_099)) == []
    assert values(start=StartFrom.latest()) == []


def test_a_message_that_is_too_large_goes_out_alone(broker: Kafka) -> None:
    topic = new_topic(broker)
    pipeline = beam.Pipeline()
    rows = [b"a", b"x" * 2_000_000, b"b"]
    result = pipeline | beam.Create(rows) | WriteToKafka(broker.servers, topic, on_failure="output")

    def check(failures: list[Any]) -> None:
        ((size, reason),) = [(len(each.body), each.reason) for each in failures]
        assert size == 2_000_000
        assert "too large" in reason.lower()

    _ = result.failed | beam.combiners.ToList() | beam.Map(check)
    pipeline.run().wait_until_finish()
    assert sorted(each.value or b"" for each in read(broker, topic)) == [b"a", b"b"]


def test_a_topic_that_does_not_exist_fails_at_the_start(broker: Kafka) -> None:
    with pytest.raises(Exception, match=r"topic none of kafka://.*nknown topic"):
        write(broker, "none", [b"x"])
    with pytest.raises(Exception, match=r"topic none of kafka://.*nknown topic"):
        read(broker, "none")


def test_a_copy_that_follows_reads_what_comes_later(broker: Kafka, tmp_path: Path) -> None:
    """A stream on the Direct runner, in a program of its own."""
    topic = new_topic(broker)
    write(broker, topic, [b'{"n":%d}' % n for n in range(100)])
    command = [sys.executable, "-m", "rmqio", "copy", "--from", f"kafka://{broker.servers}/{topic}", "--follow"]
    out_file, log_file = tmp_path / "out", tmp_path / "log"

    def count() -> int:
        return len(out_file.read_text().splitlines())

    with out_file.open("wb") as out, log_file.open("wb") as log:
        program = subprocess.Popen([*command, "--to", "-"], stdout=out, stderr=log)
    try:
        for wanted in (100, 107):
            until(
                lambda wanted=wanted: count() == wanted,  # type: ignore[misc]
                f"{wanted} lines",
                progress=count,
                alive=[runs(program, log_file.read_text)],
                details=lambda: f"{count()} of them\n{log_file.read_text()}",
            )
            if wanted == 100:
                write(broker, topic, [b'{"n":%d}' % n for n in range(100, 107)])
    finally:
        program.kill()
        program.wait()


@pytest.mark.broker
def test_a_copy_to_rocketmq_that_runs_again_gives_the_same_ids(
    broker: Kafka, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys, headers and deletes go over and back, and what comes twice can be told by its id."""
    source, back, sink = new_topic(broker), new_topic(broker), f"from-kafka-{uuid.uuid4().hex[:8]}"
    lab.broker.create_topic(sink, queues=2)
    sent = [KafkaRecord(b'{"n":%d}' % n, b"key-%d" % (n % 7), (("h", b"x%d" % n),)) for n in range(100)]
    sent.append(KafkaRecord(b'{"n":100}', b"\x80" * 8, (("TAGS", None), ("h", b"x"))))  # as of a LongSerializer
    deletes = KafkaRecord(None, b"key-3")
    write(broker, source, [*sent, deletes])
    command = ["copy", "--from", f"kafka://{broker.servers}/{source}", "--to", f"rocketmq:{sink}"]
    rmqio = Tool(lab.broker.name_server, capsys)
    for times in (1, 2):
        rmqio(*command)
        wanted = [each.value or b"" for each in [*sent, deletes]] * times
        until_found(lambda: [each.body for each in read_topic(lab.client, sink)], wanted)
    copies = [*read_topic(lab.client, sink)]
    by_id: dict[str, list[Record]] = {}
    for copy in copies:
        by_id.setdefault(copy.message_id, []).append(copy)
    assert {len(each) for each in by_id.values()} == {2}
    assert sorted((first.body, first.keys, first.get_property("h")) for first, _ in by_id.values()) == sorted(
        [
            *((each.value, ((each.key or b"").decode(),), (each.headers[0][1] or b"").decode()) for each in sent[:-1]),
            (b'{"n":100}', (f"0x{'80' * 8}",), "x"),
            (b"", ("key-3",), None),
        ],
        key=lambda each: each[:2],
    )
    assert all((one.body, one.keys) == (other.body, other.keys) for one, other in by_id.values())
    rmqio("copy", "--from", f"rocketmq:{sink}", "--to", f"kafka://{broker.servers}/{back}")
    found = [(each.key, each.value or b"", each.headers) for each in read(broker, back)]
    assert sorted(found, key=repr) == sorted(
        [(each.key, each.value or b"", each.headers) for each in [*sent, deletes]] * 2, key=repr
    )


@pytest.mark.parametrize("block", blocks_that_need("kafka"), ids=lambda block: f"{block.page}:{block.line}")
def test_the_blocks_of_the_pages_run(
    block: Block, broker: Kafka, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert broker.guard is not None
    monkeypatch.chdir(Path(broker.guard.ca_file).parent)
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    monkeypatch.setattr(sys, "argv", ["pipeline.py"])
    code = block.code.replace("localhost:9092", broker.servers).replace("localhost:9093", broker.guarded_servers)
    code = code.replace('"orders"', f'"{new_topic(broker)}"')
    exec(compile(code, block.page, "exec"), {"__name__": "page"})
    assert "b'17' b'{" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ReadFromKafka("h", "t"), "bootstrap_servers is 'h'"),
        (lambda: ReadFromKafka("h:9092", []), "it must be a name, or a list"),
        (lambda: ReadFromKafka("h:9092", "t", start=StartFrom.group_offsets()), "starts at the earliest or latest"),
        (lambda: ReadFromKafka("h:9092", "t", config={"group.id": "g"}), "the option group.id cannot be set"),
        (lambda: WriteToKafka("h:9092", ""), "it must be a name"),
        (lambda: WriteToKafka("h:9092", "t", config={"acks": 1}), "the option acks cannot be set"),
    ],
)
def test_arguments_are_checked_when_it_is_built(build: Any, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        build()
