"""Values: messages to send, received messages, queues and routes. Immutable, picklable, hashable where it is useful.

`Record` and `Message` are tuples because one is created per message: a frozen dataclass with as many fields costs seven
times as much to create.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from rmqio.errors import CorruptMessage, LocalError

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
SHARDING_KEY = "__SHARDINGKEY"
DELAY = "DELAY"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TOMBSTONE = "rmqio.tombstone"
"""A property of a message that deletes what its key names. Its body is empty, as a compacted topic wants it."""

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker: RocketMQ's unit of order and parallelism."""

    topic: str
    broker: str
    """The broker's name (a master and its replicas share it), not an address."""
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.topic}/{self.broker}/{self.queue_id}"


class _MessageFields(NamedTuple):
    body: bytes
    topic: str | None
    tags: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    sharding_key: str | None
    delay_level: int | None
    deliver_at_ms: int | None


class Message(_MessageFields):
    """A message to send.

    Args:
      body: the payload. Must not be empty (a broker answers an empty single send with an internal error), but for a
        tombstone: a message with the property `TOMBSTONE`, which is sent as a batch of one.
      topic: the destination; None: the topic of the `WriteToRocketMQ` or of the send call.
      tags: one tag; consumers filter on it.
      keys: business keys without white space; the broker indexes them. One text with white space is several keys.
      properties: user properties. Names that RocketMQ reserves are refused when the message is encoded.
      sharding_key: messages with the same key go to the same queue, by the rule that Java producers use.
      delay_level: 1 to 18 (1s 5s 10s 30s 1m .. 10m 20m 30m 1h 2h).
      deliver_at_ms: the message is not visible before this Unix time in milliseconds; at most three days ahead.
    """

    __slots__ = ()

    def __new__(
        cls,
        body: bytes,
        *,
        topic: str | None = None,
        tags: str | None = None,
        keys: tuple[str, ...] | list[str] | str = (),
        properties: Mapping[str, str] = _NO_PROPERTIES,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> Message:
        if isinstance(keys, str):
            keys = keys.split()
        return tuple.__new__(
            cls, (body, topic, tags, tuple(keys), properties, sharding_key, delay_level, deliver_at_ms)
        )

    @property
    def is_tombstone(self) -> bool:
        """Whether it deletes what its key names."""
        return not self.body and TOMBSTONE in (self.properties or ())

    def replace(self, **changes: Any) -> Message:
        """The same message with some fields changed."""
        fields = self._asdict() | changes
        return Message(fields.pop("body"), **fields)

    def __reduce__(self) -> tuple[object, ...]:
        # A mapping proxy does not pickle, and a named tuple would be rebuilt by position.
        return _rebuild_message, (*self[:4], dict(self.properties), *self[5:])

    def __hash__(self) -> int:
        return hash((self[:4], tuple(sorted(self.properties.items())), self[5:]))


def _rebuild_message(body: bytes, *rest: Any) -> Message:
    return tuple.__new__(Message, (body, *rest))


class Record(NamedTuple):
    """A message as received, with every system column.

    Properties, keys, tags and identifiers are decoded from `raw_properties` on access.
    """

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    """Position in its queue; consecutive from the start of the queue."""
    body: bytes
    """Decompressed."""
    born_timestamp_ms: int
    """When the producer created it, by the producer's clock (Unix milliseconds)."""
    store_timestamp_ms: int
    """When the broker stored it, by the broker's clock (Unix milliseconds)."""
    raw_properties: bytes
    reconsume_times: int
    sys_flag: int
    flag: int
    commit_log_offset: int
    prepared_transaction_offset: int
    raw_born_host: bytes
    """Address (4 or 16 bytes) and port (4 bytes)."""
    raw_store_host: bytes
    body_crc: int
    """CRC-32 of the body as stored (compressed), with the top bit cleared."""
    stored_size: int
    """Bytes that the message occupies in the commit log."""

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker, self.queue_id)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, including RocketMQ's own (KEYS, TAGS, UNIQ_KEY ...). Decoded on each access."""
        return decode_properties(self.raw_properties)

    def get_property(self, name: str) -> str | None:
        """One property, or None."""
        return find_property(self.raw_properties, name)

    @property
    def tags(self) -> str | None:
        return find_property(self.raw_properties, TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        value = find_property(self.raw_properties, KEYS)
        return tuple(value.split()) if value else ()

    @property
    def sharding_key(self) -> str | None:
        return find_property(self.raw_properties, SHARDING_KEY)

    @property
    def message_id(self) -> str:
        """The producer's unique id (UNIQ_KEY), or the offset message id if the producer set none.

        Messages of a batch that a client sent without ids have none. The fallback is that of Java's getMsgId.
        """
        return find_property(self.raw_properties, UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id: address, port and commit log offset in upper-case hexadecimal."""
        return (self.raw_store_host + self.commit_log_offset.to_bytes(8, "big", signed=True)).hex().upper()

    @property
    def born_host(self) -> str:
        """The producer's address, `ip:port`."""
        return _host_text(self.raw_born_host)

    @property
    def store_host(self) -> str:
        """The broker's address, `ip:port`."""
        return _host_text(self.raw_store_host)


def _host_text(raw: bytes) -> str:
    address = ipaddress.ip_address(raw[:-4])
    port = int.from_bytes(raw[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _split_properties(raw: bytes) -> Iterator[tuple[str, str]]:
    for item in raw.decode("utf-8", "surrogateescape").split(PROPERTY_SEPARATOR):
        name, found, value = item.partition(NAME_VALUE_SEPARATOR)
        if found and name:
            yield name, value


def decode_properties(raw: bytes) -> dict[str, str]:
    """Properties from their stored form `name \\x01 value \\x02 ...`. Bytes that are not UTF-8 become surrogates."""
    return dict(_split_properties(raw))


def find_property(raw: bytes, name: str) -> str | None:
    """One property from the stored form, without decoding the others. As in Java, the last one of a name wins."""
    wanted = name.encode("utf-8", "surrogateescape") + b"\x01"
    found = raw.rfind(b"\x02" + wanted)
    if found >= 0:
        begin = found + 1 + len(wanted)
    elif raw.startswith(wanted):
        begin = len(wanted)
    else:
        return None
    end = raw.find(b"\x02", begin)
    return (raw[begin:] if end < 0 else raw[begin:end]).decode("utf-8", "surrogateescape")


class SendStatus(Enum):
    """The broker's status of a stored message. All four mean stored; the last three: not confirmed as safe."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """The place at which one message was stored.

    For a delayed message `queue_offset` and `offset_message_id` point into the broker's system topic.
    """

    queue: MessageQueue
    queue_offset: int
    message_id: str
    """The unique id that the message carries (UNIQ_KEY)."""
    offset_message_id: str
    status: SendStatus = SendStatus.OK
    recall_handle: str | None = None
    """Recalls a message that waits for its delivery time (`deliver_at_ms`); None for all others."""


class PullStatus(Enum):
    """The outcome of a pull."""

    FOUND = "found"
    NO_NEW_MESSAGE = "no new message"
    """There is nothing at or after the offset."""
    NO_MATCH = "no match"
    """No message passed the filter, or their file is gone: continue at `next_offset`."""
    OFFSET_ILLEGAL = "offset illegal"
    """The offset is outside the range that the broker holds; `next_offset` is the broker's suggestion."""


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to one pull."""

    status: PullStatus
    next_offset: int
    """The next pull's offset. It is less than the broker's own value if the decompressed bodies became too large."""
    min_offset: int
    max_offset: int
    """One past the newest message that is visible."""
    records: list[Record]
    corrupt: tuple[CorruptMessage, ...] = ()
    """Messages of this answer that cannot be decoded, with their coordinates; never skipped silently."""
    suggested_broker_id: int = 0
    remark: str | None = None
    is_border: bool = False
    """The offsets up to `next_offset` never existed: a static topic's queue begins there on another broker."""
    decompressed_bytes: int = 0
    """Size of the compressed bodies after decompression."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter that the broker evaluates: tags (`"a || b"`, `"*"`), or an SQL92 expression over properties."""

    expression: str = "*"
    sql: bool = False

    @classmethod
    def of_tags(cls, expression: str | None) -> MessageFilter:
        """The filter for a user's tags. Raises `LocalError` for `a | b`: RocketMQ 5 permits no | in a tag."""
        if any("|" in tag for tag in (expression or "").split("||")):
            raise LocalError(f"tags are {expression!r}; write || between two tags: 'a || b'")
        return cls(expression or "*")

    @property
    def is_all(self) -> bool:
        return not self.sql and self.expression.strip() in ("", "*")

    @property
    def tag_set(self) -> frozenset[str]:
        """The wanted tags; empty for "all" and for SQL. The broker compares only hashes: check again on arrival."""
        if self.sql or self.is_all:
            return frozenset()
        return frozenset(tag.strip() for tag in self.expression.split("||") if tag.strip())


READ_PERMISSION = 4
WRITE_PERMISSION = 2


@dataclass(frozen=True, slots=True)
class QueueData:
    """How many queues of a topic one broker serves."""

    broker: str
    read_queues: int
    write_queues: int
    permission: int


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The addresses of one broker by id; id 0 is the master."""

    broker: str
    cluster: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        return self.addresses.get(0)


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues and brokers of a topic, as a name server reports them."""

    topic: str
    queues: tuple[QueueData, ...]
    brokers: Mapping[str, BrokerData]
    order_conf: str | None = None
    logical: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """For a static topic: maps each queue (the logical broker name and the id) to the broker that has it now."""

    def owner(self, broker: str, queue_id: int) -> str:
        """The broker that has a queue: the one in its name, except for static topics."""
        return self.logical.get((broker, queue_id), broker)

    def has(self, queue: MessageQueue) -> bool:
        """Whether the queue is there, also if nobody may read or write it now."""
        if self.logical:
            return (queue.broker, queue.queue_id) in self.logical
        return any(
            data.broker == queue.broker and 0 <= queue.queue_id < max(data.read_queues, data.write_queues)
            for data in self.queues
        )

    def readable(self) -> tuple[MessageQueue, ...]:
        """The queues that can be read, sorted."""
        return self._queues(READ_PERMISSION, lambda data: data.read_queues, lambda broker: True)

    def writable(self) -> tuple[MessageQueue, ...]:
        """The queues that can be written to, sorted: writes are permitted, and the master is known."""
        return self._queues(WRITE_PERMISSION, lambda data: data.write_queues, lambda broker: broker.master is not None)

    def _queues(
        self, permission: int, count: Callable[[QueueData], int], serves: Callable[[BrokerData], bool]
    ) -> tuple[MessageQueue, ...]:
        there = [
            data
            for data in sorted(self.queues, key=lambda data: data.broker)
            if data.permission & permission and data.broker in self.brokers and serves(self.brokers[data.broker])
        ]
        if self.logical:
            names = {data.broker for data in there}
            known = sorted(key for key, owner in self.logical.items() if owner in names)
            return tuple(MessageQueue(self.topic, *key) for key in known)
        return tuple(
            MessageQueue(self.topic, data.broker, queue_id) for data in there for queue_id in range(count(data))
        )
