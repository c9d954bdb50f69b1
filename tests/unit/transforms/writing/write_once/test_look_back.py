"""Exactly-once writes on the in-memory cluster: a bundle that fails is run again, by a new instance or the same."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import WriteToRocketMQ
from rmqio.attempts import Attempt, running
from rmqio.errors import BrokerSystemError, LocalError, RequestTimeout, RmqioError, SystemBusy, TransportError
from rmqio.look_back import LookBack
from rmqio.model import Message
from rmqio.options import WriteOptions
from rmqio.runners.capabilities import Requirement
from rmqio.runners.requirements import requirements_of
from rmqio.sending import certain
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.transforms.writing import sink as sinks
from rmqio.transforms.writing import write_once
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.sink import Sink, SinkState, state_of
from rmqio.transforms.writing.write_fn import WriteFn
from rmqio.transforms.writing.write_once import committed

GROUP = "position"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory nothing is on its way, and the position is committed each time."""
    for module in (sinks, write_once):
        monkeypatch.setattr(module, "LANDING_S", 0.0)
    monkeypatch.setattr(sinks, "_COMMIT_EVERY_S", 0.0)
    monkeypatch.setattr(certain, "_PAUSE_S", 0.0)
    sinks._states.clear()


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        made.create_topic("t", 4)
        yield made


def sink_of(cluster: InMemoryCluster, **look_back: Any) -> Sink:
    return Sink(InMemoryClientFactory(cluster.name), GROUP, LookBack(**look_back), 0)


class Writer:
    """One instance of the DoFn; three messages a batch."""

    def __init__(self, cluster: InMemoryCluster, sink: Sink | None = None, attempt: Attempt | None = None) -> None:
        self.cluster, self.sink, self.attempt = cluster, sink or sink_of(cluster), attempt
        fn = WriteFn(
            MessageMaker("t", id_fn=lambda body: f"id-{body.decode()}"),
            InMemoryClientFactory(cluster.name),
            "g",
            WriteOptions(max_batch_messages=3),
            sink=self.sink,
        )
        self.fn = fn
        self.fn.setup()

    def begin(self) -> None:
        with self._attempt():
            self.fn.start_bundle()

    def process(self, numbers: range) -> list[Any]:
        found: list[Any] = []
        for number in numbers:
            body = b"%d" % number
            found += self.fn.process(body, WindowedValue(body, 0, (GlobalWindow(),))) or []
        return found

    def finish(self) -> list[bytes]:
        """The marks."""
        outputs = list(self.fn.finish_bundle())
        return [each.value.value for each in outputs if isinstance(each, TaggedOutput) and each.tag == "marks"]

    def run(self, numbers: range) -> list[bytes]:
        self.begin()
        self.process(numbers)
        return self.finish()

    def commit(self, marks: list[bytes]) -> None:
        for mark in marks:
            pickle.loads(pickle.dumps(committed))(self.sink, mark)

    def _attempt(self) -> Any:
        return nullcontext() if self.attempt is None else running(self.attempt)


def bodies(cluster: InMemoryCluster) -> list[int]:
    return sorted(int(record.body) for record in cluster.records("t"))


def position(cluster: InMemoryCluster) -> int:
    return sum(
        cluster.committed(GROUP, queue) or 0 for queue in InMemoryClientFactory(cluster.name).queue_client().queues("t")
    )


def new_process(sink: Sink) -> None:
    """Forgets what this process knows of it."""
    sinks._states.clear()


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
        each.value
        for each in [*second.process(range(3)), *second.fn.finish_bundle()]
        if not isinstance(each, TaggedOutput)
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

NORMAL, REPEAT = Attempt(False, commits_together=True), Attempt(True, commits_together=True)


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


def test_nothing_is_repeated_while_a_broker_is_away_that_has_some_of_it(cluster: InMemoryCluster) -> None:
    """A name server soon forgets it, and its queues are not even missing."""
    queues = cluster.create_topic("t", 2, ["broker-b"])
    Writer(cluster).run(range(30))
    assert {record.broker for record in cluster.records("t")} == {"broker-a", "broker-b"}
    sinks._states.clear()
    writer = Writer(cluster, sink_of(cluster, outage_timeout_s=0.01))
    away = [queue for queue in queues if queue.broker == "broker-b"]
    cluster._topics["t"].permission["broker-b"] = 0
    with pytest.raises(TransportError, match=f"{len(away)} of {len(queues)} queues of topic 't' are unavailable"):
        writer.run(range(30))
    cluster._topics["t"].permission["broker-b"] = 6
    Writer(cluster).run(range(33))
    assert bodies(cluster) == [*range(33)]


# ---- the position ---------------------------------------------------------------------------------------------------


def test_where_all_is_committed_together_the_position_follows_each_commit(cluster: InMemoryCluster) -> None:
    writer = Writer(cluster, attempt=NORMAL)
    marks = writer.run(range(12))
    assert position(cluster) == 0
    writer.commit(marks)
    assert position(cluster) == 12


def test_elsewhere_it_stays_a_commit_behind(cluster: InMemoryCluster) -> None:
    """What this bundle has seen in the sink may lie behind what others send for the next commit."""
    writer = Writer(cluster)
    marks = [writer.run(range(begin, begin + 12)) for begin in (0, 12)]
    for each in marks:
        writer.commit(each)
    assert position(cluster) == 0, "both are of the same commit, for all that is known"
    writer.commit(writer.run(range(24, 36)))
    assert position(cluster) == 24
    writer.commit(writer.run(range(36, 48)))
    assert position(cluster) == 36


def test_it_stays_while_work_may_be_left_that_is_to_be_repeated(cluster: InMemoryCluster) -> None:
    """Of what the last run sent, this commit covers a part; if it fails again, the rest must still be found."""
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


# ---- unknown outcomes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [RequestTimeout("no answer"), TransportError("reset"), BrokerSystemError(1, "?", "send")]
)
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_send_of_unknown_outcome_is_looked_up(cluster: InMemoryCluster, error: RmqioError, is_stored: bool) -> None:
    writer = Writer(cluster)
    writer.run(range(3))
    writer.begin()
    cluster.fail_next("send", error, after=is_stored)
    writer.process(range(3, 6))
    writer.finish()
    assert bodies(cluster) == [*range(6)]


def test_the_broker_is_waited_for_before_anything_is_sent_elsewhere(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t", 4, ["broker-a", "broker-b"])
    writer = Writer(cluster)
    writer.run(range(3))
    writer.begin()
    cluster.fail_next("send", RequestTimeout("no answer"), after=True)
    cluster.fail_next("max_offset", TransportError("away"), times=5)
    writer.run(range(3, 6))
    assert bodies(cluster) == [*range(6)]


def test_a_broker_that_does_not_come_back_fails_the_bundle(cluster: InMemoryCluster) -> None:
    writer = Writer(cluster, sink_of(cluster, outage_timeout_s=0.05))
    writer.run(range(3))
    writer.begin()
    cluster.fail_next("send", RequestTimeout("no answer"), after=True)
    cluster.fail_next("max_offset", TransportError("away"), times=1_000_000)
    with pytest.raises(TransportError):
        writer.run(range(3, 6))


def test_a_busy_broker_is_tried_again(cluster: InMemoryCluster) -> None:
    writer = Writer(cluster)
    cluster.fail_next("send", SystemBusy(2, "busy", "send"), times=3)
    writer.run(range(6))
    assert bodies(cluster) == [*range(6)]
    cluster.fail_next("send", SystemBusy(2, "busy", "send"), times=4)
    with pytest.raises(SystemBusy):
        writer.run(range(6, 9))


# ---- the transform --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exactly_once": LookBack()}, "needs a group that no other pipeline writes with"),
        ({"exactly_once": LookBack("g"), "options": WriteOptions(asynchronous=True)}, "waits for each batch"),
        ({"exactly_once": LookBack("g"), "backend": "librocketmq"}, "repeats sends by itself"),
        ({"exactly_once": True}, "must be rmqio.LookBack"),
        ({"exactly_once": LookBack("no group")}, "group"),
        ({"exactly_once": LookBack("g" * 118)}, "group"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        WriteToRocketMQ("t", name_server="h:1", **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"group": 1},
        {"since": "now"},
        {"since": dt.datetime(2026, 1, 1)},
        {"since": -1},
        {"redo_within_s": 0},
        {"redo_within_s": float("nan")},
        {"outage_timeout_s": float("inf")},
        {"max_messages": 1.5},
    ],
)
def test_a_look_back_is_checked(arguments: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match=f"LookBack.{next(iter(arguments))} is "):
        LookBack(**arguments)


@pytest.mark.parametrize("flags", [[], ["--streaming"]], ids=["bounded", "stream"])
def test_a_pipeline_has_a_position_where_it_may_go_on(cluster: InMemoryCluster, flags: list[str]) -> None:
    """A finalizer in a bounded pipeline would make a stream of it on Flink."""
    with beam.Pipeline(FnApiRunner(), PipelineOptions(flags)) as pipeline:
        write = WriteToRocketMQ(
            "t",
            id_fn=lambda body: f"id-{body.decode()}",
            exactly_once=LookBack(GROUP),
            client_factory=InMemoryClientFactory(cluster.name),
        )
        _ = pipeline | beam.Create([b"%d" % number for number in range(10)]) | write
    proto = pipeline.to_runner_api()
    assert bodies(cluster) == [*range(10)]
    assert (Requirement.FINALIZATION in requirements_of(proto)) is bool(flags)
    assert {group for group, _, _ in cluster.commits} == ({GROUP, f"{GROUP}_queues"} if flags else set())


def test_a_delayed_message_cannot_be_found_and_goes_to_failed(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(FnApiRunner()) as pipeline:
        write = WriteToRocketMQ(
            "t", id_fn=str, exactly_once=LookBack(GROUP), client_factory=InMemoryClientFactory(cluster.name)
        )
        result = pipeline | beam.Create([Message(b"1", delay_level=1)]) | write
        assert_that(result.failed | beam.Map(lambda failed: failed.error), equal_to(["LocalError"]))
    assert bodies(cluster) == []


def test_what_is_in_the_sink_is_never_asked_of_a_replica_which_may_be_behind() -> None:
    exact = WriteToRocketMQ("t", name_server="h:1", id_fn=str, exactly_once=LookBack(group="g"))
    usual = WriteToRocketMQ("t", name_server="h:1")
    assert [each._backend_factory().options.replica_reads for each in (exact, usual)] == [False, True]  # type: ignore[attr-defined]


# ---- several topics, several looks ----------------------------------------------------------------------------------


class FanOut(Writer):
    """Each number goes to both topics, with one id."""

    def __init__(self, cluster: InMemoryCluster, sink: Sink | None = None, attempt: Attempt | None = None) -> None:
        super().__init__(cluster, sink, attempt)
        self.fn.teardown()
        maker = MessageMaker(None, id_fn=lambda message: message.keys[0])
        options = WriteOptions(max_batch_messages=3)
        self.fn = WriteFn(maker, InMemoryClientFactory(cluster.name), "g", options, sink=self.sink)
        self.fn.setup()

    def process(self, numbers: range) -> list[Any]:
        for topic in ("t", "u"):
            for number in numbers:
                message = Message(b"%d" % number, topic=topic, keys=(f"id-{number}",))
                list(self.fn.process(message, WindowedValue(message, 0, (GlobalWindow(),))) or ())
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


def test_what_was_sent_while_several_take_turns_is_counted_once(cluster: InMemoryCluster) -> None:
    sink = sink_of(cluster, max_messages=12)
    first, second = Writer(cluster, sink), Writer(cluster, sink)
    first.run(range(3))
    second.run(range(3, 6))
    first.run(range(6, 12))
    Writer(cluster, sink).run(range(12))
    assert bodies(cluster) == [*range(12)]


def test_a_topic_that_is_away_does_not_keep_others_from_sending(cluster: InMemoryCluster) -> None:
    (away,) = cluster.create_topic("u", 1)
    sink = sink_of(cluster)
    ready = Writer(cluster, sink)
    ready.run(range(3))
    cluster.fail_next("max_offset", TransportError("away"), times=10**6, queue=away)
    waits, go_on = threading.Event(), threading.Event()

    def sleep(_: float) -> None:
        waits.set()
        assert go_on.wait(30)
        raise KeyboardInterrupt

    other = write_once.WriteOnce(sink, lambda *_: None, sleep=sleep)

    def send() -> None:
        with suppress(KeyboardInterrupt), other.sending("u"):
            pass

    thread = threading.Thread(target=send)
    thread.start()
    assert waits.wait(30)
    ready.run(range(3, 6))  # it would wait for the other one's topic
    assert thread.is_alive()
    go_on.set()
    thread.join()
    assert bodies(cluster) == [*range(6)]
