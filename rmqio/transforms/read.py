"""`ReadFromRocketMQ` and `ReadAllFromRocketMQ`: configuration and expansion. The reading itself is in `read_fn`."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from rmqio.claims.check import ClaimCheck, checked_claim_check
from rmqio.errors import LocalError
from rmqio.interfaces import ENDLESS_READ, ClientFactory
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.options import ClientOptions, ReadOptions
from rmqio.security import Security
from rmqio.start import StartFrom, StopAt
from rmqio.topics import Subscription, connected, require_readable, validate_subscription, validate_topic
from rmqio.transforms.coders import BatchConstraint
from rmqio.transforms.deduplicate import DropDuplicates
from rmqio.transforms.failures import ReadFailure
from rmqio.transforms.map_records import DecodeRecords
from rmqio.transforms.reading import options as read_options
from rmqio.transforms.reading.discovery import DescribeFn, DiscoverFn, DiscoveryConfig, WatchFn, names_topic
from rmqio.transforms.reading.in_process import ReadSubscriptionFn, is_alone, is_in_process
from rmqio.transforms.reading.options import ReadConfig, name_of
from rmqio.transforms.reading.pacing import RateLimit, checked_rate
from rmqio.transforms.reading.planned import WATERMARKS_TAG, QueuePlanner, ReadRangesFn
from rmqio.transforms.reading.read_fn import BoundedReadFn, UnboundedReadFn, UncommittedReadFn
from rmqio.transforms.reading.record_batches import ERRORS_TAG, RecordBatch, UnbatchFn
from rmqio.transforms.reading.restriction import QueueDescriptor, TimestampPolicy, timestamp_function
from rmqio.transforms.write import WriteDeadLetters

# The display data of a read: where it starts and stops, and what it makes of messages. No secrets, no contents.

_MOST_OFFSETS: Final = 20


def shown_config(
    config: ReadConfig,
    timestamp: TimestampPolicy,
    dead_letter_topic: str | None,
    deduplicate: DropDuplicates | None,
) -> dict[str, Any]:
    """The arguments of a read by name; None for those that have their default."""
    return {
        **_shown_start(config.start),
        **_shown_stop(config.stop),
        "consumer_group": config.group,
        "filter": config.message_filter.expression,
        "filter_type": "SQL92" if config.message_filter.sql else None,
        "deserializer": name_of(config.deserializer),
        "timestamp": _shown_timestamp(timestamp),
        "batches": config.batches or None,
        "claim_check": None if config.claim_check is None else config.claim_check.path,
        "dead_letter_topic": dead_letter_topic,
        "deduplicate_within_ms": deduplicate.within_ms if deduplicate else None,
        "deduplicate_id_of": name_of(deduplicate.id_of) if deduplicate else None,
    }


def _shown_timestamp(policy: TimestampPolicy) -> str | None:
    if isinstance(policy, str):
        return None if policy == "born" else policy
    return name_of(policy)


def _shown_start(start: StartFrom) -> dict[str, Any]:
    return {
        "start": start.kind,
        "start_timestamp_ms": start.timestamp_ms if start.kind == "timestamp" else None,
        "start_offsets": _listed(start.offsets),
        "start_reset": start.reset if start.needs_group and start.reset != "latest" else None,
    }


def _shown_stop(stop: StopAt | None) -> dict[str, Any]:
    if stop is None:
        return {}
    return {
        "stop": stop.kind,
        "stop_timestamp_ms": stop.timestamp_ms if stop.kind == "timestamp" else None,
        "stop_offsets": _listed(stop.stops),
    }


def _listed(offsets: Sequence[tuple[MessageQueue, int]]) -> str | None:
    shown = [f"{queue.topic}/{queue.broker}/{queue.queue_id}: {offset}" for queue, offset in offsets[:_MOST_OFFSETS]]
    more = len(offsets) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])]) or None


class _Read(beam.PTransform):
    """Common base of both reads."""

    start_advice: str | None = None
    """The end of the warning that a read can read nothing, in the words of whoever built the pipeline."""

    def __init__(
        self,
        *,
        name_server: str | None,
        client: ClientOptions | None,
        security: Security | None,
        consumer_group: str | None,
        start: StartFrom | None,
        stop: StopAt | None,
        tags: str | None,
        sql_filter: str | None,
        deserializer: Callable[[Record], Any] | None,
        timestamp: TimestampPolicy,
        batches: bool,
        dead_letter_topic: str | None,
        deduplicate: DropDuplicates | None,
        claim_check: ClaimCheck | None,
        options: ReadOptions | None,
        client_factory: ClientFactory | None,
        arrives: bool = False,
    ) -> None:
        super().__init__()
        if options is not None and not isinstance(options, ReadOptions):
            raise LocalError(f"options is {options!r}; it must be rmqio.ReadOptions")
        options = options or ReadOptions()
        if security is not None:
            options = dataclasses.replace(options, security=security)
        group = options.consumer_group if consumer_group is None else consumer_group
        tags = tags or options.tags
        start = start or (StartFrom.group_offsets("latest") if group else StartFrom.latest())
        read_options.check_positions(start, stop, group)
        read_options.check_filter(tags, sql_filter)
        if deserializer is not None and not callable(deserializer):
            raise LocalError(f"deserializer is {deserializer!r}; it must be callable with a Record")
        if dead_letter_topic is not None:
            validate_topic(dead_letter_topic)
        if deduplicate is not None and not isinstance(deduplicate, DropDuplicates):
            raise LocalError(f"deduplicate is {deduplicate!r}; it must be a DropDuplicates, e.g. DropDuplicates()")
        if deduplicate is not None and batches:
            raise LocalError("deduplicate cannot be combined with batches: duplicates are dropped one by one")
        ends, committed = _ends(stop, options), group if options.commit_offsets else None
        read_options.refuse_idle(options, start=start, stops=ends, arrives=arrives, group=committed)
        factory, made = read_options.factory_of(
            client_factory,
            name_server,
            client,
            options,
            group=group,
            looks_again=not (ends or arrives),
            writes_letters=dead_letter_topic is not None,
        )
        self._shown = read_options.shown(factory, made, client, options)
        expression = sql_filter if sql_filter is not None else (tags or "*")
        self.read_id: Final = uuid.uuid4().hex
        """Identifies the read in its process: see `restarts` and `endings`."""
        self._config = ReadConfig(
            factory=factory,
            group=group,
            start=start,
            stop=stop,
            message_filter=MessageFilter(expression, sql=sql_filter is not None),
            deserializer=deserializer,
            timestamp_of=timestamp_function(timestamp),
            options=options,
            batches=batches,
            errors_to_output=dead_letter_topic is not None,
            claim_check=checked_claim_check(claim_check),
            read_id=self.read_id,
        )
        self._timestamp = timestamp
        self._dead_letter_topic = dead_letter_topic
        self._deduplicate = deduplicate
        self._error_handler: Any = None

    def with_error_handler(self, error_handler: Any) -> Any:
        """Send messages that cannot be decoded to Beam's `ErrorHandler` as `ReadFailure`. None: fail the pipeline."""
        self._error_handler = error_handler
        return self

    @property
    def _element_type(self) -> Any:
        deserializer = self._config.deserializer
        one: Any = Record if deserializer is None else getattr(deserializer, "output_type", Any)
        return BatchConstraint(one) if self._config.batches else one

    @property
    def commits_s(self) -> float:
        """The longest time between commits of the group's offsets; 0: there are none."""
        config = self._config
        return 0.0 if config.committed_group is None else config.options.offset_commit_interval_ms / 1000

    def _note_restarts(self, pipeline: Any) -> None:
        if is_alone(pipeline):
            self._config = dataclasses.replace(self._config, notes_as=self.read_id)

    @property
    def _is_bounded(self) -> bool:
        return _ends(self._config.stop, self._config.options)

    def _discovery(self, subscription: Subscription) -> DiscoveryConfig:
        config = self._config
        return DiscoveryConfig(
            subscription=subscription,
            factory=config.factory,
            group=config.group,
            start=config.start,
            stop=config.stop,
            max_num_records=config.options.max_num_records,
            interval_ms=config.options.discovery_interval_ms,
            new_queue_start=config.options.new_queue_start,
            on_out_of_range=config.options.on_offset_out_of_range,
            on_timestamp_after_end=config.options.on_timestamp_after_end,
            start_advice=self.start_advice,
        )

    def _read_queues(self, descriptors: Any) -> Any:
        if not self._is_bounded:
            return self._apply(descriptors, "Read queues", UnboundedReadFn)
        make_fn = UncommittedReadFn if self._config.committed_group is None else BoundedReadFn
        return self._apply(descriptors, "Read queues", make_fn)

    def _apply(self, elements: Any, label: str, make_fn: Callable[[ReadConfig], Any], watermarks: Any = None) -> Any:
        handled = self._error_handler is not None or self._dead_letter_topic is not None
        config = self._config
        if handled:
            config = dataclasses.replace(config, errors_to_output=True)
        reading = beam.ParDo(make_fn(config)).with_output_types(RecordBatch)
        if watermarks is None:
            runs = elements | label >> reading
        else:
            read = elements | label >> reading.with_outputs(WATERMARKS_TAG, main="runs")
            learned = read[WATERMARKS_TAG] | "Learned" >> beam.Map(_same).with_output_types(tuple[str, int, int])
            watermarks(learned)
            runs = read["runs"] | "Runs" >> beam.Map(_same).with_output_types(RecordBatch)
        first = self._deduplicate is None
        deserializer = config.deserializer if first else None
        element_type = self._element_type if first else Record
        fn = UnbatchFn(deserializer, batches=config.batches, errors_to_output=handled, claim_check=config.claim_check)
        apart = beam.ParDo(fn).with_output_types(element_type)
        if not handled:
            return self._deduplicated(runs | "Records" >> apart)
        outputs = runs | "Records" >> apart.with_outputs(ERRORS_TAG, main="records")
        failures = outputs[ERRORS_TAG] | "Failures" >> beam.Map(_same).with_output_types(ReadFailure)
        if self._error_handler is not None:
            self._error_handler.add_error_pcollection(failures)
        if self._dead_letter_topic is not None:
            # The group's offset is committed past the message, so a letter that is not written would be its last copy.
            letters = WriteDeadLetters(self._dead_letter_topic, client_factory=config.factory)
            _ = failures | "Write dead letters" >> letters
        return self._deduplicated(outputs["records"] | "Decoded" >> beam.Map(_same).with_output_types(element_type))

    def _deduplicated(self, records: Any) -> Any:
        """Drops duplicates before they are decoded, so that a body that cannot be decoded becomes one dead letter."""
        if self._deduplicate is None:
            return records
        records = records | "Deduplicate" >> self._deduplicate
        deserializer = self._config.deserializer
        if deserializer is None:
            return records
        decode = DecodeRecords(
            deserializer,
            dead_letter_topic=self._dead_letter_topic,
            client_factory=self._config.factory if self._dead_letter_topic is not None else None,
        )
        return records | "Decode" >> decode.with_error_handler(self._error_handler)

    def display_data(self) -> dict[str, Any]:
        items = shown_config(self._config, self._timestamp, self._dead_letter_topic, self._deduplicate) | self._shown
        return {key: DisplayDataItem(value).drop_if_none() for key, value in items.items()}


class ReadFromRocketMQ(_Read):
    """Reads messages from RocketMQ topics.

    Args:
      topic: a topic, several topics, a compiled regular expression for topic names, or `MessageQueue`s.
      name_server: `host:port`, several separated by semicolons; None: that of `client`, else `options.name_server`,
        else the environment variable NAMESRV_ADDR.
      client: `ClientOptions` for everything else about a connection, e.g. the pull group, long polls, timeouts and
        retries. A value that is also set in `options` or by another argument must be the same.
      security: credentials, TLS, and which addresses may be used; None: `options.security`.
      consumer_group: the group whose offsets are the start (`StartFrom.group_offsets`) and are committed.
      start: where to start in a queue that this pipeline has not read yet. By default, the group's offsets (latest if
        it has none); without a group, latest. Ignored on restart from a runner's checkpoint.
      stop: where to stop, which makes the read bounded; None: never.
      tags: `"a || b"`; the broker filters, and the client checks again, because the broker compares only hashes.
      sql_filter: an SQL92 expression over properties; the broker must have `enablePropertyFilter=true`.
      deserializer: a callable from `Record` to the element, which raises `SerdeError`; None: the `Record` itself.
      timestamp: event time: "born" (producer's clock), "store" (broker's clock), a property with Unix milliseconds, or
        a function of the `Record` that returns Unix milliseconds.
      batches: emit each `Batch` of values as it was pulled, a list with the place of each value, with the earliest
        timestamp of its values. Several times cheaper if the next steps take batches, as `MapRecords` and
        `WriteToRocketMQ(batches=True)` do.
      dead_letter_topic: a topic for messages that cannot be decoded, with their coordinates as properties. Without it
        and without `.with_error_handler(...)`, such a message fails the pipeline.
      deduplicate: `DropDuplicates(...)`: drop messages that a writer has stored twice, before decoding. Needs a
        shuffle.
      claim_check: the `ClaimCheck` that writers use: messages with references get their bodies, before decoding. An
        object that is missing or changed is an error of its message.
      max_records_per_second: the most records of all queues together; at once, at most a second's worth. Workers
        keep it without a word between them: see docs/operate/skew.md.
      options: `ReadOptions`.
      client_factory: another way to create clients, for tests. It replaces `client` and `name_server`.

    Returns: a PCollection of `Record`, or of the deserializer's results, in the global window.

    Delivery: every offset exactly once within the runner's own state, in order per queue and bundle. A retried bundle
    is read again. Offsets lost on the broker stop the pipeline, unless `on_offset_out_of_range` permits them.

    Raises: `LocalError` when it is built; `BrokerError`, `TransportError` and `OffsetOutOfRange` while it runs.
    """

    def __init__(
        self,
        topic: Any = None,
        *,
        name_server: str | None = None,
        client: ClientOptions | None = None,
        security: Security | None = None,
        consumer_group: str | None = None,
        start: StartFrom | None = None,
        stop: StopAt | None = None,
        tags: str | None = None,
        sql_filter: str | None = None,
        deserializer: Callable[[Record], Any] | None = None,
        timestamp: TimestampPolicy = "born",
        batches: bool = False,
        dead_letter_topic: str | None = None,
        deduplicate: DropDuplicates | None = None,
        claim_check: ClaimCheck | None = None,
        max_records_per_second: float | None = None,
        options: ReadOptions | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(
            name_server=name_server,
            client=client,
            security=security,
            consumer_group=consumer_group,
            start=start,
            stop=stop,
            tags=tags,
            sql_filter=sql_filter,
            deserializer=deserializer,
            timestamp=timestamp,
            batches=batches,
            dead_letter_topic=dead_letter_topic,
            deduplicate=deduplicate,
            claim_check=claim_check,
            options=options,
            client_factory=client_factory,
        )
        self._subscription = Subscription.of(topic if topic is not None else self._config.options.topic)
        validate_subscription(self._subscription)
        self._rate = checked_rate(max_records_per_second)
        if dead_letter_topic is not None and names_topic(self._subscription, dead_letter_topic):
            raise LocalError(f"dead_letter_topic {dead_letter_topic!r} is among the topics that are read")

    def expand(self, pbegin: Any) -> Any:
        self._note_restarts(pbegin.pipeline)
        is_checked = hasattr(pbegin.pipeline.runner, "looks_up_topics")
        discovery = dataclasses.replace(self._discovery(self._subscription), is_checked=is_checked)
        if self._rate is not None:
            limit = RateLimit(
                self._rate,
                self._subscription,
                self.read_id,
                alone=is_alone(pbegin.pipeline),
                splits_per_queue=self._config.options.splits_per_queue,
            )
            self._config = dataclasses.replace(self._config, rate_limit=limit)
        source = _planned_source(pbegin.pipeline)
        if source is not None and self._config.options.max_num_records is None:
            read_options.refuse_planned(self._config.options)
            return self._plan(pbegin, source(QueuePlanner(self._config, discovery)))
        start = pbegin | "Start" >> beam.Impulse()
        watch = not self._is_bounded and discovery.interval_ms > 0
        if watch and is_in_process(pbegin.pipeline):
            return self._apply(start, "Read queues", functools.partial(_in_process_fn, discovery))
        fn = WatchFn(discovery) if watch else DiscoverFn(discovery)
        return self._read_queues(start | "Discover queues" >> beam.ParDo(fn).with_output_types(QueueDescriptor))

    def look_up_topics(self) -> None:
        """Looks up the topics when the pipeline is submitted. Raises `LocalError` if one does not exist.

        Logs a warning if the read ends and begins at the end of queues that hold messages.
        """
        require_readable(self._config.factory, self._subscription.named_topics)
        if self._config.stop is None or not self._config.start.may_begin_at_end:
            return
        with connected(self._config.factory) as client:
            self._discovery(self._subscription).warn_if_unread(self._subscription.find_queues(client), client)

    def commits(self, group: str, topic: str) -> bool:
        """Whether this read commits the group's offsets of the topic: see `WriteToRocketMQ.commits`."""
        return group == self._config.committed_group and names_topic(self._subscription, topic)

    def annotations(self) -> dict[str, Any]:
        # `ReadAllFromRocketMQ` has no annotation: each of its elements can have its own stop.
        found: dict[str, Any] = super().annotations()
        return found if self._is_bounded else {**found, ENDLESS_READ: b""}

    def _plan(self, pbegin: Any, source: Any) -> Any:
        """The read for a runner that plans each micro-batch."""

        def read(config: ReadConfig) -> ReadRangesFn:
            return ReadRangesFn(config)

        return self._apply(pbegin | "Plan" >> source, "Read queues", read, source.watermarks)

    def display_data(self) -> dict[str, Any]:
        shown = {"topic": str(self._subscription), "max_records_per_second": self._rate}
        return super().display_data() | {name: DisplayDataItem(value).drop_if_none() for name, value in shown.items()}


class ReadAllFromRocketMQ(_Read):
    """Reads the topics and queues that arrive as elements: names, `MessageQueue`s or `QueueDescriptor`s.

    A `QueueDescriptor` can have its own start and stop. The other arguments are those of `ReadFromRocketMQ`. The read
    is bounded if `stop` is given (each element's stop is resolved when the element arrives), otherwise it never ends.
    Topics are looked up once, when they arrive. A read that never ends waits for queues whose broker does not answer
    then, and reads the others. Equal elements are read twice.
    """

    def __init__(
        self,
        *,
        name_server: str | None = None,
        client: ClientOptions | None = None,
        security: Security | None = None,
        consumer_group: str | None = None,
        start: StartFrom | None = None,
        stop: StopAt | None = None,
        tags: str | None = None,
        sql_filter: str | None = None,
        deserializer: Callable[[Record], Any] | None = None,
        timestamp: TimestampPolicy = "born",
        batches: bool = False,
        dead_letter_topic: str | None = None,
        deduplicate: DropDuplicates | None = None,
        claim_check: ClaimCheck | None = None,
        options: ReadOptions | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(
            name_server=name_server,
            client=client,
            security=security,
            consumer_group=consumer_group,
            start=start,
            stop=stop,
            tags=tags,
            sql_filter=sql_filter,
            deserializer=deserializer,
            timestamp=timestamp,
            batches=batches,
            dead_letter_topic=dead_letter_topic,
            deduplicate=deduplicate,
            claim_check=claim_check,
            options=options,
            client_factory=client_factory,
            arrives=True,
        )
        if self._config.options.max_num_records is not None:
            raise LocalError("max_num_records has no effect on ReadAllFromRocketMQ; use QueueDescriptor(limit=...)")

    def expand(self, pcoll: Any) -> Any:
        self._note_restarts(pcoll.pipeline)
        fn = DescribeFn(self._config, self.start_advice)
        descriptors = pcoll | "To queues" >> beam.ParDo(fn).with_output_types(QueueDescriptor)
        return self._read_queues(descriptors)


def _in_process_fn(discovery: DiscoveryConfig, config: ReadConfig) -> ReadSubscriptionFn:
    return ReadSubscriptionFn(config, discovery)


def _ends(stop: StopAt | None, options: ReadOptions) -> bool:
    return stop is not None or options.max_num_records is not None


def _same(element: Any) -> Any:
    return element


def _planned_source(pipeline: Any) -> Any:
    """The source that the pipeline's runner offers for reads that it plans; None if it plans none."""
    offered = getattr(getattr(pipeline, "runner", None), "planned_source", None)
    return None if offered is None else offered(pipeline.options)
