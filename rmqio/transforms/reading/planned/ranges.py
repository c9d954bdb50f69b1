"""The DoFn that reads planned ranges, on a runner that plans."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio import repeats
from rmqio.errors import OffsetOutOfRange, TransportError
from rmqio.interfaces import OffsetQuery
from rmqio.model import MessageQueue
from rmqio.transforms.descriptor import QueueDescriptor
from rmqio.transforms.reading.config import ReadConfig
from rmqio.transforms.reading.planned.planner import NOT_CUT, QueueRangeElement, name_of
from rmqio.transforms.reading.read_fn import ReadQueueFn
from rmqio.transforms.reading.restriction import QueueRange, QueueRangeTracker
from rmqio.transforms.reading.watermark import QueueWatermark, QueueWatermarks
from rmqio.transforms.shared import shared_client

_LOGGER = logging.getLogger(__name__)
_MIN_MICROS = int(MIN_TIMESTAMP.micros)
_CUT_AFTER_S = 2.0
"""The time without a message of a range after which its broker counts as unavailable: other messages wait."""
_LOOK_MS = 1_000
WATERMARKS_TAG = "watermarks"


class _Range(QueueRangeTracker):
    """The rest of a planned range, which is never split."""

    def defer_remainder(self, delay: Any = None) -> None:
        """Continues immediately."""
        self._range = self._left()
        self._taken = 0


class ReadRangesFn(ReadQueueFn):
    """Reads planned ranges to their end, and reports how far each queue's watermark has advanced.

    If the planner permits it, a range is cut short when its broker returns nothing for two seconds, so that the
    micro-batch ends. The rest is reported together with the watermark, and planned again. A range is not cut if an
    earlier attempt may have read more.
    """

    def __init__(self, config: ReadConfig) -> None:
        super().__init__(config)
        self._silent: set[str] = set()
        """Brokers that returned nothing in this bundle: it waits for each of them once."""

    def start_bundle(self) -> None:
        self._silent.clear()
        super().start_bundle()

    def process(self, element: QueueRangeElement, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        topic, broker, queue_id, begin, end, may_cut = element
        attempt = repeats.current_attempt()
        if attempt is not None and attempt.may_be_repeat:
            may_cut = False  # an earlier attempt may have written the rest, which the next one would repeat
        queue = MessageQueue(topic, broker, queue_id)
        tracker, estimator = _Range(QueueRange(begin, end)), QueueWatermarks().new()
        cut_at = NOT_CUT
        read_at = time.monotonic()
        while not tracker.current_restriction().is_done:
            before = tracker.current_restriction().start
            is_away = broker in self._silent
            try:
                yield from self._read(QueueDescriptor(queue), None, tracker, estimator, window)
            except TransportError as error:
                is_away = True  # its reader has retried for long
                _LOGGER.warning("%s: the read waits: %s", queue, error)
            tracker.defer_remainder()
            left = tracker.current_restriction()
            if left.is_done:
                break
            if left.start > before:
                read_at = time.monotonic()
                continue
            if may_cut and (is_away or time.monotonic() - read_at >= _CUT_AFTER_S):
                self._silent.add(broker)
                cut_at = left.start
                _LOGGER.warning("%s: its broker returns nothing; the rest of this micro-batch's range waits", queue)
                break
            self._check_end(queue, before, end)
            assert self._readers is not None
            self._readers.start_bundle()  # otherwise it would not wait again
        # If there is no timestamp, the filter let nothing of the range through.
        if cut_at != NOT_CUT or estimator.get_estimator_state() > _MIN_MICROS:
            learned = max(_MIN_MICROS, estimator.milliseconds * 1000)
            yield beam.pvalue.TaggedOutput(WATERMARKS_TAG, (name_of(queue), learned, cut_at))

    def _pacer(self) -> None:
        """Returns None: the planner has kept the limit."""

    def _follow_clock(self, slot: Any, estimator: QueueWatermark) -> None:
        """Does nothing: the planner does it, so that the result is the same when the range is read again."""

    def _commit(self, queue: Any, position: int, finalizer: Any, finished: bool) -> None:
        """Does nothing: the planner commits after the runner has committed."""

    def _check_end(self, queue: MessageQueue, position: int, end: int) -> None:
        """Raises if the planned range no longer exists: a broker that was killed has lost it."""
        queries = [OffsetQuery(queue, "max", at_least=end), OffsetQuery(queue, "min")]
        maximum, minimum = shared_client(self._config.factory).look_up(queries, timeout_ms=_LOOK_MS)
        # If the broker is unavailable, or only a replica answers that is behind, the reader waits.
        if isinstance(maximum, int) and isinstance(minimum, int) and maximum < end:
            raise OffsetOutOfRange(queue, position, minimum, maximum)
