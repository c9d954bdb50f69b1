"""A broker that misbehaves: what producer and reader make of it. Fake broker only."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from rmqio.client.factory import RemotingClientFactory
from rmqio.client.sending.producer import RemotingProducer
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
from rmqio.model import Message, MessageFilter, MessageQueue, SendStatus
from rmqio.options import ClientOptions
from rmqio.testing import NAME_SERVER, BrokerSettings, FakeBroker, faults
from rmqio.testing.faults import Fault
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command
from tests.contract.support import read

SEND, BATCH, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.PULL_MESSAGE
NOTIFY, RUN_HERE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.CONSUME_MESSAGE_DIRECTLY
A0 = MessageQueue("topic", "broker-a", 0)
ONEWAY = 2


def _options(broker: FakeBroker, **changes: object) -> ClientOptions:
    quick = {"request_timeout_ms": 400, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, **changes}
    return ClientOptions(broker.name_server, **quick)  # type: ignore[arg-type]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=("broker-a", "broker-b"), vip=True) as fake:
        fake.cluster.create_topic("topic", 2, ("broker-a", "broker-b"))
        yield fake


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[RemotingProducer]:
    with RemotingProducer(_options(broker), "group") as made:
        yield made


def _stored(broker: FakeBroker) -> list[bytes]:
    return sorted(record.body for record in broker.cluster.records("topic"))


# ---- one failure, then all is well: nothing is lost, and only an unknown outcome can duplicate -----------------------

HARMLESS: dict[str, tuple[Fault, int]] = {
    # what happens to one request, and how often its message is stored in the end
    "request lost": (faults.drop(), 1),
    "answer lost": (faults.drop(executed=True), 2),
    "answer cut short": (faults.truncate(11), 2),
    "garbage": (faults.garbage(), 1),
    "closed before": (faults.close(), 1),
    "closed after": (faults.close(executed=True), 2),
    "answered twice": (faults.reply_twice(), 1),
    "answered late": (faults.delay(60), 1),
    "push with our opaque": (faults.push(Command(NOTIFY, {"consumerGroup": "g"}, flag=ONEWAY)), 1),
    "push that wants an answer": (faults.push(Command(RUN_HERE)), 1),
    "busy": (faults.answer(2, "[PCBUSY_CLEAN_QUEUE]"), 1),
    "flow control": (faults.answer(215), 1),
    "not available": (faults.answer(14), 1),
    "system error": (faults.answer(1, "java.lang.IllegalStateException"), 1),
    "system error, yet stored": (faults.answer(1, executed=True), 2),
    "not in this unit": (faults.answer(205), 1),
    "not the leader": (faults.answer(501), 1),
    "topic unknown": (faults.answer(17), 1),
    "shutting down": (faults.answer(1500), 1),
}


@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.parametrize("way", ["send", "batch", "submit", "ordered"])
def test_a_send_survives(broker: FakeBroker, producer: RemotingProducer, name: str, way: str) -> None:
    fault, stored = HARMLESS[name]
    code = SEND if way == "send" else BATCH
    broker.on(code, fault)
    message = Message(b"x")
    if way == "send":
        results = [producer.send(message, A0, message_id="the-id")]
    elif way == "batch":
        results = producer.send_batch([message], A0, message_ids=["the-id"])
    else:
        results = producer.submit([message], A0, ordered=way == "ordered", message_ids=["the-id"]).result()
    assert [r.message_id for r in results] == ["the-id"]
    records = broker.cluster.records("topic")
    assert [record.message_id for record in records] == ["the-id"] * stored
    if way != "submit":  # only that may move to another broker
        assert {record.queue for record in records} == {A0}
    assert results[0].queue in {record.queue for record in records}
    again = producer.send(Message(b"y"), A0)
    assert again.queue_offset == len(broker.cluster.records("topic")) - 1 or way == "submit"


def test_the_next_answer_is_not_mistaken_for_a_late_or_double_one(
    broker: FakeBroker, producer: RemotingProducer
) -> None:
    broker.on(SEND, faults.reply_twice())
    broker.on(SEND, faults.delay(500))
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
    assert _stored(broker) == [b"x", b"y", b"y"]


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
def test_retries_end(broker: FakeBroker, fault: Fault, error: type[RmqioError]) -> None:
    with RemotingProducer(_options(broker, request_timeout_ms=50, max_retries=2), "group") as producer:
        broker.on(SEND, fault, times=None)
        with pytest.raises(error):
            producer.send(Message(b"x"), A0)
    assert broker.count(SEND) == 3


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


def test_behind_a_failure_nothing_ordered_is_sent_until_it_was_told(
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
    assert _stored(broker) == [b"3", b"4"]


# ---- limits, close, options ------------------------------------------------------------------------------------------


def test_no_more_than_allowed_are_in_flight(broker: FakeBroker) -> None:
    waiting: list[faults.Exchange] = []
    most = 0

    def hold(exchange: faults.Exchange) -> None:
        nonlocal most
        waiting.append(exchange)
        most = max(most, len(waiting))

        def release() -> None:
            waiting.remove(exchange)
            exchange.send(exchange.handle())

        exchange.later(30, release)

    broker.on(BATCH, hold, times=None)
    with RemotingProducer(_options(broker, max_in_flight=3, request_timeout_ms=5_000), "group") as producer:
        pending = [producer.submit([Message(b"x")], A0) for _ in range(10)]
        assert len(producer._in_flight) <= 3
        assert sum(len(p.result()) for p in pending) == 10
    assert most == 3


def test_close_gives_up_in_time_and_logs_what_was_lost(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.on(BATCH, faults.drop(), times=None)
    producer = RemotingProducer(_options(broker, request_timeout_ms=100), "group")
    lost = producer.submit([Message(b"x")] * 3, A0)
    with caplog.at_level(logging.ERROR, "rmqio.client"):
        producer.close()
    assert "3 messages not sent" in caplog.text
    with pytest.raises(TransportError):
        lost.result()


def test_close_is_silent_when_failures_were_told(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.on(BATCH, faults.answer(13))
    producer = RemotingProducer(_options(broker), "group")
    with pytest.raises(MessageIllegal):
        producer.submit([Message(b"x")], A0).result()
    producer.close()
    assert caplog.text == ""


def test_the_vip_channel_is_the_port_less_two(broker: FakeBroker) -> None:
    with RemotingProducer(_options(broker, vip_channel=True), "group") as producer:
        producer.send(Message(b"x"), A0)
    assert [role for role, request in broker.requests if request.code == SEND] == ["broker-a (VIP)"]


def test_a_missing_topic_is_made_where_that_is_permitted() -> None:
    with FakeBroker(settings=BrokerSettings(auto_create_topics=True)) as broker:
        with RemotingProducer(_options(broker), "group") as producer, pytest.raises(TopicNotExist):
            producer.send(Message(b"x", topic="new"))
        with RemotingProducer(_options(broker, create_topics=True), "group") as producer:
            sent = producer.send(Message(b"x", topic="new"))
            assert sent.queue.broker == "broker-a"
            assert len(producer.queues("new")) == 4
        assert len(broker.cluster.records("new")) == 1


def test_a_missing_topic_is_an_error_where_making_it_is_not_permitted(broker: FakeBroker) -> None:
    with RemotingProducer(_options(broker, create_topics=True), "group") as producer, pytest.raises(TopicNotExist):
        producer.send(Message(b"x", topic="new"))


def test_a_namespace_is_on_the_wire_only(broker: FakeBroker) -> None:
    broker.cluster.create_topic("ns%topic", 1)
    with RemotingProducer(_options(broker, namespace="ns"), "group") as producer:
        sent = producer.send(Message(b"x", topic="topic"))
        assert sent.queue == A0
        assert producer.submit([Message(b"y")], A0).result()[0].queue == A0
    assert [record.body for record in broker.cluster.records("ns%topic")] == [b"x", b"y"]
    (send,) = [request for _, request in broker.requests if request.code == SEND]
    assert (send.ext["a"], send.ext["b"]) == ("ns%group", "ns%topic")


def test_one_producer_serves_many_threads(broker: FakeBroker, producer: RemotingProducer) -> None:
    def work(number: int) -> None:
        for i in range(20):
            pending = producer.submit([Message(b"%d-%d" % (number, i))] * 3, A0._replace(queue_id=i % 2))
            assert len(pending.result()) == 3
            producer.send(Message(b"s"), A0)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(broker.cluster.records("topic")) == 4 * 20 * 4


def test_no_name_server_answers(broker: FakeBroker, producer: RemotingProducer) -> None:
    broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, faults.close(), times=None, broker=NAME_SERVER)
    for send in (lambda: producer.send(Message(b"x"), A0), lambda: producer.submit([Message(b"x")], A0).result()):
        before = broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        with pytest.raises(TransportError, match="name server"):
            send()
        assert broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == before + 4


def test_a_topic_forgotten_by_the_name_server_is_still_sent_to(broker: FakeBroker, producer: RemotingProducer) -> None:
    """As while the only broker of a topic restarts."""
    assert A0 in producer.queues("topic")
    sent = producer.send(Message(b"x"), A0)
    broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, faults.answer(17), times=None)
    broker.on(SEND, faults.close())
    assert producer.send(Message(b"y"), A0).queue == sent.queue
    broker.on(SEND, faults.close())
    assert producer.send(Message(b"z", topic="topic"))
    with pytest.raises(TopicNotExist):
        producer.queues("topic")


# ---- reading ---------------------------------------------------------------------------------------------------------

PULL_FAULTS = [name for name in HARMLESS if name != "system error, yet stored"]
# A pull that is lost is given up after the 5 s that a broker may take to look whether its time is over.
SLOW_FAULTS = ("request lost", "answer lost")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW_FAULTS else ()) for name in PULL_FAULTS]
)
def test_a_reader_survives(broker: FakeBroker, name: str) -> None:
    if name == "topic unknown":
        pytest.skip("a reader takes a broker's word for it that the topic is gone")
    for i in range(100):
        broker.cluster.append("topic", b"%d" % i)
    broker.on(PULL, HARMLESS[name][0])
    client = RemotingClientFactory(_options(broker, long_poll_ms=200)).queue_client()
    try:
        records = read(client, A0, until=100)
    finally:
        client.close()
    assert [record.body for record in records] == [b"%d" % i for i in range(100)]


@pytest.mark.parametrize("name", PULL_FAULTS)
def test_an_offset_request_survives(broker: FakeBroker, name: str) -> None:
    for i in range(3):
        broker.cluster.append("topic", b"%d" % i)
    client = RemotingClientFactory(_options(broker)).queue_client()
    try:
        broker.on(RequestCode.GET_MAX_OFFSET, HARMLESS[name][0])
        assert client.max_offset(A0) == 3
        broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, HARMLESS[name][0])
        client.commit_offset("a-group", A0, 2)
        assert broker.cluster.committed("a-group", A0) == 2
    finally:
        client.close()


def test_a_hole_left_by_a_lost_file_is_counted(broker: FakeBroker) -> None:
    for i in range(10):
        broker.cluster.append("topic", b"%d" % i)
    broker.cluster.remove(A0, 3, 6)
    client = RemotingClientFactory(_options(broker)).queue_client()
    try:
        reader = client.open_reader(A0, 0, message_filter=MessageFilter())
        bodies, skipped = [], 0
        while reader.position < 10:
            client.wait([reader], 5_000)
            fetched = reader.poll()
            if fetched is not None:
                bodies += [record.body for record in fetched.records]
                skipped += fetched.skipped
        assert (bodies, skipped) == ([b"0", b"1", b"2", b"6", b"7", b"8", b"9"], 3)
    finally:
        client.close()


def test_a_corrupt_message_is_reported_and_the_others_come(broker: FakeBroker) -> None:
    for i in range(5):
        broker.cluster.append("topic", b"%d" % i)
    broker.cluster.corrupt(A0, 2)
    client = RemotingClientFactory(_options(broker)).queue_client()
    try:
        reader = client.open_reader(A0, 0, message_filter=MessageFilter())
        client.wait([reader], 5_000)
        fetched = reader.poll()
        assert fetched is not None
        assert [record.queue_offset for record in fetched.records] == [0, 1, 3, 4]
        (corrupt,) = fetched.corrupt
        assert (corrupt.topic, corrupt.broker, corrupt.queue_id, corrupt.queue_offset) == ("topic", "broker-a", 0, 2)
    finally:
        client.close()
