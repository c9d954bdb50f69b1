"""The first range of a queue: its start and stop, resolved to offsets once, when the queue becomes known."""

from __future__ import annotations

import logging
import time
from typing import Final, Protocol

from rmqio.errors import RmqioError
from rmqio.interfaces import ClientFactory, OffsetLookup
from rmqio.model import MessageQueue
from rmqio.options import ReadOptions
from rmqio.start import LateQueue, StartFrom, StopAt, all_or_error, resolve_all
from rmqio.transforms.descriptor import QueueDescriptor
from rmqio.transforms.reading.discovery.discover_fn import known_starts, now_ms
from rmqio.transforms.reading.restriction import QueueRange
from rmqio.transforms.shared import shared_client

_LOGGER = logging.getLogger(__name__)
_WARN_EVERY_S: Final = 60.0
_warned_at: dict[str, float] = {}
"""By broker: when this process last logged that queues wait for it."""


class Reading(Protocol):
    """The part of a `ReadConfig` that matters here."""

    @property
    def factory(self) -> ClientFactory: ...

    @property
    def group(self) -> str | None: ...

    @property
    def start(self) -> StartFrom: ...

    @property
    def stop(self) -> StopAt | None: ...

    @property
    def options(self) -> ReadOptions: ...


def first_range(config: Reading, element: QueueDescriptor) -> QueueRange:
    """Return the range to read of an element's queue.

    If the read of the queue has no end, the queue waits for a broker that does not answer. All other errors are raised.
    """
    stop_at = element.stop or config.stop
    if stop_at is None:
        began_ms = now_ms()  # before the look, so that messages that arrive in the meantime are after it
        start = _find_start(config, element, None)
        return QueueRange(start or 0, None, element.limit, began_ms if start is None else None)

    def resolve(queue: MessageQueue, lookup: OffsetLookup) -> QueueRange:
        # The stop is resolved first: a queue that is not read needs no start.
        stop = stop_at.resolve(queue, lookup)
        if stop is None:
            return QueueRange(0, 0, limit=0)  # not read
        start = _resolve(config, element, lookup, None)
        return QueueRange(start, max(start, stop), element.limit)

    return all_or_error(resolve_all([element.queue], shared_client(config.factory), resolve))[element.queue]


def late_start(config: Reading, element: QueueDescriptor, began_ms: int) -> int | None:
    """Return the start of a queue that has waited since a Unix time in ms; None: its broker still does not answer.

    Raises other errors.
    """
    return _find_start(config, element, LateQueue(began_ms, None))


def _find_start(config: Reading, element: QueueDescriptor, late: LateQueue | None) -> int | None:
    def resolve(queue: MessageQueue, lookup: OffsetLookup) -> int:
        return _resolve(config, element, lookup, late)

    found = resolve_all([element.queue], shared_client(config.factory), resolve)
    return known_starts(found, may_wait=True, on_wait=lambda error: _warn(element.queue, error)).get(element.queue)


def _resolve(config: Reading, element: QueueDescriptor, lookup: OffsetLookup, late: LateQueue | None) -> int:
    return (element.start or config.start).resolve(
        element.queue,
        lookup,
        group=config.group,
        on_out_of_range=config.options.on_offset_out_of_range,
        on_timestamp_after_end=config.options.on_timestamp_after_end,
        late=late,
    )


def _warn(queue: MessageQueue, error: RmqioError) -> None:
    now = time.monotonic()
    if now - _warned_at.get(queue.broker, float("-inf")) >= _WARN_EVERY_S:  # a queue looks several times a second
        _warned_at[queue.broker] = now
        _LOGGER.warning("%s waits for its broker, which does not answer: %s", queue, error)
