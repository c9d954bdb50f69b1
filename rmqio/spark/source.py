"""The format `rocketmq` of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rmqio.errors import LocalError, OffsetOutOfRange
from rmqio.model import MessageQueue
from rmqio.seams import QueueClient
from rmqio.spark.columns import SCHEMA, checked_names
from rmqio.spark.options import ReadSettings, read_settings
from rmqio.spark.ranges import DataLoss, Range, partitions, read_range


class RocketMQDataSource(DataSource):
    """Reads topics of Apache RocketMQ, as a table of what they hold or as a stream.

    Columns: `rmqio.spark.columns.COLUMNS`; `.schema(...)` chooses among them. Options: docs/pyspark.md.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return RocketMQReader(read_settings(self.options, streaming=False), checked_names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            from rmqio.spark.stream import RocketMQStreamReader
        except ImportError as error:
            raise LocalError("a stream of the format rocketmq needs PySpark 4.2 or newer") from error

        return RocketMQStreamReader(read_settings(self.options, streaming=True), checked_names(schema))


class RocketMQReader(DataSourceReader):
    """What the queues hold when Spark plans the read."""

    def __init__(self, settings: ReadSettings, names: Sequence[str]) -> None:
        self._settings = settings
        self._names = names

    def partitions(self) -> Sequence[InputPartition]:
        settings = self._settings
        client = settings.factory.queue_client()
        try:
            queues = settings.subscription.find_queues(client)
            settings.start.check(queues)
            settings.stop.check(queues)
            ranges = {queue: self._range(queue, client) for queue in queues}
        finally:
            client.close()
        return partitions(ranges, settings.min_partitions, settings.max_records_per_partition)

    def _range(self, queue: MessageQueue, client: QueueClient) -> tuple[int, int]:
        try:
            # The end first: what comes in between belongs to the next read
            end = self._settings.stop.resolve(queue, client)
            return self._settings.start.resolve(queue, client), end
        except OffsetOutOfRange as error:
            raise DataLoss(error) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return iter(())  # Spark runs a task also where there are no partitions
        return read_range(self._settings, partition, self._names)
