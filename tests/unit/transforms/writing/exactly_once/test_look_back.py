"""A bundle that failed is run again, by a new instance or the same one: what is already there is not sent again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.pvalue import TaggedOutput

from rmqio.errors import RmqioError, TransportError
from rmqio.model import Message
from rmqio.repeats import Attempt, LookBack
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.writing import sink_state as sinks
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.sink_state import Sink, SinkState, state_of
from tests.helpers.transforms.writing_once import GROUP, NORMAL, REPEAT, Writer, bodies, new_process, sink_of

pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.mark.parametrize("forget", [new_process, lambda sink: None], ids=["in another process", "in this process"])
def test_what_a_failed_bundle_has_sent_is_not_sent_again(
    cluster: InMemoryCluster, forget: Callable[[Sink], None]
) -> None:
    first = Writer(cluster)
    first.begin()
    first.process(range(10))  # nine are stored, in three batches; then the process is killed
    assert bodies(cluster) == [*range(9)]
    forget(first.sink)
    second = Writer(cluster)
    second.run(range(12))
    assert bodies(cluster) == [*range(12)]


def test_the_results_of_what_is_there_are_where_it_is(cluster: InMemoryCluster) -> None:
    first = Writer(cluster)
    first.run(range(3))
    second = Writer(cluster)
    second.begin()
    results = [
        each.value for each in [*second.process(range(3)), *second.outputs()] if not isinstance(each, TaggedOutput)
    ]
    stored = {record.message_id: (record.queue, record.queue_offset) for record in cluster.records("t")}
    assert {result.message_id: (result.queue, result.queue_offset) for result in results} == stored
    assert len(results) == 3


def test_the_first_writer_commits_the_end_before_it_sends(cluster: InMemoryCluster) -> None:
    for number in range(100, 104):
        cluster.append("t", b"%d" % number)
    client = InMemoryClientFactory(cluster.name).queue_client()
    ends = {queue: client.max_offset(queue) for queue in client.queues("t")}
    sink = Sink(InMemoryClientFactory(cluster.name), GROUP, LookBack(), 2**42)  # built after they were stored
    Writer(cluster, sink).run(range(3))
    assert {queue: cluster.committed(GROUP, queue) for queue in ends} == ends


# ---- when it looks --------------------------------------------------------------------------------------------------


def test_a_runner_that_knows_says_when_to_look(cluster: InMemoryCluster) -> None:
    writer = Writer(cluster, attempt=NORMAL)
    writer.run(range(3))
    writer.run(range(3))  # would be a mistake of the runner's: nobody looks
    assert bodies(cluster) == [0, 0, 1, 1, 2, 2]
    writer.attempt = REPEAT
    writer.run(range(4))
    assert bodies(cluster) == [0, 0, 1, 1, 2, 2, 3]
    writer.attempt = NORMAL
    writer.run(range(4, 5))
    assert state_of(writer.sink).known is None, "memory is given back"


def test_where_the_runner_does_not_know_an_instance_looks_once(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    look_back = SinkState.look_back

    def noted(self: SinkState, topic: str, **how: bool) -> int:
        looks.append(topic)
        return look_back(self, topic, **how)

    monkeypatch.setattr(SinkState, "look_back", noted)
    writer = Writer(cluster)
    for begin in range(0, 30, 10):
        writer.run(range(begin, begin + 10))
    assert looks == ["t"]


def test_an_instance_that_is_over_and_its_successor_write_nothing_twice(cluster: InMemoryCluster) -> None:
    """In one process, taking turns: what either has sent the other one finds."""
    old = Writer(cluster)
    old.begin()
    old.process(range(4))
    new = Writer(cluster)
    new.begin()
    new.process(range(7))
    old.process(range(4, 13))
    new.process(range(7, 13))
    old.finish()
    new.finish()
    assert bodies(cluster) == [*range(13)]


def test_a_look_back_that_is_too_long_is_an_error(cluster: InMemoryCluster) -> None:
    sink = sink_of(cluster, max_messages=5)
    Writer(cluster, sink).run(range(6))
    new_process(sink)
    with pytest.raises(RmqioError, match=r"over 6 messages, more than LookBack.max_messages=5"):
        Writer(cluster, sink).run(range(6))


def test_nothing_is_sent_while_a_queue_cannot_be_looked_at(cluster: InMemoryCluster) -> None:
    Writer(cluster).run(range(3))
    sinks._states.clear()
    writer = Writer(cluster, sink_of(cluster, outage_timeout_s=0.01))
    cluster.fail_next("max_offset", TransportError("away"), times=1_000)
    with pytest.raises(TransportError):
        writer.run(range(6))
    assert bodies(cluster) == [0, 1, 2]


def test_since_looks_further_back_than_the_position(cluster: InMemoryCluster) -> None:
    """A bounded pipeline has no position: when a user starts it again, they say from when."""
    first = Sink(InMemoryClientFactory(cluster.name), None, LookBack(), 0)
    Writer(cluster, first).run(range(3))
    later = 2**42  # built long after
    Writer(cluster, Sink(first.factory, None, LookBack(since=0), later)).run(range(5))
    assert bodies(cluster) == [*range(5)]
    Writer(cluster, Sink(first.factory, None, LookBack(), later)).run(range(1))
    assert bodies(cluster) == [0, *range(5)], "nothing says that these are the same messages"


# ---- several topics, several looks ----------------------------------------------------------------------------------


class FanOut(Writer):
    """Each number goes to both topics, with one id."""

    def __init__(self, cluster: InMemoryCluster, sink: Sink | None = None, attempt: Attempt | None = None) -> None:
        super().__init__(cluster, sink, attempt)
        self.fn.teardown()
        self.fn = self.made_fn(MessageMaker(None, id_fn=lambda message: message.keys[0]))
        self.fn.setup()

    def process(self, numbers: range) -> list[Any]:
        for topic in ("t", "u"):
            self.give([Message(b"%d" % number, topic=topic, keys=(f"id-{number}",)) for number in numbers])
        return []


def test_what_is_in_one_topic_is_not_taken_for_what_is_in_another(cluster: InMemoryCluster) -> None:
    cluster.create_topic("u", 4)
    Writer(cluster).run(range(6))  # the same ids, and killed before it comes to the other topic
    sinks._states.clear()
    FanOut(cluster).run(range(8))
    for topic in ("t", "u"):
        assert sorted(int(record.body) for record in cluster.records(topic)) == [*range(8)]


def test_a_run_that_is_started_again_by_hand_looks_whatever_its_runner_says(cluster: InMemoryCluster) -> None:
    first = Sink(InMemoryClientFactory(cluster.name), None, LookBack(), 0)
    plain = Attempt(may_be_repeat=False)
    Writer(cluster, first, plain).run(range(3))
    sinks._states.clear()
    again = Sink(first.factory, None, LookBack(since=0), 2**42)
    Writer(cluster, again, plain).run(range(2))
    Writer(cluster, again, plain).run(range(2, 5))
    assert bodies(cluster) == [*range(5)]


def test_bundles_of_one_attempt_look_once(cluster: InMemoryCluster) -> None:
    writer = Writer(cluster, attempt=REPEAT)
    for begin in range(0, 15, 3):
        writer.run(range(begin, begin + 3))
    assert state_of(writer.sink).generations == {"t": 1}
    writer.attempt = Attempt(True, commits_together=True)
    writer.run(range(18))
    assert state_of(writer.sink).generations == {"t": 2}
    assert bodies(cluster) == [*range(18)]


def test_what_was_sent_while_several_take_turns_is_counted_once(cluster: InMemoryCluster) -> None:
    sink = sink_of(cluster, max_messages=12)
    first, second = Writer(cluster, sink), Writer(cluster, sink)
    first.run(range(3))
    second.run(range(3, 6))
    first.run(range(6, 12))
    Writer(cluster, sink).run(range(12))
    assert bodies(cluster) == [*range(12)]
