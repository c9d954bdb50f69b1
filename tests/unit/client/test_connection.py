"""Connections on scripted transports: who gets which answer, and what happens when it goes wrong."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import pytest

from rmqio.client.connection import IDLE_CHECK_S, Connection
from rmqio.client.environment import Environment
from rmqio.errors import LocalError, RequestTimeout, TransportError
from rmqio.testing import ManualClock
from rmqio.wire.command import Command, CommandFlag, encode_frame
from tests.helpers.client.unplugged import environment_on
from tests.helpers.fakes.network import ScriptedNetwork, ScriptedTransport
from tests.helpers.waiting import at_most, until

ADDRESS = "broker:10911"


def answer(opaque: int, body: bytes = b"", *, code: int = 0) -> bytes:
    return encode_frame(Command(code, opaque=opaque, flag=CommandFlag.RESPONSE, body=body))


def echo(request: Command) -> Sequence[Command]:
    return [Command(0, body=b"answer to " + str(request.code).encode())]


def connect(*transports: ScriptedTransport, clock: ManualClock | None = None) -> tuple[Connection, ManualClock]:
    clock = clock or ManualClock()
    environment = environment_on(clock, ScriptedNetwork({ADDRESS: transports}))
    return Connection(ADDRESS, environment=environment), clock


def test_request_gets_its_answer() -> None:
    connection, _ = connect(ScriptedTransport(responder=echo))
    assert connection.request(Command(7), 1_000).body == b"answer to 7"
    assert repr(connection) == "<Connection broker:10911 open, in flight 0, requests 1, opened 1 times>"


def test_nothing_is_connected_before_the_first_use() -> None:
    connection, _ = connect()
    assert repr(connection) == "<Connection broker:10911 idle, in flight 0, requests 0, opened 0 times>"
    assert connection.session is None


@pytest.mark.parametrize("size", [1, 3, 8, 20, 1_000])
def test_answers_come_in_any_order_and_in_any_pieces(size: int) -> None:
    stream = answer(2, b"two") + answer(1, b"one")
    transport = ScriptedTransport([stream[at : at + size] for at in range(0, len(stream), size)])
    connection, _ = connect(transport)
    first, second = connection.start_all([Command(1), Command(2)])
    assert first.result(1_000).body == b"one"
    assert second.is_done
    assert second.result(0).body == b"two"
    assert second.result(0).body == b"two"


def test_requests_started_together_are_one_write() -> None:
    writes: list[int] = []

    class Counting(ScriptedTransport):
        def send_all(self, data: bytes, timeout_ms: float) -> None:
            writes.append(len(data))
            super().send_all(data, timeout_ms)

    transport = Counting(responder=echo)
    connection, _ = connect(transport)
    calls = connection.start_all([Command(n) for n in range(5)])
    assert len(writes) == 1
    assert [call.result(1_000).body for call in calls] == [b"answer to %d" % n for n in range(5)]


@pytest.mark.parametrize("flag", [0, CommandFlag.ONEWAY])
def test_pushed_request_with_a_colliding_opaque_is_not_our_answer(flag: int) -> None:
    pushed = encode_frame(Command(309, {"clientId": "x"}, opaque=1, flag=flag))
    transport = ScriptedTransport([pushed, answer(1, b"ours")])
    connection, _ = connect(transport)
    assert connection.request(Command(34), 1_000).body == b"ours"
    replies = [command for command in transport.requests if command.is_response]
    if flag & CommandFlag.ONEWAY:
        assert replies == []
    else:
        assert [(reply.opaque, reply.code) for reply in replies] == [(1, 3)]


def test_timeout_forgets_the_call_and_drops_its_late_answer() -> None:
    transport = ScriptedTransport()
    clock = ManualClock()
    transport = ScriptedTransport(clock=clock)
    connection, _ = connect(transport, clock=clock)
    with pytest.raises(RequestTimeout, match="no answer to request 5 within 3000 ms"):
        connection.request(Command(5), 3_000)
    assert clock.monotonic() == pytest.approx(3)
    transport.feed(answer(1, b"late") + answer(2, b"in time"))
    assert connection.request(Command(6), 3_000).body == b"in time"
    assert "opened 1 times" in repr(connection)


def test_answer_that_comes_twice_is_dropped_the_second_time() -> None:
    connection, _ = connect(ScriptedTransport([answer(1, b"a") * 2 + answer(2, b"b")]))
    first, second = connection.start_all([Command(1), Command(2)])
    assert (first.result(1_000).body, second.result(1_000).body) == (b"a", b"b")
    assert "in flight 0" in repr(connection)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param([b""], "closed the connection", id="end of stream"),
        pytest.param([answer(1)[:11], b""], "closed the connection", id="end in the middle of a frame"),
        pytest.param([b"\x7f\xff\xff\xff" + b"x" * 20], "frame length", id="hostile length"),
        pytest.param(
            [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
            "broker:10911 does not speak RocketMQ's protocol: frame length",
            id="another protocol",
        ),
        pytest.param([TransportError("reset by peer")], "reset by peer", id="reset"),
    ],
)
def test_broken_stream_fails_every_call_and_the_next_request_connects_anew(script: list[bytes], reason: str) -> None:
    connection, _ = connect(ScriptedTransport(script), ScriptedTransport(responder=echo))
    calls = connection.start_all([Command(10), Command(11)])
    for call in calls:
        with pytest.raises(TransportError, match=f"{reason}.*outcome of request {call.code} unknown"):
            call.result(1_000)
    assert "closed, in flight 0" in repr(connection)
    assert connection.request(Command(12), 1_000).body == b"answer to 12"
    assert repr(connection) == "<Connection broker:10911 open, in flight 0, requests 3, opened 2 times>"


def test_connection_that_cannot_be_made_raises_and_is_tried_again_next_time() -> None:
    refused = ScriptedTransport(connect_failure=TransportError("refused"))
    connection, _ = connect(refused, ScriptedTransport(responder=echo))
    with pytest.raises(TransportError, match="refused"):
        connection.request(Command(1), 1_000)
    assert refused.is_closed
    assert connection.request(Command(1), 1_000).code == 0


def test_failed_write_fails_the_session() -> None:
    class Full(ScriptedTransport):
        def send_all(self, data: bytes, timeout_ms: float) -> None:
            raise RequestTimeout("not taken in time")  # a part may have been written: the stream is of no more use

    connection, _ = connect(Full(), ScriptedTransport(responder=echo))
    with pytest.raises(RequestTimeout):
        connection.request(Command(1), 1_000)
    assert "closed, in flight 0" in repr(connection)
    assert connection.request(Command(1), 1_000).code == 0


def test_frame_that_is_too_large_is_refused_and_leaves_nothing_behind() -> None:
    connection, _ = connect(ScriptedTransport(responder=echo))
    with pytest.raises(LocalError, match="16 MiB"):
        connection.request(Command(1, body=bytes(17 << 20)), 1_000)
    assert "in flight 0, requests 0" in repr(connection)
    assert connection.request(Command(1), 1_000).code == 0


def test_socket_that_the_server_closed_while_idle_is_replaced_before_anything_is_sent() -> None:
    old = ScriptedTransport(responder=echo)
    connection, clock = connect(old, ScriptedTransport(responder=echo))
    connection.request(Command(1), 1_000)
    clock.advance(IDLE_CHECK_S + 1)
    old.feed(b"")
    sent = len(old.sent)
    assert connection.request(Command(2), 1_000).body == b"answer to 2"
    assert len(old.sent) == sent
    assert old.is_closed


def test_peer_that_stays_silent_is_disconnected() -> None:
    clock = ManualClock()
    silent = ScriptedTransport(clock=clock)
    connection, _ = connect(silent, ScriptedTransport(responder=echo), clock=clock)
    held = connection.start(Command(11))
    for _ in range(2):
        with pytest.raises(RequestTimeout):
            connection.request(Command(1), 1_000)
    assert silent.is_closed
    with pytest.raises(TransportError, match="has not answered 2 requests in a row"):
        held.result(1_000)
    assert connection.request(Command(2), 1_000).code == 0


def test_go_away_reconnects_and_sends_once_more() -> None:
    def go_away(request: Command) -> Sequence[Command]:
        return [Command(1500)]

    old = ScriptedTransport(responder=go_away)
    connection, _ = connect(old, ScriptedTransport(responder=echo))
    assert connection.request(Command(4), 1_000).body == b"answer to 4"
    assert old.is_closed


def test_go_away_leaves_calls_in_flight_their_answers() -> None:
    old = ScriptedTransport([answer(2, code=1500)])
    connection, _ = connect(old, ScriptedTransport(responder=echo))
    held = connection.start(Command(11))
    assert connection.request(Command(4), 1_000).body == b"answer to 4"
    assert not old.is_closed
    old.feed(answer(1, b"at last"))
    assert held.result(1_000).body == b"at last"
    assert old.is_closed


def test_close_fails_calls_in_flight_and_is_idempotent() -> None:
    transport = ScriptedTransport()
    connection, _ = connect(transport)
    call = connection.start(Command(1))
    connection.close()
    connection.close()
    assert transport.is_closed
    with pytest.raises(TransportError, match="closed by this client"):
        call.result(1_000)
    with pytest.raises(LocalError, match="is closed"):
        connection.start(Command(2))
    assert repr(connection) == "<Connection broker:10911 closed, in flight 0, requests 0, opened 1 times>"


def test_forgotten_call_is_dropped() -> None:
    connection, _ = connect(ScriptedTransport([answer(1) + answer(2, b"b")]))
    first, second = connection.start_all([Command(1), Command(2)])
    first.forget()
    assert second.result(1_000).body == b"b"
    with pytest.raises(RequestTimeout, match="given up"):
        first.result(1_000)


def test_many_threads_each_get_their_own_answers() -> None:
    # Really concurrent: answers come back reversed within groups, whoever happens to read.
    held: list[Command] = []

    def reversed_in_threes(request: Command) -> Sequence[bytes]:
        held.append(request)
        if len(held) < 3:
            return []
        group = [answer(r.opaque, r.body) for r in reversed(held)]
        held.clear()
        return group

    connection = Connection(
        ADDRESS,
        environment=Environment(connect=ScriptedNetwork({ADDRESS: [ScriptedTransport(responder=reversed_in_threes)]})),
    )
    barrier = threading.Barrier(3)
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for n in range(200):
                barrier.wait(at_most(10))  # three requests make a group
                body = b"%d of %d" % (n, number)
                got = connection.request(Command(1, body=body), 10_000).body
                if got != body:
                    wrong.append((body, got))
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(at_most(60))
    assert wrong == []
    assert "in flight 0, requests 600" in repr(connection)


def test_another_process_drops_the_inherited_socket_without_ending_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inherited(ScriptedTransport):
        was_abandoned = False

        def abandon(self) -> None:
            self.was_abandoned = True

    inherited = Inherited([answer(1)])
    connection, _ = connect(inherited, ScriptedTransport(responder=echo))
    call = connection.start(Command(1))
    written = len(inherited.sent)
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(TransportError, match="belongs to the parent process"):
        call.result(1_000)
    assert connection.request(Command(2), 1_000).body == b"answer to 2"
    assert inherited.was_abandoned
    assert not inherited.is_closed
    assert len(inherited.sent) == written


def test_no_thread_of_a_forked_child_finds_the_parents_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread of the child lets go of the parent's socket, another one asks for a request."""
    second: list[bytes] = []
    other = threading.Thread(target=lambda: second.append(connection.request(Command(2), 1_000).body))
    came: list[threading.Thread] = []

    class Adopting:
        lock = threading.Lock()

        def __enter__(self) -> None:
            came.append(threading.current_thread())
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    class Inherited(ScriptedTransport):
        def abandon(self) -> None:
            other.start()
            until(lambda: other in came or not other.is_alive(), "the other thread, which waits for us")

    inherited = Inherited(responder=echo)
    connection, _ = connect(inherited, ScriptedTransport(responder=echo))
    connection.request(Command(1), 1_000)
    written = len(inherited.sent)
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    monkeypatch.setattr("rmqio.client.connection._adopting", Adopting())
    assert connection.request(Command(3), 1_000).body == b"answer to 3"
    other.join()
    assert second == [b"answer to 2"]
    assert len(inherited.sent) == written
