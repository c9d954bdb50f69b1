"""Partitions, the offsets at which reads of them start and stop, and consumers that stay open between bundles."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rmqio.connect.kafka.client import Cluster, ask, meaning_of, transient
from rmqio.connect.kafka.records import KafkaRecord
from rmqio.errors import LocalError, RmqioError, counted
from rmqio.start import StartFrom, StopAt, why_unread
from rmqio.transforms.parts import QueueRange

# Partitions, and the offsets at which reads of them start and stop.


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int
    is_new: bool = False
    """Whether it was added while the pipeline ran."""

    def __str__(self) -> str:
        return f"partition {self.topic}/{self.number}"


def check_start(start: StartFrom, stop: StopAt | None) -> None:
    """Raises `LocalError` for what partitions do not have."""
    if start.kind not in ("earliest", "latest", "timestamp"):
        raise LocalError(
            f"start is {start}; a read of Kafka starts at the earliest or latest message, or at a timestamp"
        )
    if stop is not None and stop.kind not in ("latest", "timestamp"):
        raise LocalError(
            f"stop is {stop}; a read of Kafka stops at the latest message, at a timestamp, or never (None)"
        )


def partitions_of(cluster: Cluster, topic: str) -> list[Partition]:
    """Returns the partitions of a topic. Raises `LocalError` if it does not exist."""
    what = f"topic {topic} of kafka://{cluster.servers}"
    consumer = cluster.consumer()
    try:
        found = ask(consumer, what, lambda timeout: consumer.list_topics(topic, timeout=timeout)).topics[topic]
    finally:
        consumer.close()
    if found.error is not None:
        raise meaning_of(found.error, what)
    return [Partition(topic, number) for number in sorted(found.partitions)]


def range_of(cluster: Cluster, partition: Partition, start: StartFrom, stop: StopAt | None) -> QueueRange:
    """Returns the offsets to read, resolved by the broker once."""
    from confluent_kafka import TopicPartition

    what, asked = str(partition), TopicPartition(partition.topic, partition.number)
    consumer = cluster.consumer()
    try:
        low, high = ask(consumer, what, lambda timeout: consumer.get_watermark_offsets(asked, timeout=timeout))

        def at(timestamp_ms: int) -> int:
            # After the end was taken: a message in between is then before the one that is found, or at the end.
            times = [TopicPartition(partition.topic, partition.number, timestamp_ms)]
            (found,) = ask(consumer, what, lambda timeout: consumer.offsets_for_times(times, timeout=timeout))
            if found.error is not None:
                raise meaning_of(found.error, what)
            return int(found.offset) if found.offset >= 0 else high

        begin = low if start.kind == "earliest" else high if start.kind == "latest" else at(_ms(start))
        end = None if stop is None else high if stop.kind == "latest" else at(_ms(stop))
    finally:
        consumer.close()
    return QueueRange(begin, None if end is None else max(begin, end))


def unread(
    cluster: Cluster, topic: str, partitions: Sequence[Partition], start: StartFrom, stop: StopAt | None, advice: str
) -> str:
    """Returns a warning if a read that ends begins at the end of partitions that hold messages; empty: it does not.

    Errors of brokers are left to the read.
    """
    if stop is None or not start.may_begin_at_end:
        return ""
    try:
        held = [range_of(cluster, each, StartFrom.earliest(), stop) for each in partitions]
    except RmqioError:
        return ""
    counts = [each.stop - each.start for each in held if each.stop is not None]
    return why_unread(counts, counted(len(partitions), "partition"), f"topic {topic} of Kafka", None, advice)


def _ms(value: Any) -> int:
    found: int = value.timestamp_ms
    return found


_ASK_S: Final = 5.0
_OPEN: Final = 32
"""Consumers that a worker keeps. Each has threads and buffers of its own."""


class OffsetGone(RmqioError):
    """The offset is not in the partition any more, or not yet."""


class Fetched(NamedTuple):
    """Records in order, and how far the partition is read."""

    records: list[KafkaRecord]
    next_offset: int
    """All records before it have been fetched: a compacted or transactional topic has gaps."""
    at_end: bool
    """Whether nothing more was there."""


class Consumers:
    """The open consumers of one worker."""

    def __init__(self, cluster: Cluster, give_up_after_s: float | None = None) -> None:
        self._cluster, self._give_up_after_s = cluster, give_up_after_s
        self._open: dict[Partition, tuple[Any, int]] = {}
        """The consumer of a partition, and the offset that it gives next. The oldest first."""
        self._ends: dict[Partition, int] = {}
        """The offset at which the client last saw the end. It says so once."""

    def fetch(self, partition: Partition, offset: int, *, count: int, wait_s: float) -> Fetched:
        """Returns what has arrived, at most `count` records; waits for the first one, at most so long.

        A consumer that is new waits longer, for its first answer: the caller may not keep it until it has connected.

        Raises `OffsetGone`, `KafkaAway` and `LocalError`.
        """
        consumer, at = self._open.pop(partition, (None, -1))
        if consumer is None or at != offset:
            if consumer is not None:
                consumer.close()
            consumer = self._assigned(partition, offset)
            wait_s = max(wait_s, _ASK_S)
        until = time.monotonic() + wait_s
        try:
            found = self._poll(consumer, partition, offset, count, wait_s)
            while not found.records and not found.at_end and (left := until - time.monotonic()) > 0:
                found = self._poll(consumer, partition, found.next_offset, count, left)
            if found.at_end:
                self._ends[partition] = found.next_offset
            elif not found.records:
                found = found._replace(at_end=self._is_at_end(consumer, partition, found.next_offset))
        except BaseException:
            consumer.close()
            raise
        if found.records or found.at_end:
            consumer.reports.passed()
        self._open[partition] = consumer, found.next_offset
        return found

    def _is_at_end(self, consumer: Any, partition: Partition, offset: int) -> bool:
        """Whether the broker answers and has nothing more."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(partition.topic, partition.number), timeout=_ASK_S)
        except KafkaException:
            return False
        # Behind the last message that counts there can be marks of transactions, and messages of open ones.
        return bool(high <= offset) or self._ends.get(partition) == offset

    def refusal(self, partition: Partition) -> str:
        """Returns why no broker lets the consumer of a partition in, for the end of a message; empty if none says."""
        consumer, _ = self._open.get(partition, (None, -1))
        return "" if consumer is None else str(consumer.reports)

    def close(self) -> None:
        """Closes all of them."""
        while self._open:
            self._open.popitem()[1][0].close()

    def release(self, partition: Partition) -> None:
        """Closes one, if it is open."""
        consumer, _ = self._open.pop(partition, (None, -1))
        if consumer is not None:
            consumer.close()

    def _assigned(self, partition: Partition, offset: int) -> Any:
        from confluent_kafka import TopicPartition

        while len(self._open) >= _OPEN:
            self.release(next(iter(self._open)))
        consumer = self._cluster.consumer(self._give_up_after_s)
        consumer.assign([TopicPartition(partition.topic, partition.number, offset)])
        return consumer

    @staticmethod
    def _poll(consumer: Any, partition: Partition, offset: int, count: int, wait_s: float) -> Fetched:
        from confluent_kafka import KafkaError

        first = consumer.poll(wait_s)
        if first is None:
            return Fetched([], offset, False)
        records: list[KafkaRecord] = []
        at_end = False
        for message in [first, *(consumer.consume(count - 1, 0) if count > 1 else [])]:
            error = message.error()
            if error is None:
                records.append(_record(message))
                offset, at_end = message.offset() + 1, False
            elif error.code() == KafkaError._PARTITION_EOF:
                offset, at_end = max(offset, message.offset()), True
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise OffsetGone(f"{partition}: offset {offset}: {error.str()}")
            elif error.code() not in transient():
                raise meaning_of(error, str(partition))
        return Fetched(records, offset, at_end)


def _record(message: Any) -> KafkaRecord:
    kind, stamp = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return KafkaRecord(
        message.value(), message.key(), headers, message.topic(), message.partition(), message.offset(),
        stamp if kind else -1,
    )  # fmt: skip
