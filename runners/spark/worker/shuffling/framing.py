"""Bytes around encoded values: counts, windows, and what of Beam's element encoding grouping writes itself."""

from __future__ import annotations

import struct
from typing import Any, Final

from apache_beam.coders import SingletonCoder, WindowedValueCoder
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from rmqio.runners.spark.beam.private import create_OutputStream

_WINDOW: Final = struct.Struct("<?qI")  # whether there is a time, microseconds, length of the window
ONLY_FIRING: Final = PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)
UNKNOWN_SIZE: Final = b"\xff\xff\xff\xff"  # an iterable in counted parts, after Beam's coder of iterables


def varint(number: int) -> bytes:
    """Beam's variable-length integer; -1 has ten bytes."""
    if 0 <= number < 0x80:
        return _SMALL[number]
    out = create_OutputStream()
    out.write_var_int64(number)
    return bytes(out.get())


_SMALL: Final = [bytes((number,)) for number in range(0x80)]
END_OF_PARTS: Final = varint(0)
REST_IN_STATE: Final = varint(-1)


def window_header(window: bytes, time: Timestamp | None) -> bytes:
    """What stands before a run of a windowed group."""
    return _WINDOW.pack(time is not None, 0 if time is None else time.micros, len(window)) + window


def split_window_header(value: bytes) -> tuple[bytes, Timestamp | None, bytes]:
    """Encoded window, combined timestamp if one is kept, run."""
    timed, micros, length = _WINDOW.unpack_from(value)
    start = _WINDOW.size + length
    return value[_WINDOW.size : start], Timestamp(micros=micros) if timed else None, value[start:]


class ElementHeads:
    """The encoding of timestamp, windows and pane that precedes the value of an element."""

    def __init__(self, window_coder: Any) -> None:
        # the value stands last, and this coder writes nothing for it
        self._encode = WindowedValueCoder(SingletonCoder(None), window_coder).get_impl().encode_nested

    def __call__(self, time: Timestamp, window: Any, pane: PaneInfo = ONLY_FIRING) -> bytes:
        encoded: bytes = self._encode(WindowedValue(None, time, (window,), pane))
        return encoded
