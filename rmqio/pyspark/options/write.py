"""Write options of the format `rocketmq`, from text to checked values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.options import WriteOptions
from rmqio.pyspark.options.given import OUTAGE_MS, choice, factory, known, number, trace
from rmqio.pyspark.options.secured import SECURITY_NAMES
from rmqio.topics import validate_group, validate_topic

WRITE_NAMES: Final = (
    "nameServer",
    "topic",
    "producerGroup",
    "maxBatchMessages",
    "maxBatchBytes",
    "maxTotalBytes",
    "maxInFlight",
    "requestTimeoutMs",
    "maxRetries",
    "outageTimeoutMs",
    "namespace",
    "compressOverBytes",
    "compression",
    "compressionLevel",
    "createTopics",
    "reservedProperties",
    "trace",
    *SECURITY_NAMES,
)
OF_SPARK: Final = ("checkpointlocation", "queryname")
"""Spark passes its own options of a streaming query along with the sink's."""
_GROUP: Final = "rmqio_producer"


@dataclass(frozen=True)
class WriteSettings:
    """All settings of a task that writes. Picklable."""

    topic: str | None
    """The topic of all messages; None: each row names its own."""
    factory: ClientFactory
    group: str
    options: WriteOptions
    outage_timeout_s: float
    drops_reserved: bool
    """Whether properties with reserved names are dropped or refused."""
    streaming: bool


def write_settings(options: Mapping[str, str], *, streaming: bool) -> WriteSettings:
    """Checks the options of a write. Raises `LocalError`, which names the option and says what is wrong."""
    given = known(
        {name: value for name, value in options.items() if not (streaming and name.lower() in OF_SPARK)},
        WRITE_NAMES,
        " when writing",
    )
    topic, group = given.get("topic"), given.get("producerGroup", _GROUP)
    for name, check, value in (("topic", validate_topic, topic), ("producerGroup", validate_group, group)):
        try:
            if value is not None:
                check(value)
        except LocalError as error:
            raise LocalError(f"{name}: {error}") from error
    values = {
        "max_batch_messages": number(given, "maxBatchMessages"),
        "max_batch_bytes": number(given, "maxBatchBytes"),
        "max_total_bytes": number(given, "maxTotalBytes"),
        "max_in_flight": number(given, "maxInFlight"),
        "max_retries": number(given, "maxRetries", least=0),
        "compress_over_bytes": number(given, "compressOverBytes"),
        "compression_level": number(given, "compressionLevel"),
        "compression": choice(given, "compression", "zlib", "lz4", "zstd"),
    }
    found: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    chosen = WriteOptions(**found, trace=trace(given))
    return WriteSettings(
        topic,
        factory(
            given,
            max_in_flight=chosen.max_in_flight,
            max_retries=chosen.max_retries,
            compress_over_bytes=chosen.compress_over_bytes,
            compression=chosen.compression,
            compression_level=chosen.compression_level,
            create_topics=choice(given, "createTopics", "false", "true") == "true",
        ),
        group,
        chosen,
        (number(given, "outageTimeoutMs") or OUTAGE_MS) / 1000,
        choice(given, "reservedProperties", "error", "drop") == "drop",
        streaming,
    )
