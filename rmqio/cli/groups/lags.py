"""How far consumer groups are behind, topic by topic: asked for all groups at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rmqio.command_line.contents import QueueState, for_all
from rmqio.errors import RmqioError, TopicNotExist
from rmqio.interfaces import OffsetQuery, QueueClient
from rmqio.model import MessageQueue

_ENDS: Final[tuple[Literal["min", "max"], ...]] = ("min", "max")
_AT_ONCE: Final = 2_000
"""Queries of one look: its requests share one deadline."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind in one topic."""

    topic: str
    queues: int
    """The number of queues in which the group has an offset."""
    messages: int | None
    """None: unknown, since no broker has answered."""


def lags_of(client: QueueClient, topics_of: Mapping[str, Iterable[str]]) -> tuple[dict[str, list[Lag]], list[str]]:
    """Return the lags of each group by topic, and what could not be found out. A deleted topic is left out."""
    topics = sorted({topic for topics in topics_of.values() for topic in topics})
    queues = dict(zip(topics, for_all(lambda topic: _queues(client, topic), topics), strict=True))
    # Committed offsets first: the ends only grow meanwhile, so no offset is found past them.
    queries = [
        OffsetQuery(queue, "committed", group=group)
        for group, names in topics_of.items()
        for name in names
        for queue in queues[name]
    ]
    queries += [OffsetQuery(queue, kind) for there in queues.values() for queue in there for kind in _ENDS]
    answers, problems = _look_up(client, queries)
    found = {
        group: [_lag(name, queues[name], answers, group) for name in sorted(names) if queues[name]]
        for group, names in topics_of.items()
    }
    return found, problems


def total_of(lags: Iterable[Lag]) -> int | None:
    """Return the sum of what is known; None if nothing is."""
    known = [lag.messages for lag in lags if lag.messages is not None]
    return sum(known) if known else None


def _look_up(client: QueueClient, queries: Sequence[OffsetQuery]) -> tuple[dict[OffsetQuery, int | None], list[str]]:
    answers: dict[OffsetQuery, int | None] = {}
    problems: list[str] = []
    for begin in range(0, len(queries), _AT_ONCE):
        part = queries[begin : begin + _AT_ONCE]
        for query, answer in zip(part, client.look_up(part), strict=True):
            if isinstance(answer, RmqioError):
                problems.append(str(answer))
            else:
                answers[query] = answer
    return answers, problems


def _lag(topic: str, queues: Sequence[MessageQueue], answers: Mapping[OffsetQuery, int | None], group: str) -> Lag:
    states = [state for queue in queues if (state := _state(answers, queue, group)) is not None]
    lags = [state.lag for state in states if state.lag is not None]
    return Lag(topic, len(lags), sum(lags) if states else None)


def _state(answers: Mapping[OffsetQuery, int | None], queue: MessageQueue, group: str) -> QueueState | None:
    low, high = (answers.get(OffsetQuery(queue, kind)) for kind in _ENDS)
    query = OffsetQuery(queue, "committed", group=group)
    if low is None or high is None or query not in answers:
        return None
    return QueueState(queue, low, high, committed=answers[query])


def _queues(client: QueueClient, topic: str) -> Sequence[MessageQueue]:
    try:
        return client.queues(topic)
    except TopicNotExist:
        return ()
