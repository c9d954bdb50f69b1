"""Order by sharding key on a real broker, over connections that end when messages are stored and nobody is told."""

from __future__ import annotations

import uuid

import pytest

from rmqio.client.factory import RemotingClientFactory
from rmqio.client.producer import RemotingProducer
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.security import Security
from rmqio.topics import queue_for_key
from tests.helpers.client.proxy import Proxy, Side
from tests.helpers.client.proxy import faults as network
from tests.helpers.peers.interop import read_all

pytestmark = pytest.mark.broker

KEYS = [f"customer-{number}" for number in range(6)]
COUNT = 100


@pytest.mark.parametrize("way", ["single", "batches"])
def test_the_first_copies_of_a_key_are_in_order_through_retries(rocketmq: LocalRocketMQ, way: str) -> None:
    topic = f"order-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(topic, queues=4)
    messages = [Message(b"%d" % number, sharding_key=key, topic=topic) for number in range(COUNT) for key in KEYS]
    with Proxy(rocketmq.broker) as proxy:
        options = ClientOptions(
            rocketmq.name_server,
            max_retries=20,
            retry_backoff_ms=1,
            security=Security(address_map={rocketmq.broker: proxy.address}),
        )
        with RemotingProducer(options, "order") as producer:
            pending = []
            for place, message in enumerate(messages):
                if place % 30 == 10:
                    proxy.on(network.cut(), Side.ANSWER)
                if way == "single":
                    producer.send(message)
                    continue
                assert message.sharding_key is not None
                queue = queue_for_key(producer.queues(topic), message.sharding_key)
                pending.append(producer.submit([message], queue, ordered=True))
            for each in pending:
                each.result()
            assert producer.statistics.unknown_outcomes >= 10
    records = read_all(RemotingClientFactory(ClientOptions(rocketmq.name_server)), topic)
    assert len(records) > len(messages), "a retry of what was stored is stored again"
    for key in KEYS:
        mine = [record for record in records if record.sharding_key == key]
        assert len({record.queue for record in mine}) == 1
        first_copies = list(dict.fromkeys(int(record.body) for record in mine))
        assert first_copies == list(range(COUNT))
