"""Resolves strategies for many queues at once: their queries are sent together, in as few rounds as one queue needs.

A strategy is written for one queue and a blocking `OffsetLookup`. Here it gets the answers that are already known. When
it asks for another one, it is stopped, and called again after one look-up has answered the queries of all queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import OffsetLookup, OffsetQuery, QueueClient
from rmqio.model import MessageQueue

T = TypeVar("T")
_MOST_ROUNDS = 10
"""A strategy needs two or three rounds; one that never finishes is a bug."""


class _Unknown(Exception):
    """The answer to this query is not known yet."""

    def __init__(self, query: OffsetQuery) -> None:
        super().__init__(query)
        self.query = query


class _Answers:
    """An `OffsetLookup` over the answers that are known so far."""

    def __init__(self) -> None:
        self.known: dict[OffsetQuery, int | RmqioError | None] = {}

    def min_offset(self, queue: MessageQueue) -> int:
        return self._number(OffsetQuery(queue, "min"))

    def max_offset(self, queue: MessageQueue, *, at_least: int = 0) -> int:
        return self._number(OffsetQuery(queue, "max", at_least=at_least))

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return self._number(OffsetQuery(queue, "time", timestamp_ms))

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        return self._answer(OffsetQuery(queue, "committed", group=group))

    def _number(self, query: OffsetQuery) -> int:
        found = self._answer(query)
        assert found is not None  # only a group can have no offset
        return found

    def _answer(self, query: OffsetQuery) -> int | None:
        if query not in self.known:
            raise _Unknown(query)
        found = self.known[query]
        if isinstance(found, RmqioError):
            raise found
        return found


def resolve_all(
    queues: Iterable[MessageQueue],
    client: QueueClient,
    resolve: Callable[[MessageQueue, OffsetLookup], T],
    *,
    timeout_ms: int | None = None,
) -> dict[MessageQueue, T | RmqioError]:
    """Returns the result of `resolve` for each queue, or the `RmqioError` that it raised.

    `resolve` is called several times per queue, so it must be deterministic and have no side effects. `timeout_ms` is
    the timeout of one round (None: the client's). A broker that has not answered in one round is skipped in the next.
    """
    answers = _Answers()
    found: dict[MessageQueue, T | RmqioError] = {}
    wanted = left = list(queues)
    for _ in range(_MOST_ROUNDS):
        asked: dict[OffsetQuery, None] = {}
        waiting: list[MessageQueue] = []
        for queue in left:
            try:
                found[queue] = resolve(queue, answers)
            except _Unknown as unknown:
                asked[unknown.query] = None
                waiting.append(queue)
            except RmqioError as error:
                found[queue] = error
        if not waiting:
            return {queue: found[queue] for queue in wanted}
        queries = list(asked)
        answers.known.update(zip(queries, client.look_up(queries, timeout_ms=timeout_ms), strict=True))
        left = waiting
    raise LocalError(f"{left[0]}: its start or stop keeps asking for more offsets")


def all_or_error(found: Mapping[MessageQueue, T | RmqioError]) -> dict[MessageQueue, T]:
    """The values, if every queue has one; otherwise raises the first error."""
    known: dict[MessageQueue, T] = {}
    for queue, each in found.items():
        if isinstance(each, RmqioError):
            raise each
        known[queue] = each
    return known
