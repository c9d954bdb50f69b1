"""The stream: Spark asks how far it may read, and keeps those offsets in its checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from rmqio.errors import OffsetOutOfRange, RmqioError, TransportError
from rmqio.interfaces import OffsetLookup, OffsetQuery, QueueClient
from rmqio.lookups import all_or_error, resolve_all
from rmqio.model import MessageQueue
from rmqio.pyspark.options import QueueNumbers, ReadSettings
from rmqio.pyspark.position import Position, as_json
from rmqio.pyspark.ranges import DataLoss, Range, limited, partitions, read_range
from rmqio.start import LateQueue

_LOGGER = logging.getLogger(__name__)
_RETRY_S: Final = 1
_WARN_EVERY_S: Final = 60.0
T = TypeVar("T")


class QueuesLost(RmqioError):
    """Queues of the checkpoint are gone, and the option failOnDataLoss is true."""


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from the offsets in Spark's checkpoint; the start options count for a new query only.

    Queues whose broker does not answer, or is away, stand still while the others are read. Where a queue begins that is
    found later: `StartFrom.resolve`; a new one at its first message.

    Delivery: at least once into Spark's micro-batch, exactly once in what Spark keeps, as of any source that can be
    read again.
    """

    def __init__(self, settings: ReadSettings, names: Sequence[str]) -> None:
        self._settings = settings
        self._names = names
        self._made: QueueClient | None = None
        self._target: QueueNumbers | None = None
        self._initial: dict[str, Any] | None = None
        self._since_ms = int(time.time() * 1000)
        """When the stream began, as far as a checkpoint of an older version says."""
        self._silent: frozenset[MessageQueue] = frozenset()
        """Queues at the last look whose broker did not answer."""
        self._lost_since: dict[MessageQueue, float] = {}
        self._warned_at = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}  # tasks make clients of their own

    @property
    def _client(self) -> QueueClient:
        if self._made is None:
            self._made = self._settings.factory.queue_client()
        return self._made

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = self._patiently(self._begins).as_json()
        return self._initial

    def _begins(self) -> Position:
        began_ms = int(time.time() * 1000)
        queues = self._settings.subscription.find_queues(self._client)
        self._settings.start.check(queues)
        begins = self._starts(queues, None)
        waiting = frozenset(queue for queue in queues if queue not in begins)
        return Position(begins, began_ms, waiting, is_new=True)

    def _starts(self, queues: Sequence[MessageQueue], found_later: Position | None) -> QueueNumbers:
        """Where queues begin, as far as their brokers answer. Raises `TransportError` if none does."""

        def resolve(queue: MessageQueue, lookup: OffsetLookup) -> int:
            late = None
            if found_later is not None:
                began_ms = found_later.began_ms or self._since_ms
                late = LateQueue(began_ms, None if queue in found_later.waiting else "earliest")
            return self._settings.start.resolve(queue, lookup, late)

        found = resolve_all(queues, self._client, resolve)
        for error in found.values():
            if isinstance(error, OffsetOutOfRange):
                raise DataLoss(error) from error
        return self._answered(found)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._settings.max_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._patiently(self._all_ends)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        position = Position.of(start)
        begun = position.numbers
        ends = self._patiently(lambda: self._checked_ends(begun))
        if self._target is not None:
            ends = self._until_target(begun, ends, self._target)
        ranges = {queue: (self._begin(queue, begun, end), end) for queue, end in ends.items() if queue in begun}
        if isinstance(limit, ReadMaxRows):
            reached = begun | limited(ranges, limit.max_rows)
        else:
            reached = begun | {queue: max(begin, end) for queue, (begin, end) in ranges.items()}
        found = self._found(position, [queue for queue in ends if queue not in begun])
        reached |= found
        if reached == begun:
            return start  # word for word, by which Spark sees that there is nothing new
        first = begun if position.is_new else None
        began_ms = position.began_ms or self._since_ms
        return Position(reached, began_ms, position.waiting.difference(found), first=first).as_json()

    def _found(self, position: Position, queues: Sequence[MessageQueue]) -> QueueNumbers:
        """Where queues begin that are not known yet: what is in them is read from the next micro-batch on."""
        if not queues:
            return {}
        try:
            found = self._starts(queues, position)
        except RmqioError as error:
            if not _passes(error):
                raise
            self._warn(error)
            return {}
        _LOGGER.info("found %s", ", ".join(f"{queue} from {begin}" for queue, begin in found.items()))
        return found

    def reportLatestOffset(self) -> dict[str, Any] | None:
        try:
            return as_json(self._ends({}))
        except RmqioError as error:  # a figure of the progress only: whether the query goes on is not decided here
            _LOGGER.info("the latest offsets are not known: %s", error)
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        # Spark asks anew where a new stream begins until its first micro-batch is done: what was planned holds
        until, settings = Position.of(end), self._settings
        begun = Position.of(start).numbers if until.first is None else until.first
        if start == end:
            begun = until.numbers
        # A queue that was found by this micro-batch's planning is read from the next one on; not so in older versions
        queues = {q: stop for q, stop in until.numbers.items() if q in begun or until.began_ms is None}
        ranges = {queue: (self._begin(queue, begun, stop), stop) for queue, stop in queues.items()}
        return partitions(ranges, settings.min_partitions, settings.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return iter(())  # Spark runs a task also where there are no partitions
        return read_range(self._settings, partition, self._names)

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Asks again while brokers are restarted or busy, for as long as a reader would wait for one."""
        deadline = time.monotonic() + self._settings.outage_timeout_s
        while True:
            try:
                return ask()
            except RmqioError as error:
                if not _passes(error) or time.monotonic() > deadline:
                    raise
                _LOGGER.warning("asks again in %d s: %s", _RETRY_S, error)
                time.sleep(_RETRY_S)

    def _checked_ends(self, begun: QueueNumbers) -> QueueNumbers:
        """The ends of the queues that can be read now. Those of a broker that is away stand still.

        Raises `QueuesLost` when some that have been read are gone, though their broker is there, for as long as a
        restart may take. `TransportError`: there is nothing else that could be read.
        """
        ends = self._ends(begun)
        now = time.monotonic()
        there = {*ends, *self._silent}
        lost = self._gone(sorted(set(begun) - there))
        self._lost_since = {queue: self._lost_since.get(queue, now) for queue in lost}
        if lost:
            error = QueuesLost(
                f"{', '.join(map(str, lost))} cannot be read any more: the topic was deleted, has fewer "
                "queues, or is not subscribed to any more. Set failOnDataLoss to false to go on with the others"
            )
            is_over = now - min(self._lost_since.values()) > self._settings.outage_timeout_s
            if self._settings.fail_on_data_loss and is_over:
                raise error
            if self._settings.fail_on_data_loss and not there:
                raise TransportError(str(error)) from error  # a broker that is restarted may bring them back
            self._warn(error)
        return ends

    def _gone(self, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Those whose broker is there, and has them no more."""
        if not queues:
            return []
        answers = self._client.look_up([OffsetQuery(queue, "min") for queue in queues])
        for error in answers:
            if isinstance(error, TransportError):
                self._warn(error)
        return [q for q, each in zip(queues, answers, strict=True) if not isinstance(each, TransportError)]

    def _ends(self, begun: QueueNumbers) -> QueueNumbers:
        """The ends of all queues whose brokers answer. Raises `TransportError` if none does."""
        queues = self._settings.subscription.find_queues(self._client, missing_ok=True)
        queries = [OffsetQuery(queue, "max", at_least=begun.get(queue, 0)) for queue in queues]
        answers = self._client.look_up(queries)
        found = self._answered(dict(zip(queues, answers, strict=True)))
        self._silent = frozenset(queues) - set(found)
        return found

    def _all_ends(self) -> QueueNumbers:
        """The ends of all queues. Raises `TransportError` unless all brokers answer."""
        queues = self._settings.subscription.find_queues(self._client, missing_ok=True)

        def end(queue: MessageQueue, lookup: OffsetLookup) -> int:
            return lookup.max_offset(queue)

        return all_or_error(resolve_all(queues, self._client, end))

    def _answered(self, found: Mapping[MessageQueue, int | RmqioError | None]) -> QueueNumbers:
        """What was found, without queues whose broker does not answer, unless that is so of all of them."""
        answered = {queue: number for queue, number in found.items() if isinstance(number, int)}
        for error in found.values():
            if not isinstance(error, RmqioError):
                continue
            if not answered or not _passes(error):
                raise error
            self._warn(error)
        return answered

    def _warn(self, error: RmqioError) -> None:
        """Says, now and then, what some queues wait for."""
        if time.monotonic() - self._warned_at > _WARN_EVERY_S:
            self._warned_at = time.monotonic()
            _LOGGER.warning("some queues wait: %s", error)

    def _until_target(self, begun: QueueNumbers, ends: QueueNumbers, target: QueueNumbers) -> QueueNumbers:
        """The target; with queues whose broker was away when it was set, and those that begin behind it.

        Reading may begin behind it at "latest", which is asked for a moment later.
        """
        target |= {queue: ends[queue] for queue in (set(begun) - set(target)) & set(ends)}
        behind = {
            queue for queue, end in target.items() if end < begun.get(queue, 0) <= ends.get(queue, begun.get(queue, 0))
        }
        return {queue: begun[queue] if queue in behind else end for queue, end in target.items()}

    def _begin(self, queue: MessageQueue, begun: QueueNumbers, end: int) -> int:
        """Where reading goes on: at the first message in a queue that is new, or that was made anew."""
        begin = begun.get(queue)
        if begin is not None and begin <= end:
            return begin
        first = self._patiently(lambda: {queue: self._client.min_offset(queue)})[queue]
        if begin is not None:
            error = DataLoss(OffsetOutOfRange(queue, begin, first, end))
            if self._settings.fail_on_data_loss:
                raise error
            _LOGGER.warning("%s", error)
        return first


def _passes(error: RmqioError) -> bool:
    """Whether it may pass by itself: a broker that is away, or busy."""
    return isinstance(error, TransportError) or error.retriable
