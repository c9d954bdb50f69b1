"""Topics: subscriptions, look-ups when a pipeline is submitted, turns and keys of queues, and names."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rmqio.errors import LocalError, RmqioError, TopicNotExist
from rmqio.hints import nearest
from rmqio.interfaces import ClientFactory, Producer, QueueClient
from rmqio.model import BrokerData, MessageQueue
from rmqio.options import ClientOptions
from rmqio.start import nearest_queue

# Chooses a message's queue by the rules of Java's producers, so that both choose the same one.

Q = TypeVar("Q")

_MAX_KEYS: Final = 10_000
"""Sharding keys whose queue is remembered; the hash of one costs as much as the rest of a send."""


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: base 31 over UTF-16 code units, as a signed 32-bit integer."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = (31 * value + byte) & 0xFFFFFFFF
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(raw[::2], raw[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def queue_index_for_key(key: str, count: int) -> int:
    """Return the index that SelectMessageQueueByHash.java of 5.x gives a key: `abs(hashCode % count)`.

    Older versions took the absolute value first, which fails for a hash of -2^31 and agrees for all others.
    """
    return abs(java_string_hash(key)) % count


def queue_for_key(queues: Sequence[Q], key: str) -> Q:
    """Return the queue of a sharding key among a topic's writable queues, which must be in the route's sorted order."""
    return queues[queue_index_for_key(key, len(queues))]


def interleaved(queues: Sequence[tuple[str, str, int]]) -> list[int]:
    """Return the positions of the queues in an order that changes the broker at each step as long as possible."""
    turn: dict[str, int] = {}
    ranked: list[tuple[int, int]] = []
    for position, (_, broker, _) in enumerate(queues):
        rank = turn.get(broker, 0)
        turn[broker] = rank + 1
        ranked.append((rank, position))
    return [position for _, position in sorted(ranked)]


class WritableQueues:
    """The writable queues of a topic: the order of their turns, and the queue of each sharding key.

    Args:
      queues: in the route's sorted order.
    """

    __slots__ = ("_keys", "_turns", "queues")

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self.queues = tuple(queues)
        self._turns = tuple(self.queues[position] for position in interleaved(self.queues))
        self._keys: dict[str, MessageQueue] = {}

    def in_turn(self, number: int) -> MessageQueue:
        """Return the queue of a turn. Turns that follow each other are on different brokers as long as possible."""
        return self._turns[number % len(self._turns)]

    def turns_from(self, number: int) -> list[MessageQueue]:
        """Return all queues, beginning with that of a turn."""
        first = number % len(self._turns)
        return [*self._turns[first:], *self._turns[:first]]

    def for_key(self, key: str) -> MessageQueue:
        """Return the queue of a sharding key, by the rule of Java's producers."""
        queue = self._keys.get(key)
        if queue is None:
            if len(self._keys) >= _MAX_KEYS:
                self._keys.clear()
            queue = self._keys[key] = queue_for_key(self.queues, key)
        return queue


# Names of topics and groups that a broker accepts.

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_DERIVED: Final = re.compile(r"%(RETRY|DLQ)%[%|a-zA-Z0-9_+-]*")
"""Names that a broker makes of those of groups; of consumers in pop mode, it puts `+` before the topic."""
_MAX_TOPIC: Final = 127
_MAX_GROUP: Final = 120
_MAX_DERIVED: Final = 255


def topic_fault(name: str) -> str:
    """Returns why no topic has the name; empty: one can have it."""
    is_derived = _DERIVED.fullmatch(name) is not None
    return _fault(name, is_derived or _LEGAL.fullmatch(name) is not None, _MAX_DERIVED if is_derived else _MAX_TOPIC)


def group_fault(name: str) -> str:
    """Returns why no consumer or producer group has the name; empty: one can have it."""
    return _fault(name, _LEGAL.fullmatch(name) is not None, _MAX_GROUP)


def validate_topic(name: str) -> None:
    """Raise LocalError unless the broker accepts this topic name (retry and dead-letter topics may be longer)."""
    if fault := topic_fault(name):
        raise LocalError(f"topic name {name!r} is illegal: {fault}")


def validate_group(name: str) -> None:
    """Raise LocalError unless the broker accepts this name of a consumer or producer group."""
    if fault := group_fault(name):
        raise LocalError(f"group name {name!r} is illegal: {fault}")


def _fault(name: str, is_legal: bool, longest: int) -> str:
    if not name:
        return "it is empty"
    if len(name) > longest:
        return f"it has {len(name)} characters, but at most {longest} are allowed"
    return "" if is_legal else "only letters, digits, '_', '-', '%' and '|' are allowed"


# Identifies RocketMQ's own topics (TopicValidator.java, MixAll.java, TopicConfigManager.java).

_NAMES = frozenset(
    {
        "TBW102",  # the template for new topics
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
_PREFIXES = ("rmq_sys_", "RMQ_SYS_", "%RETRY%", "%DLQ%")


def users_topics(topics: Iterable[str], brokers: Iterable[BrokerData]) -> list[str]:
    """Return the topics without RocketMQ's own, sorted. Brokers also create topics named after them and the cluster."""
    own = set(_NAMES)
    for broker in brokers:
        own |= {broker.broker, broker.cluster, f"{broker.cluster}_REPLY_TOPIC"}
    return sorted(topic for topic in topics if topic not in own and not topic.startswith(_PREFIXES))


@dataclass(frozen=True)
class Subscription:
    """Topics by name, topics by pattern, or queues to read. Exactly one of the three is not empty."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that must match a topic's whole name."""
    queues: tuple[MessageQueue, ...] = ()
    flags: int = 0
    """The pattern's flags (`re.IGNORECASE` ...)."""

    @classmethod
    def of(cls, what: Any) -> Subscription:
        """The subscription for a name, names, a compiled pattern, a queue or queues. Raises `LocalError`."""
        if isinstance(what, re.Pattern) and isinstance(what.pattern, str) and what.pattern:
            return cls(pattern=what.pattern, flags=what.flags)
        if isinstance(what, str):
            what = [what]
        if isinstance(what, MessageQueue):
            return cls(queues=(what,))
        items = list(what) if isinstance(what, Iterable) else []
        if items and all(isinstance(item, MessageQueue) for item in items):
            return cls(queues=tuple(sorted(set(items))))
        if items and all(isinstance(item, str) and item for item in items):
            return cls(topics=tuple(sorted(set(items))))
        raise LocalError(
            f"topic is {what!r:.80}; it must be a topic's name, a list of names, a compiled regular expression, "
            "or a list of MessageQueue"
        )

    def __str__(self) -> str:
        if self.pattern:
            return f"topics that match {self.pattern!r}"
        return ", ".join(self.topics) or ", ".join(map(str, self.queues))

    @property
    def named_topics(self) -> list[str]:
        """The topics that must exist, sorted; a pattern names none."""
        return sorted({*self.topics, *(queue.topic for queue in self.queues)})

    def find_queues(self, client: QueueClient, *, missing_ok: bool = False) -> list[MessageQueue]:
        """The queues that exist now, sorted. Raises `TopicNotExist` unless `missing_ok` (a pattern may match none).

        With `missing_ok`, this is one of many looks, so cached routes are good enough; otherwise, routes are refreshed.
        """
        refresh = not missing_ok
        topics: Sequence[str] = self.topics
        if self.queues:
            existing: set[MessageQueue] = set()
            for topic in self.named_topics:
                try:
                    existing.update(client.queues(topic, refresh=refresh))
                except TopicNotExist:
                    if not missing_ok:
                        raise
            missing = [q for q in self.queues if q not in existing]
            if missing and not missing_ok:
                hint = nearest_queue(missing[0], existing)
                raise LocalError(f"{missing[0]} does not exist or cannot be read: {hint}")
            return [q for q in self.queues if q in existing]
        if self.pattern:
            matches = re.compile(self.pattern, self.flags).fullmatch
            topics = [topic for topic in client.topics() if matches(topic)]
        found: list[MessageQueue] = []
        for topic in topics:
            try:
                found.extend(client.queues(topic, refresh=refresh))
            except TopicNotExist:
                # A topic that the pattern matched can be deleted a moment later.
                if not (missing_ok or self.pattern):
                    raise
        return sorted(found)


# Looks topics up when a pipeline is submitted, so that a misspelt name is one error before any work starts.

_CUTOFF: Final = 0.6
_IMPATIENT: Final[dict[str, Any]] = {"max_retries": 0, "connect_timeout_ms": 2_000, "request_timeout_ms": 3_000}
"""A name server that cannot be reached is the run's concern, which waits and retries: here it costs seconds at most."""


def require_readable(factory: ClientFactory, topics: Iterable[str]) -> None:
    """Raises `LocalError` if a topic does not exist; the error names the nearest one.

    Any other failure is left to the run.
    """
    with connected(factory) as client:
        for topic in topics:
            try:
                client.queues(topic)
            except TopicNotExist as error:
                raise _missing(topic, client) from error


def require_writable(factory: ClientFactory, group: str, topics: Iterable[str]) -> None:
    """As `require_readable`, for writes: a topic that the first send creates needs not exist."""
    with connected(factory) as client, contextlib.closing(_impatient(factory).producer(group)) as producer:
        for topic in topics:
            _require_writable(producer, topic, client)


def queues_of(subscription: Subscription, client: QueueClient) -> list[MessageQueue]:
    """Returns the queues of a subscription. Raises `LocalError` if a topic does not exist; it names the nearest one."""
    try:
        return subscription.find_queues(client)
    except TopicNotExist as error:
        for topic in subscription.named_topics:
            try:
                client.queues(topic)
            except TopicNotExist:
                raise _missing(topic, client) from error
        raise


def _require_writable(producer: Producer, topic: str, client: QueueClient) -> None:
    try:
        producer.queues(topic)
    except TopicNotExist as error:
        try:
            client.queues(topic)
        except TopicNotExist:
            raise _missing(topic, client) from error
        # It exists, but no queue of it can be written now: its master may be away.


def _missing(topic: str, client: QueueClient) -> LocalError:
    names: list[str] = []
    with contextlib.suppress(RmqioError):
        names = [*client.topics()]
    near = nearest(topic, names, cutoff=_CUTOFF)
    hint = f"did you mean {near!r}?" if near else "`rmqio topics` lists the topics that do"
    return LocalError(f"topic {topic!r} does not exist: {hint}")


@contextlib.contextmanager
def connected(factory: ClientFactory) -> Iterator[QueueClient]:
    """A client for the block, which does not retry. An error that is not about a topic ends the block silently."""
    client = _impatient(factory).queue_client()
    try:
        yield client
    except LocalError:
        raise
    except RmqioError:
        return
    finally:
        client.close()


def _impatient(factory: ClientFactory) -> ClientFactory:
    """The factory with options that do not wait, if its options are those of a client."""
    made: Any = factory
    options = getattr(made, "options", None)
    if not isinstance(options, ClientOptions):
        return factory
    impatient: ClientFactory = dataclasses.replace(made, options=dataclasses.replace(options, **_IMPATIENT))
    return impatient


# Validates the names of a read: topics, and queues with their brokers. Brokers do not check them and find nothing.

_MAX_BROKER: Final = 255


def validate_subscription(what: Subscription) -> None:
    """Raise `LocalError` for the first topic or queue that no broker can have. Matches of a pattern exist."""
    for topic in what.topics:
        validate_topic(topic)
    for queue in what.queues:
        validate_queue(queue)


def validate_queue(queue: MessageQueue) -> None:
    """Raise `LocalError` for a queue that no broker can have."""
    topic, broker, queue_id = queue
    for what, name in (("topic", topic), ("broker", broker)):
        if not isinstance(name, str):
            raise LocalError(f"{what} name of {tuple(queue)} is {name!r}; it must be text")
    validate_topic(topic)
    # A broker accepts nearly any name for itself (with dots, colons or slashes), except characters that break a line.
    if not broker or len(broker) > _MAX_BROKER or not broker.isprintable() or broker != "".join(broker.split()):
        raise LocalError(
            f"broker name {broker!r} (of topic {topic!r}) is illegal: 1 to {_MAX_BROKER} characters are allowed, and "
            "no white space; `rmqio describe TOPIC` shows the brokers of a topic"
        )
    if not isinstance(queue_id, int) or isinstance(queue_id, bool) or queue_id < 0:
        raise LocalError(f"queue {queue_id!r} of topic {topic!r} is illegal: queues are numbered from 0")
