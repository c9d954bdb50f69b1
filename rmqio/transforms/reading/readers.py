"""The open readers of one DoFn instance, when it may wait, and which part of an answer it may emit."""

from __future__ import annotations

import itertools
import math
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass

from rmqio.errors import TransportError
from rmqio.interfaces import ClientFactory, FetchedBatch, OffsetQuery, QueueReader
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.transforms.metrics import queue_labels
from rmqio.transforms.shared import shared_client

# The part of a broker's answer that a read may emit, and what it holds in memory.

_stored_size = operator.itemgetter(Record._fields.index("stored_size"))  # by position: runs per message
_body = operator.itemgetter(Record._fields.index("body"))


def cut_to(fetched: FetchedBatch, stop: int | None, limit: int | None) -> FetchedBatch:
    """The part of an answer before the stop and within the limit."""
    if stop is not None and fetched.next_offset > stop:
        fetched = fetched._replace(
            records=list(itertools.takewhile(lambda r: r.queue_offset < stop, fetched.records)),
            corrupt=tuple(c for c in fetched.corrupt if c.queue_offset < stop),
            next_offset=stop,
        )
    if limit is not None and len(fetched.records) >= limit:
        records = fetched.records[:limit]
        end = records[-1].queue_offset + 1
        fetched = fetched._replace(
            records=records, corrupt=tuple(c for c in fetched.corrupt if c.queue_offset < end), next_offset=end
        )
    return fetched


def held_bytes(records: list[Record]) -> int:
    """The memory that the records use: their stored sizes, or their decompressed bodies if those are larger."""
    stored: int = sum(map(_stored_size, records))
    return max(stored, sum(map(len, map(_body, records))))


_STALE_S = 30.0
_UNREACHABLE_S = 60.0
_ASK_S = 1.0
"""How often the brokers of idle queues are asked."""
_ANSWER_WAIT_MS = 200
"""How long to wait for the answer to a pull that is not a long poll; a healthy broker needs milliseconds."""


@dataclass
class Slot:
    """One queue's reader and what this instance remembers about it."""

    reader: QueueReader
    used_at: float
    bundles: int = 0
    """The number of bundles in which this queue was read."""
    at_end_since: float | None = None
    answered_s: float | None = None
    """Unix time of the last query that its broker has answered while the queue was idle."""
    asked_s: float | None = None
    """Unix time of the last query while the queue was idle, if its broker has answered it."""
    is_silent: bool = False
    """Whether its broker has not answered the last query."""
    retries: int = 0
    """The reader's retries that `take_retries` has returned."""

    def __post_init__(self) -> None:
        self.labels = queue_labels(self.reader.queue)

    def take_retries(self) -> int:
        """Pulls that the reader has retried since the last call; 0 for a reader that does not count them."""
        now: int = getattr(self.reader, "retries", 0)
        new, self.retries = now - self.retries, now
        return new


class Readers:
    """The open readers. Created in `setup`, closed in `teardown`, used by one thread."""

    def __init__(
        self,
        factory: ClientFactory,
        message_filter: MessageFilter,
        *,
        poll_timeout_ms: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factory = factory
        self._filter = message_filter
        self._poll_timeout_ms = poll_timeout_ms
        self._monotonic = monotonic
        self._slots: dict[MessageQueue, Slot] = {}
        self._may_wait = True
        self._answer_budget_ms = poll_timeout_ms
        self._asked_at = -math.inf
        self._unreachable: dict[MessageQueue, float] = {}
        """Since when each queue is unreachable."""

    def __len__(self) -> int:
        return len(self._slots)

    def start_bundle(self) -> None:
        """Let the new bundle wait once, and close readers whose queues have moved to another instance."""
        self._may_wait = True
        self._answer_budget_ms = self._poll_timeout_ms
        now = self._monotonic()
        for queue in [q for q, slot in self._slots.items() if now - slot.used_at > _STALE_S]:
            self.release(queue)

    def slot(self, queue: MessageQueue, offset: int) -> Slot | None:
        """The queue's reader at an offset; None while its broker is unreachable, for at most a minute.

        An open reader survives a broker's restart. A reader that is opened during a restart must do so, too.
        """
        slot = self._slots.get(queue)
        if slot is None:
            try:
                reader = shared_client(self._factory).open_reader(queue, offset, message_filter=self._filter)
            except TransportError:
                now = self._monotonic()
                if now - self._unreachable.setdefault(queue, now) > _UNREACHABLE_S:
                    del self._unreachable[queue]
                    raise
                self.pause()
                return None
            self._unreachable.pop(queue, None)
            slot = self._slots[queue] = Slot(reader, self._monotonic())
        elif slot.reader.position != offset:
            slot.reader.seek(offset)
            slot.at_end_since = None
        slot.used_at = self._monotonic()
        slot.bundles += 1
        return slot

    def await_data(self, slot: Slot) -> bool:
        """Wait for the slot's queue as long as the bundle permits. Returns whether to poll it again.

        If an answer is outstanding, this waits for it. At the end of the queue, it makes the one wait of the bundle,
        for all queues at once, and only if all of them have a reader: on a queue's first visit, the others have none.
        """
        client = shared_client(self._factory)
        if not slot.reader.is_at_end:
            wait_ms = min(_ANSWER_WAIT_MS, self._answer_budget_ms)
            if client.wait([slot.reader], wait_ms):
                return True
            # A broker that does not answer can use up a bundle's budget once, not once per queue.
            self._answer_budget_ms -= wait_ms
            return False
        if not self._may_wait or slot.bundles < 2:
            return slot.reader.is_ready()
        self._may_wait = False
        client.wait([s.reader for s in self._slots.values()], self._poll_timeout_ms)
        return slot.reader.is_ready()

    def pause(self) -> None:
        """Pause before another try, which the runner may make immediately. Uses the budget of waits for answers."""
        wait_ms = min(_ANSWER_WAIT_MS, self._answer_budget_ms)
        self._answer_budget_ms -= wait_ms
        time.sleep(wait_ms / 1000)

    def emitted(self, slot: Slot, records: int) -> None:
        """Note emitted records: the bundle must end soon instead of waiting, and a queue with records is not idle."""
        self._may_wait = False
        if records:
            slot.at_end_since = slot.asked_s = None

    def idle_ms(self, slot: Slot) -> float | None:
        """How long the slot's queue has been read to its end; None if it is not at its end."""
        if not slot.reader.is_at_end or slot.reader.is_ready():
            slot.at_end_since = slot.asked_s = None
            return None
        now = self._monotonic()
        if slot.at_end_since is None:
            slot.at_end_since = now
        return (now - slot.at_end_since) * 1000

    def idle_until_s(self, slot: Slot) -> float | None:
        """The Unix time until which the slot's queue is known to be idle; None: not known.

        A long poll without an answer does not show that nothing has come: its broker may hang. So the brokers of all
        idle queues are asked now and then. If one answers, it would have answered the long poll, too. A broker that
        does not answer costs one request timeout, once. When it goes on, it first stores what it has been sent
        meanwhile, so that its queues are idle from then on only.
        """
        if (now := self._monotonic()) - self._asked_at >= _ASK_S:
            self._asked_at = now
            idle = [each for each in self._slots.values() if each.at_end_since is not None]
            asked_s = time.time()
            queries = [OffsetQuery(each.reader.queue, "max") for each in idle]
            answers = shared_client(self._factory).look_up(queries)
            answered = self._monotonic()
            is_slow = answered - now >= _ASK_S
            for each, answer in zip(idle, answers, strict=True):
                was_silent, each.is_silent = each.is_silent, not isinstance(answer, int)
                if each.is_silent or was_silent:
                    each.at_end_since, each.asked_s = answered, None
                elif not each.reader.is_ready():
                    # A slow broker may have hung until now, but has stored what came before its last query.
                    if (known_s := each.asked_s if is_slow else asked_s) is not None:
                        each.answered_s = known_s
                    each.asked_s = asked_s
        return slot.answered_s

    def release(self, queue: MessageQueue) -> None:
        """Close the reader of a queue that is done, or has moved to another instance."""
        slot = self._slots.pop(queue, None)
        if slot is not None:
            slot.reader.close()

    def close(self) -> None:
        for queue in list(self._slots):
            self.release(queue)
