"""Discovery of the queues of a subscription, once or periodically, and of the queues that elements ask for."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration

from rmqio.errors import QueueNotReadable, RmqioError, TopicNotExist, TransportError, WireError
from rmqio.interfaces import ClientFactory, OffsetLookup, QueueClient
from rmqio.model import MessageQueue
from rmqio.options import OffsetPolicy
from rmqio.start import LateQueue, StartFrom, StopAt, all_or_error, check_named, resolve_all, unread
from rmqio.topics import Subscription, validate_queue, validate_subscription
from rmqio.transforms.reading.options import ReadConfig
from rmqio.transforms.reading.restriction import QueueDescriptor, QueueWatermarks
from rmqio.transforms.shared import shared_client

# The queues of an endless read: those that it has found, and those that wait for their broker.

_BEGAN = "began\t"
_WAITING = "waiting\t"
_AWAY = "away\t"


class Look(NamedTuple):
    """The result of one look of an endless read."""

    starts: Mapping[MessageQueue, int]
    """The new queues, and where each starts."""
    began_ms: int | None
    """When the read began; None: not known yet."""
    waiting: frozenset[MessageQueue] = frozenset()
    """Queues that existed when the read began, but whose broker has not answered since."""
    away: frozenset[MessageQueue] = frozenset()
    """Queues that were found later, and whose broker does not answer."""
    is_waiting: bool = False
    """Whether the broker of any queue does not answer: look again soon."""


class Known(frozenset[MessageQueue]):
    """The restriction of discovery: the queues that have been found so far. It grows and never ends."""

    began_ms: int | None
    """Unix milliseconds of the first look; None: there was none yet, or the state is of an older version."""

    waiting: frozenset[MessageQueue]
    """Queues that the first look saw, but whose broker has not answered since. They are not among the known ones."""

    away: frozenset[MessageQueue]
    """Queues that a later look saw, but whose broker has not answered since. They are not among the known ones."""

    def __new__(
        cls,
        queues: Iterable[MessageQueue] = (),
        began_ms: int | None = None,
        waiting: Iterable[MessageQueue] = (),
        away: Iterable[MessageQueue] = (),
    ) -> Self:
        known = super().__new__(cls, queues)
        known.began_ms, known.waiting, known.away = began_ms, frozenset(waiting), frozenset(away)
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        return Known, (tuple(self), self.began_ms, tuple(self.waiting), tuple(self.away))

    def __bool__(self) -> bool:
        # Beam drops a residual that is false: a discovery that has found nothing yet would end forever.
        return True

    def after(self, found: Look) -> Known:
        """The state after a look."""
        return Known(self | frozenset(found.starts), found.began_ms, found.waiting, found.away)

    @property
    def is_empty(self) -> bool:
        return len(self) == 0


class KnownCoder(Coder):
    """The time of the first look, then one line per queue, sorted. Queues whose broker does not answer are marked."""

    def encode(self, value: Known) -> bytes:
        lines = [] if value.began_ms is None else [f"{_BEGAN}{value.began_ms}"]
        lines += [f"{q.queue_id}\t{q.broker}\t{q.topic}" for q in sorted(value)]
        lines += [f"{_WAITING}{q.queue_id}\t{q.broker}\t{q.topic}" for q in sorted(value.waiting)]
        lines += [f"{_AWAY}{q.queue_id}\t{q.broker}\t{q.topic}" for q in sorted(value.away)]
        return "\n".join(lines).encode()

    def decode(self, encoded: bytes) -> Known:
        lines = [line for line in encoded.decode("utf-8", "replace").split("\n") if line]
        try:
            began_ms = int(lines.pop(0).removeprefix(_BEGAN)) if lines and lines[0].startswith(_BEGAN) else None
            waiting, away = (
                [_queue(line.removeprefix(mark)) for line in lines if line.startswith(mark)]
                for mark in (_WAITING, _AWAY)
            )
            known = [_queue(line) for line in lines if not line.startswith((_WAITING, _AWAY))]
            return Known(known, began_ms, waiting, away)
        except ValueError as error:
            raise WireError(f"not a set of queues: {error}") from error

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return Known


def _queue(line: str) -> MessageQueue:
    number, broker, topic = line.split("\t", 2)
    return MessageQueue(topic, broker, int(number))


class KnownTracker(RestrictionTracker):
    """Claims the state after a look. The residual of a checkpoint is "everything that is not known yet"."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._checkpointed = False

    def current_restriction(self) -> Known:
        return self._known

    def try_claim(self, position: Known) -> bool:
        if self._checkpointed:
            return False
        self._known = position
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[Known, Known] | None:
        if self._checkpointed or fraction_of_remainder > 0:
            return None
        self._checkpointed = True
        return self._known, self._known

    def check_done(self) -> None:
        if not self._checkpointed:
            raise ValueError("discovery of queues ended without a checkpoint")

    def is_bounded(self) -> bool:
        return False

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(completed=float(len(self._known)), remaining=1.0)


_LOGGER = logging.getLogger(__name__)
_MAX_RESUME_MS = 1_000
_OF_GROUP = "give start=StartFrom.group_offsets(reset='earliest')"
_WARN_EVERY_S = 60.0
_warned_at: dict[str, float] = {}
"""By subscription: when this process last logged that queues wait."""


@dataclass(frozen=True)
class DiscoveryConfig:
    """The subscription, how to look for its queues, and each queue's start and end."""

    subscription: Subscription
    factory: ClientFactory
    group: str | None
    start: StartFrom
    stop: StopAt | None
    max_num_records: int | None = None
    interval_ms: int = 30_000
    new_queue_start: Literal["earliest", "latest"] = "earliest"
    on_out_of_range: OffsetPolicy = "fail"
    on_timestamp_after_end: Literal["latest", "fail"] = "latest"
    start_advice: str | None = None
    """What to give if the read can read nothing, in the words of whoever built the pipeline; None: in Python."""
    is_checked: bool = False
    """Whether the runner looks, when the pipeline is submitted, for a read that can read nothing."""

    def check_named(self, queues: Sequence[MessageQueue]) -> None:
        """Raises `LocalError` if the start or the stop names a queue that is not among these.

        A pattern can match topics that do not exist yet, so queues of such topics can be named.
        """
        self._check(self.start.named, queues, "start=StartFrom.specific_offsets(...)")
        if self.stop is not None:
            self._check(self.stop.named, queues, "stop=StopAt.offsets(...)")

    def _check(self, named: Iterable[MessageQueue], queues: Sequence[MessageQueue], what: str) -> None:
        there = {queue.topic for queue in queues}
        coming = [q for q in named if self.subscription.pattern and q.topic not in there and self._names(q.topic)]
        if coming:
            _LOGGER.warning("%s has an offset for %s, whose topic does not exist yet", what, coming[0])
        check_named([queue for queue in named if queue not in coming], queues, what)

    def _names(self, topic: str) -> bool:
        return names_topic(self.subscription, topic)

    def starts(
        self,
        queues: Sequence[MessageQueue],
        client: QueueClient,
        *,
        began_ms: int | None = None,
        were_there: Collection[MessageQueue] = (),
    ) -> dict[MessageQueue, int | RmqioError]:
        """Return each queue's start, or the error that prevents an answer. All queues are looked up at once.

        `began_ms`: these queues are late, and the read began at this time (Unix milliseconds). None: it begins now.
        `were_there`: queues that existed at that time, but whose broker did not answer.
        """

        def resolve(queue: MessageQueue, lookup: OffsetLookup) -> int:
            late = None
            if began_ms is not None:
                late = LateQueue(began_ms, None if queue in were_there else self.new_queue_start)
            return self.start.resolve(
                queue,
                lookup,
                group=self.group,
                on_out_of_range=self.on_out_of_range,
                on_timestamp_after_end=self.on_timestamp_after_end,
                late=late,
            )

        return resolve_all(queues, client, resolve)

    def warn_if_unread(self, queues: Sequence[MessageQueue], client: QueueClient, stop: StopAt | None = None) -> None:
        """As the function, for these queues of the subscription. `stop`: of this run, if the read has none."""
        stop = self.stop or stop
        if stop is not None:
            what, advice = str(self.subscription), self.start_advice
            warn_if_unread(what, queues, client, start=self.start, stop=stop, group=self.group, advice=advice)

    def stops(
        self, queues: Sequence[MessageQueue], client: QueueClient, stop: StopAt
    ) -> dict[MessageQueue, int | None]:
        """Return each queue's end; None: it is not read. Raises the first error after one look."""
        return all_or_error(resolve_all(queues, client, stop.resolve))


def known_starts(
    found: Mapping[MessageQueue, int | RmqioError], *, may_wait: bool, on_wait: Callable[[RmqioError], object]
) -> dict[MessageQueue, int]:
    """The known starts. With `may_wait`, queues whose broker does not answer are left out: ask again later.

    `on_wait` is called with the error of one of those. Raises errors that are not transient; without `may_wait`, all.
    """
    starts: dict[MessageQueue, int] = {}
    away: RmqioError | None = None
    for queue, each in found.items():
        if not isinstance(each, RmqioError):
            starts[queue] = each
        elif may_wait and (isinstance(each, TransportError) or each.retriable):
            away = each
        else:
            raise each
    if away is not None:
        on_wait(away)
    return starts


def without_gone(found: dict[MessageQueue, int | RmqioError]) -> set[MessageQueue]:
    """Removes and returns the queues that were deleted after they had been seen, or that readers may not read now."""
    gone = {queue for queue, each in found.items() if isinstance(each, (TopicNotExist, QueueNotReadable))}
    for queue in gone:
        _LOGGER.warning("%s is no longer there to read: %s", queue, found.pop(queue))
    return gone


def names_topic(subscription: Subscription, topic: str) -> bool:
    """Whether a topic with this name is read."""
    if subscription.pattern:
        return re.compile(subscription.pattern, subscription.flags).fullmatch(topic) is not None
    return topic in subscription.topics or any(queue.topic == topic for queue in subscription.queues)


def share_limit(limit: int, available: Sequence[int | None]) -> list[int]:
    """Shares that add up to `limit` if enough is available, as even as each queue's backlog permits (None: no end)."""
    shares = [0] * len(available)
    left = limit
    while left > 0:
        open_ones = [i for i, most in enumerate(available) if most is None or shares[i] < most]
        if not open_ones:
            break
        each = max(1, left // len(open_ones))
        for i in open_ones:
            most = available[i]
            more = min(each, left) if most is None else min(each, left, most - shares[i])
            shares[i] += more
            left -= more
    return shares


def warn_if_unread(
    what: str,
    queues: Sequence[MessageQueue],
    client: QueueClient,
    *,
    start: StartFrom,
    stop: StopAt,
    group: str | None,
    advice: str | None,
) -> bool:
    """Logs a warning, and returns True, if queues of `what` hold messages, and the read can read none of these.

    `advice`: what to give, in the words of whoever built the pipeline; None: in Python.
    """
    if not start.may_begin_at_end:
        return False

    def begins_at_end(queue: MessageQueue, lookup: OffsetLookup) -> bool:
        return start.begins_at_end(queue, lookup, group)

    by = group if start.needs_group else None
    advice = advice or ("give start=StartFrom.earliest()" if by is None else _OF_GROUP)
    why = unread(what, queues, client, begins_at_end=begins_at_end, stop=stop.resolve, group=by, advice=advice)
    if why:
        _LOGGER.warning("%s", why)
    return bool(why)


class DiscoverFn(beam.DoFn):
    """Emits the descriptors of the subscription's queues once, for an impulse."""

    def __init__(self, config: DiscoveryConfig) -> None:
        self._config = config

    def process(self, element: bytes) -> Iterator[QueueDescriptor]:
        client = shared_client(self._config.factory)
        queues = self._config.subscription.find_queues(client)
        if not queues:
            _LOGGER.warning("%s: there are no queues to read", self._config.subscription)
        if not self._config.is_checked:
            self._config.warn_if_unread(queues, client)
        yield from describe(queues, client, self._config)


def describe(queues: Sequence[MessageQueue], client: QueueClient, config: DiscoveryConfig) -> Iterator[QueueDescriptor]:
    """The queues' descriptors: where each starts and ends, and its share of the record limit if there is one.

    Raises `LocalError` for a start or stop that names another queue, and the first broker's error after one look.
    """
    config.check_named(queues)
    stops: Mapping[MessageQueue, int | None] = {}
    if config.stop is not None:
        stops = config.stops(queues, client, config.stop)
        queues = [queue for queue in queues if stops[queue] is not None]
    starts = all_or_error(config.starts(queues, client))
    shares: Sequence[int | None] = [None] * len(queues)
    if config.max_num_records is not None:
        shares = _shares(config.max_num_records, queues, client, config, starts, stops)
    for queue, share in zip(queues, shares, strict=True):
        if share == 0:
            continue
        stop = stops.get(queue)
        yield QueueDescriptor(
            queue,
            StartFrom.resolved(queue, starts[queue]),
            None if stop is None else StopAt.offsets({queue: stop}),
            share,
        )


def _shares(
    limit: int,
    queues: Sequence[MessageQueue],
    client: QueueClient,
    config: DiscoveryConfig,
    starts: Mapping[MessageQueue, int],
    stops: Mapping[MessageQueue, int | None],
) -> list[int]:
    ends = stops if config.stop is not None else config.stops(queues, client, StopAt.latest())
    shares = share_limit(limit, [max(0, (ends[queue] or 0) - starts[queue]) for queue in queues])
    if config.stop is None and sum(shares) < limit:
        # Not enough is available: wait for the rest, which can arrive in any queue.
        missing = share_limit(limit - sum(shares), [None] * len(queues))
        shares = [share + more for share, more in zip(shares, missing, strict=True)]
    return shares


class WatchFn(beam.DoFn, RestrictionProvider):
    """Emits the descriptors of the subscription's queues, and looks again every `interval_ms`. Each queue comes once.

    The known queues are in the restriction, so a restored pipeline does not read a queue twice. Each descriptor says
    where its queue starts (`StartFrom.resolve`). A queue whose broker does not answer waits for a later look. Needs a
    runner that honours resume delays and runs the following steps meanwhile; the in-process runner does neither.

    The output watermark follows the clock, because it would otherwise hold back all reads. The DoFn therefore resumes
    every second, even if the interval is longer. Each queue's own read holds back its messages. While a queue waits for
    its broker, the watermark does not advance.
    """

    def __init__(self, config: DiscoveryConfig) -> None:
        self._config = config
        self._looked_at = float("-inf")
        self._is_waiting = False
        """Whether the last look found a queue whose broker did not answer."""

    def initial_restriction(self, element: bytes) -> Known:
        return Known()

    def create_tracker(self, restriction: Known) -> KnownTracker:
        return KnownTracker(restriction)

    def restriction_coder(self) -> KnownCoder:
        return KnownCoder()

    def restriction_size(self, element: bytes, restriction: Known) -> float:
        return 1.0

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        element: bytes,
        tracker: Any = beam.DoFn.RestrictionParam(),  # noqa: B008
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(QueueWatermarks()),  # noqa: B008
    ) -> Iterator[Any]:
        known = tracker.current_restriction()
        clock_ms = now_ms()
        is_due = (time.monotonic() - self._looked_at) * 1000 >= self._config.interval_ms
        if known.is_empty or self._is_waiting or is_due:
            self._looked_at = time.monotonic()
            found = look(self._config, shared_client(self._config.factory), known, was_waiting=self._is_waiting)
            self._is_waiting = found.is_waiting
            if tracker.try_claim(known.after(found)):
                for queue, start in found.starts.items():
                    descriptor = QueueDescriptor(queue, StartFrom.resolved(queue, start))
                    yield beam.window.TimestampedValue(descriptor, MIN_TIMESTAMP)
        if not tracker.current_restriction().is_empty and not self._is_waiting:
            estimator.advance(clock_ms)
        tracker.defer_remainder(Duration(micros=min(self._config.interval_ms, _MAX_RESUME_MS) * 1000))


def now_ms() -> int:
    """Unix milliseconds."""
    return int(time.time() * 1000)


def look(config: DiscoveryConfig, client: QueueClient, known: Known, *, was_waiting: bool = False) -> Look:
    """Looks for queues. Transient errors are logged; at the first look, they are raised if nothing can be read.

    `was_waiting`: whether the look before this one found a queue whose broker did not answer.
    """
    is_first = known.began_ms is None and known.is_empty
    # Set before the look, so that queues added in the meantime are new.
    began_ms = now_ms() if known.began_ms is None else known.began_ms
    try:
        there = config.subscription.find_queues(client, missing_ok=not is_first)
    except RmqioError as error:
        if is_first:
            raise
        # Known queues are still read; the next look may succeed.
        _LOGGER.warning("%s: queues could not be looked up: %s", config.subscription, error)
        is_waiting = was_waiting or bool(known.waiting or known.away)
        return Look({}, known.began_ms, known.waiting, known.away, is_waiting)
    if is_first:
        config.check_named(there)
    # Also those that were found before: the name servers may have forgotten a broker that does not answer.
    queues = [queue for queue in sorted({*there, *known.waiting, *known.away}) if queue not in known]
    found = config.starts(queues, client, began_ms=None if is_first else began_ms, were_there=known.waiting)
    gone = set() if is_first else without_gone(found)

    def say(error: RmqioError) -> None:
        what, now = str(config.subscription), time.monotonic()
        if now - _warned_at.get(what, float("-inf")) >= _WARN_EVERY_S:  # there is a look every second
            _warned_at[what] = now
            _LOGGER.warning("%s: queues wait for a broker that does not answer: %s", what, error)

    may_wait = not is_first or any(isinstance(each, int) for each in found.values())
    starts = known_starts(found, may_wait=may_wait, on_wait=say)
    if starts and not is_first:
        names = ", ".join(f"{queue} from {start}" for queue, start in starts.items())
        _LOGGER.info("%s: found %d more queues: %s", config.subscription, len(starts), names)
    silent = [queue for queue in found if queue not in starts]
    waiting = frozenset(silent) if is_first else known.waiting.difference(starts, gone)
    return Look(starts, began_ms, waiting, frozenset(silent) - waiting, bool(silent))


# Converts the elements of `ReadAllFromRocketMQ` to queues to read.


class DescribeFn(beam.DoFn):
    """Converts an element of `ReadAllFromRocketMQ` to descriptors.

    The transform's start and stop can name queues of any topic that arrives. For a topic that has arrived, named queues
    that do not exist are refused. An instance says once that what has arrived is not read: see `warn_if_unread`.
    """

    def __init__(self, config: ReadConfig, start_advice: str | None = None) -> None:
        self._factory = config.factory
        self._config, self._advice = config, start_advice
        self._has_warned = False
        self._named = (
            ("start=StartFrom.specific_offsets(...)", config.start.named),
            ("stop=StopAt.offsets(...)", () if config.stop is None else config.stop.named),
        )
        self._checked: set[str] = set()

    def process(self, element: str | MessageQueue | QueueDescriptor) -> Iterable[QueueDescriptor]:
        client = shared_client(self._factory)
        if isinstance(element, QueueDescriptor):
            validate_queue(element.queue)
            self._check(element.queue.topic, client)
            self._warn(str(element.queue), [element.queue], client, element)
            return [element]
        what = Subscription.of(element)
        validate_subscription(what)
        queues = what.find_queues(client)
        for topic in sorted({queue.topic for queue in queues}):
            self._check(topic, client)
        self._warn(str(what), queues, client)
        return [QueueDescriptor(queue) for queue in queues]

    def _warn(
        self, what: str, queues: list[MessageQueue], client: QueueClient, own: QueueDescriptor | None = None
    ) -> None:
        config = self._config
        start, stop = (own and own.start) or config.start, (own and own.stop) or config.stop
        if stop is None or self._has_warned:
            return
        self._has_warned = warn_if_unread(
            what, queues, client, start=start, stop=stop, group=config.group, advice=self._advice
        )

    def _check(self, topic: str, client: QueueClient) -> None:
        if topic in self._checked:
            return
        for what, named in self._named:
            of_topic = [queue for queue in named if queue.topic == topic]
            if of_topic:
                check_named(of_topic, client.queues(topic), what)
        self._checked.add(topic)
