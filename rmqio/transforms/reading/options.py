"""The configuration of a read, and how it uses its options: clients that they describe, and options without effect."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final

from rmqio.claims.check import ClaimCheck
from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.model import MessageFilter
from rmqio.options import ClientOptions, ReadOptions, WriteOptions, options_of_cluster, parse_name_server
from rmqio.repeats import LookBack
from rmqio.security import UNSECURED, Security
from rmqio.start import StartFrom, StopAt
from rmqio.topics import validate_group, validate_queue, validate_topic
from rmqio.transforms.reading.pacing import RateLimit
from rmqio.transforms.reading.restriction import TimestampOf

# The configuration of a read, which its DoFns and its planner share.


@dataclass(frozen=True)
class ReadConfig:
    """The configuration of the transform, checked and picklable."""

    factory: ClientFactory
    group: str | None
    start: StartFrom
    stop: StopAt | None
    message_filter: MessageFilter
    deserializer: Any
    timestamp_of: TimestampOf
    options: ReadOptions
    batches: bool = False
    errors_to_output: bool = False
    claim_check: ClaimCheck | None = None
    rate_limit: RateLimit | None = None
    read_id: str = ""
    """The id of the read, under which its commits wait for the end of a bounded pipeline (`endings`)."""
    notes_as: str | None = None
    """The id under which the read notes what a restart reads again (`restarts`). None: the runner has checkpoints."""

    @property
    def committed_group(self) -> str | None:
        """The group whose offsets are committed."""
        return self.group if self.options.commit_offsets else None


_OF_CLIENT: Final = {
    "pull_batch": "pull_batch",
    "pull_depth": "pull_depth",
    "request_timeout_ms": "request_timeout_ms",
    "name_server_poll_interval_ms": "route_refresh_ms",
    "broker_heartbeat_interval_ms": "heartbeat_ms",
    "namespace": "namespace",
    "security": "security",
}
"""The read options that configure the client, and their names in `ClientOptions`."""
_OF_PRODUCER: Final = (
    "busy_timeout_ms",
    "heartbeat_ms", "max_in_flight", "vip_channel", "create_topics", "compress_over_bytes", "compression",
    "compression_level", "inner_batches",
)  # fmt: skip
"""Options that only a producer uses; in a read, that is the producer of its dead letters."""
_PROPERTIES: Final = {"broker_heartbeat_interval_ms": " (property 'brokerserver.heartbeat.interval')"}
"""Names under which users may know these options: `ReadOptions.from_properties`."""
_OF_DISCOVERY: Final = ("discovery_interval_ms", "new_queue_start")
_OF_BUNDLES: Final = ("max_records_per_bundle", "max_bundle_ms")
_SHOWN_ELSEWHERE: Final = frozenset({"name_server", "consumer_group", "topic", "tags", "security"})


def check_positions(start: StartFrom, stop: StopAt | None, group: str | None) -> None:
    """Raises `LocalError` for an invalid strategy, an illegal group, or the name of an impossible queue."""
    if group is not None:
        validate_group(group)
    if not isinstance(start, StartFrom):
        raise LocalError(f"start is {start!r}; it must be made by StartFrom, e.g. StartFrom.earliest()")
    if stop is not None and not isinstance(stop, StopAt):
        raise LocalError(f"stop is {stop!r}; it must be made by StopAt, e.g. StopAt.latest()")
    if start.kind == "group_offsets" and not group:
        raise LocalError("start=StartFrom.group_offsets(...) needs consumer_group")
    for queue, _ in (*start.offsets, *(stop.stops if stop is not None else ())):
        validate_queue(queue)


def check_filter(tags: str | None, sql_filter: str | None) -> None:
    """Raises `LocalError` for more than one filter, or one that matches nothing."""
    if tags is not None and sql_filter is not None:
        raise LocalError("tags and sql_filter cannot be combined; put the tag into the SQL: TAGS = 'a'")
    if tags is not None:
        MessageFilter.of_tags(tags)
    if sql_filter is not None and not sql_filter.strip():
        raise LocalError("sql_filter is empty; leave it out to read everything")


def changed_options(options: ReadOptions | WriteOptions | ClientOptions | LookBack) -> dict[str, Any]:
    """The options that differ from their default, by name. An option without a default is always included."""
    return {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.default is MISSING or getattr(options, field.name) != field.default
    }


def factory_of(
    client_factory: ClientFactory | None,
    name_server: str | None,
    client: ClientOptions | None,
    options: ReadOptions,
    *,
    group: str | None,
    looks_again: bool,
    writes_letters: bool,
) -> tuple[ClientFactory, ClientOptions | None]:
    """The factory of a read's clients, and their options if these are known. Raises as `read_client_options` does."""
    if client_factory is not None:
        _refuse_beside_factory(name_server, client, options)
        return client_factory, None
    from rmqio.client.factory import RemotingClientFactory

    made = read_client_options(
        name_server, client, options, group=group, looks_again=looks_again, writes_letters=writes_letters
    )
    return RemotingClientFactory(made), made


def read_client_options(
    name_server: str | None,
    client: ClientOptions | None,
    options: ReadOptions,
    *,
    group: str | None,
    looks_again: bool,
    writes_letters: bool,
) -> ClientOptions:
    """The client options of a read, from all sources that specify them.

    Args:
      group: the consumer group, if there is one.
      looks_again: whether the read looks for new queues while it runs.
      writes_letters: whether the read has a dead-letter topic.

    Raises `LocalError` if two sources specify different values, or if no name server is known.
    """
    if client is not None and not isinstance(client, ClientOptions):
        raise LocalError(f"client is {client!r}; it must be rmqio.ClientOptions, e.g. ClientOptions('host:9876')")
    name_server = name_server or options.name_server
    if client is None:
        made = options_of_cluster(name_server)
    elif name_server is not None and parse_name_server(name_server) != client.name_servers:
        raise _said_twice("name_server", name_server, "name_servers", ";".join(client.name_servers))
    else:
        made = client
    changed, changes = changed_options(made), {}
    for name, value in changed_options(options).items():
        theirs = _OF_CLIENT.get(name)
        if theirs is None:
            continue
        if theirs in changed and changed[theirs] != value:
            raise _said_twice(f"ReadOptions.{name}", value, theirs, changed[theirs])
        changes[theirs] = value
    made = replace(made, **changes)
    if not writes_letters:
        _refuse_of_producer(made, options)
    validate_group(made.pull_group)
    if made.pull_group == group:  # our pulls would consume its resets
        raise LocalError(f"ClientOptions.pull_group is {group!r}, the consumer group; give it another name")
    if looks_again and options.discovery_interval_ms:
        # A look for new queues must not use the route of the previous look.
        most = max(1, options.discovery_interval_ms // 2)
        made = replace(made, route_refresh_ms=min(made.route_refresh_ms, most))
    return made


def _said_twice(name: str, value: object, theirs: str, other: object) -> LocalError:
    if theirs == "security":  # its text is long
        return LocalError("security and ClientOptions.security are both given and differ; give one of them")
    return LocalError(f"{name} is {value!r} and ClientOptions.{theirs} is {other!r}; give one of them")


def _refuse_of_producer(made: ClientOptions, options: ReadOptions) -> None:
    changed = changed_options(made)
    for name in _OF_PRODUCER:
        if name in changed:
            mine = next(
                (mine for mine, theirs in _OF_CLIENT.items() if theirs == name and mine in changed_options(options)),
                None,
            )
            what = f"ClientOptions.{name}" if mine is None else f"ReadOptions.{mine}"
            named = _PROPERTIES.get(mine or "", "")
            raise LocalError(
                f"{what}={changed[name]!r}{named} does nothing on a read without dead_letter_topic: only the producer "
                "that writes the letters uses it. Leave it out"
            )


def _refuse_beside_factory(name_server: str | None, client: ClientOptions | None, options: ReadOptions) -> None:
    """Raises `LocalError` for options that a user's own `client_factory` would ignore."""
    ours = [name for name in ("name_server", *_OF_CLIENT) if name in changed_options(options)]
    given = [
        *(["name_server"] if name_server is not None else []),
        *(["client"] if client is not None else []),
        *(name if name == "security" else f"ReadOptions.{name}" for name in ours),
    ]
    if given:
        raise LocalError(
            f"{given[0]} and client_factory are both given; the factory knows its "
            f"{given[0].rpartition('.')[2].replace('_', ' ')} already"
        )


def refuse_idle(options: ReadOptions, *, start: StartFrom, stops: bool, arrives: bool, group: str | None) -> None:
    """Raises `LocalError` for options that would have no effect.

    Args:
      start: where queues start for which no element specifies it.
      stops: whether the read is bounded.
      arrives: whether topics and queues arrive as elements.
      group: the group whose offsets are committed, if any.
    """
    changed = changed_options(options)
    check_trace(options)
    if arrives and "topic" in changed:
        raise LocalError(
            f"ReadOptions.topic={options.topic!r} does nothing on ReadAllFromRocketMQ, whose topics arrive as elements"
        )
    for name in _OF_DISCOVERY:
        value = changed.get(name)
        if value and (stops or arrives):  # 0: look once, as these do
            why = "is looked up once, when it arrives" if arrives else "with an end looks for its queues once"
            raise LocalError(
                f"ReadOptions.{name}={value!r} does nothing here: {'a topic' if arrives else 'a read'} {why}. "
                "Leave it out"
            )
    if options.splits_per_queue > 1:
        _refuse_splits(options, stops=stops, group=group)
    if "new_queue_start" in changed and not options.discovery_interval_ms:
        raise LocalError(
            f"ReadOptions.new_queue_start={options.new_queue_start!r} does nothing with discovery_interval_ms=0: no "
            "queue is found later. Leave one of them out"
        )
    if options.on_timestamp_after_end == "fail" and start.kind != "timestamp" and not arrives:
        raise LocalError(
            "ReadOptions.on_timestamp_after_end='fail' does nothing without StartFrom.timestamp(...). Leave it out"
        )
    if options.on_group_reset == "honour" and group is None:
        raise LocalError(
            "ReadOptions.on_group_reset='honour' does nothing without commits, which reveal a reset: give "
            "consumer_group and leave commit_offsets on, or leave it out"
        )


def check_trace(options: ReadOptions | WriteOptions) -> None:
    """Raises `LocalError` for the name of an impossible trace topic."""
    if isinstance(options.trace, str):
        try:
            validate_topic(options.trace)
        except LocalError as error:
            raise LocalError(f"{type(options).__name__}.trace: {error}") from error


def _refuse_splits(options: ReadOptions, *, stops: bool, group: str | None) -> None:
    what = f"ReadOptions.splits_per_queue={options.splits_per_queue}"
    if options.max_num_records is not None:
        raise LocalError(f"{what} and max_num_records are both given: a limit cannot be divided by offsets")
    if not stops:
        raise LocalError(f"{what} does nothing here: a read without an end reads each queue in order. Give stop=")
    if group is not None:
        raise LocalError(
            f"{what} needs commit_offsets=False: the parts of a queue end in any order, so an offset of group "
            f"{group!r} would not mean that everything before it has been read"
        )


def refuse_planned(options: ReadOptions) -> None:
    """Raises `LocalError` for options that have no effect if the runner plans what a micro-batch reads."""
    changed = changed_options(options)
    if options.splits_per_queue > 1:
        raise LocalError(
            f"ReadOptions.splits_per_queue={options.splits_per_queue} does nothing on this runner, which reads each "
            "queue of a micro-batch in order. Leave it out"
        )
    for name in _OF_BUNDLES:
        if name in changed:
            raise LocalError(
                f"ReadOptions.{name}={changed[name]} does nothing on this runner, which plans each micro-batch: "
                "set its option --max_records_per_trigger or --max_bytes_per_trigger instead"
            )


def shown(
    factory: ClientFactory, made: ClientOptions | None, client: ClientOptions | None, options: ReadOptions
) -> dict[str, Any]:
    """Display data: name servers, security without secrets, and all options that differ from their default. The other
    arguments of a read are in `display`.

    Args:
      factory: creates the clients of the read.
      made: the options of the clients; None with a user's own factory.
      client: the options that the user gave.
    """
    found = {name: value for name, value in changed_options(options).items() if name not in _SHOWN_ELSEWHERE}
    if client is not None:
        names = [name for name in changed_options(client) if name not in ("name_servers", "security")]
        found |= {f"client.{name}": getattr(made or client, name) for name in names}  # the final value
    if made is not None:
        found["name_server"] = ";".join(made.name_servers)
        found["security"] = describe(made.security)
    else:
        found["client_factory"] = type(factory).__qualname__
    return found


def describe(security: Security) -> str | None:
    """A short text for display data: where credentials come from, not what they are. None: nothing is set."""
    if security == UNSECURED:
        return None
    parts = []
    if security.source is not None:
        parts.append(f"credentials by {type(security.source).__name__}")
    if security.tls is not None:
        parts.append("TLS, not verified" if security.tls.insecure else "TLS")
    if security.address_map:
        parts.append("mapped addresses")
    if security.allowed_addresses:
        parts.append(f"addresses among {', '.join(security.allowed_addresses)}")
    return ", ".join(parts)


def name_of(function: object) -> str | None:
    """Return the name of a function, or of an object's class, to display. A repr can contain anything."""
    return None if function is None else str(getattr(function, "__qualname__", type(function).__qualname__))
