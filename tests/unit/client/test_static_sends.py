"""Sends to a static topic while one of its brokers is away."""

from __future__ import annotations

import json

from rmqio.client.producer import RemotingProducer
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire.command import Command, RequestCode
from tests.helpers.fakes.broker import FakeBroker

NAMES = ("broker-a", "broker-b")


def test_sends_to_a_static_topic_move_to_the_queue_of_a_broker_that_is_there() -> None:
    with FakeBroker(brokers=NAMES) as broker:
        broker.cluster.create_topic("orders", 2, NAMES)
        body = {
            "queueDatas": [{"brokerName": n, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for n in NAMES],
            "brokerDatas": [{"brokerName": n, "cluster": "c", "brokerAddrs": {"0": broker.address(n)}} for n in NAMES],
            "topicQueueMappingByBroker": {
                name: {"bname": name, "currIdMap": {str(number): 0}, "epoch": 1, "scope": "__global__"}
                for number, name in enumerate(NAMES)
            },
        }
        route = Command(0, body=json.dumps(body).encode())
        broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda exchange: exchange.send(route), times=None)
        broker.stop_broker("broker-a")
        options = ClientOptions(broker.name_server, retry_backoff_ms=1, retry_backoff_max_ms=2, max_retries=3)
        with RemotingProducer(options, "group") as producer:
            results = [producer.send(Message(b"%d" % number, topic="orders")) for number in range(6)]
            assert {result.queue for result in results} == {MessageQueue("orders", "__syslo__global__", 1)}
            assert producer.statistics.retries <= 1, "the broker that is away is passed over"
