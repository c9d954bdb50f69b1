"""word_count.py, on a cluster in memory."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from pipelines.word_count import build, program, to_message, words
from rmqio import runners
from rmqio.model import Message, MessageQueue
from rmqio.runners.program import count
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.programs import main_of

TOPICS = ["--source_topic=src", "--sink_topic=dst"]
SERVER = "--name_server=h:9876"


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("", []),
        ("... -- !?", []),
        ("To be, or not to be", ["to", "be", "or", "not", "to", "be"]),
        ("DON'T don't Don\u2019t", ["don't", "don't", "don\u2019t"]),
        ("'quoted' rock 'n' roll o'clock's", ["quoted", "rock", "n", "roll", "o'clock's"]),
        ("Straße STRASSE ΣΊΣΥΦΟΣ", ["strasse", "strasse", "σίσυφοσ"]),
        ("İstanbul", ["i\u0307stanbul"]),
        ("snake_case, 42 3.14", ["snake_case", "42", "3", "14"]),
        ("好好 学习。天天向上", ["好好", "学习", "天天向上"]),
    ],
)
def test_words_of_a_sentence(sentence: str, found: list[str]) -> None:
    assert words(sentence) == found


def test_message_for_the_sink_has_the_word_as_key_and_sharding_key() -> None:
    message = to_message(("学习", 3))
    assert message == Message('{"word": "学习", "count": 3}'.encode(), keys=("学习",), sharding_key="学习")


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as cluster:
        for topic in ("src", "dst"):
            cluster.create_topic(topic)
        yield cluster


def fill(cluster: InMemoryCluster, *bodies: bytes) -> None:
    producer = InMemoryClientFactory(cluster.name).producer("test")
    for body in bodies:
        producer.send(Message(body, topic="src"))
    producer.close()


def run(cluster: InMemoryCluster, *more: str) -> Any:
    pipeline = beam.Pipeline(options=runners.options([]))
    build(pipeline, options(cluster, "--stop=latest", *more))
    return pipeline.run()


def options(cluster: InMemoryCluster, *more: str) -> Any:
    return program.options([SERVER, *TOPICS, *more], client_factory=InMemoryClientFactory(cluster.name))


def totals(cluster: InMemoryCluster) -> list[tuple[str, int]]:
    found = [json.loads(record.body) for record in cluster.records("dst")]
    return [(total["word"], total["count"]) for total in found]


def test_a_run_that_ends_writes_one_complete_total_of_each_word(cluster: InMemoryCluster) -> None:
    fill(cluster, *(f"word{number % 7} and word{number % 3}".encode() for number in range(100)))
    result = run(cluster)
    expected = Counter(word for number in range(100) for word in (f"word{number % 7}", "and", f"word{number % 3}"))
    assert sorted(totals(cluster)) == sorted(expected.items())
    assert (count(result, "records_read"), count(result, "messages_sent")) == (100, len(expected))


def test_a_stream_accumulates_and_fires_by_the_clock(cluster: InMemoryCluster) -> None:
    pipeline = beam.Pipeline(options=runners.options(["--streaming", "--runner=FlinkRunner"]))
    build(pipeline, options(cluster, "--every_ms=3000"))
    components = pipeline.to_runner_api().components
    (counted,) = [
        each for each in components.transforms.values() if each.spec.urn == "beam:transform:combine_per_key:v1"
    ]
    (given,) = counted.inputs.values()
    found = components.windowing_strategies[components.pcollections[given].windowing_strategy_id]
    by_clock = found.trigger.repeat.subtrigger.after_processing_time
    assert [each.delay.delay_millis for each in by_clock.timestamp_transforms] == [3000]
    assert found.accumulation_mode == beam_runner_api_pb2.AccumulationMode.ACCUMULATING


def test_a_total_is_found_by_its_word_which_chooses_the_queue(cluster: InMemoryCluster) -> None:
    for _ in range(2):  # without a group it starts anew: all totals again
        fill(cluster, b"a b c d e f g h")
        run(cluster)
    records = cluster.records("dst")
    assert all(record.keys == (json.loads(record.body)["word"],) for record in records)
    assert all(record.sharding_key == json.loads(record.body)["word"] for record in records)
    queues = {(json.loads(record.body)["word"], record.queue_id) for record in records}
    assert (len(records), len(queues)) == (16, 8)
    assert len({queue_id for _, queue_id in queues}) > 1


def test_what_is_not_utf8_and_words_too_long_are_left_out_counted_and_logged_once_a_bundle(
    cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    # a word of the greatest length fits into the properties, four bytes a character
    longest = "𠀀" * 255
    bad = [b"\xff", b"caf\xe9", b"\xed\xa0\x80"]
    fill(cluster, b"good", *bad, f"{longest} {longest}𠀀 good".encode())
    with caplog.at_level(logging.WARNING, logger="word_count"):
        result = run(cluster)
    assert sorted(totals(cluster)) == [("good", 2), (longest, 1)]
    assert (count(result, "not_utf8"), count(result, "too_long"), count(result, "records_read")) == (3, 1, 5)
    logged = [record.getMessage() for record in caplog.records if record.name == "word_count"]
    assert 1 <= len(logged) < 4
    assert "messages that are not UTF-8" in logged[0]
    assert "caf" not in "".join(logged)


def test_a_group_is_told_how_far_it_has_got_but_counting_begins_at_the_start(cluster: InMemoryCluster) -> None:
    for seen in (1, 2):
        fill(cluster, b"word")
        run(cluster, "--consumer_group=g")
        assert totals(cluster)[-1] == ("word", seen)
        assert sum(cluster.committed("g", queue) or 0 for queue in queues_of(cluster)) == seen
    run(cluster, "--consumer_group=g", "--start=group")
    assert len(totals(cluster)) == 2


def queues_of(cluster: InMemoryCluster) -> set[MessageQueue]:
    return {record.queue for record in cluster.records("src")}


def test_totals_of_two_runs_are_different_messages_though_they_are_equal(cluster: InMemoryCluster) -> None:
    """The group's next run reads other sentences: a reader that drops copies must count both."""
    for sentence in (b"red apple", b"red car"):
        fill(cluster, sentence)
        run(cluster, "--consumer_group=g", "--start=group:earliest")
    assert totals(cluster).count(("red", 1)) == 2
    assert len({record.message_id for record in cluster.records("dst")}) == 4


def test_a_missing_sink_fails_the_job(cluster: InMemoryCluster) -> None:
    fill(cluster, b"a b")
    with pytest.raises(Exception, match=r"topic 'none' does not exist"):
        run(cluster, "--sink_topic=none")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--source_topic and --sink_topic are missing"),
        ([*TOPICS, "--every_ms=1500"], "argument --every_ms: '1500' is not a multiple of 1000 milliseconds"),
        ([*TOPICS, "--every_ms=-1000"], "'-1000' is not a multiple"),
        ([*TOPICS, "--every_ms=often"], "'often' is not a multiple"),
        ([*TOPICS, "--start=newest"], "argument --start: 'newest' is not earliest"),
        ([*TOPICS, "--stop=never"], "argument --stop: 'never' is not none"),
        ([*TOPICS, "--sink_topic=a b"], "argument --sink_topic: topic name 'a b' is illegal"),
        ([*TOPICS, "--name_server=nowhere"], "argument --name_server: address 'nowhere' is not host:port"),
    ],
)
def test_wrong_usage_is_refused_by_the_parser(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_of("word_count")(argv) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([SERVER], "without --stop totals need a runner that streams: --runner=SparkRunner --streaming"),
        ([SERVER, "--stop=none"], "without --stop totals need a runner that streams"),
        ([SERVER, "--streaming"], "DirectRunner does not stream"),
        ([SERVER, "--stop=latest", "--streaming"], "DirectRunner does not stream"),
        ([SERVER, "--stop=latest", "--evry_ms=1000"], "unknown argument '--evry_ms'; did you mean --every_ms?"),
        ([SERVER, "--stop=latest", "--other=1"], "unknown argument '--other'"),
        ([SERVER, "--stop=latest", "stray"], "unknown argument 'stray'"),
        ([SERVER, "--stop=latest", "--job_name"], "argument --job_name: expected one argument"),
        ([SERVER, "--stop=latest", "--runner=SprakRunner"], "the nearest known one is 'SparkRunner'"),
        ([SERVER, "--stop=latest", "--sink_topic=src"], "'src' is both read and written"),
        ([SERVER, "--stop=latest", "--start=group"], "group"),
        ([SERVER, "--stop=latest", "--credentials=file:/none"], "credentials: cannot read /none: No such file"),
        ([SERVER, "--stop=latest", "--tls_ca_file=/none"], "TLS: cannot read the certificate authorities in /none: No"),
        (["--stop=latest"], "no name server given"),
    ],
)
def test_other_wrong_usage_is_one_line_and_status_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setattr("rmqio.runners.program.set_up_logging", lambda verbose: None)
    assert main_of("word_count")([*TOPICS, *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("word_count.py: ")
    assert message in line


def test_help_says_what_a_word_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of("word_count")(["--help"]) == 0
    shown = capsys.readouterr().out
    for part in ("letters, digits and underscores", "apostrophes", "case", "--every_ms", "exit status: 0", "130"):
        assert part in shown
