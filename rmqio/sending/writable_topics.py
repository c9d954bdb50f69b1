"""Chooses the queue of a batch before it fills, and decides how long the list of a topic's queues is valid.

A writer needs the queue first, because it makes a batch of what goes to one queue. It knows a producer, and neither
routes nor brokers. The choice of a producer for one send, `QueueChoice` (client/sending/queue_choice.py), is another:
it avoids brokers that have failed, and moves a retry. Both take turns and keys from `WritableQueues`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from rmqio.errors import LocalError, RmqioError, TopicNotExist, TransportError
from rmqio.interfaces import Producer
from rmqio.model import MessageQueue
from rmqio.topics.names import validate_topic
from rmqio.topics.queue_selection import WritableQueues

_MISSING_TOPIC_MS: Final = 1_000
"""A missing topic is not looked up again within this time: otherwise each of its messages would cost a look-up."""


class _Topic:
    __slots__ = ("refreshed_at", "turn", "writable")

    def __init__(self, queues: Sequence[MessageQueue], now: float) -> None:
        self.turn = random.randrange(1 << 16)  # so that many short bundles do not all begin with the same queue
        self.set(queues, now)

    def set(self, queues: Sequence[MessageQueue], now: float) -> None:
        self.writable = WritableQueues(queues)
        self.refreshed_at = now


class WritableTopics:
    """The writable queues of the topics that one writer has seen.

    Args:
      producer: queried for queues.
      known_topics: topics that any writer of this process has seen and that therefore exist; added to. While all
        brokers of a topic are down, a name server reports that it does not exist.
      required_topics: topics that the whole write needs.
      refresh_ms: maximum age of a list of queues.
      clock: monotonic seconds.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        known_topics: set[str],
        required_topics: frozenset[str] = frozenset(),
        refresh_ms: int,
        clock: Callable[[], float],
    ) -> None:
        self._producer = producer
        self._known_topics = known_topics
        self._required_topics = required_topics
        self._refresh_s = refresh_ms / 1000
        self._clock = clock
        self._topics: dict[str, _Topic] = {}
        self._missing: dict[str, tuple[float, RmqioError]] = {}

    def next_queue(self, topic: str) -> MessageQueue:
        """Return the queue for the next batch without a key: in turn, on another broker if there is one.

        Raises `LocalError` for an illegal topic, `TopicNotExist` for a topic that only some elements name and that
        nobody in this process has seen, and `TransportError` when no queue of the topic is currently writable.
        """
        known = self._topics.get(topic) or self._look_up(topic)
        known.turn += 1
        return known.writable.in_turn(known.turn)

    def queue_for_key(self, topic: str, key: str) -> MessageQueue:
        """Return the queue of a sharding key, by the rule of Java's producers. Raises as `next_queue`."""
        known = self._topics.get(topic) or self._look_up(topic)
        return known.writable.for_key(key)

    def refresh(self, topic: str, *, now: bool = False) -> bool:
        """Query again when due, or now; return whether the queues have changed. After an error, keeps the old ones."""
        known = self._topics.get(topic)
        if known is None or not (now or self._clock() - known.refreshed_at >= self._refresh_s):
            return False
        known.refreshed_at = self._clock()
        try:
            queues = self._producer.queues(topic)
        except RmqioError:
            return False
        if not queues or tuple(queues) == known.writable.queues:
            return False
        known.set(queues, self._clock())
        return True

    def refresh_all(self, *, now: bool = False) -> None:
        """Call `refresh` for every topic."""
        for topic in self._topics:
            self.refresh(topic, now=now)

    def _look_up(self, topic: str) -> _Topic:
        validate_topic(topic)
        now = self._clock()
        missing = self._missing.get(topic)
        if missing is not None and now - missing[0] < _MISSING_TOPIC_MS / 1000:
            raise missing[1].with_traceback(None)
        try:
            queues = self._producer.queues(topic)
        except TopicNotExist as error:
            reported: RmqioError = error
            if topic in self._known_topics or topic in self._required_topics:
                reported = TransportError(f"topic {topic!r} does not exist, or all of its brokers are down: {error}")
            self._missing[topic] = (now, reported)
            raise reported from error
        except LocalError as error:
            # The topic's name is legal, so the producer is closed. This must not look like a message's fault.
            raise TransportError(f"the producer returned no queues of topic {topic!r}: {error}") from error
        self._missing.pop(topic, None)
        if not queues:
            raise TransportError(f"topic {topic!r} has no writable queue: no known master, or writes are not permitted")
        self._known_topics.add(topic)
        known = self._topics[topic] = _Topic(queues, now)
        return known
