"""The Spark data source `rocketmq`."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructField, StructType

from rmqio.client.connection import require_usable
from rmqio.errors import LocalError, OffsetOutOfRange
from rmqio.interfaces import OffsetLookup
from rmqio.model import MessageQueue
from rmqio.pyspark.chatter import quiet
from rmqio.pyspark.options.given import known
from rmqio.pyspark.options.read import READ_NAMES, ReadSettings, read_settings
from rmqio.pyspark.options.secured import security_of
from rmqio.pyspark.options.write import OF_SPARK, WRITE_NAMES, write_settings
from rmqio.pyspark.reading.columns import SOURCE_SCHEMA, checked_names
from rmqio.pyspark.reading.pushdown import Narrowing, push
from rmqio.pyspark.reading.pushed import widened
from rmqio.pyspark.reading.ranges import DataLoss, Range, partitions, read_range
from rmqio.pyspark.reading.values import COLUMN, VALUE_NAMES, Values, value_options
from rmqio.pyspark.sink import RocketMQStreamWriter, RocketMQWriter
from rmqio.start import all_or_error, resolve_all
from rmqio.topics import queues_of


class RocketMQDataSource(DataSource):
    """Reads and writes topics of Apache RocketMQ, as batches and as streams.

    Columns of a read: `rmqio.pyspark.reading.columns.COLUMNS`, from which `.schema(...)` chooses, and `value` if the
    option valueFormat is given. Columns of a write: `rmqio.pyspark.messages.WRITE_COLUMNS`.
    Delivery of a write: at least once. Options: docs/pyspark.md. Raises `LocalError` for one that neither has.
    """

    @classmethod
    def name(cls) -> str:
        quiet()  # here, since each of Spark's processes asks for the name, and some ask for nothing else
        return "rocketmq"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # A stream would find it in a process of Spark that plans it, whose traceback comes with Spark's
        require_usable(security_of(known(options, [*READ_NAMES, *WRITE_NAMES, *OF_SPARK])))
        self._load: Final = uuid.uuid4().hex
        """The name of the `load()`: Spark makes the source once, and copies it for each query."""

    def schema(self) -> StructType:
        values = self._values
        return SOURCE_SCHEMA if values is None else StructType([*SOURCE_SCHEMA, StructField(COLUMN, values.type)])

    @cached_property
    def _values(self) -> Values | None:
        """Made once and pickled with the source: a DataFrame keeps the schema that it was loaded with."""
        options = value_options(
            {name: self.options[name.lower()] for name in VALUE_NAMES if name.lower() in self.options}
        )
        return None if options is None else Values(options)

    def _chosen(self, schema: StructType, *, streaming: bool) -> tuple[ReadSettings, tuple[str, ...]]:
        """Returns the settings, and the names of the columns to read."""
        settings = read_settings(self.options, streaming=streaming)
        values = self._values if COLUMN in schema.fieldNames() else None
        return dataclasses.replace(settings, values=values), checked_names(schema, values)

    def reader(self, schema: StructType) -> DataSourceReader:
        settings, names = self._chosen(schema, streaming=False)
        # Spark rejects a reader that takes filters unless the session permits it, which cannot be seen here
        if settings.push_filters:
            return FilteredRocketMQReader(settings, names, self._load)
        return RocketMQReader(settings, names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        quiet()
        try:
            from rmqio.pyspark.reading.stream import RocketMQStreamReader
        except ImportError as error:
            raise LocalError("a stream of the format rocketmq needs PySpark 4.2 or newer") from error

        return RocketMQStreamReader(*self._chosen(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return RocketMQWriter(write_settings(self.options, streaming=False), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return RocketMQStreamWriter(write_settings(self.options, streaming=True), schema)


class RocketMQReader(DataSourceReader):
    """Reads what the queues hold when Spark plans the read."""

    def __init__(self, settings: ReadSettings, names: Sequence[str]) -> None:
        self._settings = settings
        self._names = names
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        settings = self._settings
        client = settings.factory.queue_client()
        try:
            queues = queues_of(settings.subscription, client)
            settings.start.check(queues)
            settings.stop.check(queues)
            settings.start.warn_if_unread(settings.subscription, queues, client, settings.stop.resolve)
            admitted = [queue for queue in queues if self._narrowing.admits(queue)]
            ranges = all_or_error(resolve_all(admitted, client, self._range))
        finally:
            client.close()
        return partitions(ranges, settings.min_partitions, settings.max_records_per_partition)

    def _range(self, queue: MessageQueue, lookup: OffsetLookup) -> tuple[int, int]:
        try:
            # The end first: messages that arrive in between belong to the next read
            end = self._settings.stop.resolve(queue, lookup)
            return self._narrowing.cut(queue, self._settings.start.resolve(queue, lookup), end, lookup)
        except OffsetOutOfRange as error:
            raise DataLoss(error) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return iter(())  # Spark runs a task even if there are no partitions
        return read_range(self._settings, partition, self._names)


class FilteredRocketMQReader(RocketMQReader):
    """Skips what the query's filters exclude: queues, offsets, times and, through the broker, tags.

    Spark applies all filters again, since a read also has what other queries of the same `load()` need: see `widened`.
    """

    def __init__(self, settings: ReadSettings, names: Sequence[str], load: str) -> None:
        super().__init__(settings, names)
        self._load = load
        self._is_narrowed = False

    def partitions(self) -> Sequence[InputPartition]:
        if not self._is_narrowed:  # a query without filters, which later ones of this load must not narrow
            widened(self._load, Narrowing())
        return super().partitions()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._is_narrowed = True
        own = self._settings.message_filter
        self._narrowing = widened(self._load, push(filters, own))
        self._settings = dataclasses.replace(self._settings, message_filter=self._narrowing.of(own))
        return filters
