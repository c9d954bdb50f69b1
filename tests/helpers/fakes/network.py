"""A scripted peer of a connection: bytes in, bytes out, no socket."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from rmqio.errors import TransportError
from rmqio.testing.clock import Clock, is_real
from rmqio.wire.command import Command, CommandFlag, FrameDecoder, encode_frame

Step = bytes | BaseException | None | Callable[[], "bytes | BaseException | None"]
"""The effect of one `recv`: return bytes (b"": the peer closed), raise, find nothing (None), or call to decide."""

Responder = Callable[[Command], Sequence["Command | bytes"]]
"""Answers to one request. A `Command` gets the request's opaque and the response flag; bytes are sent unchanged."""


class ScriptedTransport:
    """Plays a script to the client and records what the client sent. Implements `connections.transport.Transport`.

    Args:
      script: the effects of the calls of `recv`, in order. Bytes beyond a call's limit stay for the next.
      responder: called with each request that the client has sent completely; its answers follow the script.
      clock: a `ManualClock` is advanced by the timeout when nothing is available; otherwise `recv` really waits.
      connect_failure: raised by `wait_connected`.
    """

    def __init__(
        self,
        script: Iterable[Step] = (),
        *,
        responder: Responder | None = None,
        clock: Clock = time,
        connect_failure: BaseException | None = None,
    ) -> None:
        self._script: deque[Step] = deque(script)
        self._responder = responder
        self._clock = clock
        self._connect_failure = connect_failure
        self._changed = threading.Condition(threading.RLock())
        self._decoder = FrameDecoder()
        self.sent = bytearray()
        """All bytes that the client wrote."""
        self.requests: list[Command] = []
        """All complete commands among them."""
        self.writes = 0
        """Number of writes."""
        self.is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<ScriptedTransport {state}, {len(self._script)} steps left, {len(self.requests)} requests>"

    def feed(self, *steps: Step) -> None:
        """Append steps to the script."""
        with self._changed:
            self._script.extend(steps)
            self._changed.notify_all()

    def wait_connected(self, timeout_ms: float) -> bool:
        if self._connect_failure is not None:
            raise self._connect_failure
        return True

    @property
    def connects_by_reading(self) -> bool:
        return False

    def send_all(self, data: bytes, timeout_ms: float) -> None:
        with self._changed:
            self._check_open()
            self.sent += data
            self.writes += 1
            self._decoder.receive_data(data)
            while (request := self._decoder.next_command()) is not None:
                self.requests.append(request)
                if self._responder is not None and not request.is_response:
                    self.feed(*(answer_bytes(request, item) for item in self._responder(request)))

    def send_parts(self, head: bytes, body: bytes, timeout_ms: float) -> None:
        self.send_all(head + body, timeout_ms)

    def recv(self, max_bytes: int, timeout_ms: float) -> bytes | None:
        with self._changed:
            self._check_open()
            if not self._script and is_real(self._clock):
                self._changed.wait_for(lambda: self._script or self.is_closed, timeout_ms / 1000)
                if self.is_closed:
                    return b""
            if self._script:
                step = self._script.popleft()
                if callable(step):
                    step = step()
                if isinstance(step, BaseException):
                    raise step
                if step is not None:
                    if len(step) > max_bytes:
                        self._script.appendleft(step[max_bytes:])
                    return step[:max_bytes]
        if not is_real(self._clock) and timeout_ms > 0:
            self._clock.sleep(timeout_ms / 1000)
        return None

    def fileno(self) -> int:
        return -1

    def shutdown(self) -> None:
        self.close()

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        self.close()

    def _check_open(self) -> None:
        if self.is_closed:
            raise TransportError("this transport is closed")


class ScriptedNetwork:
    """Returns scripted transports by address: pass it as the `connect` of a client.

    Args:
      transports: maps each address to the transports of its connections, in order, or to a callable that creates them.
    """

    def __init__(self, transports: Mapping[str, Iterable[ScriptedTransport] | Callable[[], ScriptedTransport]]) -> None:
        self._transports = {address: given if callable(given) else iter(given) for address, given in transports.items()}
        self.connected: list[str] = []
        """The connected addresses, in order."""

    def __call__(self, address: str, timeout_ms: int) -> ScriptedTransport:
        self.connected.append(address)
        source = self._transports.get(address)
        transport = None if source is None else source() if callable(source) else next(source, None)
        if transport is None:
            raise TransportError(f"cannot connect to {address}: nothing is scripted for it")
        return transport


def answer_bytes(request: Command, item: Command | bytes) -> bytes:
    """Return the frame of an answer to a request; bytes are returned unchanged."""
    if isinstance(item, bytes):
        return item
    item.opaque = request.opaque
    item.flag |= CommandFlag.RESPONSE
    return encode_frame(item)
