"""The proxy: one thread, asyncio. Between faults it is a faithful stream.

Order, back pressure and half-closed connections pass through it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tests.helpers.client.proxy.faults import Fault
from tests.helpers.client.proxy.frames import Cutter, Frame, Side
from tests.helpers.waiting import at_most

_READ_BYTES: Final = 1 << 16
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


@dataclass
class _Rule:
    fault: Fault
    side: Side
    code: int | None
    skip: int
    times: int
    when: Callable[[Frame], bool]


@dataclass(eq=False)
class _Held:
    frame: Frame
    others: int
    """The number of frames that are still to pass before it."""


class Proxy:
    """A context manager. Its methods may be called from any thread.

    Args:
      target: `host:port` of the server.
      tls: what goes through is TLS: frames are its records, without codes.
    """

    def __init__(self, target: str, *, tls: bool = False) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.is_tls = tls
        self.address = ""
        self.hits = 0
        """Frames that a fault was done to."""
        self.failures: list[Exception] = []
        """Failures of the proxy itself, as when a fault asks for a byte that a frame lacks; raised when it is left."""
        self._rules: list[_Rule] = []
        self._refused = 0
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._healed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rmqio-test-proxy", daemon=True)

    def __repr__(self) -> str:
        return f"<Proxy {self.address} to {self.target}, {len(self._links)} connections, {self.hits} hits>"

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname()[:2])
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(at_most(10))
        self._loop.close()
        if self.failures:
            raise self.failures[0]

    def on(
        self,
        fault: Fault,
        side: Side = Side.ANSWER,
        code: int | None = None,
        *,
        skip: int = 0,
        times: int = 1,
        when: Callable[[Frame], bool] = lambda _: True,
    ) -> None:
        """Do this to the next frames of a direction: of that code if given, after leaving so many alone."""
        with self._lock:
            self._rules.append(_Rule(fault, side, code, skip, times, when))

    def refuse(self, times: int) -> None:
        """Close the next connections as soon as they are made."""
        with self._lock:
            self._refused = times

    def heal(self) -> None:
        """Forget faults that have not happened, and let go on what is stalled."""
        with self._lock:
            self._rules.clear()
            self._refused = 0
        self._do(self._release())

    # ---- in its thread -----------------------------------------------------------------------------------------------

    async def healed(self) -> None:
        await self._healed.wait()

    def fault_for(self, frame: Frame) -> Fault | None:
        with self._lock:
            for rule in self._rules:
                if rule.side is frame.side and rule.code in (None, frame.code) and rule.when(frame):
                    if rule.skip > 0:
                        rule.skip -= 1
                        continue
                    rule.times -= 1
                    if rule.times <= 0:
                        self._rules.remove(rule)
                    self.hits += 1
                    return rule.fault
        return None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._lock:
            refused, self._refused = self._refused > 0, max(self._refused - 1, 0)
        if refused:
            self.hits += 1
            writer.close()
            return
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _release(self) -> None:
        self._healed.set()
        await asyncio.sleep(0)  # those that wait have seen it
        self._healed.clear()

    async def _stop(self) -> None:
        self._server.close()
        for link in tuple(self._links):
            link.cut(reset=False)
        self._healed.set()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if others:
            await asyncio.wait(others, timeout=at_most(5))

    def _do(self, work: Any) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(at_most(10))


class _Link:
    """A connection of a client and the one to the server that goes with it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self._client = (reader, writer)
        self._writers: dict[Side, asyncio.StreamWriter] = {Side.ANSWER: writer}
        self._codes: dict[int, int] = {}
        """Codes of the requests that are not answered yet, by opaque."""
        self._held: dict[Side, list[_Held]] = {Side.REQUEST: [], Side.ANSWER: []}

    async def run(self) -> None:
        try:
            reader, writer = await asyncio.open_connection(*self.proxy.target)
        except OSError:
            self._client[1].close()
            return
        self._writers[Side.REQUEST] = writer
        await asyncio.gather(self._pump(Side.REQUEST, self._client[0]), self._pump(Side.ANSWER, reader))
        for each in self._writers.values():
            each.close()
            with suppress(OSError):
                await each.wait_closed()

    async def forward(self, side: Side, data: bytes) -> None:
        writer = self._writers[side]
        writer.write(data)
        await writer.drain()

    def hold(self, frame: Frame, others: int, at_most_ms: float) -> None:
        held = _Held(frame, others)
        self._held[frame.side].append(held)
        asyncio.get_running_loop().call_later(at_most_ms / 1000, self._let_go, held)

    def cut(self, *, reset: bool) -> None:
        for writer in self._writers.values():
            if reset:
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
                writer.transport.abort()
            else:
                writer.close()

    def _let_go(self, held: _Held) -> None:
        waiting = self._held[held.frame.side]
        if held in waiting:
            waiting.remove(held)
            self._writers[held.frame.side].write(held.frame.data)

    async def _pump(self, side: Side, reader: asyncio.StreamReader) -> None:
        cutter = Cutter(side, tls=self.proxy.is_tls, codes=self._codes)
        try:
            while data := await reader.read(_READ_BYTES):
                for frame in cutter.feed(data):
                    fault = self.proxy.fault_for(frame)
                    if fault is None:
                        await self.forward(side, frame.data)
                        self._pass_held(side)
                    else:
                        await fault(_Passage(self, frame))
            await self.forward(side, cutter.rest)
            self._writers[side].write_eof()
        except (OSError, RuntimeError):  # one end is gone, or cut: so is the other
            self.cut(reset=False)
        except Exception as error:  # noqa: BLE001  # whoever leaves the proxy is told
            self.proxy.failures.append(error)
            self.cut(reset=False)

    def _pass_held(self, side: Side) -> None:
        for held in tuple(self._held[side]):
            held.others -= 1
            if held.others <= 0:
                self._let_go(held)


class _Passage:
    """One frame on its way, in the hands of a fault. Used in the proxy's thread only."""

    def __init__(self, link: _Link, frame: Frame) -> None:
        self._link = link
        self.frame = frame

    async def forward(self, data: bytes | None = None) -> None:
        """Pass the frame on, or these bytes in its place."""
        await self._link.forward(self.frame.side, self.frame.data if data is None else data)

    def hold_behind(self, others: int, at_most_ms: float) -> None:
        """Pass it on after so many later frames of its direction, or after this time."""
        self._link.hold(self.frame, others, at_most_ms)

    async def wait_for_heal(self) -> None:
        """Until `Proxy.heal`: meanwhile nothing of this direction is passed on, and all stays open."""
        await self._link.proxy.healed()

    def cut(self, *, reset: bool = False) -> None:
        """Close both ends; what was passed on still arrives. With `reset` as when the peer is gone."""
        self._link.cut(reset=reset)
