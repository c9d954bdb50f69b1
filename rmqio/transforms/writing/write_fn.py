"""The DoFns of `WriteToRocketMQ`: for elements, and for batches."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import telemetry
from rmqio.claims.check import ClaimCheck, ClaimStoreError
from rmqio.claims.store import ClaimStore
from rmqio.dead_letters.letters import letter_id
from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.model import Message
from rmqio.options import WriteOptions
from rmqio.sending.accumulator import BatchAccumulator, Deferred, TimedAccumulator, WritableTopics
from rmqio.sending.batches import BatchSender
from rmqio.sending.certain import CertainProducer
from rmqio.sending.producers import ProducerLease
from rmqio.sending.traces import SendTrace
from rmqio.transforms.metrics import Count, observe_process
from rmqio.transforms.writing.elements import (
    BatchMaker,
    DefaultIds,
    MadeBatch,
    MessageMaker,
    letter_of_failure,
    topics_of,
)
from rmqio.transforms.writing.exactly_once import MARKS, WriteOnce
from rmqio.transforms.writing.outputs import BatchWriteOutputs, Origin, WriteMetrics, WriteOutputs
from rmqio.transforms.writing.sink_state import Sink
from rmqio.wire import accelerator
from rmqio.wire.batch import batchable, estimated_size

# Claim checks in a write: big bodies go to the folder before their messages are sent.


class ClaimedWrites:
    """Replaces messages with big bodies by references. Belongs to one DoFn instance."""

    def __init__(self, check: ClaimCheck) -> None:
        self._store = ClaimStore(check)
        self._written = Count("claims_written")

    def one(self, message: Message, topic: str) -> Message:
        """The message to send, whose object is complete. Raises as `ClaimStore.put`."""
        if not self._store.is_big(message):
            return message
        claimed = self._store.put(message)
        self._written.add(1, (topic,))
        return claimed

    def all(self, made: MadeBatch, fail: Callable[[int, Message, str, Exception], None]) -> MadeBatch:
        """The messages to send of a batch, without those that go to `fail`. Raises `ClaimStoreError`."""
        if not any(map(self._store.is_big, made.messages)):
            return made
        rows: list[tuple[Any, ...]] = []
        for message, topic, message_id, position in zip(
            made.messages, topics_of(made), made.ids, made.positions, strict=False
        ):
            try:
                rows.append((self.one(message, topic), topic, message_id, position))
            except LocalError as error:
                fail(position, message, topic, error)
        messages, topics, ids, positions = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [])
        return MadeBatch(messages, made.topics if len(made.topics) == 1 else topics, ids, positions, made.failed)


_usual_size = accelerator.usual_size


class WriteFn(beam.DoFn):
    """Sends every element as a message. Results go to the main output, `FailedMessage`s to the output "failed".

    Delivery: at least once. Messages are batched per topic and queue. A batch is sent when it is full, and the rest is
    sent when the bundle finishes; finish_bundle returns only when everything is acknowledged. A transient error is
    raised and fails the bundle, and the runner runs the whole bundle again: messages that were already stored are then
    stored twice. Nothing is sent in a finalizer, because it runs after the commit, where a failure loses data.

    Windows: an element is sent once, however many windows it is in. Outputs keep windows, timestamp and pane.

    Order: messages with the same sharding key keep their order, within a bundle and a topic. Messages without a key
    have no order.

    Time: with `max_wait_ms`, a thread sends batches that have waited for so long. This thread adds no outputs and no
    metrics: the next call of the bundle does.

    Args:
      maker: creates the messages.
      factory, group: create the producer, which all writers of a process with equal ones share.
      with_sent: whether results are emitted.
      ordered: at most one batch in flight per queue that gets messages with a sharding key.
      with_letters: whether failures are also emitted as dead letters, to the output "letters".
      ids: for elements that have no other id.
      sink: the sink to write exactly once; None: at least once. With a sink, `factory` creates producers that do not
        retry, every message must have an id, and marks are emitted to the output "marks".
      claim_check: where big bodies go; None: all bodies stay in their messages.
      clock: monotonic seconds; must be picklable.
    """

    def __init__(
        self,
        maker: MessageMaker,
        factory: ClientFactory,
        group: str,
        options: WriteOptions,
        *,
        with_sent: bool = True,
        ordered: bool = True,
        with_letters: bool = False,
        ids: DefaultIds | None = None,
        sink: Sink | None = None,
        claim_check: ClaimCheck | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._maker = maker
        self._factory = factory
        self._group = group
        self._options = options
        self._with_sent = with_sent
        self._ordered = ordered
        self._with_letters = with_letters
        self._ids = ids
        self._sink = sink
        self._clock = clock
        self._topic = maker.topic
        self._claim_check = claim_check
        self._claims: ClaimedWrites | None = None
        self._passes_messages = maker.selector is None and maker.id_fn is None and sink is None and claim_check is None
        self._adds_directly = self._passes_messages and options.max_wait_ms is None
        self._max_messages = options.max_batch_messages if options.batch_flush else 1
        self._max_bytes = options.max_batch_bytes
        self._max_wait_s = None if options.max_wait_ms is None else options.max_wait_ms / 1000
        self._lease: ProducerLease | None = None

    def setup(self) -> None:
        observe_process()
        if self._claim_check is not None:
            self._claims = ClaimedWrites(self._claim_check)
        self._connect()

    def _connect(self) -> None:
        self._lease = ProducerLease(self._factory, self._group)
        producer = self._lease.producer
        options = self._options
        is_letters = self._maker.id_fn is letter_id
        metrics = WriteMetrics(is_letters=is_letters)
        if is_letters and self._topic is not None:
            # Prometheus' `increase` does not count the first value of a series: the first letters would not show.
            telemetry.record("dead_letters", (self._topic,), 0)
        self._metrics = metrics
        self._outputs = self._made_outputs(metrics)
        required_topics = self._maker.required_topics
        known_topics = self._lease.known_topics
        self._once = None
        if self._sink is not None:
            self._once = WriteOnce(self._sink, self._outputs.already_there)
            producer = CertainProducer(
                producer,
                self._once,
                max_retries=options.max_retries,
                outage_timeout_s=self._sink.look_back.outage_timeout_s,
                awaits_topic=lambda topic: topic in required_topics or topic in known_topics,
            )
        topics = WritableTopics(
            producer,
            known_topics=known_topics,
            required_topics=required_topics,
            refresh_ms=options.name_server_poll_interval_ms,
            clock=self._clock,
        )
        deferred = None if self._max_wait_s is None else Deferred(self._outputs)
        outcomes = deferred or self._outputs
        self._trace = SendTrace.of(self._factory, self._group, options.trace)
        self._sender = BatchSender(
            producer,
            outcomes,
            max_in_flight=options.max_in_flight if options.asynchronous else 1,
            ordered=self._ordered,
            required_topics=required_topics,
            gate=self._once,
            trace=self._trace,
            clock=self._clock,
        )
        accumulator = BatchAccumulator(
            self._sender,
            topics,
            outcomes,
            max_messages=self._max_messages,
            max_bytes=self._max_bytes,
            max_total_bytes=options.max_total_bytes,
            one_by_one=not options.batch_flush and not options.asynchronous,
            clock=self._clock,
        )
        self._unkeyed = accumulator.unkeyed
        self._timed = None
        if deferred is not None and self._max_wait_s is not None:
            self._timed = TimedAccumulator(accumulator, deferred, self._max_wait_s, clock=self._clock)
        self._accumulator = self._timed or accumulator

    def _made_outputs(self, metrics: WriteMetrics) -> WriteOutputs:
        letter_of = functools.partial(letter_of_failure, self._maker) if self._with_letters else None
        return WriteOutputs(metrics, with_sent=self._with_sent, letter_of=letter_of)

    def start_bundle(self) -> None:
        if self._lease is None or not self._lease.is_valid:  # forked since setup, or never set up
            self._connect()
        assert self._lease is not None
        self._lease.note_statistics()
        self._accumulator.begin()
        if self._once is not None:
            self._once.begin_bundle()
        self._origin: Any = WindowedValue(None, 0, None)  # no element has it
        self._outputs.begin_bundle()

    # WindowParam would call process() once per window of an element, and each call would send it.
    def process(self, element: Any, value: Any = beam.DoFn.WindowedValueParam) -> Iterator[Any] | None:
        # This runs per message. Elements with the same windows, timestamp and pane share one value with these: they are
        # kept until they are sent, and the garbage collector would repeatedly scan separate values.
        origin = self._origin
        if (
            value.timestamp_micros != origin.timestamp_micros
            or value.windows is not origin.windows
            or value.pane_info is not origin.pane_info
        ):
            origin = self._origin = value.with_value(None)
        if not self._adds_directly or _usual_size is None:
            return self._add(element, origin)
        # The usual message, for a batch that has begun and has room. `_add` handles all others, and all errors.
        size = _usual_size(element)
        batch = self._unkeyed.get(element[1] or self._topic or "") if size else None
        if batch is None or batch.size + size > batch.limit or len(batch.messages) >= self._max_messages:
            return self._add(element, origin)
        # Batch.add, inlined.
        batch.messages.append(element)
        batch.ids.append(None)
        batch.elements.append(element)
        batch.origins.append(origin)
        batch.size += size
        return self._take(origin) if self._outputs.waiting else None

    def _add(self, element: Any, origin: Any) -> Iterator[Any] | None:
        message: Message | None = None
        try:
            if self._passes_messages and type(element) is Message:
                message, message_id = element, None
                topic = element[1] or self._topic
                if not topic:
                    raise self._maker.no_topic()
            else:
                message, topic, message_id = self._maker.make(element)
                if message_id is None and self._ids is not None:
                    message_id = self._ids.id_of(element, origin, message, topic)
            if self._once is not None:
                check_once(message, message_id)
            if self._claims is not None:
                message = self._claims.one(message, topic)
            size = estimated_size(message)
        except ClaimStoreError:
            raise
        except Exception as error:  # noqa: BLE001  # a user's callable can raise anything
            self._outputs.failed(element, origin, message, None if message is None else message[1], error)
            return self._take(origin)

        self._accumulator.add(message, topic, message_id, element, origin, size)
        return self._take(origin) if self._outputs.waiting else None

    def finish_bundle(self) -> Iterator[Any]:
        """Send the rest and wait until everything is acknowledged. Raises what fails the bundle."""
        self._accumulator.finish()
        assert self._lease is not None
        self._metrics.retried(*self._lease.take_statistics())
        self._outputs.end_bundle()
        mark = None if self._once is None else self._once.mark()
        if mark is not None:
            self._outputs.waiting.append([TaggedOutput(MARKS, self._origin.with_value(mark))])
        return self._outputs.take()

    def teardown(self) -> None:
        if self._lease is not None and self._lease.is_valid:
            if self._timed is not None:
                self._timed.close()
            self._sender.abandon()  # a bundle that failed in another DoFn may have left batches
            self._lease.release()
            if self._trace is not None:
                self._trace.flush()

    def _take(self, origin: Any) -> Iterator[Any] | None:
        """The waiting outputs, or None.

        They keep waiting while an element in several windows is processed: Beam multiplies the windows of an output by
        those of the element (`_maybe_propagate_windowing_info`).
        """
        return self._outputs.take() if self._outputs.waiting and len(origin.windows) == 1 else None


def check_once(message: Message, message_id: str | None) -> None:
    """Raises `LocalError` for a message that cannot be written exactly once."""
    if message_id is None:
        raise LocalError("the message has no id that is the same when it comes again: give id_fn=")
    if message.delay_level is not None or message.deliver_at_ms is not None:
        raise LocalError("a delayed message is in no queue before its time, so a look-back could not find it")


# The DoFn of `WriteToRocketMQ(batches=True)`.


def _plain_size(message: Message) -> int:
    """As `accelerator.usual_size`, in Python."""
    if type(message) is not Message or message.sharding_key is not None or message.properties or not message.body:
        return 0
    texts = (message.topic, message.tags)
    if type(message.keys) is not tuple or not all(text is None or isinstance(text, str) for text in texts):
        return 0
    return estimated_size(message) if batchable(message) else 0


_size_of = accelerator.usual_size or _plain_size


class BatchWriteFn(WriteFn):
    """Sends each value of each batch as a message. Results go to the main output, as lists of `SendResult`.

    Delivery, windows, order, batching and failures are those of `WriteFn`: a batch of the input is not a request.
    Small ones are sent together, and large ones are split.

    Args: as `WriteFn`, without `ids`: a `Batch` and a `Record` have ids of their own.
    """

    def _made_outputs(self, metrics: WriteMetrics) -> WriteOutputs:
        maker = self._maker if self._with_letters else None
        return BatchWriteOutputs(metrics, with_sent=self._with_sent, maker=maker)

    def setup(self) -> None:
        self._batch_maker = BatchMaker(self._maker)
        super().setup()

    def process(self, element: Any, value: Any = beam.DoFn.WindowedValueParam) -> Iterator[Any] | None:
        origin = Origin(element, value.with_value(None))
        self._origin = origin.value
        try:
            made = self._batch_maker.make(element)
        except Exception as error:  # noqa: BLE001  # not a batch, or a changed one
            self._outputs.failed(None, origin, None, None, error)
            return self._take(origin.value)
        if self._claims is not None:
            made = self._claims.all(made, lambda at, message, *why: self._outputs.failed(at, origin, message, *why))
        for position, (message, reason) in made.failed.items():
            self._outputs.failed(position, origin, message, None if message is None else message[1], reason)
        if made.messages:
            self._add_all(made, origin)
        return self._take(origin.value) if self._outputs.waiting else None

    def _add_all(self, made: MadeBatch, origin: Origin) -> None:
        messages, ids, positions = made.messages, made.ids, made.positions
        if len(made.topics) == 1 and self._options.batch_flush and (self._once is None or None not in ids):
            sizes = [*map(_size_of, messages)]
            if max(sizes) <= self._max_bytes:
                if all(sizes):
                    self._accumulator.extend(messages, made.topics[0], ids, positions, origin, sizes)
                    return
                # The usual messages have no keys, and so no order: they can go first.
                usual = [*compress(messages, sizes)]
                if usual:
                    self._accumulator.extend(
                        usual,
                        made.topics[0],
                        [*compress(ids, sizes)],
                        [*compress(positions, sizes)],
                        origin,
                        [*filter(None, sizes)],
                    )
                left = [not size for size in sizes]
                messages, ids, positions = (
                    [*compress(messages, left)],
                    [*compress(ids, left)],
                    [*compress(positions, left)],
                )
        for message, topic, message_id, position in zip(messages, topics_of(made), ids, positions, strict=False):
            try:
                if self._once is not None:
                    check_once(message, message_id)
                size = estimated_size(message)
            except Exception as error:  # noqa: BLE001  # fields of wrong types
                self._outputs.failed(position, origin, message, message[1], error)
                continue
            self._accumulator.add(message, topic, message_id, position, origin, size)
