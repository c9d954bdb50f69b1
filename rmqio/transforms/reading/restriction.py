"""The restriction of one queue (what is left to read) and its tracker, the element of a read, and its watermark."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from apache_beam.coders import Coder, VarIntCoder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker, WatermarkEstimator
from apache_beam.transforms.core import WatermarkEstimatorProvider
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

from rmqio.errors import LocalError, SerdeError, WireError
from rmqio.model import MessageQueue, Record
from rmqio.start import StartFrom, StopAt

# The element of a read: one queue, where to start in it, and where to stop.


class QueueDescriptor(NamedTuple):
    """One queue to read. `ReadAllFromRocketMQ` accepts it as an element."""

    queue: MessageQueue
    start: StartFrom | None = None
    """None: the transform's."""
    stop: StopAt | None = None
    """None: the transform's."""
    limit: int | None = None
    """Maximum number of records; None: no limit."""


class QueueDescriptorCoder(Coder):
    """JSON with sorted keys: there are only a few per queue, and they are stored in checkpoints."""

    def encode(self, value: QueueDescriptor) -> bytes:
        fields = {
            "queue": value.queue,
            "start": _start_fields(value.start, value.queue),
            "stop": _stop_fields(value.stop, value.queue),
            "limit": value.limit,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    def decode(self, encoded: bytes) -> QueueDescriptor:
        try:
            fields = json.loads(encoded)
            return QueueDescriptor(
                MessageQueue(*fields["queue"]),
                _start(fields["start"]),
                _stop(fields["stop"]),
                fields["limit"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise WireError(f"not a queue descriptor: {error!r}") from error

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return QueueDescriptor

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


def _start_fields(start: StartFrom | None, queue: MessageQueue) -> list[Any] | None:
    # Only this queue's offset is kept: otherwise each of a thousand queues would carry a thousand offsets.
    if start is None:
        return None
    return [start.kind, start.timestamp_ms, start.reset, [pair for pair in start.offsets if pair[0] == queue]]


def _start(fields: list[Any] | None) -> StartFrom | None:
    if fields is None:
        return None
    kind, timestamp_ms, reset, offsets = fields
    return StartFrom(kind, timestamp_ms, reset, tuple((MessageQueue(*q), offset) for q, offset in offsets))


def _stop_fields(stop: StopAt | None, queue: MessageQueue) -> list[Any] | None:
    if stop is None:
        return None
    return [stop.kind, stop.timestamp_ms, [pair for pair in stop.stops if pair[0] == queue]]


def _stop(fields: list[Any] | None) -> StopAt | None:
    if fields is None:
        return None
    kind, timestamp_ms, stops = fields
    return StopAt(kind, timestamp_ms, tuple((MessageQueue(*q), offset) for q, offset in stops))


# Event time: which timestamp a record gets, and how far a queue's watermark can advance.

TimestampOf = Callable[[Record], int]
"""Returns the Unix milliseconds of a record."""
TimestampPolicy = Literal["born", "store"] | str | TimestampOf
"""The producer's clock, the broker's clock, the property with this name (milliseconds), or a function."""

_MIN_MS = int(MIN_TIMESTAMP.micros) // 1000 + 1
_MAX_MS = int(MAX_TIMESTAMP.micros) // 1000 - 1


def born_time(record: Record) -> int:
    return record.born_timestamp_ms


def store_time(record: Record) -> int:
    return record.store_timestamp_ms


class PropertyTime:
    """Reads the milliseconds in a property. Raises `SerdeError` if it is missing or not a number."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, record: Record) -> int:
        text = record.get_property(self.name)
        try:
            return int(text)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            found = "no such property" if text is None else f"{text!r:.60}"
            raise SerdeError(
                f"timestamp property {self.name!r} of {record.queue} offset {record.queue_offset}: {found}; "
                "it must be Unix milliseconds"
            ) from error


def timestamp_function(policy: TimestampPolicy) -> TimestampOf:
    """The function for a policy. Raises `LocalError` if it is not a policy."""
    if callable(policy):
        return policy
    if not isinstance(policy, str) or not policy:
        raise LocalError(f"timestamp is {policy!r}; it must be 'born', 'store', a property's name or a function")
    return {"born": born_time, "store": store_time}.get(policy) or PropertyTime(policy)


def beam_timestamp(milliseconds: int) -> Timestamp:
    """A Beam timestamp, clamped to Beam's range: a broken clock must not stop a pipeline."""
    return Timestamp(micros=min(max(milliseconds, _MIN_MS), _MAX_MS) * 1000)


class QueueWatermark(WatermarkEstimator):
    """Moves only forward, and only by `advance`. Beam's monotonic estimator raises on a timestamp that goes back."""

    def __init__(self, micros: int) -> None:
        self._micros = micros

    def observe_timestamp(self, timestamp: Timestamp) -> None:
        """Does nothing: a queue's order is not the order of its timestamps."""

    def current_watermark(self) -> Timestamp:
        return Timestamp(micros=self._micros)

    def get_estimator_state(self) -> int:
        return self._micros

    @property
    def milliseconds(self) -> int:
        return self._micros // 1000

    def advance(self, milliseconds: int) -> None:
        """State that no later record is older than this, as far as known. Going back is ignored."""
        self._micros = max(self._micros, min(max(milliseconds, _MIN_MS), _MAX_MS) * 1000)


class QueueWatermarks(WatermarkEstimatorProvider):
    """Creates `QueueWatermark`s; their state is their microseconds."""

    def initial_estimator_state(self, element: object, restriction: object) -> int:
        return int(MIN_TIMESTAMP.micros)

    def new(self) -> QueueWatermark:
        """A watermark that has not moved yet."""
        return QueueWatermark(int(MIN_TIMESTAMP.micros))

    def create_watermark_estimator(self, estimator_state: int) -> QueueWatermark:
        return QueueWatermark(estimator_state)

    def estimator_state_coder(self) -> VarIntCoder:
        return VarIntCoder()


_LAYOUT = struct.Struct(">Bqqq")
_VERSION = 1
_WAITING_LAYOUT = struct.Struct(">Bqqqq")
_WAITING_VERSION = 2
_LAYOUTS = {_VERSION: _LAYOUT, _WAITING_VERSION: _WAITING_LAYOUT}
_KNOWN = tuple(map(str, _LAYOUTS))


class QueueRange(NamedTuple):
    """Offsets [start, stop) of one queue."""

    start: int
    stop: int | None = None
    """None: without end."""
    limit: int | None = None
    """Maximum number of further records (`max_num_records`); None: no limit."""
    waits_since_ms: int | None = None
    """When the read of the queue began (Unix milliseconds), if its broker has not answered since: `start` is not known
    yet. None: it is."""

    @property
    def is_bounded(self) -> bool:
        return self.stop is not None or self.limit is not None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read."""
        return (self.stop is not None and self.start >= self.stop) or self.limit == 0


class Claim(NamedTuple):
    """The argument of `try_claim`: everything up to and including an offset."""

    last_offset: int
    records: int = 0
    """The number of records; there are fewer records than offsets if a filter left gaps."""
    broker_end: int | None = None
    """One past the newest message, as the broker last reported: the base of progress."""


class Start(NamedTuple):
    """The argument of `try_claim` for a range that waits: where it starts."""

    offset: int


class QueueRangeTracker(RestrictionTracker):
    """Tracks the claims over one `QueueRange`. The first claim of a range that waits is its `Start`.

    Claims ascend. A checkpoint (fraction 0) is always possible unless nothing is left. Another fraction is possible
    only if the end is known, and never with a record limit, which cannot be divided by offsets.
    """

    def __init__(self, restriction: QueueRange) -> None:
        self._range = restriction
        self._next = restriction.start
        self._taken = 0
        self._broker_end: int | None = None

    def __repr__(self) -> str:
        return f"<QueueRangeTracker {self._range} next={self._next} taken={self._taken}>"

    def current_restriction(self) -> QueueRange:
        """The current range: a split has removed its tail."""
        return self._range

    def try_claim(self, position: Claim | Start) -> bool:
        """Claim everything up to `position.last_offset`. False, with nothing claimed, if the range no longer has it.

        Raises ValueError for a claim before the end of an earlier one.
        """
        if isinstance(position, Start):
            if self._range.waits_since_ms is None:  # a split has taken it
                return False
            self._next = position.offset
            self._range = self._range._replace(start=position.offset, waits_since_ms=None)
            return True
        offset = position.last_offset
        if offset < self._next:
            raise ValueError(f"claim of offset {offset}, but everything below {self._next} is claimed already")
        if self._range.stop is not None and offset >= self._range.stop:
            return False
        if self._range.limit is not None and self._taken + position.records > self._range.limit:
            return False
        self._next = offset + 1
        self._taken += position.records
        if position.broker_end is not None:
            self._broker_end = position.broker_end
        return True

    def _left(self) -> QueueRange:
        limit = None if self._range.limit is None else self._range.limit - self._taken
        return QueueRange(self._next, self._range.stop, limit, self._range.waits_since_ms)

    def try_split(self, fraction_of_remainder: float) -> tuple[QueueRange, QueueRange] | None:
        """Primary and residual; None if the range cannot be split there."""
        left = self._left()
        if left.is_done:
            return None
        if fraction_of_remainder <= 0:
            split = self._next
        elif left.stop is None or left.limit is not None:
            return None
        else:
            split = self._next + max(1, int((left.stop - self._next) * fraction_of_remainder))
            if split >= left.stop:
                return None
        residual = left._replace(start=split)
        # The primary is done at its stop. Its limit, if there was one, went to the residual.
        self._range = QueueRange(self._range.start, split)
        return self._range, residual

    def check_done(self) -> None:
        """Raise ValueError if process() returned although something is left, which would be lost."""
        if not self._left().is_done:
            raise ValueError(f"offsets from {self._next} on of {self._range} were neither read nor deferred")

    def is_bounded(self) -> bool:
        return self._range.is_bounded

    def current_progress(self) -> RestrictionProgress:
        """Offsets done and left; for an endless range, left as of the broker's last answer."""
        done = self._next - self._range.start
        end = self._range.stop if self._range.stop is not None else self._broker_end
        return RestrictionProgress(completed=float(done), remaining=float(max(0, (end or self._next) - self._next)))


class QueueRangeCoder(Coder):
    """25 bytes: version, start, stop and limit (-1: none). A range that waits has another version, and 8 bytes more."""

    def encode(self, value: QueueRange) -> bytes:
        stop = -1 if value.stop is None else value.stop
        limit = -1 if value.limit is None else value.limit
        if value.waits_since_ms is not None:
            return _WAITING_LAYOUT.pack(_WAITING_VERSION, value.start, stop, limit, value.waits_since_ms)
        return _LAYOUT.pack(_VERSION, value.start, stop, limit)

    def decode(self, encoded: bytes) -> QueueRange:
        version = encoded[0] if encoded else _VERSION
        layout = _LAYOUTS.get(version, _LAYOUT)
        try:
            _, start, stop, limit, *waits = layout.unpack(encoded)
        except struct.error as error:
            raise WireError(f"a queue range takes {layout.size} bytes, not {len(encoded)}") from error
        if version not in _LAYOUTS:
            raise WireError(f"a queue range of version {version}; this rmqio reads versions {', '.join(_KNOWN)}")
        return QueueRange(start, None if stop < 0 else stop, None if limit < 0 else limit, waits[0] if waits else None)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return QueueRange

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))
