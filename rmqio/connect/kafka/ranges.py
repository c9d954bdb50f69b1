"""Partitions, and the offsets at which reads of them start and stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rmqio.connect.kafka.client import Cluster, ask, meaning_of
from rmqio.errors import LocalError, RmqioError, counted
from rmqio.start import StartFrom, StopAt, why_unread
from rmqio.transforms.parts import QueueRange


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
