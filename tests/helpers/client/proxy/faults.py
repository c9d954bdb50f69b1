"""Faults of a `Proxy`, which it does to a frame instead of passing it on. Each function gives one fault."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol

from tests.helpers.client.proxy.frames import Frame

_OPAQUE: Final = re.compile(rb'("opaque":)(-?\d+)')


class Passage(Protocol):
    """One frame on its way, in the hands of a fault."""

    @property
    def frame(self) -> Frame: ...

    async def forward(self, data: bytes | None = None) -> None:
        """Pass the frame on, or these bytes in its place."""
        ...

    def hold_behind(self, others: int, at_most_ms: float) -> None:
        """Pass it on after so many later frames of its direction, or after this time."""
        ...

    async def wait_for_heal(self) -> None:
        """Until `Proxy.heal`: meanwhile nothing of this direction is passed on, and all stays open."""
        ...

    def cut(self, *, reset: bool = False) -> None:
        """Close both ends; what was passed on still arrives. With `reset` as when the peer is gone."""
        ...


Fault = Callable[[Passage], Awaitable[None]]


def delay(delay_ms: float) -> Fault:
    """Later, and all that follows in this direction too, as on a slow line."""

    async def fault(passage: Passage) -> None:
        await asyncio.sleep(delay_ms / 1000)
        await passage.forward()

    return fault


def cut(*, reset: bool = False) -> Fault:
    """Close the connection instead. Of an answer: the request has reached the server and was executed."""

    async def fault(passage: Passage) -> None:
        passage.cut(reset=reset)

    return fault


def truncate(keep_bytes: int) -> Fault:
    """The first bytes only (negative: all but the last), then close."""

    async def fault(passage: Passage) -> None:
        await passage.forward(passage.frame.data[:keep_bytes])
        passage.cut()

    return fault


def corrupt(place: Literal["length", "header length", "header", "body"], at: int = 0, *, flip: int = 0x01) -> Fault:
    """Change bits of one byte of a place of the frame (`at` is negative: from its end)."""

    async def fault(passage: Passage) -> None:
        frame = passage.frame
        begin, end = {
            "length": (0, 4),
            "header length": (5, 8),
            "header": (frame.header_begin, frame.body_begin),
            "body": (frame.body_begin, len(frame.data)),
        }[place]
        index = begin + at if at >= 0 else end + at
        assert begin <= index < end, f"the {place} of {frame.side} {frame.code} has {end - begin} bytes"
        await passage.forward(_flipped(frame.data, index, flip))

    return fault


def corrupt_record(at: int = -1, *, flip: int = 0x01) -> Fault:
    """Change bits of a byte of a record of TLS, wherever."""

    async def fault(passage: Passage) -> None:
        await passage.forward(_flipped(passage.frame.data, at % len(passage.frame.data), flip))

    return fault


def announce(more_bytes: int) -> Fault:
    """Say a length that is so many bytes more (or less, if negative) than come."""

    async def fault(passage: Passage) -> None:
        data = passage.frame.data
        length = int.from_bytes(data[:4], "big") + more_bytes
        await passage.forward(length.to_bytes(4, "big") + data[4:])

    return fault


def stall() -> Fault:
    """Pass nothing on any more in this direction, and close nothing, until `Proxy.heal`; then all of it."""

    async def fault(passage: Passage) -> None:
        await passage.wait_for_heal()
        await passage.forward()

    return fault


def swallow() -> Fault:
    """As if it had never been."""

    async def fault(passage: Passage) -> None:
        del passage

    return fault


def duplicate() -> Fault:
    """Twice."""

    async def fault(passage: Passage) -> None:
        await passage.forward(passage.frame.data * 2)

    return fault


def reorder(behind: int = 1, *, at_most_ms: float = 200) -> Fault:
    """Behind so many later ones of its direction; after this time in any case."""

    async def fault(passage: Passage) -> None:
        passage.hold_behind(behind, at_most_ms)

    return fault


def relabel(change: Callable[[int], int]) -> Fault:
    """Under another opaque."""

    async def fault(passage: Passage) -> None:
        frame = passage.frame
        header, body = frame.data[8 : frame.body_begin], frame.data[frame.body_begin :]
        header, count = _OPAQUE.subn(lambda found: found[1] + b"%d" % change(int(found[2])), header, count=1)
        assert count == 1, header
        mark = frame.data[4:5] + len(header).to_bytes(3, "big")
        await passage.forward((4 + len(header) + len(body)).to_bytes(4, "big") + mark + header + body)

    return fault


def _flipped(data: bytes, index: int, flip: int) -> bytes:
    return data[:index] + bytes([data[index] ^ flip]) + data[index + 1 :]
