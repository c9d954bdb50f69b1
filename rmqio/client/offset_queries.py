"""Builds requests for offset queries and parses their answers. No I/O: for one queue or for many at once."""

from __future__ import annotations

from rmqio.client.routes import Routes
from rmqio.errors import LocalError, QueueGone, QueueNotReadable, TopicNotExist, TransportError
from rmqio.interfaces import OffsetQuery
from rmqio.model import MessageFilter, MessageQueue, TopicRoute
from rmqio.wire import requests
from rmqio.wire.command import Command, RequestCode


class ReplicaBehind(TransportError):
    """The master is unavailable, and the replica queried in its place does not have the requested data."""


_NAMES = {"min": "minimum offset", "max": "maximum offset", "time": "offset by time"}


def what_is_asked(query: OffsetQuery) -> str:
    """Return the query's description for messages."""
    return _NAMES.get(query.kind) or f"offset of group {query.group!r}"


def offset_command(query: OffsetQuery, routes: Routes) -> Command:
    """Return the request to the queue's broker. Raises `LocalError` for an unknown kind."""
    queue = routes.wire_queue(query.queue)
    if query.kind == "min":
        return requests.get_min_offset(queue)
    if query.kind == "max":
        return requests.get_max_offset(queue)
    if query.kind == "time":
        return requests.search_offset(queue, query.timestamp_ms)
    if query.kind == "committed":
        return requests.query_group_offset(routes.wire_name(query.group), queue)
    raise LocalError(f"{query.queue}: no kind {query.kind!r} of offset; use min, max, time or committed")


def parse_answer(query: OffsetQuery, answer: Command) -> int | None:
    """Return the offset; None: the group has committed none."""
    if query.kind == "committed":
        return requests.parse_group_offset(answer, query.group)
    at = f" at {query.timestamp_ms} ms" if query.kind == "time" else ""
    return requests.parse_offset(answer, f"{what_is_asked(query)} of {query.queue}{at}")


def check_replica(query: OffsetQuery, offset: int | None) -> None:
    """Raise `ReplicaBehind` for a replica's answer that must not be trusted.

    A replica gets the groups' offsets from its master every 10 s. With an old offset, messages are read again. With a
    missing offset, messages would be skipped where a group without an offset starts at the end. An end before one
    already seen would look like the end of a recreated topic.
    """
    if query.kind == "max" and offset is not None and offset < query.at_least:
        raise ReplicaBehind(
            f"{query.queue}: the master is unavailable, and its replica ends at {offset}, before {query.at_least}, "
            "which has been seen; start the master"
        )
    if query.kind == "committed" and offset is None:
        raise ReplicaBehind(
            f"{query.queue}: the master is unavailable, and its replica knows no offset of group {query.group!r}, "
            "which it may not have received yet; start the master, or choose a start position that needs no group"
        )


def has_to_know_topic(query: OffsetQuery, offset: int | None) -> bool:
    """Return whether a replica's answer is valid only if it knows the topic: it answers 0 for unknown topics."""
    return offset == 0 and query.kind in ("max", "time")


def get_topic_config(queue: MessageQueue, routes: Routes) -> Command:
    """Return the request that finds out whether a replica knows the topic."""
    return Command(RequestCode.GET_TOPIC_CONFIG, {"topic": routes.wire_name(queue.topic)})


def check_topic_at_replica(answer: Command, queue: MessageQueue) -> None:
    """Raise `ReplicaBehind` when it does not. Brokers before 5.0 cannot be queried: they are trusted."""
    if answer.code == TopicNotExist.number:
        raise ReplicaBehind(
            f"{queue}: the master is unavailable, and its replica does not have topic {queue.topic!r}; start the master"
        )


def register_group(wire_group: str, wire_queue: MessageQueue) -> Command:
    """Return the request that makes a broker know a group, which it learns when somebody pulls under it.

    A real pull would consume an operator's pending reset, so this one names an impossible queue: the broker registers
    the group (where permitted), then refuses the queue (29), and would look for a reset only after that.
    """
    nowhere = wire_queue._replace(queue_id=-1)
    return requests.pull(wire_group, nowhere, 0, max_messages=1, message_filter=MessageFilter())


def check_commit(group: str, queue: MessageQueue, offset: int) -> None:
    """Raise `LocalError` for a negative offset: a broker would accept it, and then report that the group has none."""
    if offset < 0:
        raise LocalError(f"{queue}: cannot commit the negative offset {offset} for group {group!r}")


def no_such_queue(queue: MessageQueue, route: TopicRoute) -> QueueNotReadable:
    """Return the error for a queue that the topic's route does not offer to readers."""
    if route.has(queue):
        return QueueNotReadable(
            f"{queue} cannot be read now: its broker's permission or readQueueNums of topic {queue.topic!r} excludes it"
        )
    ids = [other.queue_id for other in route.readable() if other.broker == queue.broker]
    there = (
        f"broker {queue.broker!r} serves queues {ids[0]} to {ids[-1]} of it" if ids else "its broker serves none of it"
    )
    return QueueGone(f"{queue} does not exist: {there} (topic {queue.topic!r})")


def unknown_broker(queue: MessageQueue) -> TransportError:
    """Return the error for a queue whose broker is unknown to all name servers.

    A name server forgets a broker that went down, and the topics that only this broker has.
    """
    return TransportError(f"{queue}: no name server knows broker {queue.broker!r}; is it down?")
