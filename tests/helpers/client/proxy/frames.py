"""Frames of the remoting protocol, and records of TLS, as they come out of a stream. Independent of rmqio's codec."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum


class Side(Enum):
    """The direction of a frame."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass
class Frame:
    """A unit that is passed on or broken: a frame of the remoting protocol, or a record of TLS."""

    data: bytes
    side: Side
    code: int | None = None
    """The code of the request, for its answer too; None: unknown, or pushed by the server."""
    ext: dict[str, str] = field(default_factory=dict)

    @property
    def header_begin(self) -> int:
        return 8

    @property
    def body_begin(self) -> int:
        return 8 + int.from_bytes(self.data[5:8], "big")


class Cutter:
    """Takes the bytes of one direction as they come, gives whole frames or records."""

    def __init__(self, side: Side, *, tls: bool, codes: dict[int, int]) -> None:
        self._side = side
        self._is_tls = tls
        self._codes = codes
        """Codes of the requests that are not answered yet, by opaque; shared by both directions."""
        self.rest = b""
        """Bytes that are no whole frame yet."""

    def feed(self, data: bytes) -> list[Frame]:
        data = self.rest + data
        cuts = list(self._sizes(data))
        self.rest = data[cuts[-1][1] :] if cuts else data
        return [self._frame(data[begin:end]) for begin, end in cuts]

    def _sizes(self, data: bytes) -> Iterator[tuple[int, int]]:
        at, head = 0, 5 if self._is_tls else 4
        while at + head <= len(data):
            length = data[at + 3 : at + 5] if self._is_tls else data[at : at + 4]
            end = at + head + int.from_bytes(length, "big")
            if end > len(data):
                return
            yield at, end
            at = end

    def _frame(self, data: bytes) -> Frame:
        frame = Frame(data, self._side)
        if self._is_tls:
            return frame
        header = json.loads(data[8 : frame.body_begin])  # ours are JSON, and so are a broker's answers to them
        frame.ext = header.get("extFields") or {}
        is_answer = header["flag"] & 1
        if self._side is Side.REQUEST and not is_answer:
            frame.code = self._codes[header["opaque"]] = header["code"]
        elif self._side is Side.ANSWER and is_answer:
            frame.code = self._codes.pop(header["opaque"], None)
        return frame
