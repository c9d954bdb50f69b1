"""Limits, options and the end of a producer whose brokers misbehave."""

from __future__ import annotations

import logging
import threading

import pytest

from rmqio.client.producer import RemotingProducer
from rmqio.errors import MessageIllegal, TopicNotExist, TransportError
from rmqio.model import Message
from rmqio.wire.command import RequestCode
from tests.helpers.client.faulty_broker import A0, BATCH, SEND, quick_options
from tests.helpers.client.unplugged import UnpluggedBroker
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import NAME_SERVER, FakeBroker
from tests.helpers.fakes.protocol import BrokerSettings


def test_no_more_than_allowed_are_in_flight(unplugged: UnpluggedBroker) -> None:
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

    unplugged.on(BATCH, hold, times=None)
    options = quick_options(unplugged, max_in_flight=3)
    with RemotingProducer(options, "group", environment=unplugged.environment) as producer:
        pending = [producer.submit([Message(b"x")], A0) for _ in range(10)]
        assert len(producer._in_flight) <= 3
        assert sum(len(p.result()) for p in pending) == 10
    assert most == 3


def test_close_gives_up_in_time_and_logs_what_was_lost(
    unplugged: UnpluggedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    unplugged.on(BATCH, faults.drop(), times=None)
    producer = RemotingProducer(quick_options(unplugged), "group", environment=unplugged.environment)
    lost = producer.submit([Message(b"x")] * 3, A0)
    with caplog.at_level(logging.ERROR, "rmqio.client"):
        producer.close()
    assert "3 messages not sent" in caplog.text
    with pytest.raises(TransportError):
        lost.result()


def test_close_is_silent_when_failures_were_reported(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.on(BATCH, faults.answer(13))
    producer = RemotingProducer(quick_options(broker), "group")
    with pytest.raises(MessageIllegal):
        producer.submit([Message(b"x")], A0).result()
    producer.close()
    assert caplog.text == ""


def test_the_vip_channel_is_the_port_less_two(broker: FakeBroker) -> None:
    with RemotingProducer(quick_options(broker, vip_channel=True), "group") as producer:
        producer.send(Message(b"x"), A0)
    assert [role for role, request in broker.requests if request.code == SEND] == ["broker-a (VIP)"]


def test_a_missing_topic_is_made_where_that_is_permitted() -> None:
    with FakeBroker(settings=BrokerSettings(auto_create_topics=True)) as broker:
        with RemotingProducer(quick_options(broker), "group") as producer, pytest.raises(TopicNotExist):
            producer.send(Message(b"x", topic="new"))
        with RemotingProducer(quick_options(broker, create_topics=True), "group") as producer:
            sent = producer.send(Message(b"x", topic="new"))
            assert sent.queue.broker == "broker-a"
            assert len(producer.queues("new")) == 4
        assert len(broker.cluster.records("new")) == 1


def test_a_missing_topic_is_an_error_where_making_it_is_not_permitted(broker: FakeBroker) -> None:
    with RemotingProducer(quick_options(broker, create_topics=True), "group") as producer, pytest.raises(TopicNotExist):
        producer.send(Message(b"x", topic="new"))


def test_a_namespace_is_on_the_wire_only(broker: FakeBroker) -> None:
    broker.cluster.create_topic("ns%topic", 1)
    with RemotingProducer(quick_options(broker, namespace="ns"), "group") as producer:
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
