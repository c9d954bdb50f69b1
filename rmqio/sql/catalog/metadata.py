"""Metadata columns: what a message has beside its body, to read and to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqio.sql import types
from rmqio.sql.types import SqlType


@dataclass(frozen=True, slots=True)
class Metadata:
    """A kind of metadata.

    Attributes:
      key: its name in METADATA FROM.
      type: the type of its values, to which others are converted.
      read: Python's expression for it, of `record`; empty: it cannot be read.
      written: the field of a message that it becomes; empty: it is read-only.
      comment: what it is, for the documentation.
    """

    key: str
    type: SqlType
    read: str
    written: str
    comment: str


_MAP: Final = SqlType("MAP", elements=(types.VARCHAR.nullable(False), types.VARCHAR))
_STRING: Final = types.VARCHAR.nullable(False)
_LONG: Final = types.BIGINT.nullable(False)
_TIME: Final = types.TIMESTAMP_LTZ.nullable(False)

METADATA: Final = {
    each.key: each
    for each in (
        Metadata("topic", _STRING, "record.topic", "topic", "the topic; written: the topic that the row goes to"),
        Metadata("broker", _STRING, "record.broker", "", "the name of the broker"),
        Metadata("queue_id", types.INTEGER.nullable(False), "record.queue_id", "", "the number of the queue"),
        Metadata("offset", _LONG, "record.queue_offset", "", "the offset in the queue"),
        Metadata("message_id", _STRING, "record.message_id", "", "the producer's unique id"),
        Metadata("keys", types.VARCHAR, "' '.join(record.keys) or None", "keys", "business keys, separated by spaces"),
        Metadata("tags", types.VARCHAR, "record.tags", "tags", "the tag"),
        Metadata("sharding_key", types.VARCHAR, "record.sharding_key", "sharding_key", "messages of one stay in order"),
        Metadata("born_timestamp", _TIME, "record.born_timestamp_ms * 1000", "", "when the producer created it"),
        Metadata("store_timestamp", _TIME, "record.store_timestamp_ms * 1000", "", "when the broker stored it"),
        Metadata("reconsume_times", types.INTEGER.nullable(False), "record.reconsume_times", "", "failed deliveries"),
        Metadata("properties", _MAP, "record.properties", "properties", "the properties; written: the user's own"),
        Metadata("delay_level", types.INTEGER, "", "delay_level", "delivery after a delay: level 1 is 1 s, 18 is 2 h"),
        Metadata("deliver_at", types.TIMESTAMP_LTZ, "", "deliver_at_ms", "the broker delivers it then"),
    )
}  # fmt: skip

ALIASES: Final = {
    "tag": "tags", "key": "keys", "queue_offset": "offset", "queueoffset": "offset", "queueid": "queue_id",
    "queue": "queue_id", "partition": "queue_id", "msg_id": "message_id", "msgid": "message_id",
    "messageid": "message_id", "brokername": "broker", "broker_name": "broker", "shardingkey": "sharding_key",
    "born_time": "born_timestamp", "borntimestamp": "born_timestamp", "timestamp": "store_timestamp",
    "store_time": "store_timestamp", "storetimestamp": "store_timestamp", "headers": "properties",
    "reconsumetimes": "reconsume_times", "delay": "delay_level", "delaylevel": "delay_level",
}  # fmt: skip
"""Other names of them, in lower case: those of Kafka's connector and of Java's client."""


def metadata_named(key: str) -> Metadata | None:
    """Returns the metadata with this name; None: there is none."""
    folded = key.lower()
    return METADATA.get(ALIASES.get(folded, folded))
