"""Options as frozen values, checked when they are made. Units are in the names.

`ReadOptions.from_properties` and `WriteOptions.from_properties` take the keys of Apache RocketMQ's Flink connector, so
that a configuration can be brought along. Defaults follow its table where that is safe.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, TypeVar

from rmqio.addresses import parse_address
from rmqio.errors import LocalError
from rmqio.security import UNSECURED, Security

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"
"""The environment variable that RocketMQ's own clients read."""

OffsetPolicy = Literal["fail", "earliest", "latest"]
Compression = Literal["zlib", "lz4", "zstd"]


def parse_name_server(value: str | tuple[str, ...] | list[str] | None) -> tuple[str, ...]:
    """Addresses `host:port` from text separated by semicolons (or commas), or from `NAMESRV_ADDR` when None.

    Raises `LocalError` naming what is wrong.
    """
    if value is None:
        value = os.environ.get(NAME_SERVER_VARIABLE, "")
        if not value:
            raise LocalError(
                f"no name server given: pass name_server='host:9876' or set the environment variable "
                f"{NAME_SERVER_VARIABLE}"
            )
    parts = value.replace(",", ";").split(";") if isinstance(value, str) else list(value)
    addresses = tuple(part.strip().removeprefix("http://") for part in parts if part.strip())
    if not addresses:
        raise LocalError("name_server is empty: give 'host:port', several separated by semicolons")
    for address in addresses:
        parse_address(address)
    return addresses


def _positive(options: object, *names: str, zero: bool = False) -> None:
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if zero else 1):
            least = 0 if zero else 1
            raise LocalError(
                f"{type(options).__name__}.{name} is {value!r}; it must be a whole number of at least {least}"
            )


def _one_of(options: object, name: str, *allowed: str) -> None:
    value = getattr(options, name)
    if value not in allowed:
        raise LocalError(
            f"{type(options).__name__}.{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}"
        )


def _check_compression(options: ClientOptions | WriteOptions) -> None:
    if options.compress_over_bytes is not None:
        _positive(options, "compress_over_bytes")
    _one_of(options, "compression", "zlib", "lz4", "zstd")
    _positive(options, "compression_level")
    highest = 22 if options.compression == "zstd" else 9
    if options.compression_level > highest:
        raise LocalError(
            f"{type(options).__name__}.compression_level is {options.compression_level}; "
            f"{options.compression} has levels 1 to {highest}"
        )


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to reach a RocketMQ cluster. Times in milliseconds.

    Args:
      name_servers: `host:port` each; all are tried.
      request_timeout_ms: for one request and its answer.
      connect_timeout_ms: for one TCP connection.
      route_refresh_ms: how old a topic's route may get before it is looked up again.
      heartbeat_ms: how often a producer tells its brokers that it is there; also keeps idle connections open, which
        servers close after 120,000 ms.
      max_retries: repeated tries of a failed request, with backoff, elsewhere if possible. Of a send too: it may
        then be stored twice.
      retry_backoff_ms, retry_backoff_max_ms: the first pause between tries, and the longest; it doubles, with jitter.
      pull_depth: pulls in flight per queue while reading a backlog.
      pull_batch: messages asked for per pull. The broker hands out at most 32 by default, whatever is asked.
      long_poll_ms: how long a broker may hold a pull of an exhausted queue. It checks for expiry every 5 s only.
      outage_timeout_ms: how long a reader keeps trying when its broker does not answer, so that it rides out a restart.
      pull_group: the group that pulls go under, never the user's: the first pull of a group takes an operator's reset.
        A fixed name, because a broker keeps every group it has ever seen, and because access control must allow it.
      replica_reads: read from a broker's replica while it has no master, or when the master suggests it; off: wait for
        the master.
      client_id_prefix: put before the client id, under which brokers show a producer (host, process and object).
      max_in_flight: batches of a producer that may be on their way at once.
      vip_channel: send to the broker's listen port less 2, which serves no pulls.
      namespace: put before topics and groups as RocketMQ's instances do (`namespace%topic`).
      create_topics: let the broker make a missing topic on the first send, where it permits that.
      compress_over_bytes: compress bodies of at least this size; None: never. Java's producers do so from 4,096 bytes
        on, and not in batches. Here a batch in which one body is that large has all of them compressed, if that makes
        it smaller.
      compression, compression_level: "zlib" (1 to 9), "zstd" (1 to 22), or "lz4", which takes no account of the level.
      inner_batches: let a topic of type BatchCQ store a batch as one record, which takes a broker of 5.0 or newer.
        Older ones give every message of such a batch the same unique id.
      security: credentials, TLS, and which addresses may be used; see `rmqio.security`.
    """

    name_servers: str | tuple[str, ...]
    request_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    route_refresh_ms: int = 30_000
    heartbeat_ms: int = 30_000
    max_retries: int = 3
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 5_000
    pull_depth: int = 16
    pull_batch: int = 32
    long_poll_ms: int = 15_000
    outage_timeout_ms: int = 60_000
    pull_group: str = "rmqio_reader"
    replica_reads: bool = True
    client_id_prefix: str = ""
    max_in_flight: int = 8
    vip_channel: bool = False
    namespace: str = ""
    create_topics: bool = False
    compress_over_bytes: int | None = None
    compression: Compression = "zlib"
    compression_level: int = 5
    inner_batches: bool = False
    security: Security = UNSECURED

    def __post_init__(self) -> None:
        object.__setattr__(self, "name_servers", parse_name_server(self.name_servers))
        _positive(
            self, "request_timeout_ms", "connect_timeout_ms", "route_refresh_ms", "heartbeat_ms", "retry_backoff_ms",
            "retry_backoff_max_ms", "pull_depth", "pull_batch", "long_poll_ms", "outage_timeout_ms", "max_in_flight",
        )  # fmt: skip
        _positive(self, "max_retries", zero=True)
        _check_compression(self)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How `ReadFromRocketMQ` reads, apart from what and from where. Times in milliseconds.

    An option that would do nothing is refused when the read is built, or applied: docs/options.md has the table.

    Args:
      max_records_per_bundle, max_bundle_ms: after either, the read checkpoints itself, so that offsets are committed
        and other queues get their turn. Refused where the runner plans micro-batches (Spark with `--streaming`), which
        its own --max_records_per_trigger and --max_bytes_per_trigger limit.
      poll_timeout_ms: the longest wait for a message of any of the queues before a bundle ends empty.
      discovery_interval_ms: how often an endless read looks for new queues and topics; 0: only at the start. Refused
        with an end, and of `ReadAllFromRocketMQ`, which look once.
      new_queue_start: where a queue is read from that is new since the read began and has no offset of the group:
        docs/read.md. Refused where none is looked for later.
      on_offset_out_of_range: when the wanted offset is not in the queue (deleted by retention, topic made anew).
        "fail" stops the pipeline; the others go on there, count the gap and log it.
      on_timestamp_after_end: when a start timestamp lies behind the newest message: "latest" waits there,
        "fail" raises.
      commit_offsets: commit the group's offsets when a bundle is final.
      offset_commit_interval_ms: at most one commit a queue in this time (bounded reads always commit the last one).
      on_group_reset: when an operator resets the group's offset of a queue while it is being read: "refuse" goes on
        reading where it is, warns, and commits over the reset; "honour" stops the pipeline with `GroupOffsetReset`
        and leaves the reset for the next start from the group's offsets. A reset before the start is always honoured.
        "honour" is refused where nothing is committed: commits are what finds a reset.
      max_out_of_orderness_ms: how far the watermark stays behind the newest timestamp seen in a queue.
      idle_timeout_ms: a queue that has been read to its end for this long follows the clock (less
        `max_out_of_orderness_ms`), so that it holds nobody back.
      max_num_records: stop after this many records; for trials. Shared out over the queues by what they hold at the
        start; without a stop, what is missing is awaited, an even share in each queue. With a filter fewer may come:
        the shares count the messages before it. Not of `ReadAllFromRocketMQ`.
      pull_batch, pull_depth, request_timeout_ms: as `ClientOptions`.
      name_server_poll_interval_ms: `ClientOptions.route_refresh_ms`; at most half of `discovery_interval_ms` in an
        endless read, so that a look finds what is new.
      broker_heartbeat_interval_ms: `ClientOptions.heartbeat_ms` of the producer of `dead_letter_topic`; refused without
        one, since a read itself sends no heartbeats.
      namespace: of an instance: put before topics and groups on the wire (`namespace%topic`), nowhere else.
      name_server, consumer_group, topic, tags: from properties; an argument of the transform goes before them.
      security: as `ClientOptions`.

    All that is said here of the client, and is not a default, must be the same in the transform's `client` if that says
    it too; beside `client_factory` it is refused.
    """

    max_records_per_bundle: int = 20_000
    max_bundle_ms: int = 5_000
    poll_timeout_ms: int = 1_000
    discovery_interval_ms: int = 30_000
    new_queue_start: Literal["earliest", "latest"] = "earliest"
    on_offset_out_of_range: OffsetPolicy = "fail"
    on_timestamp_after_end: Literal["latest", "fail"] = "latest"
    commit_offsets: bool = True
    offset_commit_interval_ms: int = 5_000
    on_group_reset: Literal["refuse", "honour"] = "refuse"
    max_out_of_orderness_ms: int = 0
    idle_timeout_ms: int = 1_000
    max_num_records: int | None = None
    pull_batch: int = 32
    pull_depth: int = 16
    name_server_poll_interval_ms: int = 30_000
    broker_heartbeat_interval_ms: int = 30_000
    request_timeout_ms: int = 3_000
    namespace: str = ""
    name_server: str | None = None
    consumer_group: str | None = None
    topic: str | None = None
    tags: str | None = None
    security: Security = UNSECURED

    def __post_init__(self) -> None:
        _positive(
            self, "max_records_per_bundle", "max_bundle_ms", "poll_timeout_ms", "pull_batch", "pull_depth",
            "name_server_poll_interval_ms", "broker_heartbeat_interval_ms", "request_timeout_ms",
        )  # fmt: skip
        _positive(
            self, "discovery_interval_ms", "offset_commit_interval_ms", "max_out_of_orderness_ms", "idle_timeout_ms",
            zero=True,
        )  # fmt: skip
        if self.max_num_records is not None:
            _positive(self, "max_num_records")
        _one_of(self, "new_queue_start", "earliest", "latest")
        _one_of(self, "on_offset_out_of_range", "fail", "earliest", "latest")
        _one_of(self, "on_timestamp_after_end", "latest", "fail")
        _one_of(self, "on_group_reset", "refuse", "honour")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Options from the consumer keys of the Flink connector.

        A producer key, or one that has no effect here, is taken with a warning; an unknown one raises `LocalError`
        naming the nearest known key.
        """
        return _from_properties(cls, _READ_KEYS, _WRITE_KEYS, properties)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How `WriteToRocketMQ` writes. Times in milliseconds, sizes in bytes.

    Args:
      batch_flush: send in batches, flushed when one is full and when the bundle ends; False: one by one.
      max_batch_messages, max_batch_bytes: a batch's limits; the hard caps are 4,096 messages and 1 MiB.
      asynchronous: do not wait for each batch's answer before the next is sent; all are awaited when the bundle ends.
      max_in_flight: batches on their way at once (`asynchronous`), at most one per queue where order matters.
      request_timeout_ms, max_retries: of one send. A retry after an unknown outcome may store a message twice.
      name_server_poll_interval_ms: `ClientOptions.route_refresh_ms`: how old a topic's route may get.
      broker_heartbeat_interval_ms: `ClientOptions.heartbeat_ms`: how often brokers are told of the producer.
      namespace: of an instance: put before topics and groups on the wire (`namespace%topic`), nowhere else.
      name_server, producer_group: from properties; an argument of the transform goes before them.
      vip_channel, compress_over_bytes, compression, compression_level, create_topics, security: as `ClientOptions`.
    """

    batch_flush: bool = True
    max_batch_messages: int = 1_000
    max_batch_bytes: int = 256 * 1024
    asynchronous: bool = False
    max_in_flight: int = 8
    request_timeout_ms: int = 3_000
    max_retries: int = 3
    name_server_poll_interval_ms: int = 30_000
    broker_heartbeat_interval_ms: int = 30_000
    namespace: str = ""
    vip_channel: bool = False
    compress_over_bytes: int | None = None
    compression: Compression = "zlib"
    compression_level: int = 5
    create_topics: bool = False
    name_server: str | None = None
    producer_group: str | None = None
    security: Security = UNSECURED

    def __post_init__(self) -> None:
        _positive(
            self, "max_batch_messages", "max_batch_bytes", "max_in_flight", "request_timeout_ms",
            "name_server_poll_interval_ms", "broker_heartbeat_interval_ms",
        )  # fmt: skip
        _positive(self, "max_retries", zero=True)
        if self.max_batch_messages > 4096:
            raise LocalError(
                f"WriteOptions.max_batch_messages is {self.max_batch_messages}; at most 4096, because a broker "
                "acknowledges and then loses batches of more than 32767 messages"
            )
        if self.max_batch_bytes > 1 << 20:
            raise LocalError(f"WriteOptions.max_batch_bytes is {self.max_batch_bytes}; at most 1048576")
        _check_compression(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Options from the producer keys of the Flink connector; as `ReadOptions.from_properties`."""
        return _from_properties(cls, _WRITE_KEYS, _READ_KEYS, properties)


@dataclass(frozen=True, slots=True)
class _Key:
    option: str | None
    """The field that it sets; None: it has no effect here."""
    convert: Callable[[str], Any] = field(default=str)
    why_ignored: str = ""


_COMMON_KEYS = {
    "nameserver.address": _Key("name_server"),
    "nameserver.poll.interval": _Key("name_server_poll_interval_ms", int),
}
_READ_KEYS = _COMMON_KEYS | {
    "brokerserver.heartbeat.interval": _Key(
        None, int, "a read sends no heartbeats; for those of its dead letters set broker_heartbeat_interval_ms"
    ),
    "consumer.group": _Key("consumer_group"),
    "consumer.topic": _Key("topic"),
    "consumer.tag": _Key("tags"),
    "consumer.offset.persist.interval": _Key("offset_commit_interval_ms", int),
    "consumer.batch.size": _Key("pull_batch", int),
    "consumer.pull.thread.pool.size": _Key(
        None, int, "pulls are pipelined on one connection a broker, not spread over threads; see pull_depth"
    ),
    "consumer.delay.when.message.not.found": _Key(
        None, int, "an exhausted queue is awaited by a long poll, so there is no delay to set"
    ),
}
_WRITE_KEYS = _COMMON_KEYS | {
    "brokerserver.heartbeat.interval": _Key("broker_heartbeat_interval_ms", int),
    "producer.group": _Key("producer_group"),
    "producer.retry.times": _Key("max_retries", int),
    "producer.timeout": _Key("request_timeout_ms", int),
}


def _from_properties(
    cls: type[T], keys: Mapping[str, _Key], others: Mapping[str, _Key], properties: Mapping[str, str]
) -> T:
    found: dict[str, Any] = {}
    for name, text in properties.items():
        key = keys.get(name)
        if key is None:
            if name in others:
                _LOGGER.warning("property %r has no effect on %s: it belongs to the other side", name, cls.__name__)
                continue
            known = sorted({*keys, *others})
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise LocalError(f"unknown property {name!r}; the nearest known one is {nearest!r}")
        try:
            value = key.convert(str(text).strip())
        except ValueError as error:
            raise LocalError(f"property {name!r} is {text!r}; it must be a whole number") from error
        if key.option is None:
            _LOGGER.warning("property %r has no effect here: %s", name, key.why_ignored)
        else:
            found[key.option] = value
    return cls(**found)


def option_names(cls: type[Any]) -> tuple[str, ...]:
    """The names of an options class's fields."""
    return tuple(f.name for f in fields(cls))


def with_changes(options: T, changes: Mapping[str, Any]) -> T:
    """A copy with the given fields changed; unknown names raise `LocalError` naming the nearest."""
    known = option_names(type(options))
    for name in changes:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise LocalError(f"unknown option {name!r}; the nearest known one is {nearest!r}")
    return replace(options, **changes)  # type: ignore[type-var]
