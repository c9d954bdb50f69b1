"""The streaming reader: Spark asks how far it can read, and keeps those offsets in its checkpoint."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rmqio.errors import CommitIgnored, OffsetOutOfRange, RmqioError, TransportError
from rmqio.interfaces import OffsetLookup, OffsetQuery, QueueClient
from rmqio.model import MessageQueue
from rmqio.pyspark.progress import Position, as_json
from rmqio.pyspark.ranges import DataLoss, Range, limited, partitions, read_range
from rmqio.pyspark.read_options import QueueNumbers, ReadSettings
from rmqio.start import LateQueue, all_or_error, resolve_all
from rmqio.topics import queues_of

# Commits of a group's offsets after Spark's own commit, so that RocketMQ's tools show how far a stream is.


class GroupCommits:
    """The commits of one stream. They only go forward, and fail nothing: the position is in Spark's checkpoint.

    A commit that failed is made up for by the next one, which has newer offsets of the same queues.

    Args:
      group: the consumer group.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._committed: dict[MessageQueue, int] = {}
        self._reached: dict[MessageQueue, int] = {}
        """The stream's own offsets at the last commit. They go back only when a topic is created anew."""
        self._warned_at = float("-inf")

    def commit(self, client: QueueClient, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the offsets at which a stream resumes, as far as they are ahead of the group's."""
        try:
            failed = self._commit(client, offsets)
        except RmqioError as of_all:
            failed = dict.fromkeys(offsets, of_all)
        if failed and time.monotonic() - self._warned_at > _WARN_EVERY_S:
            self._warned_at = time.monotonic()
            queue, error = next(iter(failed.items()))
            _LOGGER.warning(
                "the offsets of %d queues were not committed for group %s; the first is %s: %s",
                len(failed), self._group, queue, error,
            )  # fmt: skip

    def _commit(self, client: QueueClient, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, RmqioError]:
        first = [queue for queue, offset in offsets.items() if offset < self._reached.get(queue, math.inf)]
        failed: dict[MessageQueue, RmqioError] = {}
        found = client.look_up([OffsetQuery(queue, "committed", group=self._group) for queue in first]) if first else ()
        known: dict[MessageQueue, int | None] = dict(self._committed)
        for queue, answer in zip(first, found, strict=True):
            if isinstance(answer, RmqioError):
                failed[queue] = answer
            else:
                known[queue] = answer
        ahead = {
            queue: offset
            for queue, offset in offsets.items()
            if queue not in failed and ((before := known[queue]) is None or offset > before)
        }
        for queue, error in (client.commit_offsets(self._group, ahead) if ahead else {}).items():
            try:
                if not isinstance(error, CommitIgnored):
                    raise error
                reset = client.take_reset(self._group, queue)
                client.commit_offset(self._group, queue, ahead[queue])
                if queue not in first:  # else it is older than this run
                    _LOGGER.warning(
                        "%s: the offset of group %s was reset to %s; the stream continues at %d",
                        queue, self._group, reset, ahead[queue],
                    )  # fmt: skip
            except RmqioError as final:
                failed[queue] = final
        for queue, offset in offsets.items():
            if queue not in failed:
                self._committed[queue] = max(offset, known[queue] or 0)
                self._reached[queue] = offset
        return failed


_LOGGER = logging.getLogger(__name__)
_RETRY_S: Final = 1
_WARN_EVERY_S: Final = 60.0
T = TypeVar("T")


class QueuesLost(RmqioError):
    """Queues of the checkpoint are gone, and the option failOnDataLoss is true."""


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Resumes at the offsets in Spark's checkpoint; the start options apply to a new query only.

    Queues whose broker does not answer or is down stand still while the others are read. `StartFrom.resolve` says where
    a queue begins that is found later; a new queue begins at its first message.

    Delivery: at least once into Spark's micro-batch, exactly once in what Spark keeps, as with any replayable source.
    """

    def __init__(self, settings: ReadSettings, names: Sequence[str]) -> None:
        self._settings = settings
        self._names = names
        self._made: QueueClient | None = None
        self._target: QueueNumbers | None = None
        self._initial: dict[str, Any] | None = None
        self._since_ms = int(time.time() * 1000)
        """Stands for the begin of the stream if the checkpoint, of an older version, does not say it."""
        self._silent: frozenset[MessageQueue] = frozenset()
        """Queues whose broker did not answer at the last look."""
        self._lost_since: dict[MessageQueue, float] = {}
        self._warned_at = float("-inf")
        self._triggered_at = float("-inf")
        """When a micro-batch was last planned."""
        group = settings.committed_group
        self._commits = None if group is None else GroupCommits(group)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}  # tasks make their own clients

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
        queues = queues_of(self._settings.subscription, self._client)
        self._settings.start.check(queues)
        if self._target is not None:  # a run with an end
            self._settings.start.warn_if_unread(self._settings.subscription, queues, self._client, self._stop_of)
        begins = self._starts(queues, None)
        waiting = frozenset(queue for queue in queues if queue not in begins)
        return Position(begins, began_ms, waiting, is_new=True)

    def _stop_of(self, queue: MessageQueue, lookup: OffsetLookup) -> int | None:
        return (self._target or {}).get(queue)

    def _starts(self, queues: Sequence[MessageQueue], found_later: Position | None) -> QueueNumbers:
        """Returns where queues begin, as far as their brokers answer. Raises `TransportError` if none does."""

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
        most, least = self._settings.max_per_trigger, self._settings.min_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._patiently(self._all_ends)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        position = Position.of(start)
        begun = position.numbers
        ends = self._patiently(lambda: self._checked_ends(begun))
        if self._target is not None:
            ends = self._until_target(begun, ends, self._target)
        ranges = {queue: (self._begin(queue, begun, end), end) for queue, end in ends.items() if queue in begun}
        if not isinstance(limit, ReadAllAvailable) and self._is_delayed(ranges.values()):
            reached = dict(begun)  # new queues are taken up at once, so that their messages count from then on
        elif isinstance(limit, ReadMaxRows):
            reached = begun | limited(ranges, limit.max_rows)
        else:
            reached = begun | {queue: max(begin, end) for queue, (begin, end) in ranges.items()}
        found = self._found(position, [queue for queue in ends if queue not in begun])
        reached |= found
        if reached == begun:
            return start  # unchanged, which tells Spark that there is nothing new
        first = begun if position.is_new else None
        began_ms = position.began_ms or self._since_ms
        return Position(reached, began_ms, position.waiting.difference(found), first=first).as_json()

    def _is_delayed(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Returns whether the next micro-batch waits for more messages. The first one of a run never does."""
        least, now = self._settings.min_per_trigger, time.monotonic()
        if least is None or self._target is not None:  # a run with an end would wait for what never comes
            return False
        is_late = now - self._triggered_at >= self._settings.max_trigger_delay_s
        if not is_late and sum(max(0, end - begin) for begin, end in ranges) < least:
            return True
        self._triggered_at = now
        return False

    def _found(self, position: Position, queues: Sequence[MessageQueue]) -> QueueNumbers:
        """Returns where new queues begin; their messages are read from the next micro-batch on."""
        if not queues:
            return {}
        try:
            found = self._starts(queues, position)
        except RmqioError as error:
            if not _passes(error):
                raise
            self._warn(error)
            return {}
        _LOGGER.info("found new queues: %s", ", ".join(f"{queue} from {begin}" for queue, begin in found.items()))
        return found

    def reportLatestOffset(self) -> dict[str, Any] | None:
        try:
            return as_json(self._ends({}))
        except RmqioError as error:  # only a figure in the progress: it must not fail the query
            _LOGGER.info("the latest offsets are not known: %s", error)
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        # Spark asks again where a new stream begins until its first micro-batch is done: the planned offsets hold
        until, settings = Position.of(end), self._settings
        begun = Position.of(start).numbers if until.first is None else until.first
        if start == end:
            begun = until.numbers
        # A queue found while this micro-batch was planned is read from the next one on, but not in older versions
        queues = {q: stop for q, stop in until.numbers.items() if q in begun or until.began_ms is None}
        ranges = {queue: (self._begin(queue, begun, stop), stop) for queue, stop in queues.items()}
        return partitions(ranges, settings.min_partitions, settings.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return iter(())  # Spark runs a task even if there are no partitions
        return read_range(self._settings, partition, self._names)

    def commit(self, end: dict[str, Any]) -> None:
        if self._commits is not None:
            self._commits.commit(self._client, Position.of(end).numbers)

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Retries while brokers restart or are busy, for as long as a reader would wait for one."""
        deadline = time.monotonic() + self._settings.outage_timeout_s
        while True:
            try:
                return ask()
            except RmqioError as error:
                if not _passes(error) or time.monotonic() > deadline:
                    raise
                _LOGGER.warning("retrying in %d s: %s", _RETRY_S, error)
                time.sleep(_RETRY_S)

    def _checked_ends(self, begun: QueueNumbers) -> QueueNumbers:
        """Returns the ends of the queues that can be read now. Queues of a broker that is down stand still.

        Raises `QueuesLost` if queues that have been read are gone, though their broker is up, for as long as a restart
        may take. Raises `TransportError` if there is nothing else to read.
        """
        ends = self._ends(begun)
        now = time.monotonic()
        there = {*ends, *self._silent}
        lost = self._gone(sorted(set(begun) - there))
        self._lost_since = {queue: self._lost_since.get(queue, now) for queue in lost}
        if lost:
            loss = (
                f"{', '.join(map(str, lost))} cannot be read any more: the topic was deleted, has fewer "
                "queues, or is no longer subscribed to."
            )
            error = QueuesLost(f"{loss} Set failOnDataLoss to false to continue with the others")
            is_over = now - min(self._lost_since.values()) > self._settings.outage_timeout_s
            if self._settings.fail_on_data_loss and is_over:
                raise error
            if self._settings.fail_on_data_loss and not there:
                raise TransportError(str(error)) from error  # a restarted broker may bring them back
            if self._settings.fail_on_data_loss:
                self._warn(error)
            else:
                self._log(f"{loss} The read continues with the others, as failOnDataLoss is false")
        return ends

    def _gone(self, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Returns the queues whose broker is up and no longer has them."""
        if not queues:
            return []
        answers = self._client.look_up([OffsetQuery(queue, "min") for queue in queues])
        for error in answers:
            if isinstance(error, TransportError):
                self._warn(error)
        return [q for q, each in zip(queues, answers, strict=True) if not isinstance(each, TransportError)]

    def _ends(self, begun: QueueNumbers) -> QueueNumbers:
        """Returns the ends of all queues whose brokers answer. Raises `TransportError` if none does."""
        queues = self._settings.subscription.find_queues(self._client, missing_ok=True)
        queries = [OffsetQuery(queue, "max", at_least=begun.get(queue, 0)) for queue in queues]
        answers = self._client.look_up(queries)
        found = self._answered(dict(zip(queues, answers, strict=True)))
        self._silent = frozenset(queues) - set(found)
        return found

    def _all_ends(self) -> QueueNumbers:
        """Returns the ends of all queues. Raises `TransportError` unless all brokers answer."""
        queues = self._settings.subscription.find_queues(self._client, missing_ok=True)

        def end(queue: MessageQueue, lookup: OffsetLookup) -> int:
            return lookup.max_offset(queue)

        return all_or_error(resolve_all(queues, self._client, end))

    def _answered(self, found: Mapping[MessageQueue, int | RmqioError | None]) -> QueueNumbers:
        """Returns what was found, without queues whose broker does not answer. Raises if no broker answers."""
        answered = {queue: number for queue, number in found.items() if isinstance(number, int)}
        for error in found.values():
            if not isinstance(error, RmqioError):
                continue
            if not answered or not _passes(error):
                raise error
            self._warn(error)
        return answered

    def _warn(self, error: RmqioError) -> None:
        """Logs what some queues wait for."""
        self._log(f"some queues are waiting: {error}")

    def _log(self, text: str) -> None:
        """Logs a warning, now and then."""
        if time.monotonic() - self._warned_at > _WARN_EVERY_S:
            self._warned_at = time.monotonic()
            _LOGGER.warning("%s", text)

    def _until_target(self, begun: QueueNumbers, ends: QueueNumbers, target: QueueNumbers) -> QueueNumbers:
        """Returns the target, with queues whose broker was down when it was set, and queues that begin past it.

        A read from "latest" can begin past it, since that offset is looked up a moment later.
        """
        target |= {queue: ends[queue] for queue in (set(begun) - set(target)) & set(ends)}
        behind = {
            queue for queue, end in target.items() if end < begun.get(queue, 0) <= ends.get(queue, begun.get(queue, 0))
        }
        return {queue: begun[queue] if queue in behind else end for queue, end in target.items()}

    def _begin(self, queue: MessageQueue, begun: QueueNumbers, end: int) -> int:
        """Returns where reading resumes: at the first message in a queue that is new or was recreated."""
        begin = begun.get(queue)
        if begin is not None and begin <= end:
            return begin
        first = self._patiently(lambda: {queue: self._client.min_offset(queue)})[queue]
        if begin is not None:
            error = DataLoss(OffsetOutOfRange(queue, begin, first, end))
            if self._settings.fail_on_data_loss:
                raise error
            error.warn()
        return first


def _passes(error: RmqioError) -> bool:
    """Returns whether the error may pass by itself: a broker that is down or busy."""
    return isinstance(error, TransportError) or error.retriable
