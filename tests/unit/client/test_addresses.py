"""A client's use of the addresses that a route brings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rmqio.client.connection import ConnectionPool
from rmqio.client.producer import RemotingProducer
from rmqio.errors import SetupError
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.security import Security
from tests.helpers.fakes.broker import FakeBroker


def pool(security: Security) -> ConnectionPool:
    return ConnectionPool(ClientOptions("name-server.example:9876", security=security))


@pytest.fixture
def limited() -> Iterator[ConnectionPool]:
    made = pool(Security(allowed_addresses=["10.0.0.0/8"], address_map={"a:1": "gateway:2", "b": "c"}))
    yield made
    made.close()


def test_connections_go_where_the_rules_say(limited: ConnectionPool) -> None:
    addresses = ["10.1.2.3:10911", "a:1", "b:7", "name-server.example:9876"]
    found = [limited.connection(address).address for address in addresses]
    assert found == ["10.1.2.3:10911", "gateway:2", "c:7", "name-server.example:9876"]


@pytest.mark.parametrize("address", ["11.1.2.3:10911", "10.1.2.3.example.org:10911", "gateway:2", "a:2"])
def test_elsewhere_none_goes_and_no_message_is_at_fault(limited: ConnectionPool, address: str) -> None:
    with pytest.raises(SetupError, match=f"a route leads to {address}, which is not one of the allowed"):
        limited.connection(address)


@pytest.mark.parametrize("address", ["", "null", "10.1.2.3\0.example:10911", "[::1%1\0.example]:1", "a b:1", "h:99999"])
def test_what_is_no_address_is_the_routes_fault(address: str) -> None:
    with pytest.raises(SetupError, match="which is not an address"):
        pool(Security()).connection(address)


@pytest.mark.parametrize("address", ["broker_without_port", "h:70000", "h:2", "a\0b:10911"])
def test_nor_is_it_the_messages_fault_where_sends_have_a_port_of_their_own(address: str) -> None:
    with FakeBroker() as broker:
        broker.cluster.create_topic("topic", 1)
        options = ClientOptions(broker.name_server, vip_channel=True, max_retries=0)
        with RemotingProducer(options, "group") as producer:
            (queue,) = producer.queues("topic")
            route = producer._routes.route("topic")
            data = replace(route.brokers[queue.broker], addresses={0: address})
            producer._routes.keep("topic", replace(route, brokers={queue.broker: data}))
            with pytest.raises(SetupError, match="which is not an address"):
                producer.submit([Message(b"x")], queue).result()
