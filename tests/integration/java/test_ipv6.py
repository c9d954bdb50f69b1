"""A broker on an IPv6 address: hosts in messages take sixteen bytes, and both clients read the same."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from rmqio.client.admin import Admin
from rmqio.client.factory import RemotingClientFactory
from rmqio.client.producer import RemotingProducer
from rmqio.local import ready
from rmqio.local.config import broker_properties
from rmqio.local.install import Settings, broker_process, find_programs
from rmqio.local.processes import Watchdog
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.wire.stored import BORN_HOST_V6, STORE_HOST_V6
from tests.helpers.peers.interop import given, java_client, same_for_both
from tests.helpers.servers.cluster import SMALL, Cluster
from tests.helpers.servers.ports import reserved_port
from tests.helpers.waiting import at_most

pytestmark = pytest.mark.broker


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture
def name_server() -> Iterator[str]:
    """The name server of a cluster whose only broker is on ::1; the name server itself is on 127.0.0.1."""
    if not _has_ipv6():
        pytest.skip("this machine has no ::1")
    with Cluster(brokers=[]) as cluster:
        port = reserved_port(below=(2,))
        ipv6 = {"bindAddress": "::1", "brokerIP1": "::1", "brokerIP2": "::1"}
        config = broker_properties(
            name="broker-6",
            name_server=cluster.name_server,
            port=port,
            ha_port=reserved_port(),
            store=cluster.folder / "store",
            extra={**SMALL, **ipv6},
        )
        settings = Settings("broker-6", ipv6, {}, 256, False, None, ())
        watchdog = Watchdog(None)
        process = broker_process(settings, find_programs(), cluster.folder / "broker-6", watchdog, config)
        process.start()
        try:
            check = lambda: ready.broker_check(cluster.name_server, "broker-6", f"::1:{port}")  # noqa: E731
            ready.wait_until(check, [process], what="a broker on ::1", timeout_s=at_most(60))
            yield cluster.name_server
        finally:
            process.kill()
            watchdog.close()


def test_ipv6_hosts_read_alike(name_server: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    options = ClientOptions(name_server)
    with Admin(options) as admin:
        admin.create_topic("six", queues=1)
    with (
        java_client(name_server, tmp_path_factory.mktemp("interop")) as java,
        RemotingProducer(options, "six-ours") as producer,
    ):
        java.send("six", [given(b"theirs", tags="t")])
        java.send("six", [given(b"batch %d" % number) for number in range(2)], "batch")
        results = [producer.send(Message(b"ours", topic="six", keys=("k",)))]
        results += producer.send_batch([Message(b"1", topic="six"), Message(b"2")])
        records = same_for_both(java, RemotingClientFactory(options), "six", 6)
    for record in records:
        assert record.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6) == BORN_HOST_V6 | STORE_HOST_V6
        assert record.born_host.startswith("[::1]:")
    assert [record.offset_message_id for record in records[3:]] == [result.offset_message_id for result in results]
    assert {len(record.offset_message_id) for record in records} == {56}
