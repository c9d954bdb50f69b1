"""The element of a read: one queue, where to start in it, and where to stop."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from apache_beam.coders import Coder

from rmqio.errors import WireError
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StopAt


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
