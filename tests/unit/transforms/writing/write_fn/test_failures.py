"""Failures that are a message's, and failures that are the bundle's."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.errors import LocalError, MessageIllegal, NoPermission, SystemBusy, TopicNotExist, TransportError
from rmqio.model import Message
from rmqio.options import WriteOptions
from rmqio.transforms.writing.elements import MessageMaker
from tests.helpers.transforms.write_bundles import FIRST, SECOND, Bundles

pytestmark = pytest.mark.usefixtures("both_ways")


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
    where = "" if topic is None else f", for topic {topic!r}"
    assert f"1 message cannot be sent and went to the output 'failed'; the first{where}: {error}: " in caplog.text


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


def test_a_closed_producer_fails_the_bundle_not_the_messages(bundles: Bundles) -> None:
    assert bundles.fn._lease is not None
    bundles.run(b"a")
    bundles.fn._lease.producer.close()
    with pytest.raises(LocalError, match="closed"):
        bundles.run(b"b")
    assert bundles.failed == []
