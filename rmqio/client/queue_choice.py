"""Chooses the queue of a send, avoiding brokers that just failed, and spaces the sends to one that is busy."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqio.client.environment import Environment
from rmqio.client.routes import Routes
from rmqio.errors import FlowControl, RmqioError, SystemBusy, TopicNotExist, TransportError
from rmqio.interfaces import SendStatistics
from rmqio.model import MessageQueue, TopicRoute
from rmqio.options import ClientOptions
from rmqio.topics import WritableQueues
from rmqio.wire import requests
from rmqio.wire.requests import AUTO_CREATE_TOPIC

# Spaces the sends to a broker that answers that it is busy.

FIRST_GAP_S: Final = 0.02
MOST_GAP_S: Final = 2.0
LONGEST_WAIT_S: Final = 5.0
_LEAST_GAP_S: Final = 0.001
_RECOVERY: Final = 0.7


def is_busy(error: RmqioError) -> bool:
    """Return whether the broker refused a request because of its load. It has stored nothing of it."""
    return isinstance(error, (SystemBusy, FlowControl))


@dataclass(slots=True)
class _Pace:
    gap_s: float
    next_at: float
    grown_at: float


class Throttle:
    """The time between two sends to each broker: none, until one is busy. Thread-safe, also in a forked child.

    Each busy answer doubles the gap, from 20 ms to 2 s; each send that is stored cuts it by 30 %. Answers to requests
    that were in flight together count once.

    Args:
      statistics: of the producer, to which the waits are added.
      clock: monotonic seconds.
      sleep: waits for seconds.
    """

    def __init__(self, statistics: SendStatistics, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._statistics = statistics
        self._clock = clock
        self._sleep = sleep
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._paces: dict[str, _Pace] = {}

    def before(self, broker: str) -> None:
        """Wait until the next send to the broker may start. Costs one look-up while no broker is busy."""
        if not self._paces:
            return
        with self._locked():
            pace = self._paces.get(broker)
            if pace is None:
                return
            now = self._clock()
            start = min(max(now, pace.next_at), now + LONGEST_WAIT_S)
            pace.next_at = start + pace.gap_s
            self._statistics.throttled_ms += round((start - now) * 1000)
        if start > now:
            self._sleep(start - now)

    def wait_s(self, broker: str) -> float:
        """Return how long `before` would wait."""
        pace = self._paces.get(broker)
        return 0.0 if pace is None else min(max(pace.next_at - self._clock(), 0.0), LONGEST_WAIT_S)

    def busy(self, broker: str) -> None:
        """Note a busy answer."""
        with self._locked():
            now = self._clock()
            pace = self._paces.get(broker)
            if pace is None:
                self._paces[broker] = _Pace(FIRST_GAP_S, now + FIRST_GAP_S, now)
            elif now - pace.grown_at >= pace.gap_s / 2:
                pace.gap_s = min(pace.gap_s * 2, MOST_GAP_S)
                pace.next_at = max(pace.next_at, now + pace.gap_s)
                pace.grown_at = now

    def passed(self, broker: str) -> None:
        """Note a send that was stored."""
        if not self._paces:
            return
        with self._locked():
            pace = self._paces.get(broker)
            if pace is not None:
                pace.gap_s *= _RECOVERY
                if pace.gap_s < _LEAST_GAP_S:
                    del self._paces[broker]

    def gap_s(self, broker: str) -> float:
        """Return the time between two sends to the broker."""
        pace = self._paces.get(broker)
        return 0.0 if pace is None else pace.gap_s

    def _locked(self) -> threading.Lock:
        if self._pid != os.getpid():  # another thread of the parent may have held it at the fork
            self._lock, self._pid = threading.Lock(), os.getpid()
        return self._lock


AVOID_S = 5.0
"""How long a failed broker is skipped while there is another."""
NEW_TOPIC_QUEUES = 4
"""Number of queues that a broker gives a topic created by a send (Java's defaultTopicQueueNums)."""


class _Plan(NamedTuple):
    route: TopicRoute
    writable: WritableQueues


class QueueChoice:
    """The writable queues of topics and the next one's turn. Thread-safe."""

    def __init__(self, options: ClientOptions, routes: Routes, environment: Environment) -> None:
        self._options = options
        self._routes = routes
        self._environment = environment
        self._plans: dict[str, _Plan] = {}
        self._template_held: tuple[float, TopicRoute] | None = None
        # The start is random: otherwise a thousand producers would begin with the same queue.
        self._turn = itertools.count(int(environment.random() * 1024))
        self._avoided: dict[str, float] = {}

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the topic's writable queues, sorted. Raises `TopicNotExist`, also when there are none."""
        return self._current_plan(topic).writable.queues

    def look_up(self, topic: str) -> None:
        """Ensure a current route. Raises `TransportError` when no name server can be reached, after retries."""
        try:
            self._routes.route(topic)
        except TopicNotExist:
            return  # the code that chooses a queue reports it

    def in_turn(self, topic: str) -> MessageQueue:
        """Return the next queue; brokers alternate, and recently failed ones are skipped. Raises as `queues`."""
        writable = self._plan(topic).writable
        first = next(self._turn)
        if self._avoided:
            for queue in writable.turns_from(first):
                if not self._is_avoided(self._routes.owner_of(queue)):
                    return queue
        return writable.in_turn(first)

    def for_key(self, topic: str, sharding_key: str) -> MessageQueue:
        """Return the queue of a sharding key; it changes only with the number of queues. Raises as `queues`."""
        return self._plan(topic).writable.for_key(sharding_key)

    def elsewhere(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue on another broker than this queue's, or the same queue if there is none. Raises as `queues`.

        A queue that is no longer writable is replaced by any that is.
        """
        writable = self._plan(queue.topic).writable
        turns = writable.turns_from(next(self._turn))
        owner = self._routes.owner_of
        others = [other for other in turns if owner(other) != owner(queue)]
        healthy = (other for other in others if not self._is_avoided(owner(other)))
        same = queue if queue in writable.queues else turns[0]
        return next(healthy, others[0] if others else same)

    def address(self, queue: MessageQueue) -> str:
        """Return the address of the queue's broker. Raises `TopicNotExist`; `TransportError` while it has no master."""
        try:
            return self._routes.master(*queue)
        except TopicNotExist:
            with suppress(TransportError):
                # A name server forgets a broker that went down, and the topics that only this broker has.
                return self._routes.held_address(*queue)
            if not self._options.create_topics:
                raise
        data = self._template_route().brokers.get(queue.broker)
        if data is None or data.master is None:
            raise TransportError(f"no name server knows a master of broker {queue.broker!r}; is it down?")
        return data.master

    def failed(self, broker: str) -> None:
        """Skip this broker for a while."""
        self._avoided[broker] = self._environment.clock() + AVOID_S

    def _is_avoided(self, broker: str) -> bool:
        until = self._avoided.get(broker)
        if until is None:
            return False
        if until > self._environment.clock():
            return True
        self._avoided.pop(broker, None)
        return False

    def _plan(self, topic: str) -> _Plan:
        try:
            return self._current_plan(topic)
        except TopicNotExist:
            # Forgotten while its only broker restarts? If it was really deleted, the broker will report it.
            plan = self._plans.get(topic)
            if plan is None:
                raise
            return plan

    def _current_plan(self, topic: str) -> _Plan:
        plan = self._plans.get(topic)
        try:
            route = self._routes.route(topic)
        except TopicNotExist:
            if not self._options.create_topics:
                raise
            return self._template(topic)
        if plan is None or plan.route is not route:
            plan = _make_plan(topic, route, route.writable())
            self._plans[topic] = plan
        return plan

    def _template(self, topic: str) -> _Plan:
        """Return the queues that a topic will have once the first message has created it."""
        route = self._template_route()
        queues = tuple(
            MessageQueue(topic, queue.broker, queue.queue_id)
            for queue in route.writable()
            if queue.queue_id < NEW_TOPIC_QUEUES
        )
        return _make_plan(topic, route, queues)

    def _template_route(self) -> TopicRoute:
        now = self._environment.clock()
        held = self._template_held
        if held is None or held[0] <= now:
            # Not through `Routes.route`, which adds the namespace: the template belongs to the cluster.
            what = f"route of the template topic {AUTO_CREATE_TOPIC!r}"
            answer = self._routes.ask(requests.get_route(AUTO_CREATE_TOPIC), what)
            route = requests.parse_route(AUTO_CREATE_TOPIC, answer)
            held = self._template_held = (now + self._options.route_refresh_ms / 1000, route)
        return held[1]


def _make_plan(topic: str, route: TopicRoute, queues: tuple[MessageQueue, ...]) -> _Plan:
    if not queues:
        raise TopicNotExist(
            TopicNotExist.number, "no writable queue on any broker with a master", f"route of topic {topic!r}"
        )
    return _Plan(route, WritableQueues(queues))
