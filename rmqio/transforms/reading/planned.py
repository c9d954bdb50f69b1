"""The read for a runner that plans: it gets the ranges of a micro-batch, and reads the same ones if that is run again.

A runner that plans offers `planned_source(options)`. `ReadFromRocketMQ` uses it for a planner that lives in the
runner's driver, and a plain DoFn that reads the planned ranges.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio import repeats
from rmqio.errors import OffsetOutOfRange, QueueGone, RmqioError, TopicNotExist, TransportError, counted
from rmqio.interfaces import MicroBatchLimits, OffsetQuery, QueueClient
from rmqio.model import MessageFilter, MessageQueue
from rmqio.start import StopAt, all_or_error
from rmqio.transforms.reading.commits import commit_positions, is_commit_due, raise_reset
from rmqio.transforms.reading.discovery import DiscoveryConfig, known_starts, without_gone
from rmqio.transforms.reading.options import ReadConfig
from rmqio.transforms.reading.pacing import PlanPace
from rmqio.transforms.reading.read_fn import ReadQueueFn
from rmqio.transforms.reading.restriction import (
    QueueDescriptor,
    QueueRange,
    QueueRangeTracker,
    QueueWatermark,
    QueueWatermarks,
)
from rmqio.transforms.shared import shared_client

_LOGGER = logging.getLogger(__name__)
_WARN_EVERY_S = 60.0
_CLOCK_STEP_MS = 1_000
_NOT_YET = {"idle_since_ms": None, "clock_ms": None, "read_ms": None}
_SAMPLE_EVERY_S = 30.0
_SAMPLE_WAIT_MS = 1_000
_UNKNOWN_BYTES = 1_024.0
NOT_CUT: Final = -1

QueueRangeElement = tuple[str, str, int, int, int, bool]
"""Topic, broker, queue, first offset, the offset after the last one, and whether the read may stop before that."""
Position = Mapping[str, Any]
"""When the read began (`began_ms`, Unix milliseconds); queues that existed then and whose broker has not answered since
(`waiting`); queues that were found later and whose broker does not answer (`away`); and `queues` by their text: where
the read of the queue began (`from`), where it is read to (`at`), where it ends (`stop`, if it does), the broker's end
(`end`), since when nothing is left of it (`idle_since_ms`), how far the clock has moved its watermark (`clock_ms`), and
when it was last read to its end (`read_ms`).

Older checkpoints contain only the content of `queues`."""


class QueuePlanner:
    """Plans the ranges of all queues of a subscription. While a broker is unavailable, its queues do not advance."""

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
        self._may_cut = False
        """Whether the runner permits a cut. False until it asks for a new range: one that is read again is not cut."""
        self._away: set[MessageQueue] = set()
        """Queues that were found after the start, but whose broker does not answer."""
        self._gone: set[str] = set()
        """Queues that were removed, which has been said."""
        self._sizes: dict[str, tuple[float, float]] = {}
        self._pace = None if config.rate_limit is None else PlanPace(config.rate_limit.records_per_second)

    def advance(self, position: Position | None, limits: MicroBatchLimits, until_now: bool) -> Position | None:
        """Return the position to which the next micro-batch reads; None as long as no broker reports where to start.

        Raises `OffsetOutOfRange` if a queue ends before its position: the topic was recreated. Raises `TransportError`
        if the end of a read that ends cannot be found in one look.
        """
        client = shared_client(self._config.factory)
        self._until_now = until_now
        self._may_cut = limits.may_cut
        try:
            state = self._known(client, position, until_now)
        except RmqioError as error:
            ends = self._config.stop is not None or until_now
            if not self._has_begun and (ends or (position is None and isinstance(error, TopicNotExist))):
                raise
            self._pass_over(error)
            return position
        found: dict[str, dict[str, Any]] = state["queues"]
        left: dict[str, int] = {}
        now_ms = int(time.time() * 1000)  # taken before the queries: messages that arrive meanwhile are not older
        reading = [name for name, each in found.items() if each["stop"] is None or each["at"] < each["stop"]]
        for name, end in self._ends(client, {name: found[name] for name in reading}).items():
            each = found[name]
            each["end"] = end
            target = end if each["stop"] is None else min(each["stop"], end)
            if target < each["at"]:
                queue = queue_of(name)
                (minimum,) = client.look_up([OffsetQuery(queue, "min")])
                raise OffsetOutOfRange(queue, each["at"], minimum if isinstance(minimum, int) else 0, target)
            if each["at"] < target:
                left[name] = target - each["at"]
            self._follow_clock(each, now_ms, is_busy=name in left)
        turn = sum(each["at"] for each in found.values())
        for name, share in _shares(left, self._most(client, left, found, limits), turn).items():
            found[name]["at"] += share
            found[name]["read_ms"] = now_ms if share == left[name] else None
        return state

    def shortened(self, position: Position | None, cuts: Mapping[str, int]) -> Position | None:
        """The position with queues moved back to where their read was cut short."""
        if position is None or not cuts:
            return position
        state = _state(position)
        for name, at in cuts.items():
            state["queues"][name] |= {"at": at, "idle_since_ms": None, "read_ms": None}
        return state

    def elements(
        self, begin: Position | None, end: Position | None, again: bool = False
    ) -> Sequence[tuple[QueueRangeElement, float]]:
        """A range for each queue that has something to read. `again`: the range may have been read before."""
        found = []
        began = _queues(begin)
        for name, each in _queues(end).items():
            before = began.get(name, {"at": each["from"]})["at"]
            if before < each["at"]:
                queue = queue_of(name)
                # A range with a stop must not be cut: the read would end without the rest.
                may_cut = each["stop"] is None and self._may_cut and not again
                element = (queue.topic, queue.broker, queue.queue_id, before, each["at"], may_cut)
                found.append((element, float(each["at"] - before)))
        return found

    def partitions(self, position: Position | None) -> Mapping[str, int | None]:
        """The queues, each with the microseconds before which an idle queue has no more messages, or None."""
        unknown = position or {}  # their start is unknown: the watermark must not pass them
        found: dict[str, int | None] = dict.fromkeys([*unknown.get("waiting", ()), *unknown.get("away", ())])
        for name, each in _queues(position).items():
            if self._config.stop is not None and each["at"] >= each["stop"]:
                continue  # at its end: it does not hold back the watermark
            clock = each["clock_ms"]
            found[name] = None if clock is None else clock * 1000
        return found

    def silent(self, position: Position | None) -> Mapping[str, tuple[int, int]]:
        """The queues that are read to their end, even if the filter let nothing through."""
        config, options = self._config, self._config.options
        if config.message_filter.is_all:
            return {}
        queues, counted = _queues(position), self.partitions(position)
        read_ms = {name: each["read_ms"] for name, each in queues.items() if name in counted}
        return {
            name: (1000 * (each - options.max_out_of_orderness_ms), 1000 * options.idle_timeout_ms)
            for name, each in read_ms.items()
            if each is not None
        }

    def has_ended(self, position: Position | None) -> bool:
        """Whether the read has a stop and all queues have been read to it."""
        return self._config.stop is not None and self.is_done(position)

    def is_done(self, position: Position | None) -> bool:
        """Whether all queues have been read to the end of this run."""
        queues = _queues(position)
        if position is None or (not queues and self._config.stop is None and not self._until_now):
            return False
        if position.get("waiting"):
            return False
        return all(each["stop"] is not None and each["at"] >= each["stop"] for each in queues.values())

    def committed(self, position: Position | None, last: bool = False) -> None:
        """Commits the group's offsets, forward only. A failure is logged and repaired by the next commit.

        At most once in `offset_commit_interval_ms` for each queue, except for the `last` commit of a run.

        Raises `GroupOffsetReset` if an operator has reset them and `on_group_reset` is "honour".
        """
        config, group, options = self._config, self._config.committed_group, self._config.options
        if group is None:
            return
        is_last = last or self.is_done(position)
        interval_ms = 0 if is_last else options.offset_commit_interval_ms
        due = {queue_of(name): each["at"] for name, each in _queues(position).items()}
        due = {q: at for q, at in due.items() if is_commit_due(config.factory, group, q, at, interval_ms)}
        if due:
            commit_positions(config.factory, group, due, options.on_group_reset, is_last=is_last)
        raise_reset(config.factory, group)

    def clock(self, position: Position | None) -> None:
        """Nothing: time is real."""

    def lag(self, position: Position | None) -> Mapping[str, int]:
        """The messages that are left, by topic."""
        found: dict[str, int] = {}
        for name, each in _queues(position).items():
            topic = queue_of(name).topic
            found[topic] = found.get(topic, 0) + max(0, each["end"] - each["at"])
        return found

    def _ends(self, client: QueueClient, reading: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """The ends of queues whose brokers answer. The others do not advance, not even with the clock.

        A queue that an operator has removed is one without messages, if it had been read to its end.
        """
        queries = [OffsetQuery(queue_of(name), "max", at_least=each["at"]) for name, each in reading.items()]
        found: dict[str, int] = {}
        for name, end in zip(reading, client.look_up(queries), strict=True):
            if isinstance(end, QueueGone):
                found[name] = self._end_of_gone(end, name, **reading[name])
            elif isinstance(end, RmqioError):
                self._pass_over(end)
            elif end is not None:
                found[name] = end
        return found

    def _end_of_gone(self, error: QueueGone, name: str, *, at: int, end: int, **_: object) -> int:
        topic = queue_of(name).topic
        if at < end:
            left = counted(end - at, "message")
            raise QueueGone(
                f"{error}. It was removed when the read was at offset {at}, with {left} or more left. Give the topic "
                f"its queues again, with 'rmqio topics update {topic} --queues N': the read goes on. To "
                "remove queues, lower --write_queues first, wait until they are read to their ends, then lower --queues"
            )
        if name not in self._gone:
            self._gone.add(name)
            _LOGGER.warning(
                "%s. The read goes on without it from offset %d, its end when it was last seen. What came after that "
                "is read once the topic has this queue again",
                error,
                at,
            )
        return at

    def _known(self, client: QueueClient, position: Position | None, until_now: bool) -> dict[str, Any]:
        """The queues of a position, and those found now."""
        if position is None:
            return self._begin(client, until_now)
        state = _state(position)
        found = state["queues"]
        if self._config.stop is None and not self._has_begun:
            # The previous run may have had a stop at what was there then.
            stops: Mapping[MessageQueue, int | None] = {}
            if until_now:
                self._find_all(client, state)
                stops = self._discovery.stops([queue_of(name) for name in found], client, StopAt.latest())
            for name, each in found.items():
                stop = stops.get(queue_of(name))
                each["stop"] = None if stop is None else max(each["at"], stop)
        self._has_begun = True
        if self._config.stop is None and not until_now:
            try:
                self._find(client, state)
            except RmqioError as error:
                self._pass_over(error)  # known queues are still read
        return state

    def _find_all(self, client: QueueClient, state: dict[str, Any]) -> None:
        """Adds all existing queues, for a run that ends. Raises while a broker does not answer."""
        self._away = set(self._discovery.subscription.find_queues(client, missing_ok=True))
        self._discovered_at = time.monotonic()
        self._add(client, state, may_wait=False)

    def _find(self, client: QueueClient, state: dict[str, Any]) -> None:
        """Adds queues that are new, or whose broker answers again."""
        interval_ms = self._discovery.interval_ms
        if interval_ms > 0 and (time.monotonic() - self._discovered_at) * 1000 >= interval_ms:
            try:
                self._away |= set(self._discovery.subscription.find_queues(client, missing_ok=True))
            finally:
                # Also after a failure: name servers that hang must not hold up each micro-batch.
                self._discovered_at = time.monotonic()
        self._add(client, state, may_wait=True)

    def _add(self, client: QueueClient, state: dict[str, Any], *, may_wait: bool) -> None:
        if state["began_ms"] is None:
            state["began_ms"] = int(time.time() * 1000)
        waiting = [queue_of(name) for name in state["waiting"]]
        # Also those of the checkpoint: by now, the name servers may have forgotten a broker that does not answer.
        self._away.update(map(queue_of, state.get("away", ())))
        queues = [queue for queue in sorted({*waiting, *self._away}) if name_of(queue) not in state["queues"]]
        if not queues:
            self._away.clear()
            state["away"] = []
            return
        state["away"] = [name_of(queue) for queue in queues if queue not in waiting]  # in case the look fails
        found = self._discovery.starts(queues, client, began_ms=state["began_ms"], were_there=waiting)
        gone = without_gone(found)
        starts = known_starts(found, may_wait=may_wait, on_wait=self._pass_over)
        self._away = {queue for queue in found if queue not in starts and queue not in waiting}
        state["away"] = sorted(map(name_of, self._away))
        state["queues"] |= {name_of(queue): _entry(start, None) for queue, start in starts.items()}
        state["waiting"] = [name_of(queue) for queue in waiting if queue not in starts and queue not in gone]
        if starts:
            _LOGGER.info("%s: found %s", self.identity, ", ".join(f"{q} from {at}" for q, at in starts.items()))

    def _begin(self, client: QueueClient, until_now: bool) -> dict[str, Any]:
        began_ms = int(time.time() * 1000)
        discovery = self._discovery
        queues: Collection[MessageQueue] = discovery.subscription.find_queues(client)
        discovery.check_named(list(queues))
        stop_at = self._config.stop or (StopAt.latest() if until_now else None)
        stops: Mapping[MessageQueue, int | None] = {}
        if stop_at is None:
            found = discovery.starts(list(queues), client)
            may_wait = any(isinstance(each, int) for each in found.values())
            starts = known_starts(found, may_wait=may_wait, on_wait=self._pass_over)
        else:
            if self._config.stop is None:  # of one with a stop it was said when the pipeline was submitted
                discovery.warn_if_unread(list(queues), client, stop_at)
            stops = discovery.stops(list(queues), client, stop_at)
            queues = [queue for queue in queues if stops[queue] is not None]
            starts = all_or_error(discovery.starts(queues, client))
        self._discovered_at = time.monotonic()
        self._has_begun = True
        return {
            "began_ms": began_ms,
            "waiting": [name_of(queue) for queue in queues if queue not in starts],
            "away": [],
            "queues": {name_of(queue): _entry(start, stops.get(queue)) for queue, start in starts.items()},
        }

    def _follow_clock(self, each: dict[str, Any], now_ms: int, is_busy: bool) -> None:
        """Lets a queue that has been idle long enough follow the clock, in seconds: each step needs a micro-batch."""
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

    def _most(
        self, client: QueueClient, left: Mapping[str, int], found: Mapping[str, Any], limits: MicroBatchLimits
    ) -> int | None:
        """The most messages that the limits allow. Bytes are estimated from messages that are sampled periodically."""
        limit = limits.max_records
        if limits.max_bytes is not None and left:
            size = max(self._size(client, name, found[name]["at"]) for name in left)
            by_bytes = max(1, int(limits.max_bytes / size))
            limit = by_bytes if limit is None else min(limit, by_bytes)
        if self._pace is not None:
            paced = self._pace.due()
            limit = paced if limit is None else min(limit, paced)
        return limit

    def _size(self, client: QueueClient, name: str, at: int) -> float:
        """The mean stored size in bytes of the next messages of a queue."""
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
            _LOGGER.info("%s: the size of its messages is unknown: %s", name, error)
        finally:
            reader.close()
        self._sizes[name] = (time.monotonic(), size)
        return size

    def _pass_over(self, error: RmqioError) -> None:
        """Raises errors that are not transient. `TopicNotExist` is: a restarting broker's topics leave the routes."""
        if not (isinstance(error, TransportError | TopicNotExist) or getattr(error, "retriable", False)):
            raise error
        if time.monotonic() - self._warned_at > _WARN_EVERY_S:
            self._warned_at = time.monotonic()
            _LOGGER.warning("the read waits: %s", error)


def _queues(position: Position | None) -> Mapping[str, Mapping[str, Any]]:
    """The queues of a position, by name."""
    if position is None:
        return {}
    queues: Mapping[str, Mapping[str, Any]] = position.get("queues", position)
    return queues


def _state(position: Position) -> dict[str, Any]:
    """A mutable copy, in the current form."""
    queues = {name: dict(each) for name, each in _queues(position).items()}
    is_old = "queues" not in position
    began_ms, waiting = (None, []) if is_old else (position["began_ms"], list(position["waiting"]))
    return {"began_ms": began_ms, "waiting": waiting, "away": list(position.get("away", ())), "queues": queues}


def _entry(start: int, stop: int | None) -> dict[str, Any]:
    stop = None if stop is None else max(start, stop)
    return {"from": start, "at": start, "end": start, "stop": stop, **_NOT_YET}


def _shares(left: Mapping[str, int], most: int | None, turn: int) -> dict[str, int]:
    """How much of each queue is read: all of it, or its share of `most`. `turn` varies who gets the remainder."""
    total = sum(left.values())
    if most is None or total <= most:
        return dict(left)
    shares = {name: size * most // total for name, size in left.items()}
    spare = most - sum(shares.values())
    names = random.Random(turn).sample(sorted(left), len(left))
    for name in sorted(names, key=shares.__getitem__):  # smallest shares first: rounding took most from them
        if spare and shares[name] < left[name]:
            shares[name] += 1
            spare -= 1
    return shares


def name_of(queue: MessageQueue) -> str:
    """The queue as text."""
    return f"{queue.topic}/{queue.broker}/{queue.queue_id}"


def queue_of(name: str) -> MessageQueue:
    """The queue for a text of `name_of`; a topic contains no slash."""
    topic, rest = name.split("/", 1)
    broker, number = rest.rsplit("/", 1)
    return MessageQueue(topic, broker, int(number))


# The DoFn that reads planned ranges, on a runner that plans.

_MIN_MICROS = int(MIN_TIMESTAMP.micros)
_CUT_AFTER_S = 2.0
"""The time without a message of a range after which its broker counts as unavailable: other messages wait."""
_LOOK_MS = 1_000
WATERMARKS_TAG = "watermarks"


class _Range(QueueRangeTracker):
    """The rest of a planned range, which is never split."""

    def defer_remainder(self, delay: Any = None) -> None:
        """Continues immediately."""
        self._range = self._left()
        self._taken = 0


class ReadRangesFn(ReadQueueFn):
    """Reads planned ranges to their end, and reports how far each queue's watermark has advanced.

    If the planner permits it, a range is cut short when its broker returns nothing for two seconds, so that the
    micro-batch ends. The rest is reported together with the watermark, and planned again. A range is not cut if an
    earlier attempt may have read more.
    """

    def __init__(self, config: ReadConfig) -> None:
        super().__init__(config)
        self._silent: set[str] = set()
        """Brokers that returned nothing in this bundle: it waits for each of them once."""

    def start_bundle(self) -> None:
        self._silent.clear()
        super().start_bundle()

    def process(self, element: QueueRangeElement, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        topic, broker, queue_id, begin, end, may_cut = element
        attempt = repeats.current_attempt()
        if attempt is not None and attempt.may_be_repeat:
            may_cut = False  # an earlier attempt may have written the rest, which the next one would repeat
        queue = MessageQueue(topic, broker, queue_id)
        tracker, estimator = _Range(QueueRange(begin, end)), QueueWatermarks().new()
        cut_at = NOT_CUT
        read_at = time.monotonic()
        while not tracker.current_restriction().is_done:
            before = tracker.current_restriction().start
            is_away = broker in self._silent
            try:
                yield from self._read(QueueDescriptor(queue), None, tracker, estimator, window)
            except TransportError as error:
                is_away = True  # its reader has retried for long
                _LOGGER.warning("%s: the read waits: %s", queue, error)
            tracker.defer_remainder()
            left = tracker.current_restriction()
            if left.is_done:
                break
            if left.start > before:
                read_at = time.monotonic()
                continue
            if may_cut and (is_away or time.monotonic() - read_at >= _CUT_AFTER_S):
                self._silent.add(broker)
                cut_at = left.start
                _LOGGER.warning("%s: its broker returns nothing; the rest of this micro-batch's range waits", queue)
                break
            self._check_end(queue, before, end)
            assert self._readers is not None
            self._readers.start_bundle()  # otherwise it would not wait again
        # If there is no timestamp, the filter let nothing of the range through.
        if cut_at != NOT_CUT or estimator.get_estimator_state() > _MIN_MICROS:
            learned = max(_MIN_MICROS, estimator.milliseconds * 1000)
            yield beam.pvalue.TaggedOutput(WATERMARKS_TAG, (name_of(queue), learned, cut_at))

    def _pacer(self) -> None:
        """Returns None: the planner has kept the limit."""

    def _follow_clock(self, slot: Any, estimator: QueueWatermark) -> None:
        """Does nothing: the planner does it, so that the result is the same when the range is read again."""

    def _commit(self, queue: Any, position: int, finalizer: Any, finished: bool) -> None:
        """Does nothing: the planner commits after the runner has committed."""

    def _check_end(self, queue: MessageQueue, position: int, end: int) -> None:
        """Raises if the planned range no longer exists: a broker that was killed has lost it."""
        queries = [OffsetQuery(queue, "max", at_least=end), OffsetQuery(queue, "min")]
        maximum, minimum = shared_client(self._config.factory).look_up(queries, timeout_ms=_LOOK_MS)
        # If the broker is unavailable, or only a replica answers that is behind, the reader waits.
        if isinstance(maximum, int) and isinstance(minimum, int) and maximum < end:
            raise OffsetOutOfRange(queue, position, minimum, maximum)
