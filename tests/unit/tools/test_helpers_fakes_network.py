"""The scripted transport."""

from __future__ import annotations

import pytest

from rmqio.client.connection import Connection
from rmqio.client.environment import Environment
from rmqio.client.transport import Transport
from rmqio.errors import TransportError
from rmqio.testing import ManualClock
from rmqio.wire.command import Command, encode_frame
from tests.helpers.fakes.network import ScriptedNetwork, ScriptedTransport


def test_it_plays_its_script() -> None:
    clock = ManualClock()
    transport = ScriptedTransport([b"abc", None, lambda: b"late", TransportError("cut"), b""], clock=clock)
    as_seen: Transport = transport
    assert as_seen.wait_connected(0)
    assert as_seen.fileno() == -1
    assert [transport.recv(2, 10), transport.recv(2, 10)] == [b"ab", b"c"]
    assert transport.recv(2, 10) is None
    assert clock.monotonic() == pytest.approx(0.01)
    assert transport.recv(9, 10) == b"late"
    with pytest.raises(TransportError, match="cut"):
        transport.recv(9, 10)
    assert transport.recv(9, 10) == b""
    assert transport.recv(9, 10) is None
    transport.close()
    with pytest.raises(TransportError):
        transport.recv(9, 10)
    with pytest.raises(TransportError):
        transport.send_all(b"x", 10)


def test_it_keeps_what_was_sent_and_answers_complete_requests() -> None:
    transport = ScriptedTransport(responder=lambda request: [Command(request.code + 1), b"raw"], clock=ManualClock())
    frame = encode_frame(Command(5, opaque=77))
    transport.send_all(frame[:9], 10)
    assert transport.requests == []
    transport.send_all(frame[9:], 10)
    assert [(r.code, r.opaque) for r in transport.requests] == [(5, 77)]
    assert bytes(transport.sent) == frame
    assert transport.writes == 2
    assert transport.recv(1000, 10) == encode_frame(Command(6, opaque=77, flag=1))
    assert transport.recv(1000, 10) == b"raw"


def test_a_connection_works_on_it() -> None:
    clock = ManualClock()
    network = ScriptedNetwork(
        {"host:1": [ScriptedTransport(responder=lambda request: [Command(0, remark="hi")], clock=clock)]}
    )
    connection = Connection("host:1", environment=Environment(connect=network, clock=clock.monotonic))
    assert connection.request(Command(105), 100).remark == "hi"
    connection.close()
    with pytest.raises(TransportError):
        network("host:1", 10)  # there was one only
    with pytest.raises(TransportError):
        network("host:2", 10)
    assert network.connected == ["host:1", "host:1", "host:2"]


def test_a_connection_can_fail_to_be_made() -> None:
    transport = ScriptedTransport(connect_failure=TransportError("refused"))
    with pytest.raises(TransportError, match="refused"):
        transport.wait_connected(10)
