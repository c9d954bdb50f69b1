"""Options of the format `rocketmq`, from text to checked values. Names follow Spark's Kafka source if it has them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import LocalError, quoted
from rmqio.interfaces import ClientFactory, OffsetLookup, QueueClient
from rmqio.model import MessageFilter, MessageQueue
from rmqio.pyspark.columns import VALUE_NAMES, Values, value_options
from rmqio.pyspark.options import (
    OUTAGE_MS,
    SECURITY_NAMES,
    boolean,
    choice,
    duration_ms,
    factory,
    json_object,
    known,
    number,
    trace,
)
from rmqio.start import LateQueue, StartFrom, StartOffsetError, check_named, clamp_offset, unread
from rmqio.topics import Subscription, validate_group, validate_subscription

_LOGGER = logging.getLogger("rmqio.pyspark")

EARLIEST: Final = -2
LATEST: Final = -1
"""Special offsets in JSON, as in Spark's Kafka source."""

READ_NAMES: Final = (
    "nameServer",
    "subscribe",
    "subscribePattern",
    "assign",
    "tags",
    "sqlFilter",
    "consumerGroup",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "groupOffsetsReset",
    "endingOffsets",
    "endingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitOffsets",
    "trace",
    "failOnDataLoss",
    "namespace",
    "requestTimeoutMs",
    "outageTimeoutMs",
    "pullBatchSize",
    "pushFilters",
    *SECURITY_NAMES,
    *VALUE_NAMES,
)
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets")
_MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "pushFilters")
QueueNumbers = dict[MessageQueue, int]


@dataclass(frozen=True)
class Start:
    """The first offset to read of a queue, and whether reading may begin elsewhere if that offset is gone."""

    strategy: StartFrom
    named: tuple[tuple[MessageQueue, int], ...]
    """Offsets of some queues, possibly `EARLIEST` or `LATEST`. They take precedence over the strategy."""
    group: str | None
    after_end: Literal["latest", "fail"]
    fail_on_data_loss: bool
    times: tuple[tuple[MessageQueue, int], ...] = ()
    """Store times of some queues in Unix milliseconds. They take precedence over the offsets."""

    def check(self, queues: Collection[MessageQueue]) -> None:
        """Raises `LocalError` if an offset or a time is given for a queue that is not read."""
        check_named([queue for queue, _ in self.named], queues, "startingOffsets")
        check_named([queue for queue, _ in self.times], queues, "startingOffsetsByTimestamp")

    def begins_at_end(self, queue: MessageQueue, lookup: OffsetLookup) -> bool:
        """Whether a queue is read from its end: see `StartFrom.begins_at_end`."""
        if queue in dict(self.times):
            return False
        if queue in dict(self.named):
            return dict(self.named)[queue] == LATEST
        return self.strategy.begins_at_end(queue, lookup, self.group)

    def warn_if_unread(
        self, what: Subscription, queues: Sequence[MessageQueue], client: QueueClient, stop: Callable[..., int | None]
    ) -> None:
        """Logs a warning if queues hold messages, and the read can read none of these."""
        if not self.named and not self.strategy.may_begin_at_end:
            return
        group = self.group if self.strategy.needs_group and not self.named else None
        advice = f"give {'startingOffsets' if group is None else 'groupOffsetsReset'} as 'earliest'"
        begins = self.begins_at_end
        why = unread(str(what), queues, client, begins_at_end=begins, stop=stop, group=group, advice=advice)
        if why:
            _LOGGER.warning("%s", why)

    def resolve(self, queue: MessageQueue, lookup: OffsetLookup, late: LateQueue | None = None) -> int:
        """Returns the first offset. Raises `StartOffsetError`, `OffsetOutOfRange`, `BrokerError`, `TransportError`."""
        policy: Literal["fail", "earliest"] = "fail" if self.fail_on_data_loss else "earliest"
        time_ms = dict(self.times).get(queue)
        named = dict(self.named).get(queue) if time_ms is None else None
        if named == EARLIEST:
            return lookup.min_offset(queue)
        if named == LATEST:
            return lookup.max_offset(queue) if late is None else lookup.offset_for_time(queue, late.began_ms)
        if named is not None:
            return clamp_offset(queue, named, lookup, policy)
        try:
            strategy = self.strategy if time_ms is None else StartFrom.timestamp(time_ms)
            return strategy.resolve(
                queue,
                lookup,
                group=self.group,
                on_out_of_range=policy,
                on_timestamp_after_end=self.after_end,
                late=late,
            )
        except StartOffsetError as error:  # it names the argument of the Beam read
            message = str(error).replace("on_timestamp_after_end='latest'", "startingOffsetsByTimestampStrategy=latest")
            raise StartOffsetError(message) from error


@dataclass(frozen=True)
class Stop:
    """The offset before which reading a queue ends."""

    timestamp_ms: int | None
    named: tuple[tuple[MessageQueue, int], ...]

    def check(self, queues: Collection[MessageQueue]) -> None:
        """Raises `LocalError` if an offset is given for a queue that is not read."""
        check_named([queue for queue, _ in self.named], queues, "endingOffsets")

    def resolve(self, queue: MessageQueue, lookup: OffsetLookup) -> int:
        """Returns the first offset not to read. Raises `LocalError` for one that the queue has not reached."""
        end = lookup.max_offset(queue)
        if self.timestamp_ms is not None:
            return min(end, lookup.offset_for_time(queue, self.timestamp_ms))
        named = dict(self.named).get(queue, LATEST)
        if named == EARLIEST:
            return lookup.min_offset(queue)
        if named > end:
            raise LocalError(f"endingOffsets: {queue} ends at {end}, before the given {named}")
        return end if named == LATEST else named


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """All settings of a reader. Picklable."""

    subscription: Subscription
    factory: ClientFactory
    message_filter: MessageFilter
    start: Start
    stop: Stop
    min_partitions: int
    max_records_per_partition: int | None
    max_per_trigger: int | None
    fail_on_data_loss: bool
    outage_timeout_s: float
    push_filters: bool
    min_per_trigger: int | None = None
    """A micro-batch waits for this many messages, but no longer than `max_trigger_delay_s`."""
    max_trigger_delay_s: float = _MAX_TRIGGER_DELAY_MS / 1000
    committed_group: str | None = None
    """The group whose offsets are committed after Spark's commit; None: nothing is committed."""
    trace: bool | str = False
    trace_group: str = "rmqio_reader"
    """The group in traces."""
    values: Values | None = None
    """Decodes the column `value`; None: it is not read."""


def read_settings(options: Mapping[str, str], *, streaming: bool) -> ReadSettings:
    """Checks the options of a read. Raises `LocalError`, which names the option and says what is wrong."""
    given = known(options, READ_NAMES)
    for name in _BATCH_ONLY if streaming else _STREAM_ONLY:
        if name in given:
            kind = "batch" if streaming else "stream"
            raise LocalError(f"{name} is an option of a {kind} read")
    value_options(given)
    subscription = _subscription(given)
    _check_names(given, subscription)
    fail = boolean(given, "failOnDataLoss", True)
    least, delay_s = _triggers(given)
    return ReadSettings(
        subscription=subscription,
        factory=_factory(given),
        message_filter=_filter(given),
        start=_start(given, fail, default="latest" if streaming else "earliest"),
        stop=_stop(given),
        min_partitions=number(given, "minPartitions") or 1,
        max_records_per_partition=number(given, "maxRecordsPerPartition"),
        max_per_trigger=number(given, "maxOffsetsPerTrigger"),
        fail_on_data_loss=fail,
        outage_timeout_s=(number(given, "outageTimeoutMs") or OUTAGE_MS) / 1000,
        push_filters=boolean(given, "pushFilters", False),
        min_per_trigger=least,
        max_trigger_delay_s=delay_s,
        committed_group=given["consumerGroup"] if boolean(given, "commitOffsets", False) else None,
        trace=trace(given),
        trace_group=given.get("consumerGroup", "rmqio_reader"),
    )


def _triggers(given: Mapping[str, str]) -> tuple[int | None, float]:
    """Returns the least size of a micro-batch, and how many seconds one waits for it. Raises `LocalError`."""
    least, most = number(given, "minOffsetsPerTrigger"), number(given, "maxOffsetsPerTrigger")
    if "maxTriggerDelay" in given and least is None:
        raise LocalError("maxTriggerDelay has no effect without minOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise LocalError(f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, which is {most}")
    return least, duration_ms(given, "maxTriggerDelay", _MAX_TRIGGER_DELAY_MS) / 1000


def _check_names(given: Mapping[str, str], subscription: Subscription) -> None:
    """Raises `LocalError` for topics, queues and groups that no broker can have."""
    option = next(name for name in ("subscribe", "subscribePattern", "assign") if name in given)
    try:
        validate_subscription(subscription)
        option = "consumerGroup"
        if option in given:
            validate_group(given[option])
    except LocalError as error:
        raise LocalError(f"{option}: {error}") from error


def _subscription(given: Mapping[str, str]) -> Subscription:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(ways) != 1:
        what = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise LocalError(f"say what to read with one of subscribe, subscribePattern and assign; {what}")
    if "subscribe" in given:
        topics = [topic.strip() for topic in given["subscribe"].split(",") if topic.strip()]
        if not topics:
            raise LocalError("subscribe is empty; it must be a topic, or several separated by commas")
        return Subscription.of(topics)
    if "subscribePattern" in given:
        return Subscription.of(_pattern(given["subscribePattern"]))
    example = '{"topic": {"broker": [0, 1]}}'
    queues = []
    for topic, brokers in json_object(given, "assign", example).items():
        for broker, ids in brokers.items() if isinstance(brokers, dict) else [("", None)]:
            if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
                raise LocalError(f"assign is {given['assign']!r:.200}; it must look like {example}")
            queues += [MessageQueue(topic, broker, each) for each in ids]
    if not queues:
        raise LocalError(f"assign is {given['assign']!r:.200}, which names no queue; it must look like {example}")
    return Subscription.of(queues)


def _pattern(text: str) -> Any:
    try:
        return re.compile(text)
    except re.error as error:
        raise LocalError(f"subscribePattern is {quoted(text)}, which is not a regular expression: {error}") from error


def _factory(given: Mapping[str, str]) -> RemotingClientFactory:
    more: dict[str, Any] = {"outage_timeout_ms": number(given, "outageTimeoutMs") or OUTAGE_MS}
    if (batch := number(given, "pullBatchSize")) is not None:
        more["pull_batch"] = batch
    return factory(given, **more)


def _filter(given: Mapping[str, str]) -> MessageFilter:
    if "tags" in given and "sqlFilter" in given:
        raise LocalError("tags and sqlFilter are both given; a broker accepts only one of them")
    if "sqlFilter" in given:
        return MessageFilter(given["sqlFilter"], sql=True)
    return MessageFilter.of_tags(given.get("tags"))


def _start(given: Mapping[str, str], fail: bool, *, default: str) -> Start:
    group = given.get("consumerGroup")
    begins = given.get("startingOffsets", default).strip()
    commits = boolean(given, "commitOffsets", False)
    if commits and group is None:
        raise LocalError("commitOffsets needs the option consumerGroup")
    uses_group = commits or trace(given) is not False or begins.lower() not in ("earliest", "latest")
    times = _times(given)
    is_timed = "startingTimestamp" in given or bool(times)
    for name, needed, is_there in (
        ("consumerGroup", "startingOffsets as 'group' or by queue, commitOffsets or trace", uses_group),
        ("groupOffsetsReset", "consumerGroup", group is not None),
        ("startingOffsetsByTimestampStrategy", "startingTimestamp or startingOffsetsByTimestamp", is_timed),
    ):
        if name in given and not is_there:
            raise LocalError(f"{name} has no effect without {needed}")
    reset = choice(given, "groupOffsetsReset", "latest", "earliest", "error")
    after_end: Literal["latest", "fail"] = "latest"
    if is_timed and choice(given, "startingOffsetsByTimestampStrategy", "error", "latest") == "error":
        after_end = "fail"
    if "startingTimestamp" in given:  # takes precedence over startingOffsets, as in Spark's Kafka source
        strategy = StartFrom.timestamp(number(given, "startingTimestamp", least=0) or 0)
        return Start(strategy, (), group, after_end, fail)
    text = given.get("startingOffsets", default).strip()
    named: QueueNumbers = {}
    if text.lower() in ("earliest", "latest"):
        strategy = StartFrom.earliest() if text.lower() == "earliest" else StartFrom.latest()
    elif text.lower() == "group":
        strategy = StartFrom.group_offsets(reset)
        if not group:
            raise LocalError("startingOffsets is 'group', which needs the option consumerGroup")
    else:
        named = _offsets(given, "startingOffsets")
        # Queues that are not named resume at the group's offsets, or begin at the default
        if group:
            strategy = StartFrom.group_offsets(reset)
        else:
            strategy = StartFrom.earliest() if default == "earliest" else StartFrom.latest()
    return Start(strategy, tuple(sorted(named.items())), group, after_end, fail, times)


def _times(given: Mapping[str, str]) -> tuple[tuple[MessageQueue, int], ...]:
    """Returns the store time at which each named queue begins. Raises `LocalError`."""
    if "startingOffsetsByTimestamp" not in given:
        return ()
    if "startingTimestamp" in given:
        raise LocalError("startingTimestamp and startingOffsetsByTimestamp are both given; give only one of them")
    example = '{"topic": {"broker": {"0": 1700000000000}}} (store times in Unix milliseconds)'
    found = json_object(given, "startingOffsetsByTimestamp", example)
    complaint = (
        f"startingOffsetsByTimestamp is {given['startingOffsetsByTimestamp']!r:.200}; it must look like {example}"
    )
    numbers = queue_numbers(found, complaint)
    if not numbers or min(numbers.values()) < 0:
        raise LocalError(complaint)
    return tuple(sorted(numbers.items()))


def _stop(given: Mapping[str, str]) -> Stop:
    if "endingTimestamp" in given and "endingOffsets" in given:
        raise LocalError("endingTimestamp and endingOffsets are both given; give only one of them")
    if "endingTimestamp" in given:
        return Stop(number(given, "endingTimestamp", least=0), ())
    if given.get("endingOffsets", "latest").strip().lower() == "latest":
        return Stop(None, ())
    return Stop(None, tuple(sorted(_offsets(given, "endingOffsets").items())))


def _offsets(given: Mapping[str, str], name: str) -> QueueNumbers:
    words = "earliest, latest, group" if name == "startingOffsets" else "latest"
    example = words + ' or {"topic": {"broker": {"0": 17, "1": -2}}} (-2: earliest, -1: latest)'
    # The offset in a query's progress has more in it, under names in parentheses, which concerns that query only
    found = {topic: each for topic, each in json_object(given, name, example).items() if not topic.startswith("(")}
    return queue_numbers(found, f"{name} is {given[name]!r:.200}; it must be {example}")


def queue_numbers(found: Mapping[str, Any], complaint: str) -> QueueNumbers:
    """Returns numbers by queue, given by topic, broker and queue id. Raises `LocalError(complaint)`."""
    numbers: QueueNumbers = {}
    for topic, brokers in found.items():
        for broker, queues in brokers.items() if isinstance(brokers, dict) else [("", None)]:
            for queue, offset in queues.items() if isinstance(queues, dict) else [("", None)]:
                if not str(queue).isdecimal() or type(offset) is not int or offset < EARLIEST:
                    raise LocalError(complaint)
                if queue != str(int(queue)):
                    raise LocalError(f'{complaint}; the queue id "{queue}" of {topic} must be written "{int(queue)}"')
                numbers[MessageQueue(topic, broker, int(queue))] = offset
    return numbers
