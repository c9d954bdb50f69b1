"""The stream: Spark asks how far it may read, and keeps those offsets in its checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from rmqio.errors import OffsetOutOfRange, RmqioError, TransportError
from rmqio.model import MessageQueue
from rmqio.seams import QueueClient
from rmqio.spark.options import QueueNumbers, ReadSettings, queue_numbers
from rmqio.spark.ranges import DataLoss, Range, limited, partitions, read_range

_LOGGER = logging.getLogger(__name__)
_RETRY_S: Final = 1
_NEW: Final = "(new)"
_FIRST: Final = "(first)"
"""Beside topics, none of which has such a name: marks where a new stream begins, and where its first batch does."""


class QueuesLost(RmqioError):
    """Queues of the checkpoint are gone, and the option failOnDataLoss is true."""


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from the offsets in Spark's checkpoint; the start options count for a new query only.

    Delivery: at least once into Spark's micro-batch, exactly once in what Spark keeps, as of any source that can be
    read again. A queue that is added later is read from its first message.
    """

    def __init__(self, settings: ReadSettings, names: Sequence[str]) -> None:
        self._settings = settings
        self._names = names
        self._made: QueueClient | None = None
        self._target: QueueNumbers | None = None
        self._initial: dict[str, Any] | None = None
        self._lost: set[MessageQueue] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}  # tasks make clients of their own

    @property
    def _client(self) -> QueueClient:
        if self._made is None:
            self._made = self._settings.factory.queue_client()
        return self._made

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = as_json(self._patiently(self._begins)) | {_NEW: True}
        return self._initial

    def _begins(self) -> QueueNumbers:
        begins: QueueNumbers = {}
        queues = self._settings.subscription.find_queues(self._client)
        self._settings.start.check(queues)
        for queue in queues:
            try:
                begins[queue] = self._settings.start.resolve(queue, self._client)
            except OffsetOutOfRange as error:
                raise DataLoss(error) from error
        return begins

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._settings.max_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._patiently(self._ends)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = _numbers(start)
        ends = self._known_ends(begun) if self._target is None else self._until_target(begun, self._target)
        ranges = {queue: (self._begin(queue, begun, end), end) for queue, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            reached = begun | limited(ranges, limit.max_rows)
        else:
            reached = begun | {queue: max(begin, end) for queue, (begin, end) in ranges.items()}
        if reached == begun:
            return start  # word for word, by which Spark sees that there is nothing new
        return as_json(reached) | ({_FIRST: as_json(begun)} if _NEW in start else {})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        try:
            return as_json(self._ends())
        except RmqioError as error:  # a figure of the progress only: whether the query goes on is not decided here
            _LOGGER.info("the latest offsets are not known: %s", error)
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        # Spark asks anew where a new stream begins until its first micro-batch is done: what was planned holds
        begun, settings = _numbers(end if start == end else end.get(_FIRST, start)), self._settings
        ranges = {queue: (self._begin(queue, begun, stop), stop) for queue, stop in _numbers(end).items()}
        return partitions(ranges, settings.min_partitions, settings.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return iter(())  # Spark runs a task also where there are no partitions
        return read_range(self._settings, partition, self._names)

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()

    def _patiently(self, ask: Callable[[], QueueNumbers], *also: type[RmqioError]) -> QueueNumbers:
        """Asks again while brokers are restarted, for as long as a reader would wait for one.

        A broker that stops takes its queues off the name servers' routes, and with the last one the topic.
        """
        passing: tuple[type[RmqioError], ...] = (TransportError, *also)
        deadline = time.monotonic() + self._settings.outage_timeout_s
        while True:
            try:
                return ask()
            except passing as error:
                if time.monotonic() > deadline:
                    raise
                _LOGGER.warning("asks again in %d s: %s", _RETRY_S, error)
                time.sleep(_RETRY_S)

    def _known_ends(self, begun: QueueNumbers) -> QueueNumbers:
        """The ends of all queues, of those among them that have been read before."""
        return self._patiently(lambda: self._checked_ends(begun), QueuesLost)

    def _checked_ends(self, begun: QueueNumbers) -> QueueNumbers:
        ends = self._ends()
        lost = set(begun) - set(ends)
        if lost:
            error = QueuesLost(
                f"{', '.join(map(str, sorted(lost)))} cannot be read any more: the topic was deleted, has fewer "
                "queues, or is not subscribed to any more. Set failOnDataLoss to false to go on with the others"
            )
            if self._settings.fail_on_data_loss:
                raise error
            if lost != self._lost:
                _LOGGER.warning("%s", error)
        self._lost = lost
        return ends

    def _ends(self) -> QueueNumbers:
        queues = self._settings.subscription.find_queues(self._client, missing_ok=True)
        return {queue: self._client.max_offset(queue) for queue in queues}

    def _until_target(self, begun: QueueNumbers, target: QueueNumbers) -> QueueNumbers:
        """The target; with queues whose broker was away when it was set, and those that begin behind it.

        Reading may begin behind it at "latest", which is asked for a moment later.
        """
        away = set(begun) - set(target)
        if away:
            ends = self._known_ends(begun)
            target |= {queue: ends[queue] for queue in away & set(ends)}
        behind = {queue for queue, end in target.items() if begun.get(queue, 0) > end}
        behind = {queue for queue in behind if begun[queue] <= self._client.max_offset(queue)}
        return {queue: begun[queue] if queue in behind else end for queue, end in target.items()}

    def _begin(self, queue: MessageQueue, begun: QueueNumbers, end: int) -> int:
        """Where reading goes on: at the first message in a queue that is new, or that was made anew."""
        begin = begun.get(queue)
        if begin is not None and begin <= end:
            return begin
        first = self._patiently(lambda: {queue: self._client.min_offset(queue)})[queue]
        if begin is not None:
            error = DataLoss(OffsetOutOfRange(queue, begin, first, end))
            if self._settings.fail_on_data_loss:
                raise error
            _LOGGER.warning("%s", error)
        return first


def as_json(numbers: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """From topic to broker to queue to offset, as Spark keeps it and as startingOffsets takes it."""
    found: dict[str, Any] = {}
    for queue, number in sorted(numbers.items()):
        found.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = number
    return found


def _numbers(offsets: Mapping[str, Any]) -> QueueNumbers:
    offsets = {name: value for name, value in offsets.items() if name not in (_NEW, _FIRST)}
    return queue_numbers(offsets, f"the checkpoint's offsets {offsets} are not of the format rocketmq")
