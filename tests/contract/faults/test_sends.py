"""A broker that misbehaves: what becomes of a send, where it is tried again, and in which order."""

from __future__ import annotations

import pytest

from rmqio.client.producer import RemotingProducer
from rmqio.errors import (
    BrokerError,
    GoAway,
    InvalidParameter,
    LocalError,
    MessageIllegal,
    NoPermission,
    RequestTimeout,
    RmqioError,
    SystemBusy,
    TopicNotExist,
    TransportError,
)
from rmqio.model import Message, MessageQueue, SendStatus
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.faulty_broker import (
    A0,
    BATCH,
    HARMLESS,
    NOTIFY,
    ONEWAY,
    RUN_HERE,
    SEND,
    quick_options,
    stored_bodies,
)
from tests.helpers.client.unplugged import UnpluggedBroker, environment_of
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.fakes.faults import Fault

# ---- one failure, then all is well: nothing is lost, and only an unknown outcome can duplicate -----------------------


@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.parametrize("way", ["send", "batch", "submit", "ordered"])
def test_a_send_survives(victim: FakeBroker, name: str, way: str) -> None:
    fault, stored = HARMLESS[name]
    code = SEND if way == "send" else BATCH
    victim.on(code, fault)
    message = Message(b"x")
    with RemotingProducer(quick_options(victim), "group", environment=environment_of(victim)) as producer:
        if way == "send":
            results = [producer.send(message, A0, message_id="the-id")]
        elif way == "batch":
            results = producer.send_batch([message], A0, message_ids=["the-id"])
        else:
            results = [*producer.submit([message], A0, ordered=way == "ordered", message_ids=["the-id"]).result()]
        assert [r.message_id for r in results] == ["the-id"]
        records = victim.cluster.records("topic")
        assert [record.message_id for record in records] == ["the-id"] * stored
        if way != "submit":  # only that may move to another broker
            assert {record.queue for record in records} == {A0}
        assert results[0].queue in {record.queue for record in records}
        again = producer.send(Message(b"y"), A0)
        assert again.queue_offset == len(victim.cluster.records("topic")) - 1 or way == "submit"


def test_the_next_answer_is_not_mistaken_for_a_late_or_double_one(unplugged: UnpluggedBroker) -> None:
    unplugged.on(SEND, faults.reply_twice())
    unplugged.on(SEND, faults.delay(21_000))
    with RemotingProducer(quick_options(unplugged), "group", environment=unplugged.environment) as producer:
        offsets = [producer.send(Message(b"%d" % i), A0).queue_offset for i in range(6)]
        # The second was retried after its time was over: stored twice, the copy's offset reported.
        assert offsets == [0, 2, 3, 4, 5, 6]
        assert producer.statistics.unknown_outcomes == 1
        assert producer.statistics.retries == 1


def test_a_pushed_request_is_refused_unless_it_is_one_way(broker: FakeBroker, producer: RemotingProducer) -> None:
    broker.on(SEND, faults.push(Command(NOTIFY, flag=ONEWAY)))
    broker.on(SEND, faults.push(Command(RUN_HERE)))
    producer.send(Message(b"x"), A0)
    producer.send(Message(b"x"), A0)
    producer.send(Message(b"x"), A0)
    assert [answer.code for answer in broker.client_answers] == [3]


# ---- where a retry goes ----------------------------------------------------------------------------------------------


def test_a_retry_goes_to_another_broker_when_the_queue_was_not_given(
    broker: FakeBroker, producer: RemotingProducer
) -> None:
    for _ in range(8):
        broker.on(SEND, faults.answer(2), times=None, broker="broker-a")
        assert producer.send(Message(b"x", topic="topic")).queue.broker == "broker-b"
    # Once it failed it is passed over for a while.
    assert broker.count(SEND, "broker-a") <= 1


def test_a_broker_that_failed_gets_its_turn_when_all_did(broker: FakeBroker, producer: RemotingProducer) -> None:
    broker.on(SEND, faults.answer(2), times=1, broker="broker-a")
    broker.on(SEND, faults.answer(2), times=1, broker="broker-b")
    assert producer.send(Message(b"x", topic="topic")).status is SendStatus.OK


def test_a_retry_stays_with_a_sharding_key(broker: FakeBroker, producer: RemotingProducer) -> None:
    expected = producer.send(Message(b"1", topic="topic", sharding_key="k")).queue
    broker.on(SEND, faults.answer(2), times=1)
    assert producer.send(Message(b"2", topic="topic", sharding_key="k")).queue == expected
    broker.on(BATCH, faults.answer(2), times=1)  # twice would bring it back
    (result,) = producer.send_batch([Message(b"3", topic="topic", sharding_key="k")])
    assert result.queue == expected


def test_an_unordered_batch_moves_and_says_so(broker: FakeBroker, producer: RemotingProducer) -> None:
    broker.on(BATCH, faults.answer(2), times=None, broker="broker-a")
    first, second = producer.submit([Message(b"1"), Message(b"2")], A0).result()
    assert first.queue.broker == second.queue.broker == "broker-b"
    assert [record.queue for record in broker.cluster.records("topic")] == [first.queue] * 2


def test_keys_of_several_queues_do_not_go_into_one_batch(producer: RemotingProducer) -> None:
    messages = [Message(b"x", topic="topic", sharding_key=key) for key in "abcd"]
    with pytest.raises(LocalError, match="queues"):
        producer.send_batch(messages)


def test_a_dead_broker_is_left_for_another(broker: FakeBroker, producer: RemotingProducer) -> None:
    producer.send(Message(b"x"), A0)
    broker.stop_broker("broker-a")
    for _ in range(4):
        assert producer.send(Message(b"x", topic="topic")).queue.broker == "broker-b"
    with pytest.raises(TransportError):
        producer.send(Message(b"x"), A0)
    broker.start_broker("broker-a")
    assert producer.send(Message(b"x"), A0).queue == A0


def test_the_route_is_looked_up_again_when_a_topic_has_moved(broker: FakeBroker, producer: RemotingProducer) -> None:
    queue = producer.send(Message(b"x", topic="topic", sharding_key="k")).queue
    other = "broker-b" if queue.broker == "broker-a" else "broker-a"
    broker.cluster.delete_topic("topic")
    broker.cluster.create_topic("topic", 2, (other,))
    for message in (Message(b"1", topic="topic"), Message(b"2", topic="topic"), Message(b"3", topic="topic")):
        assert producer.send(message).queue.broker == other
    assert producer.queues("topic") == tuple(MessageQueue("topic", other, i) for i in range(2))


# ---- what is not retried ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_a_weak_acknowledgement_is_one(
    broker: FakeBroker, producer: RemotingProducer, code: int, status: SendStatus
) -> None:
    broker.on(SEND, faults.answer(code, executed=True))
    broker.on(BATCH, faults.answer(code, executed=True))
    assert producer.send(Message(b"x"), A0).status is status
    assert [r.status for r in producer.send_batch([Message(b"y")] * 2, A0)] == [status] * 2
    assert stored_bodies(broker) == [b"x", b"y", b"y"]


@pytest.mark.parametrize("error", [MessageIllegal, NoPermission, InvalidParameter])
def test_a_refusal_is_final(broker: FakeBroker, producer: RemotingProducer, error: type[BrokerError]) -> None:
    broker.on(SEND, faults.answer(error.number, "why"), times=None)
    broker.on(BATCH, faults.answer(error.number, "why"), times=None)
    with pytest.raises(error, match="why"):
        producer.send(Message(b"x", topic="topic"))
    with pytest.raises(error):
        producer.submit([Message(b"x")], A0).result()
    assert (broker.count(SEND), broker.count(BATCH)) == (1, 1)


def test_an_unknown_code_is_final(broker: FakeBroker, producer: RemotingProducer) -> None:
    broker.on(SEND, faults.answer(9_999, "news"))
    with pytest.raises(BrokerError, match="9999"):
        producer.send(Message(b"x"), A0)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (faults.answer(2), SystemBusy),
        (faults.answer(1500), GoAway),
        (faults.drop(), RequestTimeout),
        (faults.close(), TransportError),
        (faults.garbage(), TransportError),
    ],
)
def test_retries_end(unplugged: UnpluggedBroker, fault: Fault, error: type[RmqioError]) -> None:
    options = quick_options(unplugged, max_retries=2, busy_timeout_ms=0)
    with RemotingProducer(options, "group", environment=unplugged.environment) as producer:
        unplugged.on(SEND, fault, times=None)
        with pytest.raises(error):
            producer.send(Message(b"x"), A0)
    assert unplugged.count(SEND) == 3


def test_a_topic_that_stays_unknown_is_asked_for_twice(broker: FakeBroker, producer: RemotingProducer) -> None:
    producer.send(Message(b"x"), A0)
    asked = broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    broker.on(SEND, faults.answer(17), times=None)
    with pytest.raises(TopicNotExist):
        producer.send(Message(b"x"), A0)
    assert broker.count(SEND) == 3
    assert broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == asked + 1


def test_a_failed_send_does_not_spoil_the_next(broker: FakeBroker, producer: RemotingProducer) -> None:
    broker.on(BATCH, faults.answer(13))
    failed, good = producer.submit([Message(b"1")], A0), producer.submit([Message(b"2")], A0)
    assert len(good.result()) == 1
    for _ in range(2):
        with pytest.raises(MessageIllegal):
            failed.result()
    assert failed.is_done()


# ---- order -----------------------------------------------------------------------------------------------------------


def test_order_holds_through_failures(broker: FakeBroker, producer: RemotingProducer) -> None:
    broker.on(BATCH, faults.answer(2))
    broker.on(BATCH, faults.close())
    broker.on(BATCH, faults.delay(30))
    pending = [producer.submit([Message(b"%02d" % n)], A0, ordered=True) for n in range(10)]
    assert [p.result()[0].queue_offset for p in pending] == list(range(10))
    assert [record.body for record in broker.cluster.records("topic")] == [b"%02d" % n for n in range(10)]


def test_behind_a_failure_nothing_ordered_is_sent_until_it_was_reported(
    broker: FakeBroker, producer: RemotingProducer
) -> None:
    broker.on(BATCH, faults.answer(13))
    first = producer.submit([Message(b"1")], A0, ordered=True)
    second = producer.submit([Message(b"2")], A0, ordered=True)
    elsewhere = producer.submit([Message(b"3")], A0._replace(queue_id=1), ordered=True)
    assert len(elsewhere.result()) == 1
    for pending in (first, second):
        with pytest.raises(MessageIllegal):
            pending.result()
    producer.submit([Message(b"4")], A0, ordered=True).result()
    assert stored_bodies(broker) == [b"3", b"4"]
