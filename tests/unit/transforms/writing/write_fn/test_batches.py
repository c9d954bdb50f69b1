"""The DoFn itself: what is gathered, when it is sent, what comes out of which call."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, PaneInfo, PaneInfoTiming, WindowedValue

from rmqio.client.selection import queue_for_key
from rmqio.errors import LocalError, MessageIllegal, NoPermission, SystemBusy, TopicNotExist, TransportError
from rmqio.model import Message, MessageQueue, Record
from rmqio.options import WriteOptions
from rmqio.sending.producers import ProducerLease
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.transforms.writing import write_fn
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.write_fn import WriteFn
from rmqio.wire import accelerator
from tests.helpers.implementations import BOTH


class Bundles:
    """Runs a WriteFn on an in-memory cluster as a runner would."""

    def __init__(
        self, options: WriteOptions | None = None, maker: MessageMaker | None = None, **arguments: Any
    ) -> None:
        self.clock = ManualClock()
        self.cluster = InMemoryCluster(clock=self.clock)
        self.cluster.create_topic("t", 4)
        fn = WriteFn(
            maker or MessageMaker("t"),
            InMemoryClientFactory(self.cluster.name),
            "g",
            options or WriteOptions(),
            **arguments,
        )
        # As on a worker; the clock of a test does not pickle.
        self.fn: WriteFn = pickle.loads(pickle.dumps(fn))
        self.fn._clock = self.clock.monotonic
        self.fn.setup()
        self.outputs: list[Any] = []

    def process(self, *elements: Any) -> None:
        for element in elements:
            value = element if isinstance(element, WindowedValue) else WindowedValue(element, 0, (GlobalWindow(),))
            self.outputs += self.fn.process(value.value, value) or []

    def run(self, *elements: Any) -> None:
        self.fn.start_bundle()
        self.process(*elements)
        self.finish()

    def finish(self) -> None:
        self.outputs += self.fn.finish_bundle()

    @property
    def sent(self) -> list[WindowedValue]:
        return [output for output in self.outputs if not isinstance(output, TaggedOutput)]

    @property
    def failed(self) -> list[WindowedValue]:
        return [output.value for output in self.outputs if isinstance(output, TaggedOutput)]

    def records(self, topic: str = "t") -> list[Record]:
        return self.cluster.records(topic)

    def bodies(self, topic: str = "t") -> list[bytes]:
        return [record.body for record in self.records(topic)]


@pytest.fixture(params=BOTH, autouse=True)
def _implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_fn, "_usual_size", accelerator.usual_size if request.param == "c" else None)


@pytest.fixture
def bundles() -> Iterator[Bundles]:
    made = Bundles()
    yield made
    made.fn.teardown()
    assert made.cluster.open_clients == 0


def batches_of(records: list[Record]) -> set[MessageQueue]:
    return {record.queue for record in records}


def test_nothing_is_sent_before_a_batch_is_full_or_the_bundle_ends(bundles: Bundles) -> None:
    bundles.fn.start_bundle()
    bundles.process(b"a", b"b")
    assert bundles.bodies() == []
    assert bundles.outputs == []
    bundles.finish()
    assert bundles.bodies() == [b"a", b"b"]
    assert len(batches_of(bundles.records())) == 1  # one batch, one queue
    assert [output.value.message_id for output in bundles.sent] == [r.message_id for r in bundles.records()]


def test_max_batch_messages_bounds_a_batch() -> None:
    bundles = Bundles(WriteOptions(max_batch_messages=3))
    bundles.fn.start_bundle()
    bundles.process(*[b"%d" % i for i in range(4)])
    assert len(bundles.records()) == 3
    assert len(bundles.outputs) == 3  # given out at once, not at the end
    bundles.process(*[b"%d" % i for i in range(4, 12)])
    bundles.finish()
    assert sorted(len([r for r in bundles.records() if r.queue == q]) for q in batches_of(bundles.records())) == [3] * 4
    assert len(bundles.sent) == 12


def test_max_batch_bytes_bounds_a_batch() -> None:
    bundles = Bundles(WriteOptions(max_batch_bytes=1000))
    bundles.fn.start_bundle()
    bundles.process(*[b"x" * 300] * 3)
    assert len(bundles.records()) == 2
    bundles.process(b"y" * 1000)  # with its head larger than a batch: sent alone, and nobody waits for it
    assert sorted(map(len, bundles.bodies())) == [300, 300, 1000]
    bundles.finish()
    assert len(bundles.records()) == 4


def test_properties_count_into_the_size_of_a_batch() -> None:
    bundles = Bundles(WriteOptions(max_batch_bytes=1000))
    bundles.fn.start_bundle()
    bundles.process(*[Message(b"x", tags="t" * 100, keys=["k" * 100], properties={"p": "v" * 150})] * 3)
    assert len(bundles.records()) == 2
    bundles.finish()


def test_a_batch_that_is_too_large_after_all_is_split() -> None:
    """Sizes are estimated for ASCII; wide characters take up to four times as much."""
    bundles = Bundles(WriteOptions(max_batch_bytes=1 << 20))
    bundles.run(*[Message(b"x", properties={"p": "\U0001f600" * 7000}) for _ in range(100)])
    assert len(bundles.records()) == 100
    assert not bundles.failed


@pytest.mark.parametrize("asynchronous", [False, True])
def test_without_batches_messages_go_one_by_one(asynchronous: bool) -> None:
    bundles = Bundles(WriteOptions(batch_flush=False, asynchronous=asynchronous))
    bundles.fn.start_bundle()
    bundles.process(b"a", b"b", b"c")
    assert len(bundles.records()) == (2 if asynchronous else 3)
    bundles.finish()
    assert sorted(bundles.bodies()) == [b"a", b"b", b"c"]
    assert len(batches_of(bundles.records())) == 3
    assert len(bundles.sent) == 3


def test_topics_are_batched_apart(bundles: Bundles) -> None:
    bundles.cluster.create_topic("u", 4)
    bundles.run(b"a", Message(b"b", topic="u"), b"c", Message(b"d", topic="u"))
    assert (bundles.bodies("t"), bundles.bodies("u")) == ([b"a", b"c"], [b"b", b"d"])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_sharding_keys_go_to_javas_queues_and_keep_their_order(asynchronous: bool) -> None:
    bundles = Bundles(WriteOptions(max_batch_messages=3, asynchronous=asynchronous))
    bundles.run(*[Message(b"%d" % i, sharding_key=f"key-{i % 7}") for i in range(100)])
    queues = bundles.cluster.create_topic("t", 4)
    seen: dict[str, list[int]] = {}
    for record in bundles.records():
        assert record.sharding_key is not None
        assert record.queue == queue_for_key(queues, record.sharding_key)
        seen.setdefault(record.sharding_key, []).append(int(record.body))
    assert sum(map(len, seen.values())) == 100
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_a_large_or_delayed_message_of_a_key_does_not_overtake_it() -> None:
    bundles = Bundles(WriteOptions(max_batch_bytes=500))
    bundles.run(*[Message(body, sharding_key="k") for body in (b"1", b"2" * 600, b"3")])
    assert [body[:1] for body in bundles.bodies()] == [b"1", b"2", b"3"]


def test_delayed_messages_are_sent_alone_and_delayed(bundles: Bundles) -> None:
    at_ms = bundles.clock.time_ms() + 10_000
    bundles.fn.start_bundle()
    bundles.process(b"now", Message(b"level", delay_level=2), Message(b"at", deliver_at_ms=at_ms))
    assert len(bundles.outputs) == 2
    bundles.finish()
    assert bundles.bodies() == [b"now"]
    bundles.clock.advance(5)
    assert sorted(bundles.bodies()) == [b"level", b"now"]
    bundles.clock.advance(5)
    assert sorted(bundles.bodies()) == [b"at", b"level", b"now"]
    assert len(bundles.sent) == 3


def test_new_queues_are_used_and_keys_move_behind_what_was_sent_before() -> None:
    bundles = Bundles(WriteOptions(max_batch_messages=2, name_server_poll_interval_ms=1_000, asynchronous=True))
    bundles.fn.start_bundle()
    bundles.process(*[Message(b"%d" % i, sharding_key="k") for i in range(2)])
    bundles.process(Message(b"other", sharding_key="q"))
    queues = bundles.cluster.add_queues("t", 3)
    queues = bundles.cluster.create_topic("t", 7)
    bundles.clock.advance(2)
    bundles.process(*[Message(b"%d" % i, sharding_key="k") for i in range(2, 6)])
    bundles.finish()
    order = sorted((r for r in bundles.records() if r.sharding_key == "k"), key=lambda r: r.commit_log_offset)
    assert [int(record.body) for record in order] == list(range(6))
    assert {record.queue for record in order} == {queue_for_key(queues[:4], "k"), queue_for_key(queues, "k")}
    assert queue_for_key(queues[:4], "k") != queue_for_key(queues, "k")


def test_queues_are_refreshed_between_bundles() -> None:
    bundles = Bundles(WriteOptions(name_server_poll_interval_ms=1_000))
    bundles.run(b"a")
    bundles.cluster.add_queues("t", 4)
    bundles.clock.advance(2)
    for _ in range(8):
        bundles.run(b"b")
    assert len(batches_of(bundles.records())) == 8


OTHER_PANE = PaneInfo(False, False, PaneInfoTiming.LATE, 3, 1)
FIRST, SECOND = IntervalWindow(0, 10), IntervalWindow(5, 15)


def test_outputs_keep_window_timestamp_and_pane(bundles: Bundles) -> None:
    good = WindowedValue(b"good", Timestamp(7), (FIRST,), OTHER_PANE)
    bad = WindowedValue({"not": "bytes"}, Timestamp(8), (SECOND,), OTHER_PANE)
    refused = WindowedValue(Message(b"x", topic="missing"), Timestamp(9), (SECOND,), OTHER_PANE)
    bundles.run(good, bad, refused)
    (sent,) = bundles.sent
    assert (sent.timestamp, sent.windows, sent.pane_info) == (Timestamp(7), (FIRST,), OTHER_PANE)
    assert [(f.timestamp, f.windows, f.pane_info) for f in bundles.failed] == [
        (Timestamp(8), (SECOND,), OTHER_PANE),
        (Timestamp(9), (SECOND,), OTHER_PANE),
    ]


def test_each_output_of_a_batch_keeps_its_own_window_timestamp_and_pane(bundles: Bundles) -> None:
    """Elements of one batch that differ in one of them, and some that agree in all with the one before."""
    times, windows, panes = (Timestamp(7), Timestamp(8)), ((FIRST,), (SECOND,)), (OTHER_PANE, PANE_INFO_UNKNOWN)
    origins = [origin for origin in product(times, windows, panes) for _ in range(2)]
    origins += [(Timestamp(7), (IntervalWindow(0, 10),), OTHER_PANE)]  # equal, and not the same
    bundles.run(*[WindowedValue(Message(b"%d" % i), *origin) for i, origin in enumerate(origins)])
    assert len(batches_of(bundles.records())) == 1
    of_id = {record.message_id: int(record.body) for record in bundles.records()}
    found = {of_id[sent.value.message_id]: (sent.timestamp, sent.windows, sent.pane_info) for sent in bundles.sent}
    assert [found[i] for i in range(len(origins))] == origins


def test_while_an_element_of_several_windows_is_processed_nothing_is_given_out() -> None:
    """Beam would multiply the windows of the outputs by those of the element."""
    bundles = Bundles(WriteOptions(max_batch_messages=1))
    bundles.fn.start_bundle()
    bundles.process(*[WindowedValue(b"x", Timestamp(7), (FIRST, SECOND))] * 3)
    assert len(bundles.records()) == 2
    assert bundles.outputs == []
    bundles.process(WindowedValue(b"y", Timestamp(7), (FIRST,)))
    assert [output.windows for output in bundles.outputs] == [(FIRST, SECOND)] * 3
    bundles.finish()
    assert len(bundles.sent) == len(bundles.records()) == 4


def boom(element: Any) -> Any:
    raise RuntimeError(f"cannot do {element}")


@pytest.mark.parametrize(
    ("maker", "element", "error", "reason", "topic", "has_message"),
    [
        (MessageMaker("t", serializer=boom), 5, "RuntimeError", "cannot do 5", None, False),
        (MessageMaker("t", id_fn=boom), b"5", "RuntimeError", "cannot do b'5'", None, False),
        (MessageMaker(), Message(b"5"), "LocalError", "no topic", None, True),
        (MessageMaker(), b"5", "LocalError", "no topic", None, False),
        (MessageMaker("t"), 5, "SerdeError", "cannot write int", None, False),
        (MessageMaker("t"), Message("text"), "LocalError", "must be bytes", "t", False),  # type: ignore[arg-type]
        (MessageMaker("t"), Message(None, topic="t"), "TypeError", "has no len", "t", False),  # type: ignore[arg-type]
        (MessageMaker("t"), Message(b""), "LocalError", "empty", "t", True),
        (MessageMaker("t"), Message(b"5", properties={"UNIQ_KEY": "1"}), "LocalError", "reserved", "t", True),
        (MessageMaker("t"), Message(b"5", keys=["a b"]), "LocalError", "white space", "t", True),
        (MessageMaker("t"), Message(b"5", delay_level=99), "LocalError", "delay_level 99", "t", True),
        (MessageMaker("t"), Message(b"5", properties={"p": "v" * 33_000}), "LocalError", "at most 32000", "t", True),
        (MessageMaker("t"), Message(b"5", topic="not legal"), "LocalError", "illegal", "not legal", True),
        (MessageMaker("t"), Message(b"5", topic="missing"), "TopicNotExist", "No topic route", "missing", True),
        (MessageMaker("t"), Message(b"5", topic="missing", sharding_key="k"), "TopicNotExist", "", "missing", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("batch_flush", [True, False])
def test_what_cannot_be_sent_fails_and_the_rest_goes_on(
    caplog: pytest.LogCaptureFixture,
    maker: MessageMaker,
    element: Any,
    error: str,
    reason: str,
    topic: str | None,
    has_message: bool,
    batch_flush: bool,
) -> None:
    bundles = Bundles(WriteOptions(batch_flush=batch_flush), maker)
    good = Message(b"good", topic="t") if maker.id_fn is None else None
    with caplog.at_level(logging.WARNING, "rmqio.transforms"):
        bundles.run(*[e for e in (good, element, good) if e is not None])
    (failure,) = (output.value for output in bundles.failed)
    assert failure.error == error
    assert reason in failure.reason
    assert failure.topic == topic
    assert failure.element[:900] == repr(element)[:900]
    assert failure.message == (element if has_message else None)
    if good:
        assert bundles.bodies() == [b"good", b"good"]
        assert len(bundles.sent) == 2
    assert f"1 messages cannot be sent and went to the output 'failed'; the first, for topic {topic!r}" in caplog.text


@pytest.mark.parametrize("options", [WriteOptions(), WriteOptions(asynchronous=True), WriteOptions(batch_flush=False)])
def test_a_refused_message_fails_alone(options: WriteOptions) -> None:
    bundles = Bundles(options)
    # The batch of eight, then the half with it, the quarter, itself: in memory a send fails as often as planned.
    bundles.cluster.fail_next("send", MessageIllegal(13, "illegal", "send"), 4 if options.batch_flush else 1)
    bundles.run(*[b"%d" % i for i in range(8)])
    assert [output.value.element for output in bundles.failed] == ["b'0'"]
    assert sorted(bundles.bodies()) == [b"%d" % i for i in range(1, 8)]
    assert len(bundles.sent) == 7


def test_no_permission_fails_the_messages_of_the_topic(bundles: Bundles) -> None:
    bundles.cluster.create_topic("u", 1)
    bundles.cluster.fail_next("send", NoPermission(16, "User:x has no permission to access Topic:u", "send"))
    bundles.run(Message(b"a", topic="u"), Message(b"b", topic="u"), b"c")
    assert [output.value.error for output in bundles.failed] == ["NoPermission"] * 2
    assert bundles.bodies() == [b"c"]


@pytest.mark.parametrize("error", [TransportError("gone"), SystemBusy(2, "busy", "send")])
@pytest.mark.parametrize(
    "options",
    [WriteOptions(), WriteOptions(asynchronous=True), WriteOptions(batch_flush=False)],
)
def test_an_error_that_may_pass_fails_the_bundle_which_then_succeeds(error: Exception, options: WriteOptions) -> None:
    bundles = Bundles(options)
    bundles.cluster.fail_next("send", error)
    with pytest.raises(type(error)):
        bundles.run(b"a", b"b")
    assert bundles.failed == []
    bundles.outputs.clear()
    bundles.run(b"a", b"b")
    assert sorted(set(bundles.bodies())) == [b"a", b"b"]
    assert len(bundles.sent) == 2


def test_a_queue_lookup_that_may_pass_fails_the_bundle(bundles: Bundles) -> None:
    bundles.cluster.fail_next("queues", TransportError("name server gone"))
    with pytest.raises(TransportError):
        bundles.run(b"a")
    bundles.cluster.create_topic("read_only", 1, permission=4)
    with pytest.raises(TransportError, match="no writable queue"):
        bundles.run(Message(b"a", topic="read_only"))


def test_an_outage_that_looks_like_a_missing_topic_drops_nothing(bundles: Bundles) -> None:
    """A name server forgets a broker that died, and then knows no route of its topics."""
    bundles.cluster.create_topic("u", 1)
    element = Message(b"a", topic="u")
    bundles.run(element)
    bundles.cluster.delete_topic("u")
    with pytest.raises(TopicNotExist):  # this writer has its queues yet
        bundles.run(element)
    bundles.fn.teardown()  # as a runner does with a DoFn whose bundle has failed
    bundles.fn.setup()
    with pytest.raises(TransportError, match="all of its brokers are down"):
        bundles.run(element)
    assert bundles.failed == []
    bundles.cluster.create_topic("u", 1)
    bundles.clock.advance(1)
    bundles.run(element)
    assert bundles.bodies("u") == [b"a"]


@pytest.mark.parametrize("batch_flush", [True, False])
def test_the_topic_of_the_write_must_be_there(batch_flush: bool) -> None:
    bundles = Bundles(WriteOptions(batch_flush=batch_flush), MessageMaker("missing"))
    with pytest.raises(TransportError, match="topic 'missing' does not exist, or all of its brokers are down"):
        bundles.run(b"a")
    bundles.cluster.create_topic("missing", 1)
    bundles.clock.advance(1)
    bundles.cluster.fail_next("send", NoPermission(16, "no", "send"))
    with pytest.raises(NoPermission):
        bundles.run(b"a")
    bundles.run(b"a")
    assert bundles.bodies("missing") == [b"a"]
    assert bundles.failed == []


def test_a_failed_bundle_leaves_nothing_to_the_next(bundles: Bundles) -> None:
    bundles.fn.start_bundle()
    bundles.process(b"left behind", Message(b"left behind", sharding_key="k"))
    bundles.process(WindowedValue({"refused": 1}, 0, (FIRST, SECOND)))  # an output that waits for the next call
    bundles.run(b"next")
    assert bundles.bodies() == [b"next"]
    assert len(bundles.outputs) == 1


def source_record(number: int) -> Record:
    with InMemoryCluster() as cluster:
        cluster.create_topic("source", 1)
        for _ in range(number):
            cluster.append("source", b"before")
        return cluster.append("source", b"body", properties={"UNIQ_KEY": "0A"})


def test_a_retried_bundle_of_records_writes_the_same_ids(bundles: Bundles) -> None:
    elements = [source_record(0), source_record(1), b"random"]
    bundles.cluster.fail_next("send", TransportError("answer lost"), after=True)
    with pytest.raises(TransportError):
        bundles.run(*elements)
    bundles.run(*elements)
    ids = [record.message_id for record in sorted(bundles.records(), key=lambda r: r.commit_log_offset)]
    assert ids[:2] == ids[3:5]
    assert ids[2] != ids[5]
    assert len(set(ids)) == 4


def test_id_function_sets_the_unique_key() -> None:
    bundles = Bundles(maker=MessageMaker("t", id_fn=lambda_id))
    bundles.run(b"one", Message(b"two"))
    assert [record.get_property("UNIQ_KEY") for record in bundles.records()] == ["id-one", "id-two"]
    assert [output.value.message_id for output in bundles.sent] == ["id-one", "id-two"]


def lambda_id(element: Any) -> str:
    return "id-" + (element if isinstance(element, bytes) else element.body).decode()


def test_without_sent_there_are_no_results_but_failures() -> None:
    bundles = Bundles(with_sent=False)
    bundles.run(b"a", {"refused": 1})
    assert bundles.bodies() == [b"a"]
    assert (len(bundles.sent), len(bundles.failed)) == (0, 1)


def test_a_fn_that_was_forked_after_setup_makes_its_own_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = Bundles()
    first = bundles.fn._lease
    assert first is not None
    monkeypatch.setattr(first, "_pid", os.getpid() + 1)  # as the child sees the parent's
    bundles.run(b"a")
    assert bundles.fn._lease is not first
    assert bundles.bodies() == [b"a"]


def test_teardown_closes_the_producer_once() -> None:
    bundles = Bundles()
    keeper = ProducerLease(InMemoryClientFactory(bundles.cluster.name), "g")
    bundles.fn.teardown()
    assert bundles.cluster.open_clients == 1
    keeper.release()
    assert bundles.cluster.open_clients == 0
    bundles.fn.teardown()


def test_teardown_before_setup_is_harmless() -> None:
    WriteFn(MessageMaker("t"), InMemoryClientFactory("nowhere"), "g", WriteOptions()).teardown()


def test_a_closed_producer_fails_the_bundle_not_the_messages(bundles: Bundles) -> None:
    assert bundles.fn._lease is not None
    bundles.run(b"a")
    bundles.fn._lease.producer.close()
    with pytest.raises(LocalError, match="closed"):
        bundles.run(b"b")
    assert bundles.failed == []
