"""The read where the runner plans: it is told how far a micro-batch reads, and reads the same when that is run again.

A runner that plans offers `planned_source(options)`. `ReadFromRocketMQ` builds on what that gives: a planner that lives
beside the runner's driver, and a plain DoFn that reads the ranges which the planner has planned.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio.errors import OffsetOutOfRange, RmqioError, TopicNotExist, TransportError
from rmqio.model import MessageFilter, MessageQueue
from rmqio.seams import QueueClient
from rmqio.start import StopAt
from rmqio.transforms.commits import commit_position, raise_reset
from rmqio.transforms.descriptor import QueueDescriptor
from rmqio.transforms.discovery import DiscoveryConfig
from rmqio.transforms.read_fn import ReadConfig, ReadQueueFn
from rmqio.transforms.restriction import QueueRange, QueueRangeTracker
from rmqio.transforms.shared import shared_client
from rmqio.transforms.watermark import QueueWatermark, QueueWatermarks

_LOGGER = logging.getLogger(__name__)
_WARN_EVERY_S = 60.0
_CLOCK_STEP_MS = 1_000
_MIN_MICROS = int(MIN_TIMESTAMP.micros)
_NOT_YET = {"idle_since_ms": None, "clock_ms": None, "read_ms": None}
_SAMPLE_EVERY_S = 30.0
_SAMPLE_WAIT_MS = 1_000
_UNKNOWN_BYTES = 1_024.0
WATERMARKS_TAG = "watermarks"

QueueRangeElement = tuple[str, str, int, int, int]
"""Topic, broker, queue, first offset, and the one behind the last."""
Position = Mapping[str, Any]
"""By queue as text: where its reading began (`from`), where it is read to (`at`), where it ends (`stop`, if it does),
the broker's end (`end`), since when nothing is left of it (`idle_since_ms`), how far the clock has moved its watermark
(`clock_ms`), and when it was last read to its end (`read_ms`)."""


class QueuePlanner:
    """Plans the ranges of all queues of a subscription. Waits out a broker that is away: its queues stand still."""

    element_type = QueueRangeElement

    def __init__(self, config: ReadConfig, discovery: DiscoveryConfig) -> None:
        self._config = config
        self._discovery = discovery
        self._discovered_at = float("-inf")
        self._warned_at = float("-inf")
        self._has_begun = False
        self.is_bounded = config.stop is not None
        self.identity = str(discovery.subscription)
        self._until_now = False
        self._sizes: dict[str, tuple[float, float]] = {}

    def advance(self, position: Position | None, limits: Any, until_now: bool) -> Position | None:
        """Where the next micro-batch reads to. None as long as no broker says where to begin.

        Raises `OffsetOutOfRange` where a queue ends before what has been read of it: the topic was made anew.
        """
        client = shared_client(self._config.factory)
        self._until_now = until_now
        try:
            found = self._known(client, position, until_now)
        except RmqioError as error:
            if position is None and isinstance(error, TopicNotExist):
                raise
            self._pass_over(error)
            return position
        left: dict[str, int] = {}
        asked_ms: dict[str, int] = {}
        for name, each in found.items():
            stop, queue = each["stop"], queue_of(name)
            if stop is not None and each["at"] >= stop:
                continue
            now_ms = asked_ms[name] = int(time.time() * 1000)  # before it is asked: what comes meanwhile is not older
            try:
                each["end"] = client.max_offset(queue)
            except RmqioError as error:
                self._pass_over(error)  # it stands still: nothing is planned of it, nor does the clock move it on
                continue
            target = each["end"] if stop is None else min(stop, each["end"])
            if target < each["at"]:
                raise OffsetOutOfRange(queue, each["at"], client.min_offset(queue), target)
            if each["at"] < target:
                left[name] = target - each["at"]
            self._follow_clock(each, now_ms, is_busy=name in left)
        turn = sum(each["at"] for each in found.values())
        for name, share in _shares(left, self._most(client, left, found, limits), turn).items():
            found[name]["at"] += share
            found[name]["read_ms"] = asked_ms[name] if share == left[name] else None
        return found

    def elements(self, begin: Position | None, end: Position | None) -> Sequence[tuple[QueueRangeElement, float]]:
        """A range for each queue of which there is something to read."""
        found = []
        for name, each in (end or {}).items():
            before = (begin or {}).get(name, {"at": each["from"]})["at"]
            if before < each["at"]:
                queue = queue_of(name)
                element = (queue.topic, queue.broker, queue.queue_id, before, each["at"])
                found.append((element, float(each["at"] - before)))
        return found

    def partitions(self, position: Position | None) -> Mapping[str, int | None]:
        """The queues; microseconds up to which one that is idle has no more to come."""
        found = {}
        for name, each in (position or {}).items():
            if self._config.stop is not None and each["at"] >= each["stop"]:
                continue  # at its end: it holds nobody back
            clock = each["clock_ms"]
            found[name] = None if clock is None else clock * 1000
        return found

    def silent(self, position: Position | None) -> Mapping[str, tuple[int, int]]:
        """The queues that are read to their end, though of what was there the filter may have left nothing."""
        config, options = self._config, self._config.options
        if config.message_filter.is_all:
            return {}
        read_ms = {name: (position or {})[name]["read_ms"] for name in self.partitions(position)}
        return {
            name: (1000 * (each - options.max_out_of_orderness_ms), 1000 * options.idle_timeout_ms)
            for name, each in read_ms.items()
            if each is not None
        }

    def has_ended(self, position: Position | None) -> bool:
        """Whether the read has a stop and all queues have been read to it."""
        return self._config.stop is not None and self.is_done(position)

    def is_done(self, position: Position | None) -> bool:
        """Whether all queues have been read to where this run ends."""
        if position is None or (not position and self._config.stop is None and not self._until_now):
            return False
        return all(each["stop"] is not None and each["at"] >= each["stop"] for each in position.values())

    def committed(self, position: Position | None) -> None:
        """Commits the group's offsets, forward only. A failure is logged and made good by the next one.

        Raises `GroupOffsetReset` where an operator has reset them and the options say that this is to be honoured.
        """
        config, group = self._config, self._config.committed_group
        if group is None:
            return
        for name, each in (position or {}).items():
            commit_position(config.factory, group, queue_of(name), each["at"], config.options.on_group_reset)
        raise_reset(config.factory, group)

    def lag(self, position: Position | None) -> Mapping[str, int]:
        """Messages that are left, by topic."""
        found: dict[str, int] = {}
        for name, each in (position or {}).items():
            topic = queue_of(name).topic
            found[topic] = found.get(topic, 0) + max(0, each["end"] - each["at"])
        return found

    def _known(self, client: QueueClient, position: Position | None, until_now: bool) -> dict[str, dict[str, Any]]:
        """The queues of a position, and those that are new."""
        if position is None:
            return self._begin(client, until_now)
        found: dict[str, dict[str, Any]] = {name: dict(each) for name, each in position.items()}
        if self._config.stop is None and not self._has_begun:
            for name, each in found.items():  # the run before this one may have been until what was there then
                each["stop"] = max(each["at"], client.max_offset(queue_of(name))) if until_now else None
        self._has_begun = True
        interval_ms = self._discovery.interval_ms
        if self._config.stop is not None or until_now or interval_ms <= 0:
            return found
        if (time.monotonic() - self._discovered_at) * 1000 < interval_ms:
            return found
        try:
            queues = self._discovery.subscription.find_queues(client, missing_ok=True)
            self._discovered_at = time.monotonic()
            for queue in queues:
                if name_of(queue) not in found:
                    earliest = self._discovery.new_queue_start == "earliest"
                    begin = client.min_offset(queue) if earliest else client.max_offset(queue)
                    found[name_of(queue)] = _entry(begin, None)
        except RmqioError as error:
            self._pass_over(error)  # the queues that are known go on
        return found

    def _begin(self, client: QueueClient, until_now: bool) -> dict[str, dict[str, Any]]:
        config = self._config
        found = {}
        for queue in self._discovery.subscription.find_queues(client):
            stop_at = config.stop or (StopAt.latest() if until_now else None)
            stop = stop_at.resolve(queue, client) if stop_at is not None else None
            if stop_at is not None and stop is None:
                continue  # not to be read
            start = config.start.resolve(
                queue,
                client,
                group=config.group,
                on_out_of_range=config.options.on_offset_out_of_range,
                on_timestamp_after_end=config.options.on_timestamp_after_end,
            )
            found[name_of(queue)] = _entry(start, stop)
        self._discovered_at = time.monotonic()
        self._has_begun = True
        return found

    def _follow_clock(self, each: dict[str, Any], now_ms: int, is_busy: bool) -> None:
        """A queue that has been idle for long enough follows the clock, in seconds: each step takes a micro-batch."""
        options = self._config.options
        if is_busy:
            each["idle_since_ms"] = None
            return
        if each["idle_since_ms"] is None:
            each["idle_since_ms"] = now_ms
        if now_ms - each["idle_since_ms"] >= options.idle_timeout_ms:
            clock_ms = now_ms - options.max_out_of_orderness_ms
            if each["clock_ms"] is None or clock_ms - each["clock_ms"] >= _CLOCK_STEP_MS:
                each["clock_ms"] = clock_ms

    def _most(self, client: QueueClient, left: Mapping[str, int], found: Mapping[str, Any], limits: Any) -> int | None:
        """The most messages that limits allow. Bytes count by the size of messages that are sampled now and then."""
        limit: int | None = limits.max_records
        if limits.max_bytes is not None and left:
            size = max(self._size(client, name, found[name]["at"]) for name in left)
            by_bytes = max(1, int(limits.max_bytes / size))
            limit = by_bytes if limit is None else min(limit, by_bytes)
        return limit

    def _size(self, client: QueueClient, name: str, at: int) -> float:
        """The mean size of the messages that come next in a queue, in bytes as stored."""
        sampled_at, size = self._sizes.get(name, (float("-inf"), _UNKNOWN_BYTES))
        if time.monotonic() - sampled_at < _SAMPLE_EVERY_S:
            return size
        reader = client.open_reader(queue_of(name), at, message_filter=MessageFilter("*"))
        try:
            client.wait([reader], _SAMPLE_WAIT_MS)
            fetched = reader.poll()
            if fetched is not None and fetched.records:
                size = sum(record.stored_size for record in fetched.records) / len(fetched.records)
        except RmqioError as error:
            _LOGGER.info("%s: the size of its messages is not known: %s", name, error)
        finally:
            reader.close()
        self._sizes[name] = (time.monotonic(), size)
        return size

    def _pass_over(self, error: RmqioError) -> None:
        """Raises what does not pass by itself. A broker that is restarted takes its topics off the routes, too."""
        if not (isinstance(error, TransportError | TopicNotExist) or getattr(error, "retriable", False)):
            raise error
        if time.monotonic() - self._warned_at > _WARN_EVERY_S:
            self._warned_at = time.monotonic()
            _LOGGER.warning("the read waits: %s", error)


def _entry(start: int, stop: int | None) -> dict[str, Any]:
    stop = None if stop is None else max(start, stop)
    return {"from": start, "at": start, "end": start, "stop": stop, **_NOT_YET}


def _shares(left: Mapping[str, int], most: int | None, turn: int) -> dict[str, int]:
    """How much of each queue is read: what it has, or its part of `most`, the rest of which changes with `turn`."""
    total = sum(left.values())
    if most is None or total <= most:
        return dict(left)
    shares = {name: size * most // total for name, size in left.items()}
    spare = most - sum(shares.values())
    names = random.Random(turn).sample(sorted(left), len(left))
    for name in sorted(names, key=shares.__getitem__):  # those that rounding took most from
        if spare and shares[name] < left[name]:
            shares[name] += 1
            spare -= 1
    return shares


def name_of(queue: MessageQueue) -> str:
    """The queue as text."""
    return f"{queue.topic}/{queue.broker}/{queue.queue_id}"


def queue_of(name: str) -> MessageQueue:
    """The queue of its text; a topic has no slash."""
    topic, rest = name.split("/", 1)
    broker, number = rest.rsplit("/", 1)
    return MessageQueue(topic, broker, int(number))


class _Range(QueueRangeTracker):
    """What is left of a planned range; nobody splits it."""

    def defer_remainder(self, delay: Any = None) -> None:
        """Goes on at once."""
        self._range = self._left()
        self._taken = 0


class ReadRangesFn(ReadQueueFn):
    """Reads planned ranges to their end, and tells how far each queue's watermark has come by that."""

    def process(self, element: QueueRangeElement, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        topic, broker, queue_id, begin, end = element
        queue = MessageQueue(topic, broker, queue_id)
        tracker, estimator = _Range(QueueRange(begin, end)), QueueWatermarks().new()
        while not tracker.current_restriction().is_done:
            before = tracker.current_restriction().start
            try:
                yield from self._read(QueueDescriptor(queue), None, tracker, estimator, window)
            except TransportError as error:
                _LOGGER.warning("%s: the read waits: %s", queue, error)
            tracker.defer_remainder()
            left = tracker.current_restriction()
            if not left.is_done and left.start == before:
                self._check_end(queue, before, end)
                assert self._readers is not None
                self._readers.start_bundle()  # or it would not wait again
        if estimator.get_estimator_state() > _MIN_MICROS:  # else the filter has left nothing of the range
            yield beam.pvalue.TaggedOutput(WATERMARKS_TAG, (name_of(queue), estimator.milliseconds * 1000))

    def _follow_clock(self, slot: Any, estimator: QueueWatermark) -> None:
        """The planner does, so that it is the same when the range is read again."""

    def _commit(self, queue: Any, position: int, finalizer: Any, finished: bool) -> None:
        """The planner does, when the runner has committed."""

    def _check_end(self, queue: MessageQueue, position: int, end: int) -> None:
        """Raises where what was planned is not there any more: a broker that was killed has lost it."""
        client = shared_client(self._config.factory)
        try:
            maximum = client.max_offset(queue)
        except RmqioError:
            return  # away: the reader waits for it
        if maximum < end:
            raise OffsetOutOfRange(queue, position, client.min_offset(queue), maximum)
