"""Options of tables: their names in all spellings, and what they mean.

One table serves scripts of rocketmq-flink (`'connector' = 'rocketmq'`), RocketMQ-SQL and rsqldb (`topic = '...'`) and
Blink (`type = 'rocketmq'`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.model import MessageFilter
from rmqio.sql.catalog import connectors, option_checks
from rmqio.sql.catalog.connectors import ConnectorOptions
from rmqio.sql.catalog.format_options import check_own, of_format, pattern_named, prefix_of
from rmqio.sql.catalog.option_checks import check_names
from rmqio.sql.errors import Refusal, nearest
from rmqio.sql.syntax.statements import Option
from rmqio.start import StartFrom, time_of

CONNECTORS: Final = ("rocketmq", "print", "blackhole", connectors.FILES, connectors.DATABASE)
FORMATS: Final = (
    "json", "csv", "raw", "key-value", "avro", "avro-confluent", "avro-openschema", "json-confluent", "protobuf",
    "protobuf-confluent", "grok", "syslog", "cef",
)  # fmt: skip
ON_ERROR: Final = ("fail", "dead-letter", "skip", "null")
"""The strictest one is the first."""
DELIVERY: Final = ("at-least-once", "exactly-once")
PUSH_DOWN: Final = ("tags", "sql92", "none")
STARTS: Final = ("earliest", "latest", "group", "timestamp", "specific-offsets")

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "connector": ("connector", "type"),
    "topic": ("topic", "consumer.topic", "producer.topic"),
    "group": ("consumerGroup", "consumer.group", "groupName", "properties.group.id", "group"),
    "producer_group": ("produceGroup", "producerGroup", "producer.group"),
    "name_server": ("nameServerAddress", "namesrvAddr", "nameserver.address", "nameServer", "name_server"),
    "tag": ("tag", "tags", "consumer.tag"),
    "sql": ("sql", "sql_filter"),
    "delivery": ("sink.delivery-guarantee",),
    "push_down": ("filter.push-down",),
    "format": ("format", "data_format", "value.format"),
    "start": ("scanStartupMode", "scan.startup.mode", "consumer.start-offset-mode", "startupMode"),
    "start_offset": ("startMessageOffset",),
    "start_ms": ("startTimeMs", "offsetFromTimestamp", "scan.startup.timestamp-millis", "start.message-timestamp"),
    "start_time": ("startTime", "startDateTime"),
    "end_time": ("endTime", "rocketmq.source.stop.offset.timestamp"),
    "offsets": ("scan.startup.specific-offsets",),
    "zone": ("timeZone", "time_zone"),
    "on_error": ("on-error", "on_error"),
    "dead_letters": ("dead-letter-topic", "dead_letter_topic"),
    "keys": ("keyColumns", "key.fields"),
    "keys_in_body": ("writeKeysToBody",),
    "is_dynamic_tag": ("isDynamicTag",),
    "tag_column": ("dynamicTagColumn",),
    "tag_in_body": ("dynamicTagColumnWriteIncluded",),
    "feedback": ("sink.allow-feedback",),
    "delimiter": ("fieldDelimiter", "csv.field-delimiter", "field.delimiter"),
    "length_check": ("lengthCheck",),
    "csv_quote": ("csv.quote-character",),
    "csv_no_quote": ("csv.disable-quote-character",),
    "csv_escape": ("csv.escape-character",),
    "csv_comments": ("csv.allow-comments",),
    "csv_null": ("csv.null-literal",),
    "raw_charset": ("raw.charset",),
    "raw_endianness": ("raw.endianness",),
    "pair_delimiter": ("key-value.pair-delimiter",),
    "key_delimiter": ("key-value.key-delimiter",),
    "key_value_null": ("key-value.null-literal",),
    "grok_pattern": ("grok.pattern",),
    "grok_timeout": ("grok.timeout",),
    "syslog_rfc": ("syslog.rfc",),
    "syslog_year": ("syslog.year",),
    "syslog_zone": ("syslog.time-zone",),
    "line_length": ("grok.max-length", "syslog.max-length", "cef.max-length"),
    "json_times": ("json.timestamp-format.standard",),
    "json_fail_on_missing": ("json.fail-on-missing-field",),
    "json_no_nulls": ("json.encode.ignore-null-fields",),
    "json_null_keys": ("json.map-null-key.mode",),
    "json_null_key": ("json.map-null-key.literal",),
    "json_plain": ("json.encode.decimal-as-plain-number",),
    "avro_schema": ("avro.schema", "avro-confluent.schema", "avro-openschema.schema"),
    "avro_file": ("avro.schema-file", "avro-confluent.schema-file", "avro-openschema.schema-file"),
    "avro_encoding": ("avro.encoding",),
    "registry_url": ("avro-confluent.url", "avro-confluent.schema-registry.url", "schema-registry.url",
                     "avro-openschema.url", "json-confluent.url", "protobuf-confluent.url"),
    "registry_subject": ("avro-confluent.subject", "avro-confluent.schema-registry.subject", "schema-registry.subject",
                         "avro-openschema.subject", "json-confluent.subject", "protobuf-confluent.subject"),
    "json_schema": ("json-confluent.schema",),
    "json_file": ("json-confluent.schema-file",),
    "protobuf_descriptor": ("protobuf.descriptor", "protobuf-confluent.descriptor"),
    "protobuf_file": ("protobuf.descriptor-file", "protobuf-confluent.descriptor-file"),
    "protobuf_message": ("protobuf.message-name", "protobuf.message-class-name", "protobuf-confluent.message-name"),
    "protobuf_defaults": ("protobuf.read-default-values", "protobuf-confluent.read-default-values"),
    "skip_errors": ("json.ignore-parse-errors", "csv.ignore-parse-errors", "protobuf.ignore-parse-errors"),
    "is_json": ("isJsonData",),
    "ignored": (
        "partitionDiscoveryIntervalMs", "useNewApi", "encoding", "lineDelimiter", "columnErrorDebug",
        "retryTimes", "sleepTimeMs", "msgIsJsonArray", "producer.retry.times", "connector.version", "instanceId",
        "json.decode.json-parser.enabled",
    ),
    **connectors.NAMES,
}  # fmt: skip
FORMAT_OPTIONS: Final = tuple(
    each
    for spellings in _NAMES.values()
    for each in spellings
    if each.partition(".")[0] in FORMATS and "schema-registry" not in each
)
"""The options of formats, as users write them."""
_BY_SPELLING: Final = {
    option_checks.folded_key(spelling): name for name, spellings in _NAMES.items() for spelling in spellings
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of a table, checked.

    Attributes:
      connector: one of `CONNECTORS`.
      topic: the topic; None: the connector has none.
      group: the consumer group, whose offsets are committed.
      start: where a read begins that has no group offsets.
      end_ms: where a read ends, in Unix milliseconds; None: the job decides.
      zone: the time zone of dates in options.
      on_error: what becomes of a row that cannot be decoded or computed.
      keys: the columns that become the message's keys.
      tag_column: the column that becomes the message's tag; None: none does.
      is_tag_in_body: that column is also in the body.
      allows_feedback: a job can read the topic that it writes here.
      producer_group: the group with which rows are written.
      is_exactly_once: a writer that may repeat work looks for its rows in the topic first.
      push_down: what of WHERE the broker filters, one of `PUSH_DOWN`; None: tags, unless the table has a watermark,
        which would follow fewer rows.
      of_format: the options that `rmqio.sql.formats` reads, by their names.
      of_connector: the options of files and databases.
    """

    connector: str = "rocketmq"
    topic: str | None = None
    group: str | None = None
    name_server: str | None = None
    tag: str | None = None
    sql: str | None = None
    format: str = "json"
    start: StartFrom | None = None
    end_ms: int | None = None
    zone: str = "UTC"
    on_error: str = "fail"
    dead_letter_topic: str | None = None
    keys: tuple[str, ...] = ()
    tag_column: str | None = None
    is_tag_in_body: bool = True
    allows_feedback: bool = False
    producer_group: str | None = None
    is_exactly_once: bool = False
    push_down: str | None = None
    of_format: dict[str, Option] = field(default_factory=dict, hash=False)
    of_connector: ConnectorOptions = field(default_factory=ConnectorOptions)
    given: dict[str, str] = field(default_factory=dict, compare=False, hash=False, repr=False)


def option_keys() -> list[str]:
    """Returns the keys of all options, each in its first spelling."""
    return [spellings[0] for name, spellings in _NAMES.items() if name != "ignored"]


def table_options(options: Sequence[Option], table: str) -> TableOptions:
    """Returns the options of CREATE TABLE. Raises `Refusal` for unknown ones, and for values that do not fit."""
    found: dict[str, Option] = {}
    for option in options:
        folded = option_checks.folded_key(option.key)
        name = _BY_SPELLING.get(folded) or _BY_SPELLING.get(folded.removeprefix("value")) or pattern_named(option)
        if name is None:
            option_checks.check_known_elsewhere(option, folded)
            _require_known(options)
            spellings = [each for spellings in _NAMES.values() for each in spellings]
            raise Refusal(f"the option {option.key!r} is unknown{nearest(option.key, spellings)}", option.span)
        if name == "ignored":
            option_checks.check_without_effect(option, folded)
        if name in found and name not in ("ignored", "lookup_ignored"):
            before = found[name].key
            doubled = "is given twice" if before == option.key else f"means the same as {before!r}, which is also given"
            raise Refusal(f"the option {option.key!r} {doubled}", option.span)
        found[name] = option
    return _checked(found, table)


def _require_known(options: Sequence[Option]) -> None:
    """Raises `Refusal` for a connector or a format that is not there: its options are unknown because it is."""
    formats = tuple(dict.fromkeys((*FORMATS, *connectors.FILE_FORMATS)))
    for each in options:
        name = next((name for name in ("connector", "format") if each.key.lower() in _NAMES[name]), None)
        value = each.value.strip()
        named, known = (connectors.connector_named(value), CONNECTORS) if name == "connector" else (value, formats)
        if name is not None and named.lower().replace("_", "-") not in known:
            raise Refusal(f"{each.key} is {named!r}; it can be {', '.join(known)}", each.value_span)


def _checked(found: dict[str, Option], table: str) -> TableOptions:
    def text(name: str, default: Any = None) -> Any:
        return found[name].value.strip() if name in found else default

    def one_of(name: str, known: Sequence[str], default: str) -> str:
        value = text(name, default)
        folded = value.lower().replace("_", "-")
        if folded not in known:
            option = found[name]
            listed = ", ".join(known)
            raise Refusal(
                f"{option.key} is {value!r}{nearest(value, known) or f'; it can be {listed}'}", option.value_span
            )
        return str(folded)

    def tag() -> str | None:
        try:
            found_filter = MessageFilter.of_tags(text("tag"))
        except LocalError as error:
            raise Refusal(str(error), found["tag"].value_span) from None
        return None if found_filter.is_all else found_filter.expression

    if "connector" in found:
        named = connectors.connector_named(text("connector"))
        found["connector"] = replace(found["connector"], value=named)
    connector = one_of("connector", CONNECTORS, "rocketmq")
    of_connector = connectors.connector_options(connector, found, table)
    option_checks.check_connector(found, connector)
    formats = connectors.FILE_FORMATS if connector == connectors.FILES else FORMATS
    format_name = one_of("format", formats, _default_format(found))
    option_checks.check_is_json(found, format_name)
    check_own(found, format_name, formats)
    option_checks.check_filters(found)
    option_checks.check_name_server(found.get("name_server"))
    on_error = one_of("on_error", ON_ERROR, "dead-letter" if "dead_letters" in found else "fail")
    if "skip_errors" in found and option_checks.boolean(found["skip_errors"]):
        if "on_error" in found and on_error != "skip":
            raise Refusal(
                f"{found['skip_errors'].key} is 'true', which means on-error = 'skip', but on-error is {on_error!r}: "
                "leave out one of them",
                found["skip_errors"].span,
            )
        on_error = "skip"
    if on_error == "dead-letter" and "dead_letters" not in found:
        raise Refusal("on-error is 'dead-letter', which needs the option 'dead-letter-topic'", found["on_error"].span)
    if connector == "rocketmq" and "dead_letters" in found and text("dead_letters") == text("topic"):
        raise Refusal(
            f"the dead-letter topic {text('dead_letters')!r} is the topic that the table reads: its bad rows would "
            "come again and again. Name another topic",
            found["dead_letters"].value_span,
        )
    option_checks.check_dead_letters(found, on_error)
    if connector == "rocketmq" and not text("topic"):
        raise Refusal(f"the table {table} needs the option 'topic'", None)
    check_names(found)
    is_exactly_once = one_of("delivery", DELIVERY, "at-least-once") == "exactly-once"
    if is_exactly_once and not text("producer_group"):
        raise Refusal(
            "sink.delivery-guarantee is 'exactly-once', which needs the option 'producerGroup': a group that nothing "
            "else writes with",
            found["delivery"].span,
        )
    zone = _zone(found)
    end = found.get("end_time")
    end_ms = _milliseconds(end, zone) if end else None
    start = _start(found, zone)
    option_checks.check_times(start, end_ms, end)
    return TableOptions(
        connector=connector,
        topic=text("topic"),
        group=text("group"),
        name_server=text("name_server"),
        tag=tag(),
        sql=text("sql"),
        format=format_name,
        start=start,
        end_ms=end_ms,
        zone=str(zone),
        on_error=on_error,
        dead_letter_topic=text("dead_letters"),
        keys=tuple(each.strip() for each in text("keys", "").replace(";", ",").split(",") if each.strip()),
        tag_column=_tag_column(found),
        is_tag_in_body="tag_in_body" not in found or option_checks.boolean(found["tag_in_body"]),
        allows_feedback="feedback" in found and option_checks.boolean(found["feedback"]),
        producer_group=text("producer_group"),
        is_exactly_once=is_exactly_once,
        push_down=one_of("push_down", PUSH_DOWN, "tags") if "push_down" in found else None,
        of_format=of_format(found, format_name),
        of_connector=of_connector,
        given={option.key: option.value for name, option in found.items()},
    )


def _tag_column(found: dict[str, Option]) -> str | None:
    """The column of rocketmq-flink's dynamic tag."""
    if "keys_in_body" in found and not option_checks.boolean(found["keys_in_body"]):
        option = found["keys_in_body"]
        raise Refusal(
            f"{option.key} is 'false', but keyColumns are always in the body: leave both out, and declare the column "
            "as STRING METADATA FROM 'keys'",
            option.value_span,
        )
    is_dynamic = "is_dynamic_tag" in found and option_checks.boolean(found["is_dynamic_tag"])
    if is_dynamic and "tag_column" not in found:
        raise Refusal("isDynamicTag is 'true', which needs the option 'dynamicTagColumn'", found["is_dynamic_tag"].span)
    for name in ("tag_column", "tag_in_body"):
        if name in found and not is_dynamic:
            raise Refusal(f"{found[name].key} does nothing without 'isDynamicTag' = 'true'", found[name].span)
    return found["tag_column"].value.strip() if is_dynamic else None


def _default_format(found: dict[str, Option]) -> str:
    """The format of tables without one: rocketmq-flink's with its `fieldDelimiter` are CSV."""
    has_delimiter = "delimiter" in found and prefix_of(found["delimiter"]) is None
    is_json = option_checks.boolean(found["is_json"]) if "is_json" in found else not has_delimiter
    return "json" if is_json else "csv" if has_delimiter else "raw"


def _zone(found: dict[str, Option]) -> dt.tzinfo:
    option = found.get("zone")
    if option is None:
        return zoneinfo.ZoneInfo("UTC")
    name = option.value.strip()
    try:
        return zoneinfo.ZoneInfo("Etc/GMT" + {"+": "-", "-": "+"}[name[3]] + str(int(name[4:].split(":")[0])) if (
            name[:3] in ("GMT", "UTC") and len(name) > 4) else name)  # fmt: skip
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, KeyError, OSError):
        hint = nearest(name, zoneinfo.available_timezones())
        raise Refusal(f"{name!r} is not a time zone{hint or '; one is Asia/Shanghai'}", option.value_span) from None


_LAST_MS: Final = 253_402_300_799_999


def _start(found: dict[str, Option], zone: dt.tzinfo) -> StartFrom | None:
    mode = found.get("start")
    if "start_time" in found:
        return StartFrom.timestamp(_milliseconds(found["start_time"], zone))
    if "start_ms" in found and not _is_unset(found["start_ms"]):
        return StartFrom.timestamp(_store_ms(found["start_ms"]))
    if "start_offset" in found and found["start_offset"].value.strip() not in ("-1", "-2"):
        raise Refusal(
            "startMessageOffset would be one offset for all queues: use startTime, startTimeMs, or "
            "'scan.startup.mode' = 'specific-offsets'",
            found["start_offset"].span,
        )
    value = "" if mode is None else mode.value.strip().lower().replace("_", "-")
    if value.startswith("specific") or "offsets" in found:
        if "offsets" not in found:
            assert mode is not None
            raise Refusal(f"{mode.key} is {mode.value!r}, which needs 'scan.startup.specific-offsets'", mode.span)
        if mode is not None and not value.startswith("specific"):
            raise Refusal(
                f"{found['offsets'].key} needs 'scan.startup.mode' = 'specific-offsets', which is {mode.value!r}",
                mode.value_span,
            )
        topic = found["topic"].value.strip() if "topic" in found else ""
        return option_checks.specific_offsets(found["offsets"], topic)
    if mode is None:
        return None
    value = value.removesuffix("-offset").removesuffix("-offsets")
    match value:
        case "earliest":
            return StartFrom.earliest()
        case "latest":
            return StartFrom.latest()
        case "group" | "committed" | "consumer":
            if "group" not in found or not found["group"].value.strip():
                raise Refusal(f"{mode.key} is {mode.value!r}, which needs the option 'consumerGroup'", mode.span)
            return StartFrom.group_offsets("latest")
        case "timestamp":
            raise Refusal(f"{mode.key} is 'timestamp', which needs startTimeMs or startTime", mode.span)
    raise Refusal(
        f"{mode.key} is {mode.value!r}{nearest(value, STARTS) or '; it can be ' + ', '.join(STARTS)}", mode.value_span
    )


def _is_unset(option: Option) -> bool:
    """Whether it is the default of rocketmq-flink, which is none of Flink."""
    return option.key.lower() == "starttimems" and option.value.strip() == "-1"


def _store_ms(option: Option) -> int:
    with contextlib.suppress(ValueError):
        if 0 <= (found := int(option.value)) <= _LAST_MS:
            return found
    raise Refusal(
        f"{option.key} is {option.value!r}; it must be a whole number of milliseconds since 1970, to the year 9999",
        option.value_span,
    )


def _milliseconds(option: Option, zone: dt.tzinfo) -> int:
    """Returns a time in milliseconds: as rocketmq-flink and RocketMQ-SQL write it, or as on a command line."""
    text = option.value.strip()
    for pattern in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d-%H-%M-%S", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y%m%d%H%M%S"):
        try:
            found = dt.datetime.strptime(text, pattern).replace(tzinfo=zone)
        except ValueError:
            continue
        return int(found.timestamp() * 1000)
    with contextlib.suppress(LocalError):
        if not text.isdigit():  # a number would be milliseconds, for which there are other options
            return time_of(text, zone)
    raise Refusal(f"{option.key} is {option.value!r}; it must be like 2024-01-31 23:59:59", option.value_span)
