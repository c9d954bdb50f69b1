"""The state that Beam's trigger driver keeps for a key, with one correction, and its encoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from apache_beam.transforms.combiners import CountCombineFn
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import InMemoryUnmergedState, MergeableStateAdapter
from apache_beam.utils.timestamp import Timestamp

from rmqio.runners.spark.beam.private import create_InputStream, create_OutputStream

if TYPE_CHECKING:
    from apache_beam.transforms import trigger
    from apache_beam.transforms.window import BoundedWindow

    from rmqio.runners.spark.beam.private import CoderImpl

__all__ = ["CountingState", "StateCodec", "forget"]

_DOMAINS: Final = (TimeDomain.WATERMARK, TimeDomain.REAL_TIME)
_BYTES, _MICROS, _NUMBERS = 0, 1, 2


class CountingState(InMemoryUnmergedState):
    """Beam's state, but with one number per count. Beam's list of ones would grow with each pane of a key."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[BoundedWindow, int] = {}
        """The number of elements in the last pane of each window."""

    @property
    def windows(self) -> Mapping[BoundedWindow, Sequence[int]]:
        """The windows that are not over. Each has the numbers of the entries that hold its state."""
        found: Mapping[BoundedWindow, Sequence[int]] = self.global_state.get(MergeableStateAdapter.WINDOW_IDS.tag, {})
        return found

    def has_entry(self, window_id: int) -> bool:
        """Returns whether the entry is that of a window: it is not if the window has been merged into another one."""
        return any(window_id in ids for ids in self.windows.values())

    def timer_times(self) -> Iterator[tuple[str, int]]:
        """Yields the time domain and the microsecond of each timer."""
        for timers in self.timers.values():
            for (_, domain, _), time in timers.items():
                yield domain, int(time.micros)

    def hold(self) -> int:
        """Returns the microsecond at which the elements hold back the watermark; the end of time if none does."""
        return int(self.get_earliest_hold().micros)

    def add_state(self, window: BoundedWindow, tag: trigger._StateTag, value: object) -> None:
        if _is_count(tag):
            values = self.state[window][tag.tag]
            values[:] = [sum(values) + 1]
        else:
            super().add_state(window, tag, value)

    def get_state(self, window: BoundedWindow, tag: trigger._StateTag) -> object:
        return sum(self.state[window][tag.tag]) if _is_count(tag) else super().get_state(window, tag)


def _is_count(tag: trigger._StateTag) -> bool:
    """Returns whether a tag counts. Beam may have wrapped its CombineFn in one that has the methods of the first."""
    create = getattr(getattr(tag, "combine_fn", None), "create_accumulator", None)
    return isinstance(getattr(create, "__self__", None), CountCombineFn)


def forget(of_windows: MergeableStateAdapter, window: BoundedWindow) -> None:
    """Drops the state and timers of a window that is over. `of_windows` is the adapter of a key's state."""
    state = of_windows.raw_state
    for window_id in of_windows.window_ids.pop(window):
        state.state.pop(window_id, None)
        state.timers.pop(window_id, None)
    of_windows._persist_window_ids()


class StateCodec:
    """Encodes the state. `window_impl` encodes its windows; its elements are bytes."""

    def __init__(self, window_impl: CoderImpl) -> None:
        self._window_impl = window_impl

    def encode(self, state: CountingState) -> bytes:
        """Returns the encoded state; empty if there is nothing to keep."""
        windows = state.windows
        if not windows and not state.timers:
            return b""
        out = create_OutputStream()
        out.write_var_int64(len(windows))
        for window, ids in windows.items():
            out.write(self._window_impl.encode_nested(window), True)
            out.write_var_int64(state.shown.get(window, 0))
            _write_numbers(out, ids)
        out.write_var_int64(len(state.state))
        for window_id, tags in state.state.items():
            out.write_var_int64(window_id)
            out.write_var_int64(len(tags))
            for tag, values in tags.items():
                out.write(tag.encode(), True)
                _write_values(out, values)
        out.write_var_int64(len(state.timers))
        for window_id, timers in state.timers.items():
            out.write_var_int64(window_id)
            out.write_var_int64(len(timers))
            for (name, domain, tag), time in timers.items():
                out.write(name.encode(), True)
                out.write_var_int64(_DOMAINS.index(domain))
                out.write(tag.encode(), True)
                out.write_var_int64(int(time.micros))
        return bytes(out.get())

    def decode(self, data: bytes) -> CountingState:
        """Returns the state; a new one if there is no data."""
        state = CountingState()
        if not data:
            return state
        stream = create_InputStream(data)
        windows: dict[BoundedWindow, list[int]] = {}
        for _ in range(stream.read_var_int64()):
            window = self._window_impl.decode_nested(stream.read_all(True))
            state.shown[window] = stream.read_var_int64()
            windows[window] = _read_numbers(stream)
        state.global_state = {MergeableStateAdapter.WINDOW_IDS.tag: windows}
        for _ in range(stream.read_var_int64()):
            tags = state.state[stream.read_var_int64()]
            for _ in range(stream.read_var_int64()):
                tag = stream.read_all(True).decode()
                tags[tag] = _read_values(stream)
        for _ in range(stream.read_var_int64()):
            timers = state.timers[stream.read_var_int64()]
            for _ in range(stream.read_var_int64()):
                name = stream.read_all(True).decode()
                domain = _DOMAINS[stream.read_var_int64()]
                tag = stream.read_all(True).decode()
                timers[name, domain, tag] = Timestamp(micros=stream.read_var_int64())
        return state


def _write_values(out: create_OutputStream, values: list[Any]) -> None:
    """Writes a state's values, which are all bytes, all Timestamps, or all ints."""
    if values and isinstance(values[0], bytes):
        out.write_var_int64(_BYTES)
        out.write_var_int64(len(values))
        for value in values:
            out.write(value, True)
    elif values and isinstance(values[0], Timestamp):
        out.write_var_int64(_MICROS)
        _write_numbers(out, [int(value.micros) for value in values])
    else:
        out.write_var_int64(_NUMBERS)
        _write_numbers(out, values)


def _read_values(stream: create_InputStream) -> list[bytes] | list[Timestamp] | list[int]:
    kind = stream.read_var_int64()
    if kind == _BYTES:
        return [stream.read_all(True) for _ in range(stream.read_var_int64())]
    numbers = _read_numbers(stream)
    return [Timestamp(micros=number) for number in numbers] if kind == _MICROS else numbers


def _write_numbers(out: create_OutputStream, numbers: Iterable[int]) -> None:
    """Writes equal neighbours once, with their count."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and groups[-1][0] == number:
            groups[-1][1] += 1
        else:
            groups.append([int(number), 1])
    out.write_var_int64(len(groups))
    for number, count in groups:
        out.write_var_int64(number)
        out.write_var_int64(count)


def _read_numbers(stream: create_InputStream) -> list[int]:
    found: list[int] = []
    for _ in range(stream.read_var_int64()):
        number = stream.read_var_int64()
        found += [number] * stream.read_var_int64()
    return found
