"""Replicas: read where their master suggests it, asked while there is none. Without sockets, with a manual clock."""

from __future__ import annotations

import pytest

from rmqio.errors import TransportError
from rmqio.interfaces import OffsetLookup, OffsetQuery
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, resolve_all
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.replicas import MASTER, QUEUE, REPLICA, Pair

# ---- reading as the master suggests ---------------------------------------------------------------------------------


def test_the_next_pulls_go_where_the_answers_suggest() -> None:
    pair = Pair()
    pair.replica_suggests = 1
    assert pair.read(pair.reader(), 1_000) == list(range(1_000))
    first, *others = [(address, offset) for address, offset, _ in pair.pulls if offset < 1_000]
    assert first == (MASTER, 0)
    assert {address for address, _ in others} == {REPLICA}


def test_back_to_the_master_when_the_replica_suggests_it() -> None:
    pair = Pair()
    assert pair.read(pair.reader(), 1_000) == list(range(1_000))
    assert {address for address, _, _ in pair.pulls} == {MASTER, REPLICA}
    assert len(pair.pulls) < 100


def test_no_pull_commits_and_the_held_one_is_the_masters() -> None:
    pair = Pair()
    pair.replica_suggests = 1
    reader = pair.reader()
    pair.read(reader, 1_000)
    assert not pair.client.wait([reader], 500)
    assert reader.is_at_end
    assert not any(flags & 1 for _, _, flags in pair.pulls)
    assert {address for address, _, flags in pair.pulls if flags & 2} == {MASTER}


def test_a_replica_that_is_behind_is_left_for_the_master() -> None:
    pair = Pair()
    pair.replica_suggests, pair.copied = 1, 100
    assert pair.read(pair.reader(), 1_000) == list(range(1_000))
    behind = [offset for address, offset, _ in pair.pulls if address == REPLICA]
    assert behind, "it was asked"
    assert pair.clock.monotonic() == 0, "and nobody waited"
    assert len([offset for offset in behind if offset > 100]) < 10, "not again and again"


@pytest.mark.parametrize(
    "refusal",
    [
        Command(17),
        Command(16),
        Command(2),
        Command(20, {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0", "suggestWhichBrokerId": "0"}),
        Command(21, {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0", "suggestWhichBrokerId": "0"}),
    ],
    ids=["no topic", "no permission", "busy", "may not be read", "no queue"],
)
def test_a_replica_that_refuses_is_left_for_the_master(refusal: Command) -> None:
    pair = Pair()
    pair.refuses[REPLICA] = refusal
    assert pair.read(pair.reader(), 1_000) == list(range(1_000))
    asked = len([1 for address, _, _ in pair.pulls if address == REPLICA])
    assert 1 <= asked <= 4, "one batch of pulls"
    assert pair.clock.monotonic() == 0


def test_a_replica_that_is_down_is_left_for_the_master_and_tried_again_later() -> None:
    pair = Pair()
    pair.down = {REPLICA}
    reader = pair.reader()
    assert pair.read(reader, 500)
    assert pair.clock.monotonic() == 0
    assert {address for address, _, _ in pair.pulls} == {MASTER}
    pair.down = set()
    pair.clock.advance(31)
    pair.read(reader, 1_000)
    assert REPLICA in {address for address, _, _ in pair.pulls}


def test_a_silent_replica_is_left_for_the_master() -> None:
    pair = Pair()
    original = pair.pull
    pair.pull = lambda address, *rest: [] if address == REPLICA else original(address, *rest)  # type: ignore[method-assign]
    assert pair.read(pair.reader(), 1_000) == list(range(1_000))
    assert pair.clock.monotonic() == pytest.approx(8), "one timeout of a pull"


# ---- offsets while there is no master -------------------------------------------------------------------------------


def test_while_there_is_no_master_the_replica_is_asked_at_once_and_one_by_one() -> None:
    pair = Pair()
    pair.has_master, pair.copied = False, 900
    assert pair.look() == [0, 900, 900, 5]
    assert (pair.client.max_offset(QUEUE), pair.client.min_offset(QUEUE)) == (900, 0)
    assert (pair.client.offset_for_time(QUEUE, 1), pair.client.committed_offset("g", QUEUE)) == (900, 5)
    assert not any(address == MASTER for address, _ in pair.asked)


def test_a_replica_that_ends_before_what_has_been_seen_is_behind_and_a_master_says_so() -> None:
    pair = Pair()
    pair.size = pair.copied = 700
    query = OffsetQuery(QUEUE, "max", at_least=800)
    assert pair.client.look_up([query]) == [700], "its topic was made anew"
    pair.has_master = False
    pair.clock.advance(60)
    (answer,) = pair.client.look_up([query])
    assert isinstance(answer, TransportError)
    assert "its replica ends at 700, before 800" in str(answer)
    assert pair.client.look_up([query._replace(at_least=700)]) == [700]


def test_that_a_replica_knows_no_offset_of_a_group_is_not_believed() -> None:
    # It may not have got yet, and a group without an offset would start at the end: messages would be lost.
    pair = Pair()
    pair.has_master, pair.committed = False, None
    answer = pair.look()[3]
    assert isinstance(answer, TransportError)
    assert "may not have received yet" in str(answer)
    with pytest.raises(TransportError, match="may not have received yet"):
        pair.client.committed_offset("g", QUEUE)


def test_that_a_replica_has_nothing_of_a_topic_it_does_not_know_is_not_believed() -> None:
    pair = Pair()
    pair.has_master, pair.copied = False, 0
    assert pair.look()[:3] == [0, 0, 0]
    assert pair.client.max_offset(QUEUE) == 0
    pair.knows_topic = False
    assert pair.look()[0] == 0
    assert all("does not have topic 't'" in str(answer) for answer in pair.look()[1:3])
    with pytest.raises(TransportError, match="does not have topic 't'"):
        pair.client.max_offset(QUEUE)


def test_offsets_are_committed_at_a_master_only() -> None:
    pair = Pair()
    pair.has_master = False
    (error,) = pair.client.commit_offsets("g", {QUEUE: 1}).values()
    assert isinstance(error, TransportError)
    assert "no name server knows a master" in str(error)
    assert not any(code == RequestCode.UPDATE_CONSUMER_OFFSET for _, code in pair.asked)


def test_a_master_that_is_refused_and_gone_from_the_route_is_replaced_by_its_replica_in_the_same_look() -> None:
    pair = Pair()
    pair.copied = 900
    assert pair.look()[1] == 1_000
    pair.down, pair.has_master = {MASTER}, False
    pair.client._pool.connection(MASTER).close()
    pair.client._pool._connections.pop(MASTER)
    assert pair.look() == [0, 900, 900, 5]
    assert pair.clock.monotonic() == pytest.approx(0.05 + 0.1 + 0.2), "its tries, all queries together"


def test_a_reader_of_a_replica_returns_to_the_master_when_that_is_back() -> None:
    pair = Pair()
    pair.has_master, pair.copied, pair.master_suggests = False, 100, 0
    reader = pair.reader()
    assert pair.read(reader, 100) == list(range(100))
    pair.has_master = True
    for _ in range(80):
        pair.clock.advance(1)
        pair.client.wait([reader], 1)
        if reader.poll() is not None:
            break
    assert pair.read(reader, 1_000)[-1] == 999


def test_no_replica_is_read_where_the_options_say_so() -> None:
    pair = Pair(replica_reads=False)
    pair.size = 100
    assert pair.read(pair.reader(), 100) == list(range(100)), "whatever the master suggests"
    assert {address for address, _, _ in pair.pulls} == {MASTER}
    pair.has_master = False
    pair.clock.advance(60)
    assert all(isinstance(answer, TransportError) for answer in pair.look())
    with pytest.raises(TransportError, match="no name server knows a master"):
        pair.client.max_offset(QUEUE)


def test_a_start_waits_for_a_replica_that_does_not_have_what_the_group_has_read() -> None:
    pair = Pair()
    pair.copied, pair.committed, pair.has_master = 990, "1000", False
    start = StartFrom.group_offsets("latest")

    def resolve(queue: MessageQueue, lookup: OffsetLookup) -> int:
        return start.resolve(queue, lookup, group="g", on_out_of_range="earliest")

    found = resolve_all([QUEUE], pair.client, resolve)[QUEUE]
    assert isinstance(found, TransportError)
    assert "its replica ends at 990, before 1000" in str(found)
    pair.copied = 1_000
    assert resolve_all([QUEUE], pair.client, resolve) == {QUEUE: 1_000}
