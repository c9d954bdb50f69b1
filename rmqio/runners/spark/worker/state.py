"""What Beam's bundle processor asks in the same process: user state, timers, side inputs and spooled groups."""

from __future__ import annotations

import heapq
import itertools
import os
import struct
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from apache_beam.coders import Coder
from apache_beam.transforms.window import BoundedWindow
from apache_beam.utils.timestamp import Timestamp

from rmqio.runners.spark.beam.operations import Family, StateHandler
from rmqio.runners.spark.beam.private import (
    ClosableOutputStream,
    CoderImpl,
    StateServicer,
    beam_fn_api_pb2,
    create_InputStream,
    create_OutputStream,
    taken,
)
from rmqio.runners.spark.model import SideInput
from rmqio.runners.tracebacks import not_encodable

if TYPE_CHECKING:
    from apache_beam.transforms.userstate import Timer
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.windowed_value import WindowedValue

    from rmqio.runners.spark.beam.private import CoderImpl, beam_fn_api_pb2


# Reads side inputs from broadcasts. Each worker process decodes a side input once, by window and key.


class SideInputData:
    """The encoded elements of a PCollection that is a side input. This is the value of a broadcast.

    Views are made on first use. They are kept here, so they live as long as the process keeps the broadcast.
    """

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks
        self._views: dict[bool, dict[bytes, Any]] = {}

    def __reduce__(self) -> tuple[type[SideInputData], tuple[list[bytes]]]:
        return SideInputData, (self.chunks,)  # without the views

    def view(self, multimap: bool, coder: Coder) -> dict[bytes, Any]:
        """Returns elements by encoded window: lists or, for a multimap, dicts from encoded key to (key, values)."""
        if multimap not in self._views:
            self._views[multimap] = _by_key(self.chunks, coder) if multimap else _by_window(self.chunks, coder)
        return self._views[multimap]


class SideInputBroadcast(Protocol):
    """Holds the elements of a side input: a broadcast of Spark, or what a stream keeps in its place."""

    @property
    def value(self) -> SideInputData: ...


class SideInputs:
    """Answers the requests of Beam's state API for the side inputs of a stage."""

    def __init__(
        self, specs: Iterable[SideInput], data: Mapping[str, SideInputBroadcast], coder_of: Callable[[str], Coder]
    ) -> None:
        """Args: the stage's side inputs; broadcasts by name; a function that finds a coder by its id."""
        self._specs = {(spec.transform_id, spec.tag): spec for spec in specs}
        self._data = data
        self._coder_of = coder_of

    def get(
        self, kind: str, key: beam_fn_api_pb2.StateKey.IterableSideInput | beam_fn_api_pb2.StateKey.MultimapSideInput
    ) -> Iterator[object]:
        """Returns the values for a request of one of Beam's four kinds. `key`: that kind's part of the state key."""
        spec = self._specs[key.transform_id, key.side_input_id]
        view = self._data[spec.name].value.view(spec.multimap, self._coder_of(spec.coder_id))
        of_window = view.get(key.window)
        if of_window is None:
            return iter(())
        if kind == "iterable_side_input":
            return iter(of_window)
        if kind == "multimap_side_input":
            found = of_window.get(key.key)
            return iter(()) if found is None else iter(found[1])
        if kind == "multimap_keys_side_input":
            return (each for each, _ in of_window.values())
        return iter(of_window.values())


def _elements(chunks: Iterable[bytes], coder: Coder) -> Iterator[WindowedValue]:
    impl = coder.get_impl()
    for chunk in chunks:
        stream = create_InputStream(chunk)
        while stream.size() > 0:
            yield impl.decode_from_stream(stream, True)


def _by_window(chunks: Iterable[bytes], coder: Coder) -> dict[bytes, list[object]]:
    encode = coder.window_coder.encode
    found: dict[BoundedWindow, list[object]] = {}
    for element in _elements(chunks, coder):
        for window in element.windows:
            found.setdefault(window, []).append(element.value)
    return {encode(window): values for window, values in found.items()}


def _by_key(chunks: Iterable[bytes], coder: Coder) -> dict[bytes, dict[bytes, tuple[object, list[object]]]]:
    encode = coder.window_coder.encode
    encode_key = coder.wrapped_value_coder.key_coder().get_impl().encode_nested
    found: dict[BoundedWindow, dict[bytes, tuple[object, list[object]]]] = {}
    for element in _elements(chunks, coder):
        key, value = element.value
        encoded = encode_key(key)
        for window in element.windows:
            found.setdefault(window, {}).setdefault(encoded, (key, []))[1].append(value)
    return {encode(window): keys for window, keys in found.items()}


# Keeps runs of encoded values on disk if there are too many for memory. They can be read any number of times.

_LENGTH: Final = struct.Struct("<Q")
# A run may be long. It is decoded from the file as a whole, so a group needs memory for one run, but not for all.


class Spool:
    """A temporary file with lists of runs. A token names a list and is valid until `clear`. For a single thread."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._lists: dict[bytes, tuple[int, int]] = {}
        self._end = 0

    @property
    def used(self) -> bool:
        """Whether anything was stored since the last `clear`."""
        return bool(self._lists)

    def store(self, runs: Iterator[bytes]) -> bytes:
        """Writes runs, each a varint count and that many encoded values, and returns the token for reading them."""
        file = self._opened()
        start = self._end
        file.seek(start)
        for run in runs:
            file.write(_LENGTH.pack(len(run)))
            file.write(run)
        file.flush()
        self._end = file.tell()
        token = b"spool-%d" % start
        self._lists[token] = (start, self._end)
        return token

    def runs(self, token: bytes) -> Iterator[bytes]:
        """Yields the runs of a list, reading one at a time. Several calls may read at the same time."""
        at, end = self._lists[token]
        descriptor = self._opened().fileno()
        while at < end:
            (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, at))
            at += _LENGTH.size
            yield _read_fully(descriptor, length, at)
            at += length

    def read(self, token: bytes, coder: CoderImpl) -> Iterator[object]:
        """Yields the values of a list. Each is decoded when it is requested."""
        for run in self.runs(token):
            stream = create_InputStream(run)
            for _ in range(stream.read_var_int64()):
                yield coder.decode_from_stream(stream, True)

    def clear(self) -> None:
        """Forgets all lists and frees their disk space."""
        self._lists.clear()
        self._end = 0
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        """Removes the file."""
        self._lists.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> BinaryIO:
        if self._file is None:
            # Spark spills to SPARK_LOCAL_DIRS, so there is room
            folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
            self._file = tempfile.TemporaryFile(prefix="rmqio-group-", dir=folder)  # noqa: SIM115
        return self._file


def _read_fully(descriptor: int, length: int, offset: int) -> bytes:
    """Reads `length` bytes in several steps if necessary: on Linux, `pread` returns at most 2 GiB at a time."""
    parts = []
    while length:
        part = os.pread(descriptor, length, offset)
        if not part:
            raise EOFError(
                f"The temporary file of a spooled group ends at byte {offset}, {length} bytes too early. Check the "
                "disk of SPARK_LOCAL_DIRS or, if that is not set, of the temporary folder"
            )
        parts.append(part)
        length -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


# Keeps the timers of a bundle that are set and have not fired yet, in the order in which they fire.

Name = tuple[Family, Hashable, BoundedWindow, str]  # family, key, window, dynamic tag
Owner = tuple[str, Hashable, BoundedWindow]  # transform id, key, window: timers with the same owner share state
Order = tuple[bool, Timestamp]  # whether in processing time, and when the timer fires


class Timers:
    """Collects timers from the streams to which a bundle writes them, and returns those that are due.

    When all elements of a key have arrived, time advances to its end. Event-time timers fire in timestamp order, then
    processing-time timers fire without waiting, as in Beam's other batch runners. Timers that a callback sets join the
    queue. Only one timer of a key and window fires at a time, so that its callback can still clear or move a later one.

    An event-time timer may be set after the end of its window (Beam's own transforms set it at the end, and users add
    the allowed lateness). It fires. If it then sets itself again, it does not fire again, because it would never stop.
    """

    def __init__(self, event_time: Mapping[Family, bool]) -> None:
        """Args: whether each family is in event time."""
        self._event_time = event_time
        self._expired: set[Name] = set()  # timers that have fired after the end of their window
        self._streams: dict[Family, ClosableOutputStream] = {}
        self._coders: dict[Family, CoderImpl] = {}
        self._serials = itertools.count()
        self._set: dict[Name, tuple[int, Timer]] = {}  # serial number and timer
        # By owner, with the first timer to fire on top. A timer that was cleared or moved stays until it comes up: its
        # serial number is then no longer the one in `_set`.
        self._queues: dict[Owner, list[tuple[Order, int, Name]]] = {}

    def stream(self, family: Family, coder: CoderImpl) -> ClosableOutputStream:
        """Returns a stream to which the bundle writes the timers of a family. `coder` decodes them."""
        stream = self._streams[family] = ClosableOutputStream()
        self._coders[family] = coder
        return stream

    def due(self) -> Iterator[tuple[Family, bytes]]:
        """Yields encoded timers that fire now, until none is left. Timers that are set in between are included."""
        while True:
            self._collect()
            if not self._set:
                return
            yield from self._next()

    def _next(self) -> Iterator[tuple[Family, bytes]]:
        first = [found for owner in list(self._queues) if (found := self._first(owner)) is not None]
        streams: dict[Family, create_OutputStream] = {}
        for _, _, name in sorted(first, key=lambda each: each[0]):
            family = name[0]
            out = streams.setdefault(family, create_OutputStream())
            _, timer = self._set.pop(name)
            if self._is_behind(family, timer):
                self._expired.add(name)
            self._coders[family].encode_to_stream(timer, out, True)
        for family, out in streams.items():
            yield family, out.get()

    def _first(self, owner: Owner) -> tuple[Order, int, Name] | None:
        """Removes the timer that fires first from an owner's queue, and returns it."""
        queue = self._queues[owner]
        while queue:
            first = heapq.heappop(queue)
            _, serial, name = first
            if name in self._set and self._set[name][0] == serial:
                return first
        del self._queues[owner]
        return None

    def _collect(self) -> None:
        for family, stream in self._streams.items():
            if not stream.size():
                continue
            data = taken(stream)
            for timer in self._coders[family].decode_all(data):
                name = (family, _hashable(timer.user_key), timer.windows[0], timer.dynamic_timer_tag)
                self._set.pop(name, None)
                if timer.clear_bit or (self._is_behind(family, timer) and name in self._expired):
                    continue
                serial = next(self._serials)
                self._set[name] = (serial, timer)
                order = (not self._event_time[family], timer.fire_timestamp)
                heapq.heappush(self._queues.setdefault(_owner(name), []), (order, serial, name))

    def _is_behind(self, family: Family, timer: Timer) -> bool:
        return self._event_time[family] and bool(timer.fire_timestamp > timer.windows[0].max_timestamp())


def _owner(name: Name) -> Owner:
    (transform_id, _), key, window, _ = name
    return transform_id, key, window


def _hashable(key: object) -> Hashable:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key


_SIDE_INPUTS = frozenset(
    {
        "iterable_side_input",
        "multimap_side_input",
        "multimap_keys_side_input",
        "multimap_keys_values_side_input",
    }
)


class UserState(Protocol):
    """Stores user state by state key: Beam's in-memory servicer, or what a stream keeps by key."""

    def get_raw(self, state_key: beam_fn_api_pb2.StateKey) -> tuple[bytes, object]: ...

    def append_raw(self, state_key: beam_fn_api_pb2.StateKey, data: bytes) -> object: ...

    def clear(self, state_key: beam_fn_api_pb2.StateKey) -> object: ...


class TaskState(StateHandler):
    """Serves the state requests of one task.

    User state lives as long as the keys of one bundle: all elements of a key are in one bundle, and its timers fire
    there. Beam's own in-memory servicer keeps user state, so every kind of state that Beam knows is served.
    """

    def __init__(self, side_inputs: SideInputs, spool: Spool) -> None:
        super().__init__()
        self._side_inputs = side_inputs
        self._spool = spool
        self._user: UserState = StateServicer()

    def serve(self, user: UserState) -> None:
        """Reads and writes user state in `user` from now on: see `streaming.state.user_state`."""
        self._user = user

    def forget_keys(self) -> None:
        """Drops all user state, because the keys of the bundle will not come again."""
        self._user = StateServicer()

    def blocking_get(self, state_key: beam_fn_api_pb2.StateKey, coder: CoderImpl) -> Iterator[object]:
        kind = state_key.WhichOneof("type")
        if kind == "runner":
            return self._spool.read(state_key.runner.key, coder)
        if kind in _SIDE_INPUTS:
            return self._side_inputs.get(kind, getattr(state_key, kind))
        data, _ = self._user.get_raw(state_key)
        return _decoded(data, coder)

    def extend(self, state_key: beam_fn_api_pb2.StateKey, coder: CoderImpl, elements: Iterable[object]) -> object:
        out = create_OutputStream()
        given = list(elements)
        try:
            for element in given:
                coder.encode_to_stream(element, out, True)
        except Exception as error:  # noqa: BLE001 - whatever a coder raises
            raise not_encodable(state_key, coder, given, error) from None
        return self._user.append_raw(state_key, out.get())

    def clear(self, state_key: beam_fn_api_pb2.StateKey) -> object:
        return self._user.clear(state_key)


def _decoded(data: bytes, coder: CoderImpl) -> Iterator[object]:
    stream = create_InputStream(data)
    while stream.size() > 0:
        yield coder.decode_from_stream(stream, True)
