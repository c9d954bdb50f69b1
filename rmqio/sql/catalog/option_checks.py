"""Options of a table that do not fit together, or whose values mean nothing: refused with the way out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.options import parse_name_server
from rmqio.sql.errors import Refusal
from rmqio.sql.syntax.statements import Option
from rmqio.start import StartFrom
from rmqio.topics import group_fault, topic_fault

# Names of topics and groups in options of tables: what no broker accepts is refused when a table is created.


def check_names(options: dict[str, Option]) -> None:
    """Raises `Refusal` for an option that names a topic or a group as none can be named."""
    for what in ("topic", "dead_letters", "group", "producer_group"):
        option = options.get(what)
        name = option.value.strip() if option else ""
        if option is None or not name:
            continue
        kind = "group" if "group" in what else "topic"
        if fault := group_fault(name) if kind == "group" else topic_fault(name):
            raise Refusal(f"{option.key} is {name!r}, which is not a valid {kind} name: {fault}", option.value_span)


def folded_key(key: str) -> str:
    """Returns the key of an option as all of its spellings have it."""
    return "".join(filter(str.isalnum, key.lower()))


_BOOLEANS: Final = (
    "useNewApi", "columnErrorDebug", "msgIsJsonArray", "json.decode.json-parser.enabled",
)  # fmt: skip
_NUMBERS: Final = ("retryTimes", "sleepTimeMs", "partitionDiscoveryIntervalMs", "producer.retry.times")
_WITHOUT_EFFECT: Final = {
    **dict.fromkeys(map(folded_key, _BOOLEANS), "boolean"),
    **dict.fromkeys(map(folded_key, _NUMBERS), "number"),
}
_OF_TOPICS: Final = (
    "topic", "group", "producer_group", "tag", "sql", "delivery", "push_down", "start", "start_offset", "start_ms",
    "start_time", "end_time", "offsets", "keys", "is_dynamic_tag", "tag_column", "tag_in_body", "feedback",
)  # fmt: skip
_OFFSET: Final = re.compile(
    r"broker:(?P<broker>[^,;\s\x00-\x1f]{1,255}),(?:queue|partition):(?P<queue>[0-9]{1,9}),offset:(?P<offset>[0-9]{1,18})"
)


def boolean(option: Option) -> bool:
    """Returns the value. Raises `Refusal` unless it is true or false."""
    value = option.value.strip().lower()
    if value not in ("true", "false"):
        raise Refusal(f"{option.key} is {option.value!r}; it can be true or false", option.value_span)
    return value == "true"


def check_without_effect(option: Option, folded: str) -> None:
    """Raises `Refusal` if an option that changes nothing here has a value that no system accepts."""
    kind = _WITHOUT_EFFECT.get(folded)
    if kind == "boolean":
        boolean(option)
    elif kind == "number" and not re.fullmatch(r"\s*-?[0-9]+\s*", option.value):
        raise Refusal(f"{option.key} is {option.value!r}; it must be a whole number", option.value_span)


def check_connector(found: Mapping[str, Option], connector: str) -> None:
    """Raises `Refusal` for an option of topics beside a connector that has none."""
    for name in _OF_TOPICS if connector in ("print", "blackhole") else ():
        if name in found:
            raise Refusal(
                f"the option {found[name].key!r} is of topics, not of the connector {connector}: leave it out",
                found[name].span,
            )


def check_is_json(found: Mapping[str, Option], format_name: str) -> None:
    """Raises `Refusal` for rocketmq-flink's `isJsonData` that says another format than the option `format`."""
    option = found.get("is_json")
    if option is not None and boolean(option) != (format_name == "json"):
        raise Refusal(f"{option.key} is {option.value!r}, but the format is {format_name!r}: leave one of them out",
                      option.span)  # fmt: skip


def check_filters(found: Mapping[str, Option]) -> None:
    """Raises `Refusal` for two filters, and for an expression with an open quote or parenthesis."""
    option = found.get("sql")
    if option is None:
        return
    tag = found.get("tag")
    if tag is not None and tag.value.strip() not in ("", "*"):
        raise Refusal(
            f"a broker filters by {tag.key!r} or by {option.key!r}, not by both: write TAGS = {tag.value.strip()!r} "
            f"AND ... into {option.key!r}",
            tag.span,
        )
    open_ones = 0
    for token in re.findall(r"'(?:[^']|'')*'|[()']", option.value):
        if token == "'":
            raise Refusal(f"{option.key} has a text without an end: a ' is missing", option.value_span)
        open_ones += {"(": 1, ")": -1}.get(token, 0)
        if open_ones < 0:
            break
    if open_ones:
        missing = ")" if open_ones > 0 else "("
        raise Refusal(f"{option.key} does not parse: a {missing} is missing", option.value_span)
    if not option.value.strip():
        raise Refusal(f"{option.key} is empty: leave it out, or write a condition like amount > 10", option.value_span)


def check_dead_letters(found: Mapping[str, Option], on_error: str) -> None:
    """Raises `Refusal` if nothing would go to the topic of dead letters."""
    if "dead_letters" in found and on_error != "dead-letter":
        option = found["dead_letters"]
        other = found.get("on_error") or found["skip_errors"]
        raise Refusal(
            f"nothing would go to the {option.key}, because {other.key} is {other.value!r}: leave out one of them, or "
            "write 'on-error' = 'dead-letter'",
            option.span,
        )


def check_times(start: StartFrom | None, end_ms: int | None, end: Option | None) -> None:
    """Raises `Refusal` for a read that would end before it begins."""
    if start is None or end is None or end_ms is None or start.kind != "timestamp" or start.timestamp_ms < end_ms:
        return
    raise Refusal(f"{end.key} is {end.value!r}, which is not after the start: nothing would be read", end.value_span)


def check_name_server(option: Option | None) -> None:
    """Raises `Refusal` for what is no address."""
    if option is None:
        return
    try:
        parse_name_server(option.value.strip())
    except LocalError:
        raise Refusal(
            f"{option.key} is {option.value!r}; it must be like 'host:9876', or several: 'host1:9876;host2:9876'",
            option.value_span,
        ) from None


def specific_offsets(option: Option, topic: str) -> StartFrom:
    """Returns the start at an offset of each queue that is named. Raises `Refusal`."""
    offsets: dict[MessageQueue, int] = {}
    for part in filter(None, (each.strip() for each in option.value.split(";"))):
        found = _OFFSET.fullmatch(re.sub(r"\s*([,:])\s*", r"\1", part))
        if found is None:
            raise Refusal(
                f"{option.key} has {part!r}; it must be like 'broker:broker-a,queue:0,offset:42', separated by ;",
                option.value_span,
            )
        queue = MessageQueue(topic, found["broker"], int(found["queue"]))
        if queue in offsets:
            raise Refusal(f"{option.key} has queue {queue.queue_id} of {queue.broker!r} twice", option.value_span)
        offsets[queue] = int(found["offset"])
    if not offsets:
        raise Refusal(f"{option.key} is empty; it must be like 'broker:broker-a,queue:0,offset:42'", option.value_span)
    return StartFrom.specific_offsets(offsets)


_CREDENTIALS: Final = "secrets are not written in SQL: give --credentials environment, or --credentials file:PATH"
_ELSEWHERE: Final = {
    "accesskey": _CREDENTIALS,
    "secretkey": _CREDENTIALS,
    "keyformat": "keys of messages are texts and have no format: name their columns in 'key.fields'",
}


def check_known_elsewhere(option: Option, folded: str) -> None:
    """Raises `Refusal` for an option of rocketmq-flink, or of Flink's Kafka, that is given in another way here."""
    if folded in _ELSEWHERE:
        raise Refusal(f"the option {option.key!r} is refused: {_ELSEWHERE[folded]}", option.span)
