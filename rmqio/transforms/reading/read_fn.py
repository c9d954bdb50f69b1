"""The splittable DoFn that reads one queue, from the first range of the queue on."""

from __future__ import annotations

import functools
import itertools
import logging
import operator
import time
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, Protocol

import apache_beam as beam
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import repeats
from rmqio.errors import OffsetOutOfRange, OffsetsLost, RmqioError
from rmqio.interfaces import ClientFactory, FetchedBatch, OffsetLookup, QueueReader
from rmqio.logs import event
from rmqio.model import MessageQueue, Record
from rmqio.options import ReadOptions
from rmqio.sending.traces import ReadTrace
from rmqio.start import LateQueue, StartFrom, StopAt, all_or_error, resolve_all
from rmqio.transforms.metrics import ReadMetrics, observe_process, queue_labels
from rmqio.transforms.reading.commits import begin_reading, commit_position, is_commit_due, raise_reset, take_counts
from rmqio.transforms.reading.discovery import known_starts, now_ms
from rmqio.transforms.reading.options import ReadConfig
from rmqio.transforms.reading.pacing import WAIT_S, Pacer, pacer_of
from rmqio.transforms.reading.readers import Readers, Slot, cut_to, held_bytes
from rmqio.transforms.reading.record_batches import to_record_batch
from rmqio.transforms.reading.restriction import (
    Claim,
    QueueDescriptor,
    QueueRange,
    QueueRangeCoder,
    QueueRangeTracker,
    QueueWatermark,
    QueueWatermarks,
    Start,
    beam_timestamp,
)
from rmqio.transforms.shared import backlog, note_backlog, shared_client

# The first range of a queue: its start and stop, resolved to offsets once, when the queue becomes known.

_WARN_EVERY_S: Final = 60.0
_warned_at: dict[str, float] = {}
"""By broker: when this process last logged that queues wait for it."""


class Reading(Protocol):
    """The part of a `ReadConfig` that matters here."""

    @property
    def factory(self) -> ClientFactory: ...

    @property
    def group(self) -> str | None: ...

    @property
    def start(self) -> StartFrom: ...

    @property
    def stop(self) -> StopAt | None: ...

    @property
    def options(self) -> ReadOptions: ...


def first_range(config: Reading, element: QueueDescriptor) -> QueueRange:
    """Return the range to read of an element's queue.

    If the read of the queue has no end, the queue waits for a broker that does not answer. All other errors are raised.
    """
    stop_at = element.stop or config.stop
    if stop_at is None:
        began_ms = now_ms()  # before the look, so that messages that arrive in the meantime are after it
        start = _find_start(config, element, None)
        return QueueRange(start or 0, None, element.limit, began_ms if start is None else None)

    def resolve(queue: MessageQueue, lookup: OffsetLookup) -> QueueRange:
        # The stop is resolved first: a queue that is not read needs no start.
        stop = stop_at.resolve(queue, lookup)
        if stop is None:
            return QueueRange(0, 0, limit=0)  # not read
        start = _resolve(config, element, lookup, None)
        return QueueRange(start, max(start, stop), element.limit)

    return all_or_error(resolve_all([element.queue], shared_client(config.factory), resolve))[element.queue]


def late_start(config: Reading, element: QueueDescriptor, began_ms: int) -> int | None:
    """Return the start of a queue that has waited since a Unix time in ms; None: its broker still does not answer.

    Raises other errors.
    """
    return _find_start(config, element, LateQueue(began_ms, None))


def _find_start(config: Reading, element: QueueDescriptor, late: LateQueue | None) -> int | None:
    def resolve(queue: MessageQueue, lookup: OffsetLookup) -> int:
        return _resolve(config, element, lookup, late)

    found = resolve_all([element.queue], shared_client(config.factory), resolve)
    return known_starts(found, may_wait=True, on_wait=lambda error: _warn(element.queue, error)).get(element.queue)


def _resolve(config: Reading, element: QueueDescriptor, lookup: OffsetLookup, late: LateQueue | None) -> int:
    return (element.start or config.start).resolve(
        element.queue,
        lookup,
        group=config.group,
        on_out_of_range=config.options.on_offset_out_of_range,
        on_timestamp_after_end=config.options.on_timestamp_after_end,
        late=late,
    )


def _warn(queue: MessageQueue, error: RmqioError) -> None:
    now = time.monotonic()
    if now - _warned_at.get(queue.broker, float("-inf")) >= _WARN_EVERY_S:  # a queue looks several times a second
        _warned_at[queue.broker] = now
        _LOGGER.warning("%s waits for its broker, which does not answer: %s", queue, error)


_LOGGER = logging.getLogger(__name__)
_stored_size = operator.itemgetter(Record._fields.index("stored_size"))  # by position: runs per message
_RUN_RECORDS = 512
_RUN_BYTES = 1 << 20
UNGROUPED = "rmqio_reader"
"""Stands for the group in traces of a read without one."""
RESUME_DELAY = Duration(micros=10_000)


class ReadQueueFn(beam.DoFn, RestrictionProvider):
    """Reads one queue. Beam must know when a pipeline is built which subclass it is: bounded or unbounded.

    Initial restriction: the start and stop strategies, resolved to offsets by the broker, once. They are not resolved
    again on resume, restore or retry. An endless read of a queue whose broker does not answer waits, holds back the
    watermark, and resolves its start later, by the rule for late queues.

    Splitting: none initially, because a queue is read in order, unless `splits_per_queue` asks for it. While running, a
    bounded range can be split at a fraction.

    Checkpoint and resume: a bundle ends itself after `max_records_per_bundle` or `max_bundle_ms`, or when the queue is
    exhausted and the one wait of the bundle is over. Portable runners never ask for it.

    Progress and size: offsets done and left; bytes by the mean size of the messages seen.

    Watermark: follows the newest timestamp of the queue minus `max_out_of_orderness_ms`. A queue that has been read to
    its end for `idle_timeout_ms` follows the clock, as far as its broker answers.

    When reading stops: at the stop offset or the record limit; never in an endless read.

    Delivery: each offset exactly once in the runner's own state. The group's offset is committed when the bundle is
    final, for information only.
    """

    def __init__(self, config: ReadConfig) -> None:
        self._config = config
        self._readers: Readers | None = None
        self._trace: ReadTrace | None = None
        self._metrics = ReadMetrics()

    # -- restriction provider: also called where no `setup` has run ---------------------------------------------------

    def initial_restriction(self, element: QueueDescriptor) -> QueueRange:
        return first_range(self._config, element)

    def split(self, element: QueueDescriptor, restriction: QueueRange) -> Iterator[QueueRange]:
        """`splits_per_queue` ranges of about the same number of offsets, without empty ones."""
        parts = self._config.options.splits_per_queue
        if parts == 1 or restriction.is_done or restriction.stop is None or restriction.limit is not None:
            yield restriction
            return
        start, stop = restriction.start, restriction.stop
        edges = sorted({start + (stop - start) * part // parts for part in range(parts + 1)})
        for begin, end in itertools.pairwise(edges):
            yield restriction._replace(start=begin, stop=end)

    def create_tracker(self, restriction: QueueRange) -> QueueRangeTracker:
        return QueueRangeTracker(restriction)

    def restriction_coder(self) -> QueueRangeCoder:
        return QueueRangeCoder()

    def restriction_size(self, element: QueueDescriptor, restriction: QueueRange) -> float:
        """The bytes that are left, as far as known."""
        known = backlog(self._config.factory, element.queue, ask=restriction.stop is None)
        end = known.end if restriction.stop is None else restriction.stop
        return max(0, end - restriction.start) * known.message_bytes

    def truncate(self, element: QueueDescriptor, restriction: QueueRange) -> QueueRange | None:
        """On drain, an endless read stops at its position: the broker keeps the messages after it."""
        return restriction if restriction.stop is not None else None

    # -- life cycle ---------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        observe_process()
        if self._config.group is not None:
            begin_reading(self._config.factory, self._config.group)
        self._readers = Readers(
            self._config.factory,
            self._config.message_filter,
            poll_timeout_ms=self._config.options.poll_timeout_ms,
        )
        group = self._config.group or UNGROUPED
        self._trace = ReadTrace.of(self._config.factory, group, self._config.options.trace)

    def start_bundle(self) -> None:
        assert self._readers is not None
        self._readers.start_bundle()

    def teardown(self) -> None:
        if self._readers is not None:
            self._readers.close()
            self._readers = None
        if self._trace is not None:
            self._trace.flush()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(
        self, element: QueueDescriptor, finalizer: Any, tracker: Any, estimator: QueueWatermark, window: Any
    ) -> Iterator[Any]:
        readers = self._readers
        assert readers is not None
        options, queue = self._config.options, element.queue
        restriction = tracker.current_restriction()
        self._metrics.gauges(queue).count(0)  # an empty queue is a part of the mean load, too
        if restriction.is_done:
            # Empty, but read: the group needs an offset to continue at, or it would miss what arrives in between.
            if restriction.limit != 0:
                self._commit(queue, restriction.start, finalizer, finished=True)
            return
        if restriction.waits_since_ms is not None:
            start = late_start(self._config, element, restriction.waits_since_ms)
            if start is None or not tracker.try_claim(Start(start)):
                self._metrics.gauges(queue).no_answer()
                readers.pause()
                tracker.defer_remainder(RESUME_DELAY)
                return
            restriction = tracker.current_restriction()
        slot = readers.slot(queue, restriction.start)
        if slot is None:
            self._metrics.gauges(queue).no_answer()
            self._metrics.gauges(queue).watermark(estimator.get_estimator_state())
            tracker.defer_remainder(RESUME_DELAY)
            return
        self._begin_to_emit(element)
        position, left, emitted = restriction.start, restriction.limit, 0
        # Queues share a bundle's time, so that a slow pipeline does not starve the last ones.
        deadline = time.monotonic() + options.max_bundle_ms / 1000 / max(1, len(readers))
        windows = (window,)
        finished = is_paced = False
        most = options.max_records_per_bundle
        pacer, part = self._pacer(), (queue, restriction.stop)
        wait_until = min(deadline, time.monotonic() + WAIT_S)
        while not finished:
            if pacer is not None:
                most = emitted + self._paced(pacer, part, slot, options.max_records_per_bundle - emitted, wait_until)
                is_paced = most == emitted
                if is_paced:
                    break
            try:
                fetched = slot.reader.poll()
            except OffsetOutOfRange as error:
                _give_back(pacer, most - emitted)
                claim = self._skip_to(error, restriction, queue)
                if not tracker.try_claim(claim):
                    break
                position = claim.last_offset + 1
                slot.reader.seek(position)
                finished = tracker.current_restriction().stop == position
                continue
            if fetched is None:
                _give_back(pacer, most - emitted)
                if readers.await_data(slot):
                    continue
                break
            fetched = self._more(slot.reader, fetched, most - emitted, deadline)
            if fetched.skipped and options.on_offset_out_of_range == "fail":
                raise OffsetsLost(queue, position, fetched.skipped)
            limit = left if pacer is None else _least(left, pacer.cut_at(most - emitted))
            cut = cut_to(fetched, tracker.current_restriction().stop, limit)
            claim = Claim(cut.next_offset - 1, len(cut.records), fetched.max_offset)
            # A claim is refused if a split has taken the tail: then only the part that is left is cut out and claimed.
            while cut.next_offset > position and not tracker.try_claim(claim):
                cut = cut_to(fetched, tracker.current_restriction().stop, limit)
                claim = Claim(cut.next_offset - 1, len(cut.records), fetched.max_offset)
            if cut.next_offset <= position:
                _give_back(pacer, most - emitted)
                break
            position = cut.next_offset
            _give_back(pacer, most - emitted - len(cut.records))
            emitted += len(cut.records)
            taken = None if self._trace is None else self._trace.read(cut.records)
            yield from self._emit(cut, estimator, windows)
            if self._trace is not None and taken is not None:
                self._trace.handled(taken)
            readers.emitted(slot, len(cut.records))
            self._note(slot, cut, fetched)
            if left is not None:
                left -= len(cut.records)
            finished = left == 0 or tracker.current_restriction().stop == position
            if emitted >= options.max_records_per_bundle or time.monotonic() > deadline:
                break
            if cut.next_offset < fetched.next_offset and not finished:
                break  # the limit has cut the answer: the reader is past the position
        self._note_end(slot, waited=not emitted and not is_paced)
        if slot.reader.position == position:  # else a limit has cut an answer, whose rest is not read yet
            self._follow_clock(slot, estimator)
        self._metrics.gauges(queue).watermark(estimator.get_estimator_state())
        self._end_to_emit(element, restriction.start, position)
        self._commit(queue, position, finalizer, finished)
        if finished:
            readers.release(queue)
            if pacer is not None:
                pacer.done(part)
        else:
            tracker.defer_remainder(RESUME_DELAY)

    def _begin_to_emit(self, element: QueueDescriptor) -> None:
        config = self._config
        if config.notes_as is not None and (start := _start_of(config, element)).reads_again:
            resumes = config.committed_group is not None and start.needs_group and element.queue not in start.named
            commits = (config.factory, config.committed_group) if resumes else None
            repeats.note_begin(config.notes_as, element.queue, commits)

    def _end_to_emit(self, element: QueueDescriptor, before: int, position: int) -> None:
        config = self._config
        if config.notes_as is not None and _start_of(config, element).reads_again:
            repeats.note_end(config.notes_as, element.queue, before, position)

    def _pacer(self) -> Pacer | None:
        limit = self._config.rate_limit
        return None if limit is None else pacer_of(limit, self._config.factory)

    def _paced(self, pacer: Pacer, part: Hashable, slot: Slot, wanted: int, until: float) -> int:
        """Take tokens for records of a queue, and count how long that took."""
        taken, waited_s = pacer.take(part, min(wanted, _RUN_RECORDS), until)
        if waited_s:
            self._metrics.paced.add(round(waited_s * 1000), slot.labels)
        return taken

    def _skip_to(self, error: OffsetOutOfRange, restriction: QueueRange, queue: MessageQueue) -> Claim:
        policy = self._config.options.on_offset_out_of_range
        target = error.minimum if policy == "earliest" else error.maximum
        if policy == "fail" or target <= error.wanted:
            # Beyond the end there is nothing to continue at, whatever the policy: the topic was recreated.
            raise error
        target = target if restriction.stop is None else min(target, restriction.stop)
        self._skipped(queue, target, target - error.wanted)
        return Claim(target - 1, 0, error.maximum)

    def _more(self, reader: QueueReader, fetched: FetchedBatch, wanted: int, deadline: float) -> FetchedBatch:
        """`fetched` and everything else that has arrived, so that many records share the costs per batch."""
        wanted = min(wanted, _RUN_RECORDS)
        records, size = fetched.records, held_bytes(fetched.records)
        while len(records) < wanted and size < _RUN_BYTES and time.monotonic() < deadline and reader.is_ready():
            try:
                more = reader.poll()
            except RmqioError:
                break  # the next poll raises it again, after the records before it have been emitted
            if more is None:
                break
            size += held_bytes(more.records)
            records = records + more.records
            fetched = more._replace(
                records=records, corrupt=fetched.corrupt + more.corrupt, skipped=fetched.skipped + more.skipped
            )
        return fetched

    def _emit(self, cut: FetchedBatch, estimator: QueueWatermark, windows: tuple[Any, ...]) -> Iterator[Any]:
        config = self._config
        pulled = to_record_batch(cut, config.timestamp_of, keep_failures=config.errors_to_output)
        if pulled.stamps:
            yield WindowedValue(pulled, beam_timestamp(min(pulled.stamps)), windows)
            estimator.advance(max(pulled.stamps) - config.options.max_out_of_orderness_ms)
        elif pulled.failures:
            yield WindowedValue(pulled, beam_timestamp(pulled.failures[0].store_timestamp_ms), windows)

    def _note(self, slot: Slot, cut: FetchedBatch, fetched: FetchedBatch) -> None:
        metrics, queue, factory = self._metrics, slot.reader.queue, self._config.factory
        labels = slot.labels
        count = len(cut.records)
        size = sum(map(_stored_size, cut.records))
        metrics.records_read.add(count, labels)
        metrics.bytes_read.add(size, labels)
        if fetched.skipped:
            self._skipped(queue, cut.next_offset, fetched.skipped)
        if fetched.latency_ms:
            metrics.pull_latency.add(fetched.latency_ms, labels[:2])
        note_backlog(factory, queue, fetched.max_offset, size / count if count else None)
        mean_bytes = backlog(factory, queue, ask=False).message_bytes
        stored_ms = cut.records[-1].store_timestamp_ms if count else None
        metrics.gauges(queue).count(count)
        metrics.answered(queue, getattr(slot.reader, "answered_at", None))
        metrics.gauges(queue).read(fetched.max_offset - cut.next_offset, mean_bytes, stored_ms)

    def _skipped(self, queue: MessageQueue, target: int, count: int) -> None:
        self._metrics.offsets_skipped.add(count, queue_labels(queue))
        text = "%s: %d offsets are lost on the broker; reading continues at %d"
        _LOGGER.warning(text, queue, count, target, extra=event(queue=queue, offset=target, count=count))

    def _note_end(self, slot: Slot, *, waited: bool) -> None:
        """Record the end of a bundle. `waited`: it got no messages."""
        retries = slot.take_retries()
        if retries:
            self._metrics.pull_retries.add(retries, slot.labels)
        self._metrics.answered(slot.reader.queue, getattr(slot.reader, "answered_at", None))
        if waited and not slot.reader.is_ready():
            gauges = self._metrics.gauges(slot.reader.queue)
            if slot.reader.is_at_end:
                gauges.at_end()
            else:
                gauges.no_answer()

    def _follow_clock(self, slot: Slot, estimator: QueueWatermark) -> None:
        readers, options = self._readers, self._config.options
        assert readers is not None
        idle_ms = readers.idle_ms(slot)
        if idle_ms is not None and idle_ms >= options.idle_timeout_ms:
            until_s = readers.idle_until_s(slot)
            if until_s is not None:
                estimator.advance(int(until_s * 1000) - options.max_out_of_orderness_ms)

    def _commit(self, queue: Any, position: int, finalizer: Any, finished: bool) -> None:
        config, group = self._config, self._config.committed_group
        if group is None:
            return
        raise_reset(config.factory, group)
        interval_ms = 0 if finished else config.options.offset_commit_interval_ms
        if is_commit_due(config.factory, group, queue, position, interval_ms):
            on_reset = config.options.on_group_reset
            arguments = (config.factory, group, queue, position, on_reset, finished, config.read_id)
            callback = functools.partial(commit_position, *arguments)
            finalizer.register(callback)
        done, failed = take_counts(config.factory, group)
        if done:
            self._metrics.commits.add_told(done)
        if failed:
            self._metrics.commit_failures.add_told(failed)


def _start_of(config: ReadConfig, element: QueueDescriptor) -> StartFrom:
    """Where a pipeline that starts anew begins to read the queue."""
    return config.start if element.start is None or element.start.kind == "resolved" else element.start


def _give_back(pacer: Pacer | None, count: int) -> None:
    if pacer is not None:
        pacer.give_back(count)


def _least(left: int | None, most: int) -> int:
    return most if left is None else min(left, most)


class BoundedReadFn(ReadQueueFn):
    """Reads one queue up to a stop that is known when the pipeline starts."""

    def process(
        self,
        element: QueueDescriptor,
        # Beam's invoker passes tracker and estimator by name and the others by position: the others must come first.
        finalizer: Any = beam.DoFn.BundleFinalizerParam,
        window: Any = beam.DoFn.WindowParam,
        tracker: Any = beam.DoFn.RestrictionParam(),  # noqa: B008 (Beam's way to declare it)
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(QueueWatermarks()),  # noqa: B008
    ) -> Iterable[Any]:
        return self._read(element, finalizer, tracker, estimator, window)


class UncommittedReadFn(ReadQueueFn):
    """`BoundedReadFn` without commits: Flink runs a DoFn that uses bundle finalization only as a stream."""

    def process(
        self,
        element: QueueDescriptor,
        window: Any = beam.DoFn.WindowParam,
        tracker: Any = beam.DoFn.RestrictionParam(),  # noqa: B008
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(QueueWatermarks()),  # noqa: B008
    ) -> Iterable[Any]:
        return self._read(element, None, tracker, estimator, window)


class UnboundedReadFn(ReadQueueFn):
    """Reads one queue without end."""

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        element: QueueDescriptor,
        finalizer: Any = beam.DoFn.BundleFinalizerParam,
        window: Any = beam.DoFn.WindowParam,
        tracker: Any = beam.DoFn.RestrictionParam(),  # noqa: B008
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(QueueWatermarks()),  # noqa: B008
    ) -> Iterable[Any]:
        return self._read(element, finalizer, tracker, estimator, window)
