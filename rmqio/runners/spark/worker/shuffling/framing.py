"""The bytes around encoded values: counts, windows, and the parts of Beam's element encoding that grouping writes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from apache_beam.coders import SingletonCoder, WindowedValueCoder
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from rmqio.runners.spark.beam.private import create_OutputStream

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.window import BoundedWindow

_WINDOW: Final = struct.Struct("<?qI")  # whether there is a timestamp, its microseconds, length of the window
ONLY_FIRING: Final = PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)
UNKNOWN_SIZE: Final = b"\xff\xff\xff\xff"  # an iterable in counted parts, as in Beam's coder of iterables


def varint(number: int) -> bytes:
    """Returns a number as Beam's variable-length integer. -1 takes ten bytes."""
    if 0 <= number < 0x80:
        return _SMALL[number]
    out = create_OutputStream()
    out.write_var_int64(number)
    return bytes(out.get())


_SMALL: Final = [bytes((number,)) for number in range(0x80)]
END_OF_PARTS: Final = varint(0)
REST_IN_STATE: Final = varint(-1)


def window_header(window: bytes, time: Timestamp | None) -> bytes:
    """Returns the header of a run of a windowed group."""
    return _WINDOW.pack(time is not None, 0 if time is None else time.micros, len(window)) + window


def split_window_header(value: bytes) -> tuple[bytes, Timestamp | None, bytes]:
    """Returns the encoded window, the combined timestamp if one is kept, and the run."""
    timed, micros, length = _WINDOW.unpack_from(value)
    start = _WINDOW.size + length
    return value[_WINDOW.size : start], Timestamp(micros=micros) if timed else None, value[start:]


class ElementHeads:
    """Encodes the timestamp, windows and pane that precede the value of an element."""

    def __init__(self, window_coder: Coder) -> None:
        # The value comes last, and this coder writes nothing for it
        self._encode = WindowedValueCoder(SingletonCoder(None), window_coder).get_impl().encode_nested

    def __call__(self, time: Timestamp, window: BoundedWindow, pane: PaneInfo = ONLY_FIRING) -> bytes:
        encoded: bytes = self._encode(WindowedValue(None, time, (window,), pane))
        return encoded
