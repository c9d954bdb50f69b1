"""Options as frozen values that are checked when they are created. The names include the units.

`ReadOptions.from_properties` and `WriteOptions.from_properties` accept the keys of Apache RocketMQ's Flink connector,
so that a configuration can be reused. The defaults are those of the connector wherever that is safe.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, TypeVar

from rmqio.addresses import parse_address
from rmqio.errors import LocalError
from rmqio.hints import nearest
from rmqio.security import UNSECURED, Security

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"
"""The environment variable that RocketMQ's own clients read."""

OffsetPolicy = Literal["fail", "earliest", "latest"]
Compression = Literal["zlib", "lz4", "zstd"]


def parse_name_server(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """The `host:port` addresses in a text, separated by semicolons or commas; None: those in `NAMESRV_ADDR`.

    Raises `LocalError`, which names the invalid part.
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


def _check_trace(options: ReadOptions | WriteOptions) -> None:
    if not isinstance(options.trace, (bool, str)) or options.trace == "":
        raise LocalError(
            f"{type(options).__name__}.trace is {options.trace!r}; it must be True, False or the name of a topic"
        )


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to connect to a RocketMQ cluster. Times are in milliseconds.

    Args:
      name_servers: addresses `host:port`; all of them are tried.
      request_timeout_ms: timeout of one request and its answer.
      connect_timeout_ms: timeout of one TCP connection.
      route_refresh_ms: maximum age of a topic's route before it is looked up again.
      heartbeat_ms: how often a producer sends heartbeats to its brokers. They also keep idle connections open, which
        servers close after 120,000 ms.
      max_retries: how often a failed request is retried, with backoff, and elsewhere if possible. This includes sends:
        a send that is retried can be stored twice.
      busy_timeout_ms: how long a send is retried while its broker answers SYSTEM_BUSY or FLOW_CONTROL, at growing
        intervals; such tries are not among `max_retries`. 0, or no retries: as other errors.
      retry_backoff_ms, retry_backoff_max_ms: the first and the longest backoff between tries. It doubles, with jitter.
      pull_depth: pulls in flight per queue while a backlog is read.
      pull_batch: messages requested by each pull. By default, the broker returns at most 32, whatever is requested.
      long_poll_ms: how long a broker may hold the pull of an exhausted queue. It checks for expiry only every 5 s.
      outage_timeout_ms: how long a reader retries while its broker does not answer, so that it survives a restart.
      pull_group: the group under which pulls are sent. It is never the user's group, because the first pull of a group
        consumes an operator's reset. The name is fixed, because a broker keeps every group that it has ever seen, and
        because access control must allow it.
      replica_reads: read from a broker's replica while it has no master, or when the master suggests it. False: wait
        for the master.
      client_id_prefix: prefix of the client id, which brokers show for a producer (host, process and object).
      unit_name: the last part of the client id, after "@", as Java's unitName.
      max_in_flight: maximum number of batches that a producer has in flight at once.
      vip_channel: send to the broker's listen port minus 2, which serves no pulls.
      namespace: prefix of topics and groups, as in RocketMQ's instances (`namespace%topic`).
      create_topics: let the broker create a missing topic on the first send, if it permits that.
      compress_over_bytes: compress bodies of at least this size; None: never. Java's producers compress from 4,096
        bytes, and never in batches. Here, if one body of a batch is that large, all its bodies are compressed, if that
        makes the batch smaller.
      compression, compression_level: "zlib" (1 to 9), "zstd" (1 to 22), or "lz4", which ignores the level.
      inner_batches: let a topic of type BatchCQ store a batch as one record, which requires a broker of 5.0 or newer.
        Older brokers give all messages of such a batch the same unique id.
      security: credentials, TLS, and which addresses may be used; see `rmqio.security`.
    """

    name_servers: str | tuple[str, ...]
    request_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    route_refresh_ms: int = 30_000
    heartbeat_ms: int = 30_000
    max_retries: int = 3
    busy_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 5_000
    pull_depth: int = 16
    pull_batch: int = 32
    long_poll_ms: int = 15_000
    outage_timeout_ms: int = 60_000
    pull_group: str = "rmqio_reader"
    replica_reads: bool = True
    client_id_prefix: str = ""
    unit_name: str = ""
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
        _positive(self, "max_retries", "busy_timeout_ms", zero=True)
        _check_compression(self)


def options_of_cluster(
    name_server: str | Sequence[str] | None, security: Security | None = None, **more: Any
) -> ClientOptions:
    """The options of a client for the cluster that an argument `name_server` names, as all transforms take it.

    Args:
      name_server: addresses; None: those in `NAMESRV_ADDR`.
      security: None: plain connections.
      more: further fields of `ClientOptions`.

    Raises `LocalError`.
    """
    return ClientOptions(parse_name_server(name_server), security=security or UNSECURED, **more)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How `ReadFromRocketMQ` reads, apart from what it reads and where it starts. Times are in milliseconds.

    An option that would have no effect is refused when the read is built or applied: see the table in docs/options.md.

    Args:
      max_records_per_bundle, max_bundle_ms: after either, the read checkpoints itself, so that offsets are committed
        and other queues are read. Refused if the runner plans micro-batches (Spark with `--streaming`), which are
        limited by its own --max_records_per_trigger and --max_bytes_per_trigger.
      poll_timeout_ms: the longest wait for a message of any of the queues before a bundle ends empty; if the runner
        plans micro-batches, for an answer before the read checks that its range still exists.
      discovery_interval_ms: how often an endless read looks for new queues and topics; 0: only at the start. Refused
        for reads with an end and for `ReadAllFromRocketMQ`, which look once.
      new_queue_start: where the read of a queue starts that is new since the read began and for which the group has no
        offset (docs/read.md). Refused if the read does not look for new queues.
      on_offset_out_of_range: what to do if the wanted offset is not in the queue (deleted by retention, topic
        recreated). "fail" stops the pipeline; the others continue there, count the gap and log it.
      on_timestamp_after_end: what to do if a start timestamp is after the newest message: "latest" waits there, "fail"
        raises an error.
      commit_offsets: commit the group's offsets when a bundle is final.
      offset_commit_interval_ms: at most one commit per queue in this time. Bounded reads always commit the last offset.
      on_group_reset: what to do if an operator resets the group's offset of a queue during the read. "refuse" continues
        at the current position, warns, and commits over the reset. "honour" stops the pipeline with `GroupOffsetReset`
        and leaves the reset for the next start from the group's offsets. A reset before the start is always honoured.
        "honour" is refused if nothing is committed, because only commits reveal a reset.
      max_out_of_orderness_ms: how far the watermark stays behind the newest timestamp seen in a queue.
      idle_timeout_ms: a queue that has been read to its end for this long follows the clock (minus
        `max_out_of_orderness_ms`), so that it does not hold back the watermark.
      max_num_records: stop after this many records, which gives the read an end; for trials. The queues share the
        number by what they hold at the start. Without a stop, the read waits for missing records, an even share in each
        queue. With a filter, fewer records can arrive, because the shares count messages before filtering. Not for
        `ReadAllFromRocketMQ`.
      splits_per_queue: how many parts of a queue may be read at the same time, by different tasks. The order of a queue
        is then lost. Only for reads with a stop, and without committed offsets, since parts end in any order.
      pull_batch, pull_depth, request_timeout_ms: as in `ClientOptions`.
      name_server_poll_interval_ms: `ClientOptions.route_refresh_ms`; at most half of `discovery_interval_ms` in an
        endless read, so that each look finds new queues.
      broker_heartbeat_interval_ms: `ClientOptions.heartbeat_ms` of the producer of `dead_letter_topic`; refused without
        one, because a read sends no heartbeats.
      namespace: prefix of topics and groups on the wire (`namespace%topic`), and nowhere else.
      trace: send a message trace of what is read to RocketMQ's trace topic (True), or to the topic of this name.
      name_server, consumer_group, topic, tags: from properties; an argument of the transform takes precedence.
      security: as in `ClientOptions`.

    Options of the client that are set here and differ from the default must equal those in the transform's `client` if
    they are set there too. They are refused together with `client_factory`.
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
    splits_per_queue: int = 1
    pull_batch: int = 32
    pull_depth: int = 16
    name_server_poll_interval_ms: int = 30_000
    broker_heartbeat_interval_ms: int = 30_000
    request_timeout_ms: int = 3_000
    namespace: str = ""
    trace: bool | str = False
    name_server: str | None = None
    consumer_group: str | None = None
    topic: str | None = None
    tags: str | None = None
    security: Security = UNSECURED

    def __post_init__(self) -> None:
        _positive(
            self, "max_records_per_bundle", "max_bundle_ms", "poll_timeout_ms", "splits_per_queue", "pull_batch",
            "pull_depth",
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
        _check_trace(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Options from the consumer keys of the Flink connector.

        A producer key is accepted with a warning, so that both sides can share a configuration. A key that would have
        no effect here is refused, unless it has the connector's default. So is an unknown key; the error names the
        nearest known key.
        """
        return _from_properties(cls, _READ_KEYS, _WRITE_KEYS, properties)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How `WriteToRocketMQ` writes. Times are in milliseconds, sizes in bytes.

    Args:
      batch_flush: send in batches. A batch is sent when it is full or when the bundle ends. False: send one by one.
      max_batch_messages, max_batch_bytes: limits of a batch (`batch_flush`), at most 4,096 messages and 1 MiB.
      asynchronous: send the next batch without waiting for the answer to the previous one. All answers are awaited when
        the bundle ends.
      max_in_flight: batches in flight at once (`asynchronous`), at most one per queue if order matters.
      max_total_bytes: limit of all batches that a writer gathers (`batch_flush`), over all topics and queues. If they
        would exceed it, the largest one is sent.
      max_wait_ms: a message waits at most so long for its batch to be full (`batch_flush`); None: until the bundle
        ends. Not with `exactly_once`.
      busy_timeout_ms: as in `ClientOptions`: while a broker says that it is busy, writes slow down and go on.
      request_timeout_ms, max_retries: of one send. A retry after an unknown outcome can store a message twice.
      name_server_poll_interval_ms: `ClientOptions.route_refresh_ms`: maximum age of a topic's route.
      broker_heartbeat_interval_ms: `ClientOptions.heartbeat_ms`: how often the producer sends heartbeats.
      namespace: prefix of topics and groups on the wire (`namespace%topic`), and nowhere else.
      trace: send a message trace of what is written to RocketMQ's trace topic (True), or to the topic of this name.
      name_server, producer_group: from properties; an argument of the transform takes precedence.
      client_id_prefix, unit_name, vip_channel, create_topics, security: as in `ClientOptions`.
      compress_over_bytes, compression, compression_level: as in `ClientOptions`.
    """

    batch_flush: bool = True
    max_batch_messages: int = 1_000
    max_batch_bytes: int = 256 * 1024
    asynchronous: bool = False
    max_in_flight: int = 8
    max_total_bytes: int = 64 * 1024 * 1024
    max_wait_ms: int | None = None
    request_timeout_ms: int = 3_000
    max_retries: int = 3
    busy_timeout_ms: int = 30_000
    name_server_poll_interval_ms: int = 30_000
    broker_heartbeat_interval_ms: int = 30_000
    namespace: str = ""
    vip_channel: bool = False
    compress_over_bytes: int | None = None
    compression: Compression = "zlib"
    compression_level: int = 5
    create_topics: bool = False
    client_id_prefix: str = ""
    unit_name: str = ""
    trace: bool | str = False
    name_server: str | None = None
    producer_group: str | None = None
    security: Security = UNSECURED

    def __post_init__(self) -> None:
        _positive(
            self, "max_batch_messages", "max_batch_bytes", "max_in_flight", "max_total_bytes", "request_timeout_ms",
            "name_server_poll_interval_ms", "broker_heartbeat_interval_ms",
        )  # fmt: skip
        _positive(self, "max_retries", "busy_timeout_ms", zero=True)
        if self.max_batch_messages > 4096:
            raise LocalError(
                f"WriteOptions.max_batch_messages is {self.max_batch_messages}; at most 4096, because a broker "
                "acknowledges and then loses batches of more than 32767 messages"
            )
        if self.max_batch_bytes > 1 << 20:
            raise LocalError(f"WriteOptions.max_batch_bytes is {self.max_batch_bytes}; at most 1048576")
        if self.max_total_bytes < self.max_batch_bytes:
            raise LocalError(
                f"WriteOptions.max_total_bytes is {self.max_total_bytes}, and max_batch_bytes {self.max_batch_bytes}: "
                "no batch could become that large; lower max_batch_bytes"
            )
        if self.max_wait_ms is not None:
            _positive(self, "max_wait_ms")
        _check_compression(self)
        _check_trace(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Options from the producer keys of the Flink connector; see `ReadOptions.from_properties`."""
        return _from_properties(cls, _WRITE_KEYS, _READ_KEYS, properties)


@dataclass(frozen=True, slots=True)
class _Key:
    option: str | None
    """The field that the key sets; None: the key would have no effect here."""
    convert: Callable[[str], Any] = field(default=str)
    defaults: tuple[int, ...] = ()
    """The connector's own defaults of a key without effect, by version. Any other value is refused."""
    why_refused: str = ""


_COMMON_KEYS = {
    "nameserver.address": _Key("name_server"),
    "nameserver.poll.interval": _Key("name_server_poll_interval_ms", int),
    "brokerserver.heartbeat.interval": _Key("broker_heartbeat_interval_ms", int),
}
_READ_KEYS = _COMMON_KEYS | {
    "consumer.group": _Key("consumer_group"),
    "consumer.topic": _Key("topic"),
    "consumer.tag": _Key("tags"),
    "consumer.offset.persist.interval": _Key("offset_commit_interval_ms", int),
    "consumer.batch.size": _Key("pull_batch", int),
    "consumer.pull.thread.pool.size": _Key(
        None, int, (20,), "pulls are pipelined on one connection per broker, not spread over threads (pull_depth)"
    ),
    "consumer.delay.when.message.not.found": _Key(
        None, int, (10, 100), "the broker holds the pull of an exhausted queue, so there is no delay to set"
    ),
}
_WRITE_KEYS = _COMMON_KEYS | {
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
            near = nearest(name, {*keys, *others}, cutoff=0.0)
            raise LocalError(f"unknown property {name!r}; the nearest known one is {near!r}")
        try:
            value = key.convert(str(text).strip())
        except ValueError as error:
            raise LocalError(f"property {name!r} is {text!r}; it must be a whole number") from error
        if key.option is None and value not in key.defaults:
            raise LocalError(f"property {name!r} is {text!r}, but does nothing here: {key.why_refused}. Remove it")
        if key.option is not None:
            found[key.option] = value
    return cls(**found)


def option_names(cls: type[Any]) -> tuple[str, ...]:
    """The names of an options class's fields."""
    return tuple(f.name for f in fields(cls))
