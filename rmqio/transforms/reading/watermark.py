"""Event time: which timestamp a record gets, and how far a queue's watermark can advance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from apache_beam.coders import VarIntCoder
from apache_beam.io.iobase import WatermarkEstimator
from apache_beam.transforms.core import WatermarkEstimatorProvider
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

from rmqio.errors import LocalError, SerdeError
from rmqio.model import Record

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
