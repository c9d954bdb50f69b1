"""Dead letters go back as they were sent; what is done is committed, and what cannot be done is said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.dead_letters.command import main
from rmqio.dead_letters.letters import Failed, letter_id, make_letter, read_letter
from rmqio.dead_letters.reading import Part
from rmqio.dead_letters.replay import Choice, Replay
from rmqio.errors import CorruptMessage, LocalError, OffsetOutOfRange, SerdeError, TransportError
from rmqio.model import MessageQueue
from rmqio.replay import ReplayResult, replay
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.shared import close_shared_clients

DEAD = [MessageQueue("dead", "broker-a", 0), MessageQueue("dead", "broker-a", 1)]
AT = ["--name_server=127.0.0.1:1", "--dead_letter_topic=dead"]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        for topic in ("src", "other", "dead"):
            made.create_topic(topic, 2)
        yield made
        close_shared_clients()
        assert made.open_clients == 0
        assert made.open_readers == 0


def refuse(record: Record) -> bytes:
    raise SerdeError(f"no {record.body.decode()}")


def fail_to_read(cluster: InMemoryCluster, topic: str = "src") -> None:
    """All messages of a topic become dead letters."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | ReadFromRocketMQ(
            topic,
            client_factory=InMemoryClientFactory(cluster.name),
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            deserializer=refuse,
            dead_letter_topic="dead",
        )


def letter(cluster: InMemoryCluster, body: bytes = b"x", topic: str = "src", offset: int = 0, **fields: Any) -> Record:
    """A letter as a read of `topic` would write it."""
    fields = {"error": "SerdeError", "reason": "no JSON", "origin": MessageQueue(topic, "broker-a", 0)} | fields
    message = make_letter(Failed(body, queue_offset=offset, **fields))
    producer = InMemoryClientFactory(cluster.name).producer("g")
    sent = producer.send(message, DEAD[0], message_id=letter_id(message))
    producer.close()
    return cluster.records("dead")[sent.queue_offset]


def run(cluster: InMemoryCluster, **arguments: Any) -> ReplayResult:
    return replay("dead", client_factory=InMemoryClientFactory(cluster.name), **arguments)


def program(cluster: InMemoryCluster, *argv: str) -> int:
    return main([*AT, *argv], client_factory=InMemoryClientFactory(cluster.name))


def new(cluster: InMemoryCluster, topic: str, begin: int = 0) -> list[Record]:
    return [record for record in cluster.records(topic) if record.queue_offset >= begin]


# ---- what is sent ---------------------------------------------------------------------------------------------------


def test_a_message_comes_back_as_it_was_sent(cluster: InMemoryCluster) -> None:
    properties = {"tenant": "7", "naïve": "né", "__SHARDINGKEY": "s", "UNIQ_KEY": "ID1"}
    first = cluster.append("src", b"\xffraw", tags="red", keys=("a", "b"), properties=properties)
    letter(
        cluster,
        first.body,
        tags="red",
        keys=("a", "b"),
        sharding_key="s",
        message_id="ID1",
        properties=(("tenant", "7"), ("naïve", "né")),
    )
    result = run(cluster)
    assert (result.read, result.letters, result.sent, result.not_sent) == (1, 1, 1, 0)
    (again,) = [record for record in cluster.records("src") if record != first]
    assert (again.body, again.tags, again.keys, again.sharding_key) == (b"\xffraw", "red", ("a", "b"), "s")
    own = {name: value for name, value in again.properties.items() if name not in ("UNIQ_KEY", "KEYS", "TAGS")}
    assert own == {"tenant": "7", "naïve": "né", "__SHARDINGKEY": "s"}
    assert again.message_id != "ID1", "who drops duplicates knows that id already"


def test_what_a_read_could_not_decode_goes_back_to_its_topic_and_once_to_another(cluster: InMemoryCluster) -> None:
    for topic in ("src", "other"):
        for number in range(3):
            cluster.append(topic, f"{topic}-{number}".encode())
        fail_to_read(cluster, topic)
    assert run(cluster).sent == 6
    for topic in ("src", "other"):
        bodies = [f"{topic}-{number}".encode() for number in range(3)]
        assert sorted(record.body for record in cluster.records(topic)) == sorted(bodies * 2)
    cluster.create_topic("third", 1)
    assert run(cluster, to="third").sent == 6
    assert len(cluster.records("third")) == 6


def test_the_same_replay_again_sends_the_same_ids_and_another_letter_another(cluster: InMemoryCluster) -> None:
    letter(cluster, b"a", offset=0)
    letter(cluster, b"b", offset=1)
    run(cluster)
    run(cluster)
    again = cluster.records("src")
    assert sorted(record.body for record in again) == [b"a", b"a", b"b", b"b"]
    assert len({(record.body, record.message_id) for record in again}) == 2
    assert len({record.message_id for record in again}) == 2


def test_letters_of_a_bundle_that_was_run_again_are_sent_once(cluster: InMemoryCluster) -> None:
    cluster.append("src", b"a")
    fail_to_read(cluster)
    fail_to_read(cluster)
    result = run(cluster)
    (row,) = result.rows
    assert (row.letters, row.sent, row.duplicates) == (2, 1, 1)


def test_what_could_not_be_written_goes_to_the_topic_that_was_missing(cluster: InMemoryCluster) -> None:
    factory = InMemoryClientFactory(cluster.name)
    source = cluster.append("src", b"body", tags="a")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        write = WriteToRocketMQ(selector=lambda _: "sink", client_factory=factory, dead_letter_topic="dead")
        _ = pipeline | beam.Create([source]) | write
    assert run(cluster).not_sent == 1, "there is no such topic yet"
    cluster.create_topic("sink", 1)
    assert run(cluster).sent == 1
    write_again = WriteToRocketMQ("sink", client_factory=factory)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create([source]) | write_again
    first, second = cluster.records("sink")
    assert (first.body, first.tags) == (b"body", "a")
    assert first.message_id == second.message_id, "as if the write had succeeded"


def test_a_delay_is_kept_and_letters_of_older_versions_are_read(cluster: InMemoryCluster) -> None:
    letter(cluster, b"late", origin=None, sink_topic="src", delay_level=3, deliver_at_ms=None)
    record = cluster.append("dead", b"old", properties={"RMQIO_ORIGIN": "a/b/c/0/5", "RMQIO_ERROR": "SerdeError: x: y"})
    late, old = (read_letter(each) for each in cluster.records("dead"))
    assert late.message == Message(b"late", delay_level=3)
    assert (old.topic, old.error, old.reason, old.message) == ("a/b", "SerdeError", "x: y", Message(b"old"))
    assert record.message_id != old.message_id


OWN_NAMES = (("RMQIO_", "1"), ("RMQIO_TENANT", "2"), ("RMQIO_TOPIC", "3"), ("RMQIO_USER_TENANT", "4"), ("rmqio", "5"))


def user_named(record: Record) -> dict[str, str]:
    return {name: value for name, value in record.properties.items() if name.lower().startswith("rmqio")}


def test_properties_of_the_senders_that_are_named_like_ours_come_back(cluster: InMemoryCluster) -> None:
    made = letter(cluster, properties=OWN_NAMES)
    assert "RMQIO_DROPPED_PROPERTIES" not in made.properties
    assert (made.properties["RMQIO_TOPIC"], made.properties["RMQIO_USER_TOPIC"]) == ("src", "3")
    assert run(cluster).sent == 1
    (again,) = cluster.records("src")
    assert user_named(again) == dict(OWN_NAMES)


def test_a_letter_of_a_letter_gives_the_first_one_back(cluster: InMemoryCluster) -> None:
    cluster.create_topic("letters", 1)
    first = letter(cluster, topic="other", properties=OWN_NAMES)
    properties = tuple(user_named(first).items())
    letter(cluster, topic="letters", offset=7, properties=properties, reason="no letter")
    assert run(cluster, error="no letter").sent == 1
    (again,) = cluster.records("letters")
    assert user_named(again) == user_named(first)


def test_what_is_no_letter_goes_as_it_is_to_a_topic_that_is_told(cluster: InMemoryCluster) -> None:
    own = {"RMQIO_ORIGIN": "a/b/0/5", "RMQIO_DELAY_LEVEL": "x", "RMQIO_USER_A": "y", "RMQIO_BODY": "empty"}
    for body in (b"1", b"2"):
        cluster.append("dead", body, properties=own)
    assert run(cluster).not_sent == 2, "it does not say where it came from"
    assert run(cluster, to="src").sent == 2
    assert [(record.body, user_named(record)) for record in cluster.records("src")] == [(b"1", own), (b"2", own)]
    assert len({record.message_id for record in cluster.records("src")}) == 2


def test_equal_messages_that_failed_without_an_id_are_all_sent(cluster: InMemoryCluster) -> None:
    """Their letters have one id, by which nobody can tell whether they are copies."""
    first, second = (letter(cluster, b"tick", origin=None, sink_topic="src") for _ in range(2))
    assert first.message_id == second.message_id
    for _ in range(2):
        assert run(cluster).sent == 2
    assert len(cluster.records("src")) == 4
    assert len({record.message_id for record in cluster.records("src")}) == 2, "the same ids when it is repeated"


# ---- what is chosen -------------------------------------------------------------------------------------------------


def fill(cluster: InMemoryCluster) -> None:
    for number in range(3):
        letter(cluster, b"src", offset=number)
    letter(cluster, b"late", offset=9, error="ValueError", reason="too late")
    letter(cluster, b"other", topic="other", reason="no Avro")


@pytest.mark.parametrize(
    ("arguments", "bodies"),
    [
        ({"error": "JSON"}, [b"src"] * 3),
        ({"error": re.compile("^ValueError: too")}, [b"late"]),
        ({"source_topic": "other"}, [b"other"]),
        ({"source_topic": ["src"], "error": "E"}, [b"late", b"src", b"src", b"src"]),
        ({"limit": 2}, [b"src"] * 2),
        ({"start": StartFrom.specific_offsets({DEAD[0]: 3}), "consumer_group": "g"}, [b"late", b"other"]),
        ({"stop": StopAt.offsets({DEAD[0]: 1})}, [b"src"]),
        ({"error": "nothing like it"}, []),
    ],
)  # fmt: skip
def test_only_what_is_chosen_is_sent(cluster: InMemoryCluster, arguments: dict[str, Any], bodies: list[bytes]) -> None:
    fill(cluster)
    result = run(cluster, **arguments)
    assert sorted(record.body for topic in ("src", "other") for record in cluster.records(topic)) == bodies
    assert result.sent == result.letters == len(bodies)


def test_a_dry_run_sends_and_commits_nothing(cluster: InMemoryCluster) -> None:
    fill(cluster)
    queue = DEAD[0]
    cluster.reset_group("g", queue, 1)
    result = run(cluster, dry_run=True, consumer_group="g")
    assert [(row.topic, row.error, row.sent) for row in result.rows] == [
        ("src", "SerdeError", 2),
        ("src", "ValueError", 1),
        ("other", "SerdeError", 1),
    ]
    assert cluster.records("src") == cluster.records("other") == []
    assert cluster.commit("g", queue, 5) is False, "the reset pends as before"


# ---- what is committed ----------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_its_last_replay_ended(cluster: InMemoryCluster) -> None:
    fill(cluster)
    queue, empty = DEAD
    assert run(cluster, consumer_group="g", limit=2).sent == 2
    assert cluster.committed("g", queue) == 2
    assert run(cluster, consumer_group="g").sent == 3
    assert (cluster.committed("g", queue), cluster.committed("g", empty)) == (5, None)
    assert run(cluster, consumer_group="g").read == 0
    assert run(cluster, consumer_group="h", stop=StopAt.offsets({queue: 1})).sent == 1
    assert cluster.committed("h", queue) == 1
    cluster.reset_group("g", queue, 4)
    assert run(cluster, consumer_group="g").sent == 1
    assert cluster.committed("g", queue) == 5


def test_nothing_is_committed_before_it_is_acknowledged(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqio.dead_letters.replay._COMMIT_EVERY", 32)
    for number in range(100):
        letter(cluster, offset=number)
    queue = DEAD[0]

    def progress(result: ReplayResult, total: int) -> None:
        assert total == 100
        if result.sent == 64:  # what is sent next is stored, and nobody is told
            cluster.fail_next("send", TransportError("the broker is gone"), after=True)

    with pytest.raises(TransportError):
        run(cluster, consumer_group="g", progress=progress)
    assert cluster.committed("g", queue) == 64
    assert 64 < len(cluster.records("src")) < 100
    run(cluster, consumer_group="g")
    assert len(cluster.records("src")) > 100
    assert len({record.message_id for record in cluster.records("src")}) == 100


def test_a_letter_whose_sending_failed_holds_the_group_back(cluster: InMemoryCluster) -> None:
    letter(cluster, offset=0)
    letter(cluster, topic="missing", offset=1)
    letter(cluster, offset=2)
    queue = DEAD[0]
    result = run(cluster, consumer_group="g")
    assert (result.sent, result.not_sent) == (2, 1)
    (problem,) = result.problems
    assert re.match(r"queue dead/broker-a/0, offset 1: .*'missing'", problem)
    assert cluster.committed("g", queue) == 1
    cluster.create_topic("missing", 1)
    assert run(cluster, consumer_group="g").sent == 2, "the last one again, with its id"
    assert cluster.committed("g", queue) == 3
    assert len({record.message_id for record in cluster.records("src")}) == 2


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"error": "CorruptMessage", "kind": "stored"}, "itself corrupt"),
        ({"kind": "element"}, "had no message"),
        ({"body": b""}, "empty body"),
        ({"topic": "dead"}, "the dead-letter topic itself"),
        ({"origin": None}, "it does not say where it came from"),
    ],
)
def test_a_letter_that_has_nothing_to_send_is_named_and_passed(
    cluster: InMemoryCluster, fields: dict[str, Any], why: str
) -> None:
    letter(cluster, **fields)
    result = run(cluster, consumer_group="g")
    assert (result.sent, result.not_sent) == (0, 1)
    assert why in result.problems[0]
    assert cluster.committed("g", DEAD[0]) == 1


def test_a_letter_that_is_itself_broken_is_named(cluster: InMemoryCluster) -> None:
    letter(cluster)
    letter(cluster, offset=1)
    cluster.corrupt(DEAD[0], 0)
    result = run(cluster)
    assert (result.read, result.sent, result.not_sent) == (2, 1, 1)
    assert "offset 0" in result.problems[0]


def test_a_delay_that_is_no_number_is_named(cluster: InMemoryCluster) -> None:
    for value in ("soon", "9" * 5_000):
        cluster.append(
            "dead", b"x", properties={"RMQIO_ERROR": "E: r", "RMQIO_TOPIC": "src", "RMQIO_DELAY_LEVEL": value}
        )
    result = run(cluster)
    assert (result.sent, result.not_sent) == (0, 2)
    assert "its RMQIO_DELAY_LEVEL is 'soon', which is not a number" in result.problems[0]


@pytest.mark.parametrize(
    ("broken", "runs"),
    [
        (0, [(1, 0, 1, 1), (1, 1, 0, 2), (1, 1, 0, 3), (0, 0, 0, 3)]),
        (1, [(1, 1, 0, 1), (1, 0, 1, 2), (1, 1, 0, 3), (0, 0, 0, 3)]),
        (2, [(1, 1, 0, 1), (1, 1, 0, 2), (1, 0, 1, 3), (0, 0, 0, 3)]),
    ],
)
def test_a_broken_letter_counts_for_the_limit_where_it_lies(
    cluster: InMemoryCluster, broken: int, runs: list[tuple[int, int, int, int]]
) -> None:
    for number in range(3):
        letter(cluster, offset=number)
    cluster.corrupt(DEAD[0], broken)
    found = []
    for _ in runs:
        result = run(cluster, consumer_group="g", limit=1)
        found.append((result.read, result.sent, result.not_sent, cluster.committed("g", DEAD[0])))
    assert found == runs


def test_a_broken_batch_is_passed_as_a_whole_and_no_further() -> None:
    replaying = Replay(Choice("dead", limit=1), InMemoryClientFactory("none"), group="g", is_dry_run=True)
    broken = [CorruptMessage("CRC", queue_offset=begin, next_offset=end) for begin, end in ((4, 8), (8, 9))]
    assert replaying._take_part(Part(DEAD[0], 5, [], broken, 12, skipped=3))
    assert replaying._positions == {DEAD[0]: 8}
    assert (replaying.result.read, replaying.result.lost) == (1, 0), "what is lost comes behind"


# ---- what is lost ---------------------------------------------------------------------------------------------------


def test_offsets_that_are_lost_are_counted_and_said(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        letter(cluster, offset=number)
    cluster.remove(DEAD[0], 1, 3)
    limited = run(cluster, consumer_group="g", limit=1)
    assert (limited.sent, limited.lost, caplog.messages) == (1, 0, [])
    assert program(cluster, "--back", "--consumer_group=g") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "lost: 2 offsets of dead, deleted on the broker before they were read",
        "2 read, 2 chosen, sent 2 to where they came from",
    ]
    assert caplog.messages == ["queue dead/broker-a/0: 2 offsets before 5 are lost on the broker"]
    assert program(cluster, "--back", "--consumer_group=g") == 0, "told once"
    assert program(cluster, "--json") == 1, "also when it only shows"
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["lost"] == 2


@pytest.mark.parametrize("kept", [3, 5])
def test_what_retention_took_before_a_group_got_to_it_is_lost(cluster: InMemoryCluster, kept: int) -> None:
    for number in range(5):
        letter(cluster, offset=number)
    assert run(cluster, consumer_group="g", limit=1).sent == 1
    cluster.delete_before(DEAD[0], kept)
    result = run(cluster, consumer_group="g")
    assert (result.sent, result.lost) == (5 - kept, kept - 1)
    assert cluster.committed("g", DEAD[0]) == 5
    assert run(cluster, consumer_group="g").lost == 0
    assert run(cluster).lost == 0, "nobody said that there had been more"
    assert run(cluster, start=StartFrom.specific_offsets({DEAD[0]: 1}), consumer_group="h").lost == kept - 1


def test_a_start_behind_the_end_sends_nothing_again(cluster: InMemoryCluster) -> None:
    """The topic was made anew, or a broker has lost its tail: what is there now may all have been sent."""
    for number in range(3):
        letter(cluster, offset=number)
    with pytest.raises(OffsetOutOfRange, match="recreated"):
        run(cluster, start=StartFrom.specific_offsets({DEAD[0]: 7}), consumer_group="g")
    cluster.commit("g", DEAD[0], 7)
    with pytest.raises(OffsetOutOfRange, match="recreated"):
        run(cluster, consumer_group="g")


@pytest.mark.parametrize("stop", [None, StopAt.offsets({DEAD[0]: 4})])
def test_what_retention_takes_meanwhile_is_lost(cluster: InMemoryCluster, stop: StopAt | None) -> None:
    cluster.poll_records = 1
    for number in range(6):
        letter(cluster, offset=number)
    result = run(cluster, stop=stop, progress=lambda *_: cluster.delete_before(DEAD[0], 5))
    assert (result.sent, result.lost) == ((2, 4) if stop is None else (1, 3))


def test_a_topic_that_is_made_anew_meanwhile_stops_it(cluster: InMemoryCluster) -> None:
    cluster.poll_records = 1
    letter(cluster)
    letter(cluster, offset=1)

    def make_anew(result: ReplayResult, total: int) -> None:
        cluster.delete_topic("dead")
        cluster.create_topic("dead", 2)

    with pytest.raises(OffsetOutOfRange):
        run(cluster, progress=make_anew)


# ---- misuse ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": "dead"}, "the dead-letter topic itself"),
        ({"to": "no good"}, "illegal"),
        ({"limit": 0}, "limit is 0"),
        ({"start": StartFrom.group_offsets()}, "needs consumer_group"),
        ({"consumer_group": "no good"}, "illegal"),
    ],
)
def test_misuse_is_refused(cluster: InMemoryCluster, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        run(cluster, **arguments)


# ---- the program ----------------------------------------------------------------------------------------------------


def test_without_a_place_to_go_it_shows_what_is_there(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster)
    letter(cluster, body=b"", offset=50)
    assert program(cluster) == 0
    assert capsys.readouterr().out.splitlines() == [
        "topic  error       letters  would send  duplicates  not sent  first reason",
        "other  SerdeError        1           1           0         0  no Avro",
        "src    SerdeError        4           3           0         1  no JSON",
        "src    ValueError        1           1           0         0  too late",
        "not sent: queue dead/broker-a/0, offset 5: the message had an empty body, which no producer here sends",
        "6 read, 6 chosen, would send 5 to where they came from",
    ]
    assert cluster.records("src") == []


def test_what_it_has_done_is_its_exit_status(cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    fill(cluster)
    assert program(cluster, "--back", "--dry-run") == 0
    assert cluster.records("src") == []
    assert program(cluster, "--back", "--error=no JSON", "--json") == 0
    out = capsys.readouterr().out.splitlines()[-1]
    found = json.loads(out)
    assert (found["read"], found["letters"], found["sent"], found["rows"][0]["topic"]) == (5, 3, 3, "src")
    letter(cluster, topic="missing")
    assert program(cluster, "--back", "--source_topic=missing") == 1
    assert "'missing'" in capsys.readouterr().out
    assert program(cluster, "--to=missing") == 1, "a topic for all of them is not one letter's fault"
    assert "missing" in capsys.readouterr().err


def test_an_interrupted_replay_says_what_it_has_done(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cluster)
    monkeypatch.setattr(Replay, "_settle", interrupted)
    assert program(cluster, "--back") == 130
    captured = capsys.readouterr()
    assert captured.err == "rmqio.replay: interrupted\n"
    assert "5 read, 5 chosen, sent 0 to where they came from" in captured.out


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--back", "--to=t"], "not allowed with"),
        (["--to=dead"], "the dead-letter topic itself"),
        (["--error=("], "is not a regular expression"),
        (["--start=latest"], "is not earliest, group or timestamp:TIME"),
        (["--start=group"], "needs --consumer_group"),
        (["--stop=timestamp:2026-01-31"], "has no time zone"),
        (["--stop=timestamp:soon"], "is neither ISO 8601"),
        (["--stop=never"], "is not latest or timestamp:TIME"),
        (["--limit=0"], "limit is 0"),
        (["--bakc"], "unrecognized arguments"),
    ],
)
def test_wrong_usage(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*AT, *argv])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_times_of_a_command_line(cluster: InMemoryCluster) -> None:
    fill(cluster)
    assert program(cluster, "--back", "--start=timestamp:2026-01-31T00:00:00Z", "--stop=timestamp:0") == 0
    assert cluster.records("src") == []
    assert program(cluster, "--back", "--start=earliest", "--stop=latest", "--consumer_group=g") == 0
    assert program(cluster, "--back", "--start=group", "--consumer_group=g") == 0
    assert len(cluster.records("src")) == 4
