"""Dead letters go back as they were sent: what is sent again, which are chosen, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import Message, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.dead_letters.letters import read_letter
from rmqio.errors import LocalError
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.replaying import DEAD, fail_to_read, fill, letter, run

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


def test_what_is_no_letter_goes_as_it_is_to_a_topic_that_is_given(cluster: InMemoryCluster) -> None:
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
