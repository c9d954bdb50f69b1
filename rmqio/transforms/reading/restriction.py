"""The restriction of one queue (what is left to read), and its tracker: every offset exactly once.

Beam's own trackers do not fit. OffsetRestrictionTracker over an endless range reports that it is bounded, and lets a
runner split it at half of 2^63. UnsplittableRestrictionTracker refuses even the checkpoint, so the remainder is lost.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker

from rmqio.errors import WireError

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
