"""A replay commits what it has done, and says what it cannot do or has lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rmqio import StartFrom, StopAt
from rmqio.dead_letters.letters import Part
from rmqio.dead_letters.replay import Choice, Replay
from rmqio.errors import CorruptMessage, OffsetOutOfRange, TransportError
from rmqio.replay import ReplayResult
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.replaying import DEAD, fill, letter, program, run

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
        ({"origin": None}, "does not say where its message came from"),
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


@pytest.mark.parametrize(
    ("broken", "stop", "found"),
    [(0, 2, (2, 1, 1)), (1, 2, (2, 1, 1)), (1, 1, (1, 1, 0))],
    ids=["0", "1", "at the stop"],
)
def test_a_letter_that_is_itself_broken_is_named(
    cluster: InMemoryCluster, broken: int, stop: int, found: tuple[int, int, int]
) -> None:
    for number in range(2):
        letter(cluster, offset=number)
    cluster.corrupt(DEAD[0], broken)
    result = run(cluster, stop=StopAt.offsets({DEAD[0]: stop}))
    assert (result.read, result.sent, result.not_sent) == found
    assert [f"offset {broken}" in each for each in result.problems] == [True] * found[2]


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
        "Lost: 2 offsets of topic dead were deleted on the broker before they were read.",
        "Read 2 letters of topic dead and chose 2. 2 messages were sent to the topics that they came from.",
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
