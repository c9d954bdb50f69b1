"""Ranges of offsets: cut into partitions, shared out under a limit, and read."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rmqio.errors import OffsetOutOfRange, RmqioError
from rmqio.model import MessageQueue, Record
from rmqio.seams import QueueClient
from rmqio.spark.columns import to_batch
from rmqio.spark.options import ReadSettings

_LOGGER = logging.getLogger(__name__)
_BATCH_RECORDS: Final = 10_000
_BATCH_BYTES: Final = 8 << 20
_WAIT_MS: Final = 1_000


class DataLoss(RmqioError):
    """Messages that should be read are not there any more, and the option failOnDataLoss is true."""

    def __init__(self, error: OffsetOutOfRange) -> None:
        super().__init__(
            f"{error.queue}: offset {error.wanted} is not available; the broker holds [{error.minimum}, "
            f"{error.maximum}). Retention deleted it, or the topic was made anew. Set failOnDataLoss to false to "
            "go on without it, or start elsewhere"
        )


@dataclass
class Range(InputPartition):
    """Offsets of one queue, `end` exclusive: what one task reads."""

    queue: MessageQueue
    begin: int
    end: int


def partitions(ranges: Mapping[MessageQueue, tuple[int, int]], least: int, max_records: int | None) -> Sequence[Range]:
    """A task for each queue that has anything to read, or several where `least` or `max_records` ask for more.

    `least` is met as in Spark's Kafka source: by the share that a queue has of all, so about that many.
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
    """Ends such that at most `limit` offsets are read: one of each queue that has any, the rest by what each has."""
    sizes = {queue: end - begin for queue, (begin, end) in sorted(ranges.items()) if begin < end}
    if sum(sizes.values()) <= limit:
        shares = sizes
    elif limit < len(sizes):
        # Not even one of each: they take turns, and where the last turn ended shows in what has been read
        turn = sum(ranges[queue][0] for queue in sizes) % len(sizes)
        shares = dict.fromkeys([*sizes, *sizes][turn : turn + limit], 1)
    else:
        left, more = limit - len(sizes), sum(sizes.values()) - len(sizes)
        shares = {queue: 1 + left * (size - 1) // more for queue, size in sizes.items()}
        for queue in sorted(sizes, key=lambda each: (-(left * (sizes[each] - 1) % more), each)):
            if sum(shares.values()) < limit:  # what rounding has taken, to those from which it took most
                shares[queue] += 1
    return {queue: begin + shares.get(queue, 0) for queue, (begin, _) in ranges.items()}


def read_range(settings: ReadSettings, part: Range, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The messages of a range as rows, in the queue's order.

    Raises `DataLoss` where retention has deleted some meanwhile, unless the settings permit that; `CorruptMessage` for
    one that does not decode; `BrokerError` and `TransportError` after the client's retries.
    """
    client = settings.factory.queue_client()
    try:
        waiting: list[Record] = []
        size = 0
        for records in _fetched(client, settings, part):
            waiting += records
            size += sum(len(record.body) for record in records)
            if len(waiting) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                yield to_batch(waiting, names)
                waiting, size = [], 0
        if waiting:
            yield to_batch(waiting, names)
    finally:
        client.close()


def _fetched(client: QueueClient, settings: ReadSettings, part: Range) -> Iterator[list[Record]]:
    queue, end = part.queue, part.end
    reader = client.open_reader(queue, part.begin, message_filter=settings.message_filter)
    while reader.position < end:
        position = reader.position
        try:
            fetched = reader.poll()
        except OffsetOutOfRange as error:
            if settings.fail_on_data_loss or error.minimum <= position:
                raise DataLoss(error) from error
            _LOGGER.warning("%s: offsets %d to %d are lost; failOnDataLoss is false", queue, position, error.minimum)
            reader.seek(error.minimum)
            continue
        if fetched is None:
            client.wait([reader], _WAIT_MS)
            continue
        if fetched.corrupt and fetched.corrupt[0].queue_offset < end:
            raise fetched.corrupt[0]
        records = fetched.records
        if fetched.next_offset > end:
            records = [record for record in records if record.queue_offset < end]
        if fetched.skipped and settings.fail_on_data_loss and len(records) < min(fetched.next_offset, end) - position:
            found = {record.queue_offset for record in records}
            missing = next(offset for offset in range(position, end) if offset not in found)
            raise DataLoss(OffsetOutOfRange(queue, missing, client.min_offset(queue), client.max_offset(queue)))
        yield records
