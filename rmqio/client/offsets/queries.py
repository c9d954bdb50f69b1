"""Questions about offsets as requests, and their answers as numbers. No I/O: for one queue or for many at once."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.client.routes import Routes
from rmqio.errors import LocalError, TopicNotExist, TransportError
from rmqio.interfaces import OffsetQuery
from rmqio.model import MessageFilter, MessageQueue
from rmqio.wire import requests
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command


class ReplicaBehind(TransportError):
    """The master is away, and a replica that is asked in its place does not have what is wanted."""


_NAMES = {"min": "minimum offset", "max": "maximum offset", "time": "offset by time"}


def what_is_asked(query: OffsetQuery) -> str:
    """For messages."""
    return _NAMES.get(query.kind) or f"offset of group {query.group!r}"


def offset_command(query: OffsetQuery, routes: Routes) -> Command:
    """The request to the queue's broker. Raises `LocalError` for a kind that does not exist."""
    queue = routes.wire_queue(query.queue)
    if query.kind == "min":
        return requests.get_min_offset(queue)
    if query.kind == "max":
        return requests.get_max_offset(queue)
    if query.kind == "time":
        return requests.search_offset(queue, query.timestamp_ms)
    if query.kind == "committed":
        return requests.query_group_offset(routes.wire_name(query.group), queue)
    raise LocalError(f"{query.queue}: no kind {query.kind!r} of offset; there are min, max, time and committed")


def parse_answer(query: OffsetQuery, answer: Command) -> int | None:
    """The number; None: the group has committed none."""
    if query.kind == "committed":
        return requests.parse_group_offset(answer, query.group)
    at = f" at {query.timestamp_ms} ms" if query.kind == "time" else ""
    return requests.parse_offset(answer, f"{what_is_asked(query)} of {query.queue}{at}")


def check_replica(query: OffsetQuery, offset: int | None) -> None:
    """Raises `ReplicaBehind` where a replica's answer must not be believed.

    A replica gets the groups' offsets from its master each 10 s. One that is old makes messages be read again, but that
    a group has none would have them skipped, where a group without one starts at the end. An end before what has been
    seen of the queue would look like that of a topic that was made anew.
    """
    if query.kind == "max" and offset is not None and offset < query.at_least:
        raise ReplicaBehind(
            f"{query.queue}: the master is away, and its replica ends at {offset}, before {query.at_least}, which has "
            "been seen; start the master"
        )
    if query.kind == "committed" and offset is None:
        raise ReplicaBehind(
            f"{query.queue}: the master is away, and its replica knows no offset of group {query.group!r}, which "
            "it may not have got yet; start the master, or name a start that asks for no group"
        )


def has_to_know_topic(query: OffsetQuery, offset: int | None) -> bool:
    """Whether a replica's answer is only worth something if it knows the topic: it says 0 for those it never met."""
    return offset == 0 and query.kind in ("max", "time")


def get_topic_config(queue: MessageQueue, routes: Routes) -> Command:
    """Asked of a replica, whether it knows the topic."""
    return Command(RequestCode.GET_TOPIC_CONFIG, {"topic": routes.wire_name(queue.topic)})


def check_topic_at_replica(answer: Command, queue: MessageQueue) -> None:
    """Raises `ReplicaBehind` when it does not. Brokers before 5.0 cannot be asked: they are believed."""
    if answer.code == TopicNotExist.number:
        raise ReplicaBehind(
            f"{queue}: the master is away, and its replica has not got topic {queue.topic!r} from it; start the master"
        )


def register_group(wire_group: str, wire_queue: MessageQueue) -> Command:
    """Makes a broker know a group, which it does when somebody pulls under it.

    A real pull would swallow an operator's pending reset, so this one asks for a queue that cannot be: the broker
    registers the group (where it may), then refuses the queue (29), and only after that would look for a reset.
    """
    nowhere = wire_queue._replace(queue_id=-1)
    return requests.pull(wire_group, nowhere, 0, max_messages=1, message_filter=MessageFilter())


def check_commit(group: str, queue: MessageQueue, offset: int) -> None:
    """Raises `LocalError` for a negative offset, which a broker would take, and then say that the group has none."""
    if offset < 0:
        raise LocalError(f"{queue}: cannot commit the negative offset {offset} for group {group!r}")


def no_such_queue(queue: MessageQueue, known: Sequence[MessageQueue]) -> LocalError:
    """The error for a queue of a topic that does exist; `known`: the topic's queues."""
    ids = sorted(other.queue_id for other in known if other.broker == queue.broker)
    there = (
        f"broker {queue.broker!r} serves queues {ids[0]} to {ids[-1]} of it" if ids else "its broker serves none of it"
    )
    return LocalError(f"{queue} does not exist: {there} (topic {queue.topic!r})")


def unknown_broker(queue: MessageQueue) -> TransportError:
    """The error for a queue whose broker no name server knows.

    A name server forgets a broker that went down, and with it the topics that only this one has.
    """
    return TransportError(f"{queue}: no name server knows broker {queue.broker!r}; is it down?")
