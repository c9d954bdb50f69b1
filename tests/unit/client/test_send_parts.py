"""A frame in two parts on a real socket: partial writes anywhere, peers that stop or close, signals, many threads."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from rmqio.client.connection import Connection
from rmqio.client.session import Session
from rmqio.client.transport import TcpTransport, connect_tcp
from rmqio.errors import RequestTimeout, TransportError
from rmqio.model import MessageQueue
from rmqio.wire.command import FrameDecoder
from rmqio.wire.templates import SendRequest, SendTemplate, encode_parts, encode_request
from tests.helpers.waiting import at_most, until

TEMPLATE = SendTemplate("g", MessageQueue("t", "b", 0))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what is accepted inherits it
        yield server


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"


def connected(listener: socket.socket) -> tuple[TcpTransport, socket.socket]:
    """With buffers so small that a write takes many calls."""
    transport = TcpTransport(address_of(listener), 5_000)
    assert transport.wait_connected(5_000)
    assert transport._socket is not None
    transport._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    peer, _ = listener.accept()
    return transport, peer


class Slow(threading.Thread):
    """A peer that reads little at a time, to the end. It begins when it may."""

    def __init__(self, peer: socket.socket, may_begin: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self.received = bytearray()
        self._peer = peer
        self._may_begin = may_begin
        self.start()

    def run(self) -> None:
        with self._peer:
            until(self._may_begin, "what it waits for")
            while chunk := self._peer.recv(3_001):
                self.received += chunk


def noise(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.parametrize(
    ("head_size", "body_size"),
    [(8, 0), (0, 8), (300, 20_000), (300, 300_000), (100_000, 20_000), (100_000, 1)],
)
def test_parts_arrive_whole_and_in_order_however_little_fits(
    listener: socket.socket, head_size: int, body_size: int
) -> None:
    transport, peer = connected(listener)
    reader = Slow(peer)
    head, body = noise(head_size), noise(body_size)[::-1]
    for _ in range(3):
        transport.send_parts(head, body, 20_000)
    transport.close()
    reader.join(at_most(20))
    assert reader.received == (head + body) * 3


@pytest.mark.parametrize("head_size", [10, 10_000_000], ids=["stopped in the body", "stopped in the head"])
def test_a_peer_that_takes_nothing_times_the_write_out(listener: socket.socket, head_size: int) -> None:
    transport, peer = connected(listener)
    with peer, pytest.raises(RequestTimeout, match="not taken in time"):
        transport.send_parts(noise(head_size), noise(10_000_000), 20)
    transport.close()


def test_a_peer_that_closed_is_a_transport_error(listener: socket.socket) -> None:
    transport, peer = connected(listener)
    peer.close()
    with pytest.raises(TransportError, match="writing to"):
        transport.send_parts(b"head", noise(50_000_000), 20_000)
    transport.close()
    with pytest.raises(TransportError, match="is closed"):
        transport.send_parts(b"head", b"body", 1_000)


def test_a_peer_that_closes_while_it_is_written_to(listener: socket.socket) -> None:
    transport, peer = connected(listener)

    def close_when_it_has_begun() -> None:
        peer.recv(1)
        peer.close()

    closer = threading.Thread(target=close_when_it_has_begun)
    closer.start()
    with pytest.raises(TransportError, match="writing to") as caught:
        transport.send_parts(noise(1_000), noise(50_000_000), 20_000)
    closer.join()
    assert not isinstance(caught.value, RequestTimeout)
    transport.close()


@pytest.fixture
def alarms() -> Iterator[list[int]]:
    """Signals that arrive all the time, with a handler that returns."""
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    yield seen
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_signals_neither_lose_nor_repeat_a_byte(listener: socket.socket, alarms: list[int]) -> None:
    transport, peer = connected(listener)
    reader = Slow(peer, lambda: len(alarms) > 3)
    head, body = noise(10_000), noise(300_000)[::-1]
    transport.send_parts(head, body, 20_000)
    transport.close()
    reader.join(at_most(20))
    assert reader.received == head + body


class Interrupted(BaseException):
    """As KeyboardInterrupt, which pytest would take for itself."""


def test_a_write_that_a_signal_interrupts_ends_its_socket(listener: socket.socket) -> None:
    """A part of a frame may be in the stream: what came after it would be read as the rest of it."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with closing(Connection(address_of(listener))) as connection:
            connection.begin()
            first, _ = listener.accept()
            request = SendRequest(TEMPLATE, noise(15_000_000), "", 0, batch=True)

            def interrupt_a_write() -> None:
                assert len(first.recv(1)) == 1  # it has begun, and will not end, as nobody reads the rest
                os.kill(os.getpid(), signal.SIGALRM)

            killer = threading.Thread(target=interrupt_a_write)
            killer.start()
            with first, pytest.raises(Interrupted):
                connection.start(request)
            killer.join()
            assert "closed, in flight 0" in repr(connection)
            call = connection.start(SendRequest(TEMPLATE, noise(20_000), "", 0, batch=True))
            second, _ = listener.accept()
            with second:
                decoder = FrameDecoder()
                command = None
                while command is None:
                    decoder.receive_data(second.recv(65_536))
                    command = decoder.next_command()
            assert command.body == noise(20_000)
            call.forget()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_threads_that_write_at_once_do_not_mix_their_frames(listener: socket.socket) -> None:
    transport, peer = connected(listener)
    reader = Slow(peer)
    session = Session("peer", transport, clock=time.monotonic)
    assert session.connect(5_000)

    def write(number: int) -> None:
        for at in range(20):
            request = SendRequest(TEMPLATE, bytes([number]) * (15_000 + 700 * at), "", at, batch=True)
            session.start(request, 20_000)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.close()
    reader.join(at_most(20))
    decoder = FrameDecoder()
    decoder.receive_data(bytes(reader.received))
    found: dict[int, list[int]] = {}
    while (command := decoder.next_command()) is not None:
        number = command.body[0]
        assert command.body == bytes([number]) * len(command.body)
        found.setdefault(number, []).append(len(command.body))
    assert found == {number: [15_000 + 700 * at for at in range(20)] for number in range(5)}


@pytest.mark.parametrize("size", [1, 16 * 1024 - 1, 16 * 1024, 100_000])
def test_a_request_is_the_same_in_parts(size: int) -> None:
    request = SendRequest(TEMPLATE, noise(size), "", 5, batch=True)
    head, body = encode_parts(request, 7)
    assert head + body == encode_request(request, 7)
    assert bool(body) == (size >= 16 * 1024)
    assert body is request.body or not body, "a large body is not copied"


def test_a_session_sends_parts_as_one_request(listener: socket.socket) -> None:
    with closing(Session("peer", connect_tcp(address_of(listener), 5_000), clock=time.monotonic)) as session:
        session.connect(5_000)
        peer, _ = listener.accept()
        requests = [SendRequest(TEMPLATE, noise(size), "", 0, batch=True) for size in (10, 30_000, 1_000, 60_000)]
        reader = Slow(peer)
        for request in requests:
            session.start(request, 20_000).forget()
        session.start_all(requests, 20_000)
    reader.join(at_most(20))
    decoder = FrameDecoder()
    decoder.receive_data(bytes(reader.received))
    found: list[Any] = []
    while (command := decoder.next_command()) is not None:
        found.append((command.opaque, len(command.body)))
    assert found == list(enumerate([10, 30_000, 1_000, 60_000] * 2, 1))
