"""Ranges of offsets: split into partitions, limited per micro-batch, and read."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rmqio.errors import LocalError, OffsetOutOfRange, RmqioError, TopicNotExist, TransportError
from rmqio.interfaces import OffsetQuery, QueueClient
from rmqio.model import MessageQueue, Record
from rmqio.pyspark.columns import to_batch
from rmqio.pyspark.read_options import ReadSettings
from rmqio.sending.traces import ReadTrace

_LOGGER = logging.getLogger(__name__)
_BATCH_RECORDS: Final = 10_000
_BATCH_BYTES: Final = 8 << 20
_WAIT_MS: Final = 1_000
_body = attrgetter("body")


class DataLoss(RmqioError):
    """Messages that should be read no longer exist, and the option failOnDataLoss is true."""

    def __init__(self, error: OffsetOutOfRange) -> None:
        self._loss = (
            f"{error.queue}: offset {error.wanted} is not available; the broker holds [{error.minimum}, "
            f"{error.maximum}). Retention deleted it, or the topic was recreated."
        )
        super().__init__(f"{self._loss} Set failOnDataLoss to false to continue without it, or start elsewhere")

    def warn(self) -> None:
        """Logs the loss instead of raising it."""
        _LOGGER.warning("messages are lost: %s The read continues without them, as failOnDataLoss is false", self._loss)


@dataclass
class Range(InputPartition):
    """Offsets of one queue, `end` exclusive: what one task reads."""

    queue: MessageQueue
    begin: int
    end: int


def partitions(ranges: Mapping[MessageQueue, tuple[int, int]], least: int, max_records: int | None) -> Sequence[Range]:
    """Returns a task for each queue with something to read, or several if `least` or `max_records` ask for more.

    `least` works as in Spark's Kafka source: queues are split in proportion to their size, so it is met approximately.
    """
    filled = {queue: (begin, end) for queue, (begin, end) in ranges.items() if begin < end}
    total = sum(end - begin for begin, end in filled.values())
    found = []
    for queue, (begin, end) in filled.items():
        size = end - begin
        parts = 1 if len(filled) >= least else max(1, round(size / total * least))
        if max_records is not None:
            parts = max(parts, math.ceil(size / max_records))
        parts = min(parts, size)
        cuts = [begin + size * part // parts for part in range(parts + 1)]
        found += [Range(queue, *cut) for cut in itertools.pairwise(cuts)]
    return found


def limited(ranges: Mapping[MessageQueue, tuple[int, int]], limit: int) -> dict[MessageQueue, int]:
    """Returns ends so that at most `limit` offsets are read: one per non-empty queue, the rest in proportion."""
    sizes = {queue: end - begin for queue, (begin, end) in sorted(ranges.items()) if begin < end}
    if sum(sizes.values()) <= limit:
        shares = sizes
    elif limit < len(sizes):
        # Not even one per queue: they take turns, and the offsets read so far show where the last turn ended
        turn = sum(ranges[queue][0] for queue in sizes) % len(sizes)
        shares = dict.fromkeys([*sizes, *sizes][turn : turn + limit], 1)
    else:
        left, more = limit - len(sizes), sum(sizes.values()) - len(sizes)
        shares = {queue: 1 + left * (size - 1) // more for queue, size in sizes.items()}
        for queue in sorted(sizes, key=lambda each: (-(left * (sizes[each] - 1) % more), each)):
            if sum(shares.values()) < limit:  # give back what rounding has taken, most affected queues first
                shares[queue] += 1
    return {queue: begin + shares.get(queue, 0) for queue, (begin, _) in ranges.items()}


def read_range(settings: ReadSettings, part: Range, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields the messages of a range as rows, in the queue's order.

    Raises `DataLoss` if retention has deleted some meanwhile, unless the settings permit that; `CorruptMessage` for a
    message that does not decode; `SerdeError` for a body that is not of the format in the options; `BrokerError` and
    `TransportError` after the client's retries.
    """
    client = settings.factory.queue_client()
    trace = ReadTrace.of(settings.factory, settings.trace_group, settings.trace)
    try:
        if not _is_there(client, settings, part):
            return
        for records in _batches(client, settings, part):
            taken = None if trace is None else trace.read(records)
            yield to_batch(records, names, settings.values)
            if trace is not None and taken is not None:
                trace.handled(taken)
        if trace is not None:
            trace.flush()  # the worker may end with the task
    finally:
        client.close()


def _batches(client: QueueClient, settings: ReadSettings, part: Range) -> Iterator[list[Record]]:
    """Yields the records of a range in lists that make a good batch."""
    waiting: list[Record] = []
    size = 0
    for records in _fetched(client, settings, part):
        waiting += records
        size += sum(map(len, map(_body, records)))
        if len(waiting) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _fetched(client: QueueClient, settings: ReadSettings, part: Range) -> Iterator[list[Record]]:
    queue, end = part.queue, part.end
    reader = client.open_reader(queue, part.begin, message_filter=settings.message_filter)
    while reader.position < end:
        position = reader.position
        try:
            fetched = reader.poll()
        except OffsetOutOfRange as error:
            _lose(settings, error)
            if error.minimum <= position:  # the topic was recreated since this was planned
                return
            reader.seek(error.minimum)
            continue
        if fetched is None:
            if not client.wait([reader], _WAIT_MS) and reader.is_at_end and _ends_before(client, queue, end):
                # The queue ends before the range: a killed broker has lost the rest, or the topic was recreated
                _lose(settings, OffsetOutOfRange(queue, position, client.min_offset(queue), client.max_offset(queue)))
                return
            continue
        if fetched.corrupt and fetched.corrupt[0].queue_offset < end:
            raise fetched.corrupt[0]
        records = fetched.records
        if fetched.next_offset > end:
            records = [record for record in records if record.queue_offset < end]
        if fetched.skipped and len(records) < min(fetched.next_offset, end) - position:
            found = {record.queue_offset for record in records}
            missing = next(offset for offset in range(position, end) if offset not in found)
            _lose(settings, OffsetOutOfRange(queue, missing, client.min_offset(queue), client.max_offset(queue)))
        yield records


def _ends_before(client: QueueClient, queue: MessageQueue, end: int) -> bool:
    """Returns whether the queue ends before the planned range; False while only a lagging replica could answer."""
    (found,) = client.look_up([OffsetQuery(queue, "max", at_least=end)])
    if isinstance(found, RmqioError) and not isinstance(found, TransportError):
        raise found
    return isinstance(found, int) and found < end


def _is_there(client: QueueClient, settings: ReadSettings, part: Range) -> bool:
    """Returns whether the queue can be read. False: it is gone, and the settings permit that. Waits out a restart."""
    deadline = time.monotonic() + settings.outage_timeout_s
    while True:
        try:
            if part.queue in client.queues(part.queue.topic):
                return True
            error: Exception = LocalError(f"{part.queue} is gone, and with it offsets {part.begin} to {part.end}")
        except (TopicNotExist, TransportError) as failed:
            error = failed
        if time.monotonic() > deadline:
            if settings.fail_on_data_loss or isinstance(error, TransportError):
                raise error
            _LOGGER.warning("messages are lost: %s. The read continues without them, as failOnDataLoss is false", error)
            return False
        time.sleep(1)


def _lose(settings: ReadSettings, error: OffsetOutOfRange) -> None:
    """Raises or logs the loss, depending on the option failOnDataLoss."""
    loss = DataLoss(error)
    if settings.fail_on_data_loss:
        raise loss from error
    loss.warn()
