"""The position of a sink, from which it looks back: when it moves, and when it stays."""

from __future__ import annotations

import dataclasses
import logging
import tracemalloc
from typing import Literal

import pytest

from rmqio import repeats
from rmqio.errors import QueueGone, QueueNotReadable, RmqioError, SetupError
from rmqio.model import MessageQueue
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.transforms.reading.commits import commit_positions
from rmqio.transforms.writing import sink_state as sinks
from rmqio.transforms.writing.sink_state import state_of
from tests.helpers.transforms.writing_once import GROUP, NORMAL, Writer, bodies, position, sink_of

pytestmark = pytest.mark.usefixtures("both_ways")


def test_where_all_is_committed_together_the_position_follows_each_commit(cluster: InMemoryCluster) -> None:
    writer = Writer(cluster, attempt=NORMAL)
    marks = writer.run(range(12))
    assert position(cluster) == 0
    writer.commit(marks)
    assert position(cluster) == 12


def test_elsewhere_it_stays_a_commit_behind(cluster: InMemoryCluster) -> None:
    """Messages that this bundle has seen in the sink may lie behind what others send for the next commit."""
    writer = Writer(cluster)
    marks = [writer.run(range(begin, begin + 12)) for begin in (0, 12)]
    for each in marks:
        writer.commit(each)
    assert position(cluster) == 0, "both are of the same commit, for all that is known"
    writer.commit(writer.run(range(24, 36)))
    assert position(cluster) == 24
    writer.commit(writer.run(range(36, 48)))
    assert position(cluster) == 36


def test_it_waits_until_what_a_restart_reads_again_is_committed(cluster: InMemoryCluster) -> None:
    sink, source = dataclasses.replace(sink_of(cluster), reads=("r",)), MessageQueue("source", "b", 0)
    writer = Writer(cluster, sink)
    moved = []
    for begin in range(0, 60, 12):
        writer.begin()
        repeats.note_begin("r", source, "g")
        writer.process(range(begin, begin + 12))
        marks = writer.finish()
        repeats.note_end("r", source, begin, begin + 12)
        if begin == 24:
            repeats.note_commit("g", source, 24)  # but for the last bundle
        writer.commit(marks)
        moved.append(position(cluster))
    assert moved == [0, 0, 24, 24, 24]
    repeats.note_commit("g", source, 60)
    writer.commit(writer.run(range(60, 72)))
    assert position(cluster) == 60


def test_a_read_that_has_failed_in_a_bundle_holds_it_back(cluster: InMemoryCluster) -> None:
    sink, source = dataclasses.replace(sink_of(cluster), reads=("s",)), MessageQueue("source", "b", 0)
    repeats.note_begin("s", source, "h")
    writer = Writer(cluster, sink)
    for begin in (0, 12, 24):
        writer.commit(writer.run(range(begin, begin + 12)))
    assert position(cluster) == 0
    repeats.note_begin("s", source, "h")  # it is run again
    repeats.note_end("s", source, 0, 36)
    repeats.note_commit("h", source, 36)
    writer.commit(writer.run(range(36, 48)))
    assert position(cluster) == 36


def test_an_end_is_tolerated_whose_begin_another_one_has_ended(cluster: InMemoryCluster) -> None:
    read, source = cluster.name, MessageQueue("source", "b", 0)
    for _ in range(2):
        repeats.note_begin(read, source, "g")
    repeats.note_end(read, source, 0, 5)
    repeats.note_commit("g", source, 5)
    repeats.note_end(read, source, 5, 9)
    assert repeats.first_uncommitted([read]) is None


def test_it_waits_until_a_broker_has_written_the_commits_of_reads(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is killed loses those of its last 5 s, and then a restart reads more."""
    clock = ManualClock()
    monkeypatch.setattr(sinks, "time", clock)
    monkeypatch.setattr(sinks, "_HELD_S", 15.0)
    writer = Writer(cluster, attempt=NORMAL)
    moved = []
    for begin in range(0, 60, 12):
        writer.commit(writer.run(range(begin, begin + 12)))
        moved.append(position(cluster))
        clock.advance(5)
    assert moved == [0, 0, 0, 12, 24]


def test_it_waits_as_long_as_the_commits_of_reads_can_be_late(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that starts without its checkpoint goes on from the last one."""
    clock = ManualClock()
    monkeypatch.setattr(sinks, "time", clock)
    monkeypatch.setattr(sinks, "_HELD_S", 15.0)
    writer = Writer(cluster, dataclasses.replace(sink_of(cluster), commits_s=60.0), NORMAL)
    moved = []
    for begin in range(0, 60, 12):
        writer.commit(writer.run(range(begin, begin + 12)))
        moved.append(position(cluster))
        clock.advance(35)
    assert moved == [0, 0, 12, 24, 36]


QUEUE = MessageQueue("t", "broker-a", 0)
SOURCE = MessageQueue("source", "broker-a", 0)


@pytest.mark.parametrize(
    ("name", "notes", "commits", "is_open", "why"),
    [
        ("all is committed", True, "g", False, None),
        ("commits fail", True, "g", False, f"what was read of {SOURCE} is not committed"),
        ("a bundle never ends", True, "g", True, f"what was read of {SOURCE} is not committed"),
        ("from the start", True, None, False, f"a read of {SOURCE} does not resume from committed offsets"),
        ("elsewhere", False, None, False, "nobody knows which elements come again"),
        ("checkpoints", None, None, False, None),
    ],
    ids=["all is committed", "commits fail", "a bundle never ends", "from the start", "elsewhere", "checkpoints"],
)
def test_what_waits_stays_small(
    cluster: InMemoryCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    notes: bool | None,
    commits: str | None,
    is_open: bool,
    why: str | None,
) -> None:
    """Two hours in which bundles end each second. A position that does not move is told now and then."""
    clock, read = ManualClock(), cluster.name  # another one for each test
    commits = commits and cluster.name
    reads = None if notes is None else (read,) * notes
    monkeypatch.setattr(sinks, "time", clock)
    monkeypatch.setattr(sinks, "_HELD_S", 3_600.0 if reads is None else 15.0)
    sink = dataclasses.replace(sink_of(cluster), reads=reads)
    state, hours = state_of(sink), 7_200

    def second(number: int) -> None:
        if notes:
            repeats.note_begin(read, SOURCE, commits)
        if notes and not is_open:
            repeats.note_end(read, SOURCE, number, number + 1)
        state.move({QUEUE: number}, repeats.tick())
        if name == "all is committed":
            repeats.note_commit(commits, SOURCE, number - 5)
        clock.advance(1)

    tracemalloc.start()
    try:
        for number in range(hours):
            second(number)
        made = [tracemalloc.Filter(True, str(module.__file__)) for module in (sinks, repeats)]
        held = tracemalloc.take_snapshot().filter_traces(made).statistics("filename")
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in held) < 150_000
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    if why is None:
        assert not told
        assert position(cluster) > (3_400 if reads is None else hours - 25)
        return
    assert 2 < len(told) < 13
    assert all(why in each for each in told)
    assert position(cluster) == 0
    if commits is not None:  # the broker of the source answers again
        if is_open:
            repeats.note_end(read, SOURCE, 0, hours)
        repeats.note_commit(commits, SOURCE, hours)
        for number in (hours, hours + 1):
            state.move({QUEUE: number}, repeats.tick())
            clock.advance(20)
        assert position(cluster) > hours * 0.95


@pytest.mark.parametrize("asked", ["committed_offset", "commit_offset"])
@pytest.mark.parametrize(
    ("error", "moved"),
    [
        (None, 36),
        (QueueGone("removed"), 36),
        (QueueNotReadable("its permission is 2"), 0),
        (SetupError("TLS: cannot read the certificate authorities"), 0),
    ],
)
def test_only_a_queue_that_is_gone_holds_nothing_back(
    cluster: InMemoryCluster, asked: Literal["committed_offset", "commit_offset"], error: RmqioError | None, moved: int
) -> None:
    """A restart reads what is not committed of the others. None: the topic is deleted."""
    cluster.create_topic("source", 1)
    factory, read = InMemoryClientFactory(cluster.name), cluster.name  # another one for each test
    sink = dataclasses.replace(sink_of(cluster), reads=(read,))
    repeats.note_begin(read, SOURCE, (factory, "g"))
    repeats.note_end(read, SOURCE, 0, 5)
    writer = Writer(cluster, sink)
    for begin in (0, 12, 24):
        writer.commit(writer.run(range(begin, begin + 12)))
    assert position(cluster) == 0
    if error is None:
        cluster.delete_topic("source")
    else:
        cluster.fail_next(asked, error, queue=SOURCE)
    commit_positions(factory, "g", {SOURCE: 5})
    writer.commit(writer.run(range(36, 48)))
    assert position(cluster) == moved


def test_it_stays_while_work_may_be_left_that_is_to_be_repeated(cluster: InMemoryCluster) -> None:
    """This commit covers a part of what the last run sent; if it fails again, the rest must still be found."""
    Writer(cluster).run(range(12))
    sinks._states.clear()
    writer = Writer(cluster)
    for begin in (0, 12, 24, 36):
        writer.commit(writer.run(range(begin, begin + 6)))
    assert position(cluster) == 0
    sinks._states.clear()
    Writer(cluster).run(range(6, 12))
    assert len(bodies(cluster)) == len(set(bodies(cluster)))


def test_it_moves_on_when_that_time_is_over(cluster: InMemoryCluster) -> None:
    Writer(cluster).run(range(12))
    sinks._states.clear()
    writer = Writer(cluster, sink_of(cluster, redo_within_s=1e-6))
    for begin in (12, 24, 36):
        writer.commit(writer.run(range(begin, begin + 12)))
    assert position(cluster) == 36


def test_a_mark_of_another_process_moves_it_too(cluster: InMemoryCluster) -> None:
    """Spark's driver is told by its workers."""
    writer = Writer(cluster, attempt=NORMAL)
    marks = writer.run(range(12))
    sinks._states.clear()
    writer.commit(marks)
    assert position(cluster) == 12


def test_a_position_behind_the_end_is_one_of_a_topic_that_is_no_more(cluster: InMemoryCluster) -> None:
    client = InMemoryClientFactory(cluster.name).queue_client()
    for queue in client.queues("t"):
        client.commit_offset(GROUP, queue, 1_000)
    Writer(cluster).run(range(3))
    sinks._states.clear()
    Writer(cluster).run(range(4))
    assert bodies(cluster) == [*range(4)]


def test_the_position_moves_though_instances_are_renewed(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam gives up an instance that has been idle for a minute; the next one looks, as after a failure."""
    clock = ManualClock()
    monkeypatch.setattr(sinks, "time", clock)
    sink = sink_of(cluster, redo_within_s=30)
    for begin in range(0, 200, 10):
        writer = Writer(cluster, sink)
        writer.commit(writer.run(range(begin, begin + 10)))
        clock.advance(60)
    state = state_of(sink)
    assert bodies(cluster) == [*range(200)]
    assert position(cluster) >= 160
    assert state.known is not None
    assert len(state.known["t"]) <= 40, "what is committed is forgotten"
