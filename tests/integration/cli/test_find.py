"""`rmqio find` and `rmqio trace` on a real broker: its index, and the ids that a pipeline derives."""

from __future__ import annotations

import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

from rmqio import MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.audit import Audit
from rmqio.batches import place_ids, steps_of_variant
from rmqio.dead_letters.replay import replay
from rmqio.local import LocalRocketMQ
from rmqio.model import UNIQ_KEY, MessageQueue
from tests.helpers.client.raw_send import send_all, send_one
from tests.helpers.command_line import Tool
from tests.helpers.waiting import missing, until

pytestmark = pytest.mark.broker


class Topics(NamedTuple):
    source: str
    sink: str
    dead: str
    hops: str


@pytest.fixture(scope="module")
def topics(rocketmq: LocalRocketMQ) -> Topics:
    """Twenty messages, and what a pipeline has made of them: the third is lost, the fourth a dead letter."""
    found = Topics(*(f"find-{kind}-{uuid.uuid4().hex[:10]}" for kind in Topics._fields))
    for name in found:
        rocketmq.create_topic(name, queues=2)
    queue = MessageQueue(found.source, rocketmq.name, 1)
    messages = [Message(b'{"n": %d, "town": "T%d"}' % (n, n % 3), keys=(f"k{n % 4}", f"own{n}")) for n in range(20)]
    send_all(rocketmq.broker, queue, messages)
    at: Any = {"name_server": rocketmq.name_server}
    with beam.Pipeline() as pipeline:
        _ = (
            pipeline
            | ReadFromRocketMQ(found.source, start=StartFrom.earliest(), stop=StopAt.latest(), batches=True, **at)
            | Audit("read", topic=found.hops, **at)
            | "Parse" >> MapRecords(parse, dead_letter_topic=found.dead, **at)
            | "Lose" >> beam.Map(lose)
            | Audit("parsed", topic=found.hops, **at)
            | WriteToRocketMQ(found.sink, batches=True, **at)
        )
    return found


def parse(record: Record) -> Message:
    if record.queue_offset == 3:
        raise ValueError("not good")
    return Message(record.body, keys=record.keys)


def lose(batch: Any) -> Any:
    kept = [n for n, offset in enumerate(batch.offsets) if offset != 2]
    return batch.with_values([batch[n] for n in kept], kept)


@pytest.fixture
def rmqio(rocketmq: LocalRocketMQ, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(rocketmq.name_server, capsys)


def offsets(lines: list[dict[str, Any]]) -> list[int]:
    return [line["queue_offset"] for line in lines]


def test_a_message_is_found_by_each_of_its_names(rmqio: Tool, topics: Topics) -> None:
    (found,) = rmqio.lines("find", topics.source, "--queue", "1", "--offset", "17")
    assert (found["keys"], found["body"]) == (["k1", "own17"], '{"n": 17, "town": "T2"}')
    assert found["unique_id"] == found["message_id"]
    for name in ("unique_id", "offset_message_id"):
        until(lambda name=name: bool(rmqio_quiet(rmqio, topics.source, found[name])), f"the index has {name}")  # type: ignore[misc]
        assert rmqio.lines("find", topics.source, "--id", found[name]) == [found]
    assert rmqio.lines("find", topics.source, "--key", "own17") == [found]
    assert offsets(rmqio.lines("find", topics.source, "--key", "k1")) == [1, 5, 9, 13, 17]
    assert offsets(rmqio.lines("find", topics.source, "--key", "k1", "-n", "2")) == [13, 17]
    assert offsets(rmqio.lines("find", topics.source, "--grep", '"town": *"T2"', "-n", "3")) == [2, 5, 8]
    at = str(found["store_timestamp_ms"])
    assert 17 in offsets(rmqio.lines("find", topics.source, "--at", at, "-n", "20"))
    assert rmqio("find", topics.source, "--key", "own1", "--to", "2020-01-01T00:00:00Z", status=1) == ""
    assert "no such message" in rmqio.err
    text = rmqio("find", topics.source, "--key", "own17")
    assert f"offset id {found['offset_message_id']}" in text
    assert f"a copy of it would have the id {found['id_of_a_copy']}" in text


def test_times_of_a_key_are_exact(rmqio: Tool, rocketmq: LocalRocketMQ) -> None:
    """A broker's index has whole seconds: of three messages within one, at most one is stored when it begins."""
    topic = f"find-times-{uuid.uuid4().hex[:10]}"
    rocketmq.create_topic(topic, queues=1)
    for _ in range(3):
        send_all(rocketmq.broker, MessageQueue(topic, rocketmq.name, 0), [Message(b"x", keys=("k",))])
        time.sleep(0.2)
    until(lambda: quiet(rmqio, "find", topic, "--key", "k").count(" @ ") == 3, "the index has them")
    times = [line["store_timestamp_ms"] for line in rmqio.lines("find", topic, "--grep", ".")]
    for offset, ms in enumerate(times):
        for what in (["--key", "k"], ["--grep", "."]):
            of_range = rmqio.lines("find", topic, *what, "--from", str(ms), "--to", str(ms + 1))
            assert offsets(of_range) == [offset]


def rmqio_quiet(rmqio: Tool, topic: str, message_id: str) -> str:
    return quiet(rmqio, "find", topic, "--id", message_id)


def quiet(rmqio: Tool, *words: str) -> str:
    try:
        return rmqio(*words)
    except AssertionError:  # not there yet: a broker builds its index a moment later
        return ""


def test_what_cannot_be_found_is_told(rmqio: Tool, topics: Topics) -> None:
    rmqio("find", topics.source, "--id", "F" * 32, status=1)
    assert "no such message" in rmqio.err
    rmqio("find", topics.source, "--key", "k", "--offset", "1", status=2)
    assert "--key and --offset are given" in rmqio.err
    rmqio("find", topics.source, status=2)
    assert "nothing says which message" in rmqio.err
    rmqio("find", topics.source[:-1], "--key", "k", status=1)
    assert f"did you mean {topics.source}?" in rmqio.err
    rmqio("find", topics.source, "--queue", "1", "--offset", "20", status=1)
    assert "it holds 0 to 19" in rmqio.err


def trace(rmqio: Tool, topics: Topics, offset: int, *more: str, status: int = 0) -> dict[str, Any]:
    place = ["--queue", "1", "--offset", str(offset), "--to", topics.sink, "--dead-letter-topic", topics.dead]
    found = rmqio.json("trace", topics.source, *place, *more, status=status)
    assert isinstance(found, dict)
    return found


def test_a_message_is_followed_to_where_it_came_or_did_not_come(rmqio: Tool, topics: Topics) -> None:
    audit = ("--audit-topic", topics.hops)
    until(lambda: bool(trace_quiet(rmqio, topics, 17)), "the index has it")
    (output,) = trace(rmqio, topics, 17, *audit)["found"]
    assert (output["kind"], output["topic"], output["keys"]) == ("output", topics.sink, ["k1", "own17"])
    assert output["why"] == "its place and steps /Parse"
    assert trace(rmqio, topics, 17, "--steps", "/Parse")["found"] == [output]
    (letter,) = trace(rmqio, topics, 3, *audit)["found"]
    assert (letter["kind"], letter["topic"], letter["why"]) == (
        "dead letter",
        topics.dead,
        "a function or a read failed",
    )
    lost = trace(rmqio, topics, 2, *audit, status=1)
    assert lost["found"] == []
    assert [(hop["hop"], hop["passed"], hop["is_same"]) for hop in lost["hops"]] == [
        ("read", 20, True),
        ("parsed", 18, False),
    ]
    to = ["trace", topics.source, "--queue", "1", "--to", topics.sink, *audit]
    text = rmqio(*to, "--offset", "2", status=1)
    assert "hop           read: it came here, as did all of its block of 20\n" in text
    assert "hop           parsed: it did not come here; 18 of its block of 20 did\n" in text
    text = rmqio(*to, "--offset", "17")
    assert "hop           parsed: it came here; 2 messages of its block of 20 did not\n" in text
    text = rmqio(
        "trace", topics.dead, "--queue", str(letter["queue_id"]), "--offset", str(letter["queue_offset"]),
        "--dead-letter-topic", topics.dead,
    )  # fmt: skip
    assert f"source        {topics.source} " in text
    assert "ValueError: not good" in text


def trace_quiet(rmqio: Tool, topics: Topics, offset: int) -> dict[str, Any]:
    try:
        return trace(rmqio, topics, offset, "--steps", "/Parse")
    except AssertionError:
        return {}


def test_a_trace_shows_each_message_once_and_marks_copies(rmqio: Tool, rocketmq: LocalRocketMQ) -> None:
    source, sink = (f"trace-{kind}-{uuid.uuid4().hex[:10]}" for kind in ("source", "sink"))
    for name in (source, sink):
        rocketmq.create_topic(name, queues=1)
    queue = MessageQueue(source, rocketmq.name, 0)
    own, derived = uuid.uuid4().hex.upper(), place_ids(queue, (0,), "")[0]
    alert = place_ids(queue, (0,), steps_of_variant("/MatchRules", "brute-force"))[0]
    sends = {queue: [own, own, uuid.uuid4().hex.upper()], queue._replace(topic=sink): [derived, derived, alert]}
    for at, message_ids in sends.items():
        for message_id in message_ids:
            send_one(rocketmq.broker, at, b"x", properties=f"{UNIQ_KEY}\x01{message_id}\x02")

    def left(at: MessageQueue, message_ids: list[str]) -> list[int]:
        found = {line for each in set(message_ids) for line in rmqio_quiet(rmqio, at.topic, each).splitlines()}
        return [n for n in range(len(message_ids)) if not any(f"{at.queue_id} @ {n}" in line for line in found)]

    for each in sends.items():
        until(lambda each=each: not left(*each), "the index", details=partial(left, *each))  # type: ignore[misc]
    to = ["--to", source, "--to", sink, "--to", sink]
    trace = rmqio.json("trace", source, "--queue", "0", "--offset", "0", *to)
    assert [(each["kind"], each["topic"], each["queue_offset"]) for each in trace["found"]] == [
        ("copy", source, 1),
        ("output", sink, 0),
        ("copy", sink, 1),
    ]
    assert trace["found"][2]["why"] == f"the same id as {sink} {rocketmq.name}:0 @ 0"
    of_rule = ["--steps", "/MatchRules", "--rule", "another", "--rule", "brute-force"]
    *_, found = rmqio.json("trace", source, "--queue", "0", "--offset", "0", *to, *of_rule)["found"]
    assert (found["queue_offset"], found["why"]) == (2, "its place and steps /MatchRules, rule brute-force")
    text = rmqio("trace", source, "--queue", "0", "--offset", "2", *to, status=1)
    assert text.count(f"{source} {rocketmq.name}:0 @ 2") == 1, "it is not what came of itself"
    assert f"nothing       in {source} has an id that is derived from it" in text


def test_a_trace_goes_on_with_what_replays_have_sent_again(rmqio: Tool, rocketmq: LocalRocketMQ) -> None:
    """A message fails twice. Each replay is a message of its own, with another place and id."""
    topics = Topics(*(f"replays-{kind}-{uuid.uuid4().hex[:10]}" for kind in Topics._fields))
    for name in topics:
        rocketmq.create_topic(name, queues=1)
    queue = MessageQueue(topics.source, rocketmq.name, 0)
    at: Any = {"name_server": rocketmq.name_server}
    send_one(rocketmq.broker, queue, b"x")

    def fail_twice(record: Record) -> Message:
        if record.queue_offset < 2:
            raise ValueError("not yet")
        return Message(record.body)

    for offset in range(3):
        start = StartFrom.specific_offsets({queue: offset})
        with beam.Pipeline() as pipeline:
            read = pipeline | ReadFromRocketMQ(topics.source, start=start, stop=StopAt.latest(), batches=True, **at)
            parsed = read | "Parse" >> MapRecords(fail_twice, dead_letter_topic=topics.dead, **at)
            _ = parsed | WriteToRocketMQ(topics.sink, batches=True, **at)
        replay(topics.dead, consumer_group=f"{topics.dead}-replay", **at)
    place = ["--queue", "0", "--offset", "0", "--to", topics.sink, "--dead-letter-topic", topics.dead]

    def found() -> list[tuple[str, str, int]]:
        trails = rmqio.json("trace", topics.source, *place, "--steps", "/Parse")["found"]
        return [(each["kind"], each["topic"], each["queue_offset"]) for each in trails]

    wanted = [("dead letter", topics.dead, 0), ("replay", topics.source, 1), ("dead letter", topics.dead, 1)]
    wanted += [("replay", topics.source, 2), ("output", topics.sink, 0)]
    until(lambda: found() == wanted, "the index has all", details=lambda: missing(wanted, found()))
    text = rmqio("trace", topics.source, *place, "--steps", "/Parse")
    assert f"by its dead letter {topics.dead} {rocketmq.name}:0 @ 0\n" in text
    assert f"steps /Parse, of the replay {topics.source} {rocketmq.name}:0 @ 2\n" in text


def test_the_audit_of_the_same_topics_agrees(rmqio: Tool, topics: Topics, tmp_path: Path) -> None:
    named = ["--from-topic", topics.source, "--to-topic", topics.sink, "--dead-letter-topic", topics.dead]
    page = tmp_path / "audit.html"
    report = rmqio.json("audit", *named, "--audit-topic", topics.hops, "--html", str(page), status=1)
    assert report["by"] == "place", "with the steps that the sketches name"
    assert (report["sent"], report["arrived"], report["in_dead_letters"], report["lost"]) == (20, 18, 1, 1)
    (lost,) = report["messages"]["lost"]
    assert (lost["offset"], lost["keys"], lost["where"]) == (2, ["k2", "own2"], "between 'read' and 'parsed'")
    assert page.read_text().startswith("<!doctype html>")
    text = rmqio("audit", *named, "--audit-topic", topics.hops, status=1)
    assert "1   between 'read' and 'parsed'" in text
    rmqio("audit", "--from-topic", topics.source, "--to-topic", topics.hops, status=2)
    assert "use --by to say what identifies a message in both" in rmqio.err
