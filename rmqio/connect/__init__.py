"""Systems beside RocketMQ: sinks for SQL databases, search engines, Kafka and files, reads of them, and a sink base.

The names resolve on first use, so that no system's client is needed for another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqio.loading import lazy_names

if TYPE_CHECKING:
    from rmqio.connect.files.read import ReadFromFiles
    from rmqio.connect.files.write import WriteToFiles, WriteToFilesResult
    from rmqio.connect.kafka.read import ReadFromKafka
    from rmqio.connect.kafka.records import KafkaRecord
    from rmqio.connect.sink import Batching, BatchSink, Retry, RowRefused, Verdict, Written
    from rmqio.connect.sql.read import ReadFromSql
    from rmqio.connect.transform import WriteToSink, WriteToSinkResult
    from rmqio.connect.write import WriteToElasticsearch, WriteToKafka, WriteToSql

_HOMES: Final = {
    "BatchSink": "sink",
    "Batching": "sink",
    "KafkaRecord": "kafka.records",
    "ReadFromFiles": "files.read",
    "ReadFromKafka": "kafka.read",
    "ReadFromSql": "sql.read",
    "Retry": "sink",
    "RowRefused": "sink",
    "Verdict": "sink",
    "WriteToElasticsearch": "write",
    "WriteToFiles": "files.write",
    "WriteToFilesResult": "files.write",
    "WriteToKafka": "write",
    "WriteToSink": "transform",
    "WriteToSinkResult": "transform",
    "WriteToSql": "write",
    "Written": "sink",
}

__all__ = [
    "BatchSink",
    "Batching",
    "KafkaRecord",
    "ReadFromFiles",
    "ReadFromKafka",
    "ReadFromSql",
    "Retry",
    "RowRefused",
    "Verdict",
    "WriteToElasticsearch",
    "WriteToFiles",
    "WriteToFilesResult",
    "WriteToKafka",
    "WriteToSink",
    "WriteToSinkResult",
    "WriteToSql",
    "Written",
]

__getattr__ = lazy_names(__name__, _HOMES)
