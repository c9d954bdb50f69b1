"""Looks topics up when a pipeline is submitted, so that a misspelt name is one error before any work starts."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rmqio.errors import LocalError, RmqioError, TopicNotExist
from rmqio.interfaces import ClientFactory, Producer, QueueClient
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.topics.subscription import Subscription

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
        names = sorted(client.topics())
    near = difflib.get_close_matches(topic, names, n=1, cutoff=_CUTOFF)
    hint = f"did you mean {near[0]!r}?" if near else "`rmqio topics` lists the topics that do"
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
