"""The writers of batches and of streams, and what a task of either does."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StringType, StructType

from rmqio.errors import LocalError, RmqioError
from rmqio.model import Message, SendResult
from rmqio.pyspark.options import WriteSettings
from rmqio.sending.accumulator import BatchAccumulator, WritableTopics
from rmqio.sending.batches import BatchSender
from rmqio.sending.producers import ProducerLease, RetryingProducer
from rmqio.sending.traces import SendTrace
from rmqio.wire import accelerator
from rmqio.wire.batch import estimated_size
from rmqio.wire.properties import is_reserved, user_properties

# Converts rows to messages: the columns that can be written, and Arrow batches as messages with topics and ids.


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_body(kind: DataType) -> bool:
    return isinstance(kind, (StringType, BinaryType))


def _is_keys(kind: DataType) -> bool:
    return _is_text(kind) or (isinstance(kind, ArrayType) and _is_text(kind.elementType))


def _is_properties(kind: DataType) -> bool:
    return isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, IntegralType)


WRITE_COLUMNS: Final[dict[str, tuple[Callable[[DataType], bool], str]]] = {
    "body": (_is_body, "string or binary"),
    "topic": (_is_text, "string"),
    "tags": (_is_text, "string"),
    "keys": (_is_keys, "string or array<string>"),
    "properties": (_is_properties, "map<string,string>"),
    "shardingKey": (_is_text, "string"),
    "messageId": (_is_text, "string"),
    "delayTimeLevel": (_is_number, "int or bigint"),
    "deliveryTimeMs": (_is_number, "int or bigint"),
}
"""A check of a column's type, and the accepted types in words. Names are those of reads if these have the column."""

_BY_LOWER: Final = {name.lower(): name for name in WRITE_COLUMNS}
_NO_PROPERTIES: Final = Message(b"x").properties
_NO_KEYS: Final[tuple[str, ...]] = ()


class RowIllegal(RmqioError):
    """A row that can never be sent. Its task fails, however often it is retried."""


def checked_columns(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """Returns the columns of a DataFrame to write, under their names in `WRITE_COLUMNS`, regardless of case.

    Raises `LocalError` for an unknown or duplicate column, for a wrong type, and if body or topic is missing.
    """
    names: list[str] = []
    for field in schema.fields:
        name = _BY_LOWER.get(field.name.lower())
        if name is None:
            raise LocalError(
                f"the column {field.name!r} cannot be written; a message takes {', '.join(WRITE_COLUMNS)}. "
                "Drop it, rename it, or put it into body or properties"
            )
        if name in names:
            raise LocalError(f"there are two columns {name}")
        fits, words = WRITE_COLUMNS[name]
        if not fits(field.dataType):
            raise LocalError(f"the column {name} has the type {field.dataType.simpleString()}; it must be {words}")
        names.append(name)
    if "body" not in names:
        raise LocalError("there is no column body, which every message must have")
    if "topic" not in names and topic is None:
        raise LocalError("there is no topic to write to: give the option topic, or a column topic")
    return tuple(names)


class RowMessageMaker:
    """Converts rows to messages, column by column.

    Args:
      names: the names of the columns, in their order.
      topic: the topic of all messages; None: the column topic names it.
      drops_reserved: whether to drop properties with reserved names (otherwise, sending rejects them).
    """

    def __init__(self, names: Sequence[str], topic: str | None, *, drops_reserved: bool) -> None:
        self._names = names
        self._topic = topic
        self._drops_reserved = drops_reserved

    def make(self, batch: pa.RecordBatch) -> Iterator[tuple[Message, str, str | None]]:
        """Returns message, topic and id (None: a random one) of each row. A null body or topic becomes None."""
        given = dict(zip(self._names, batch.columns, strict=True))

        def values(name: str) -> Iterable[Any]:
            return given[name].to_pylist() if name in given else repeat(None)

        fields = zip(
            _bodies(given["body"]),
            repeat(None),  # the topic of a message is that of its batch
            values("tags"),
            _keys(given["keys"]) if "keys" in given else repeat(_NO_KEYS),
            self._properties(given["properties"]) if "properties" in given else repeat(_NO_PROPERTIES),
            values("shardingKey"),
            values("delayTimeLevel"),
            values("deliveryTimeMs"),
        )
        # Does what Message's constructor does, without its keyword handling, since this runs once per row
        messages = map(tuple.__new__, repeat(Message), fields)
        topics = values("topic") if self._topic is None else repeat(self._topic)
        return zip(messages, topics, values("messageId"), strict=False)  # endless if there is no column

    def _properties(self, column: pa.Array) -> Iterator[Any]:
        for pairs in column.to_pylist():
            if not pairs:
                yield _NO_PROPERTIES
            elif self._drops_reserved:
                yield user_properties(dict(pairs))
            else:
                yield dict(pairs)


def _bodies(column: pa.Array) -> list[Any]:
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())  # the same bytes: Arrow's text is UTF-8
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    bodies: list[Any] = column.to_pylist()
    return bodies


def _keys(column: pa.Array) -> Iterator[tuple[str, ...]]:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return (tuple(keys.split()) if keys else _NO_KEYS for keys in column.to_pylist())  # as it is stored
    return (tuple(keys) if keys else _NO_KEYS for keys in column.to_pylist())


_LOGGER = logging.getLogger(__name__)
_usual_size = accelerator.usual_size


@dataclass
class Written(WriterCommitMessage):
    """The messages that one task has sent; all of them are acknowledged."""

    rows: int = 0
    bytes: int = 0
    """Bytes of the bodies."""
    batches: int = 0
    """Number of sends."""


class RocketMQWriter(DataSourceArrowWriter):
    """Sends a DataFrame's rows as messages.

    Delivery: at least once. A task succeeds when brokers have acknowledged all of its messages. Spark retries a failed
    task as a whole, so messages that it had already stored are stored twice. Stored messages stay if the job fails.

    Raises `LocalError` for columns that do not fit, and for the mode overwrite.
    """

    def __init__(self, settings: WriteSettings, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise LocalError("a topic cannot be overwritten, only appended to: use mode('append')")
        self._settings = settings
        self._names = checked_columns(schema, settings.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Sends the rows of a task. Raises `RowIllegal`, and `BrokerError` or `TransportError` after an outage."""
        return send_rows(self._settings, self._names, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _LOGGER.info("wrote %s", _sum(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _LOGGER.warning("the write failed; the messages of tasks that succeeded stay: %s", _sum(messages))


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Sends each micro-batch's rows as messages; otherwise like `RocketMQWriter`.

    Delivery: at least once. A micro-batch that a restarted query runs again is sent again. In the output mode complete,
    the whole result is sent at each trigger, as in Spark's Kafka sink.
    """

    def __init__(self, settings: WriteSettings, schema: StructType) -> None:
        self._settings = settings
        self._names = checked_columns(schema, settings.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Does what `RocketMQWriter.write` does."""
        return send_rows(self._settings, self._names, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _LOGGER.info("micro-batch %d: wrote %s", batchId, _sum(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _LOGGER.warning("micro-batch %d failed; the messages of tasks that succeeded stay: %s", batchId, _sum(messages))


def _sum(messages: Sequence[WriterCommitMessage | None]) -> str:
    found = [message for message in messages if isinstance(message, Written)]
    rows, size = sum(each.rows for each in found), sum(each.bytes for each in found)
    return f"{rows} messages of {size} bytes in {sum(each.batches for each in found)} sends"


class _Outcomes:
    """Counts what was sent, and fails the task for a row that cannot be sent. An element is the number of a row."""

    def __init__(self) -> None:
        self.written = Written()

    def sent(
        self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult], latency_s: float
    ) -> None:
        if len(results) != len(messages):
            raise RmqioError(f"{len(messages)} messages were sent and {len(results)} acknowledged")
        self.written.rows += len(messages)
        self.written.bytes += sum([len(message[0]) for message in messages])
        self.written.batches += 1

    def failed(
        self, element: Any, origin: Any, message: Message | None, topic: str | None, error: Exception
    ) -> NoReturn:
        context = TaskContext.get()
        where = "" if context is None else f" of partition {context.partitionId()}"
        what = f"for topic {topic!r}" if topic else "without a topic"
        if message is not None and message.keys:
            what += f", keys {' '.join(map(str, message.keys))!r:.200}"
        is_copied = message is not None and any(map(is_reserved, message.properties))
        hint = "; reservedProperties=drop drops what RocketMQ has added" if is_copied else ""
        raise RowIllegal(
            f"row {element} (from 0){where}, {what}, cannot be sent: {type(error).__name__}: {error}{hint}. Rows "
            "before and after it may have been sent"
        ) from error


def send_rows(settings: WriteSettings, names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Written:
    """Sends a task's rows and waits until all are acknowledged. Connects when the first row arrives.

    Raises `RowIllegal` for a row that can never be sent; `BrokerError` and `TransportError` if an outage, or a missing
    topic, outlasts `outage_timeout_s`.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Written()
    lease = ProducerLease(settings.factory, settings.group)
    try:
        return _send(settings, names, lease, first, filled)
    finally:
        lease.release()


def _send(
    settings: WriteSettings,
    names: Sequence[str],
    lease: ProducerLease,
    first: pa.RecordBatch,
    others: Iterator[pa.RecordBatch],
) -> Written:
    options, required = settings.options, frozenset([settings.topic] if settings.topic else [])
    producer = RetryingProducer(
        lease.producer,
        outage_timeout_s=settings.outage_timeout_s,
        # A stream's topic existed when it began; a batch's topic may be mistyped, which is reported at once
        awaits_topic=lambda topic: (settings.streaming and topic in required) or topic in lease.known_topics,
    )
    outcomes = _Outcomes()
    topics = WritableTopics(
        producer,
        known_topics=lease.known_topics,
        required_topics=required,
        refresh_ms=options.name_server_poll_interval_ms,
        clock=time.monotonic,
    )
    trace = SendTrace.of(settings.factory, settings.group, options.trace)
    sender = BatchSender(
        producer,
        outcomes,
        max_in_flight=options.max_in_flight,
        ordered=True,
        required_topics=required,
        trace=trace,
    )
    accumulator = BatchAccumulator(
        sender,
        topics,
        outcomes,
        max_messages=options.max_batch_messages,
        max_bytes=options.max_batch_bytes,
        max_total_bytes=options.max_total_bytes,
    )
    maker = RowMessageMaker(names, settings.topic, drops_reserved=settings.drops_reserved)
    accumulator.begin()
    row = 0
    try:
        for batch in itertools.chain([first], others):
            row = _add(maker, batch, row, accumulator, outcomes)
        accumulator.finish()
        if trace is not None:
            trace.flush()  # the worker may end with the task
    finally:
        sender.abandon()  # after any failure: the producer is shared, and the next attempt follows this one
    if outcomes.written.rows != row:
        raise RmqioError(f"{row} rows were to be sent and {outcomes.written.rows} acknowledged")
    return outcomes.written


def _add(
    maker: RowMessageMaker, batch: pa.RecordBatch, row: int, accumulator: BatchAccumulator, outcomes: _Outcomes
) -> int:
    """Adds the rows of a batch, numbered from `row` on. Returns the number of the next row."""
    for message, topic, message_id in maker.make(batch):
        try:
            if message.body is None:
                raise LocalError("its body is null, and RocketMQ has no message without a body (nor tombstones)")
            if not topic:
                raise LocalError("neither the option topic nor its column topic names one")
        except LocalError as error:
            outcomes.failed(row, None, message, topic, error)
        try:
            size = (_usual_size(message) if _usual_size is not None else 0) or estimated_size(message)
        except TypeError:
            size = len(message.body)  # a null among keys or properties: its encoding reports it
        accumulator.add(message, topic, message_id, row, None, size)
        row += 1
    return row
