"""From what the user named to queues: once, or again and again."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration

from rmqio.errors import RmqioError, WireError
from rmqio.model import MessageQueue
from rmqio.options import OffsetPolicy
from rmqio.seams import ClientFactory, QueueClient
from rmqio.start import StartFrom, StopAt
from rmqio.subscription import Subscription
from rmqio.transforms.descriptor import QueueDescriptor
from rmqio.transforms.shared import shared_client
from rmqio.transforms.watermark import QueueWatermarks

_LOGGER = logging.getLogger(__name__)
_MAX_RESUME_MS = 1_000


@dataclass(frozen=True)
class DiscoveryConfig:
    """What is looked for, and how. `start` and `stop` are needed to share out a record limit."""

    subscription: Subscription
    factory: ClientFactory
    group: str | None
    start: StartFrom
    stop: StopAt | None
    max_num_records: int | None = None
    interval_ms: int = 30_000
    new_queue_start: str = "earliest"
    on_out_of_range: OffsetPolicy = "fail"
    on_timestamp_after_end: Literal["latest", "fail"] = "latest"


def names_topic(subscription: Subscription, topic: str) -> bool:
    """Whether a topic of that name would be read."""
    if subscription.pattern:
        return re.compile(subscription.pattern, subscription.flags).fullmatch(topic) is not None
    return topic in subscription.topics or any(queue.topic == topic for queue in subscription.queues)


def share_limit(limit: int, available: Sequence[int | None]) -> list[int]:
    """Shares that add up to `limit` where enough is there, as even as what each queue has permits (None: no end)."""
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


class DiscoverFn(beam.DoFn):
    """An impulse to the descriptors of the subscription's queues, once."""

    def __init__(self, config: DiscoveryConfig) -> None:
        self._config = config

    def process(self, element: bytes) -> Iterator[QueueDescriptor]:
        client = shared_client(self._config.factory)
        queues = self._config.subscription.find_queues(client)
        if not queues:
            _LOGGER.warning("%s: there is no queue to read", self._config.subscription)
        yield from describe(queues, client, self._config)


def describe(queues: Sequence[MessageQueue], client: QueueClient, config: DiscoveryConfig) -> Iterator[QueueDescriptor]:
    """The queues' descriptors, with their shares of the record limit if there is one."""
    if config.max_num_records is None:
        yield from (QueueDescriptor(queue) for queue in queues)
        return
    limit = config.max_num_records
    shares = share_limit(limit, [_available(queue, client, config) for queue in queues])
    if config.stop is None and sum(shares) < limit:
        # What is there does not suffice: wait for the rest, and nobody knows in which queues it will come.
        missing = share_limit(limit - sum(shares), [None] * len(queues))
        shares = [share + more for share, more in zip(shares, missing, strict=True)]
    for queue, share in zip(queues, shares, strict=True):
        if share:
            yield QueueDescriptor(queue, limit=share)


def _available(queue: MessageQueue, client: QueueClient, config: DiscoveryConfig) -> int:
    """How many offsets the queue has to give now."""
    stop = client.max_offset(queue) if config.stop is None else config.stop.resolve(queue, client)
    if stop is None:
        return 0
    start = config.start.resolve(
        queue,
        client,
        group=config.group,
        on_out_of_range=config.on_out_of_range,
        on_timestamp_after_end=config.on_timestamp_after_end,
    )
    return max(0, stop - start)


class Known(frozenset[MessageQueue]):
    """The restriction of discovery: the queues that have been found so far. It grows and never ends."""

    def __bool__(self) -> bool:
        # Beam drops a residual that is false: a search that has found nothing yet would end for good.
        return True

    @property
    def is_empty(self) -> bool:
        return len(self) == 0


class KnownCoder(Coder):
    """One line per queue, sorted."""

    def encode(self, value: Known) -> bytes:
        return "\n".join(f"{q.queue_id}\t{q.broker}\t{q.topic}" for q in sorted(value)).encode()

    def decode(self, encoded: bytes) -> Known:
        lines = (line.split("\t", 2) for line in encoded.decode("utf-8", "replace").split("\n") if line)
        try:
            return Known(MessageQueue(topic, broker, int(number)) for number, broker, topic in lines)
        except ValueError as error:
            raise WireError(f"not a set of queues: {error}") from error

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return Known


class KnownTracker(RestrictionTracker):
    """Claims newly found queues; what is left after a checkpoint is "all that is not known yet"."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._checkpointed = False

    def current_restriction(self) -> Known:
        return self._known

    def try_claim(self, position: Iterable[MessageQueue]) -> bool:
        if self._checkpointed:
            return False
        self._known = Known(self._known | frozenset(position))
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


class WatchFn(beam.DoFn, RestrictionProvider):
    """An impulse to the descriptors of the subscription's queues, again every `interval_ms`, each queue once.

    What is known already is in the restriction, so a restored pipeline does not read a queue twice. A queue found
    after the first look starts where `new_queue_start` says, whatever the start strategy. Needs a runner that honours
    resume delays and runs what follows meanwhile; the in-process one does neither.

    The output watermark follows the clock (it would hold back all reads), so it resumes every second even where the
    interval is longer; what a queue still has to give is held by its own read.
    """

    def __init__(self, config: DiscoveryConfig) -> None:
        self._config = config
        self._looked_at = float("-inf")
        self._has_looked = False
        """A queue found after a look that found nothing is a late one, too: what it holds came after the start."""

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
        now = time.time()
        if known.is_empty or (time.monotonic() - self._looked_at) * 1000 >= self._config.interval_ms:
            self._looked_at = time.monotonic()
            found = self._look(known)
            if found and tracker.try_claim(found):
                for descriptor in self._describe(found, is_late=self._has_looked or not known.is_empty):
                    yield beam.window.TimestampedValue(descriptor, MIN_TIMESTAMP)
            self._has_looked = True
        if not tracker.current_restriction().is_empty:
            estimator.advance(int(now * 1000))
        tracker.defer_remainder(Duration(micros=min(self._config.interval_ms, _MAX_RESUME_MS) * 1000))

    def _look(self, known: Known) -> list[MessageQueue]:
        try:
            client = shared_client(self._config.factory)
            return [
                q
                for q in self._config.subscription.find_queues(client, missing_ok=not known.is_empty)
                if q not in known
            ]
        except RmqioError as error:
            if known.is_empty:
                raise
            # The queues that are known are read on; the next look may succeed.
            _LOGGER.warning("%s: queues could not be looked up: %s", self._config.subscription, error)
            return []

    def _describe(self, found: Sequence[MessageQueue], *, is_late: bool) -> Iterable[QueueDescriptor]:
        config = self._config
        if not is_late:
            return describe(found, shared_client(config.factory), config)
        start = StartFrom.latest() if config.new_queue_start == "latest" else StartFrom.earliest()
        _LOGGER.info("%s: found %d new queues: %s", config.subscription, len(found), ", ".join(map(str, found)))
        return (QueueDescriptor(queue, start=start) for queue in found)


__all__ = ["DiscoverFn", "DiscoveryConfig", "Subscription", "WatchFn", "describe", "share_limit"]
