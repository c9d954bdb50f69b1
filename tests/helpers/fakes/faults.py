"""Faults that a `FakeBroker` applies to a request instead of answering it properly. Each function returns one fault."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from rmqio.wire.command import Command, CommandFlag, encode_frame


class Exchange(Protocol):
    """One request at the fake broker, as seen by a fault."""

    @property
    def request(self) -> Command: ...

    def handle(self) -> Command:
        """Execute the request and return the proper answer (for a pull, without holding it)."""
        ...

    def send(self, answer: Command | bytes) -> None:
        """Send a frame, or raw bytes."""
        ...

    def close(self) -> None:
        """Close the connection once everything is written."""
        ...

    def later(self, delay_ms: float, action: Callable[[], object]) -> None:
        """Run an action later."""
        ...


Fault = Callable[[Exchange], None]


def drop(*, executed: bool = False) -> Fault:
    """Send no answer. With `executed` the request takes effect and only its answer is lost."""

    def fault(exchange: Exchange) -> None:
        if executed:
            exchange.handle()

    return fault


def delay(delay_ms: float) -> Fault:
    """Take effect at once and answer later; requests that arrive meanwhile are answered first."""

    def fault(exchange: Exchange) -> None:
        answer = exchange.handle()
        exchange.later(delay_ms, lambda: exchange.send(answer))

    return fault


def answer(code: int, remark: str | None = None, *, executed: bool = False, **ext: str) -> Fault:
    """Answer with this code. With `executed` the request still takes effect, and the answer's fields remain."""

    def fault(exchange: Exchange) -> None:
        fields = dict(exchange.handle().ext) if executed else {}
        exchange.send(Command(code, fields | ext, remark=remark))

    return fault


def truncate(keep_bytes: int = 11) -> Fault:
    """Take effect, send the first bytes of the answer, and close."""

    def fault(exchange: Exchange) -> None:
        whole = exchange.handle()
        whole = replace(whole, opaque=exchange.request.opaque, flag=whole.flag | CommandFlag.RESPONSE)
        exchange.send(encode_frame(whole)[:keep_bytes])
        exchange.close()

    return fault


def reply_twice() -> Fault:
    """Send the proper answer twice."""

    def fault(exchange: Exchange) -> None:
        proper = exchange.handle()
        exchange.send(proper)
        exchange.send(proper)

    return fault


def close(*, executed: bool = False) -> Fault:
    """Close the connection instead of answering."""

    def fault(exchange: Exchange) -> None:
        if executed:
            exchange.handle()
        exchange.close()

    return fault


def garbage(data: bytes | None = None) -> Fault:
    """Send bytes that are not a frame: by default random ones after a hostile length. Does not take effect."""

    def fault(exchange: Exchange) -> None:
        exchange.send(b"\x7f\xff\xff\xff" + os.urandom(60) if data is None else data)

    return fault


def push(command: Command) -> Fault:
    """Before the proper answer, send a server's request whose opaque collides with the client's."""

    def fault(exchange: Exchange) -> None:
        own = replace(command, opaque=exchange.request.opaque, flag=command.flag & ~CommandFlag.RESPONSE)
        exchange.send(encode_frame(own))
        exchange.send(exchange.handle())

    return fault
