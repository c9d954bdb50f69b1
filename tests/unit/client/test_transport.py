"""The TCP transport, on loopback sockets, and the factory."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.factory import RemotingClientFactory
from rmqio.client.session import Wakeup
from rmqio.client.transport import TcpTransport
from rmqio.errors import LocalError, RequestTimeout, TransportError
from rmqio.interfaces import ClientFactory
from rmqio.options import ClientOptions
from tests.helpers.waiting import at_most


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def connected(listener: socket.socket) -> tuple[TcpTransport, socket.socket]:
    transport = TcpTransport(address_of(listener), 5_000)
    assert transport.wait_connected(5_000)
    peer, _ = listener.accept()
    return transport, peer


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"


def test_bytes_go_both_ways(listener: socket.socket) -> None:
    transport, peer = connected(listener)
    with peer:
        transport.send_all(b"ping", 1_000)
        assert peer.recv(100) == b"ping"
        peer.sendall(b"pong")
        assert transport.recv(2, 5_000) == b"po"
        assert transport.recv(100, 5_000) == b"ng"
        assert transport.recv(100, 0) is None
        assert transport.recv(100, 1) is None
    assert transport.recv(100, 5_000) == b""
    transport.close()
    transport.close()
    assert transport.fileno() == -1
    with pytest.raises(TransportError, match="is closed"):
        transport.recv(100, 0)


def test_no_delay_is_set(listener: socket.socket) -> None:
    transport, peer = connected(listener)
    with peer, socket.socket(fileno=socket.dup(transport.fileno())) as same:
        assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    transport.close()


def test_more_than_the_buffers_hold_is_sent_whole(listener: socket.socket) -> None:
    transport, peer = connected(listener)
    received = bytearray()

    def read() -> None:
        while chunk := peer.recv(1 << 16):
            received.extend(chunk)

    thread = threading.Thread(target=read)
    thread.start()
    data = bytes(range(256)) * 65_536
    transport.send_all(data, 20_000)
    transport.close()
    thread.join(at_most(20))
    peer.close()
    assert received == data


def test_peer_that_takes_nothing_times_the_write_out(listener: socket.socket) -> None:
    transport, peer = connected(listener)
    with peer, pytest.raises(RequestTimeout, match="not taken in time"):
        transport.send_all(bytes(64 << 20), 20)
    transport.close()


def test_refused_connection_is_a_transport_error_with_its_cause(listener: socket.socket) -> None:
    address = address_of(listener)
    listener.close()
    with pytest.raises(TransportError, match=f"cannot connect to {address}") as caught:
        TcpTransport(address, 5_000).wait_connected(5_000)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_every_address_of_a_host_is_tried(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    host, port = listener.getsockname()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: refused
        dead = unused.getsockname()
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", dead),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        transport = TcpTransport("two-addresses:1", 5_000)
        assert transport.wait_connected(5_000)
    transport.close()


def test_an_answer_is_awaited_on_the_address_that_took_the_connection(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", s.getsockname()) for s in (unused, listener)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        transport, peer = connected(listener)
    with peer:
        assert transport.recv(100, 1) is None
        peer.sendall(b"pong")
        assert transport.recv(100, 5_000) == b"pong"
    transport.close()


def test_host_without_an_address_is_a_transport_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(TransportError, match="Name or service not known"):
        TcpTransport("nowhere:1", 100)


def test_connection_that_takes_too_long_times_out() -> None:
    now = [0.0]
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        host, port = server.getsockname()
        fillers = []
        try:
            for _ in range(8):  # a full backlog: the next one hangs
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex((host, port))
                fillers.append(filler)
            transport = TcpTransport(f"{host}:{port}", 3_000, clock=lambda: now[0])
            assert not transport.wait_connected(0)
            now[0] = 3.1
            with pytest.raises(RequestTimeout, match="no answer within 3000 ms"):
                transport.wait_connected(0)
        finally:
            for filler in fillers:
                filler.close()


def test_connection_to_oneself_is_refused() -> None:
    # A port of this machine that nobody listens on can be given to our own end, which TCP then connects to itself.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        probe.connect(probe.getsockname())
        transport = TcpTransport.__new__(TcpTransport)
        transport._socket = probe
        failure = transport._connect_failure()
        assert isinstance(failure, ConnectionRefusedError)


def test_wakeup_is_readable_until_cleared() -> None:
    wakeup = Wakeup()
    for _ in range(100_000):
        wakeup.wake()  # a full pipe is no failure
    wakeup.clear()
    wakeup.close()
    wakeup.close()
    wakeup.wake()


def test_factory_is_picklable_hashable_and_equal_by_options() -> None:
    factory = RemotingClientFactory(ClientOptions("a:1;b:2", max_retries=7))
    copy = pickle.loads(pickle.dumps(factory))
    assert copy == factory
    assert hash(copy) == hash(factory)
    assert isinstance(factory, ClientFactory)
    assert isinstance(factory.queue_client(), RemotingQueueClient)


def test_client_refuses_to_pickle_and_names_the_factory() -> None:
    with pytest.raises(TypeError, match="RemotingClientFactory"):
        pickle.dumps(RemotingQueueClient(ClientOptions("a:1")))


def test_closed_client_refuses_with_a_local_error() -> None:
    client = RemotingQueueClient(ClientOptions("a:1"))
    client.close()
    client.close()
    with pytest.raises(LocalError, match="closed"):
        client.queues("t")
