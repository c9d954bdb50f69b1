"""The input of the pipelines, and the results that must come of it."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from bench.common.tally import UnequalWork
from bench.streaming.orders import records_of
from pipelines.province import province_of
from pipelines.word_count import words
from rmqio import Message
from rmqio.client.factory import RemotingClientFactory
from rmqio.options import ClientOptions
from tests.helpers.addresses import addresses

KEYS: Final = 1_000
_BEGIN_MS: Final = 1_700_000_000_000
_BATCH: Final = 500


class Input(NamedTuple):
    """For one of the pipelines."""

    bodies: Callable[[int], Iterator[bytes]]
    result: Callable[[dict[str, Any]], tuple[Any, Any]]
    """The subject of a body in the sink, and its content; of several the last one counts."""
    wanted: Callable[[int], dict[Any, Any]]


def _address_bodies(count: int) -> Iterator[bytes]:
    return (json.dumps(each, ensure_ascii=False).encode() for each in addresses(count))


def _provinces(count: int) -> dict[Any, Any]:
    return {each["id"]: province_of(each["address"]) for each in addresses(count)}


def _orders(count: int) -> Iterator[dict[str, Any]]:
    """A thousand orders of event time a second."""
    return ({"key": f"k{n % KEYS}", "amount": n % 100, "time_ms": _BEGIN_MS + n} for n in range(count))


def _totals(count: int) -> dict[Any, Any]:
    found: dict[Any, tuple[int, int]] = {}
    for each in _orders(count):
        at = each["key"], each["time_ms"] // 10_000 * 10_000
        number, total = found.get(at, (0, 0))
        found[at] = number + 1, total + each["amount"]
    return found


def _sentences(count: int) -> Iterator[str]:
    return (f"The number {n} isn't {n % 7}, the remainder of {n % 997} is {n % 23}" for n in range(count))


def _words(count: int) -> dict[Any, Any]:
    return Counter(itertools.chain.from_iterable(map(words, _sentences(count))))


INPUTS: Final = {
    "province": Input(_address_bodies, lambda body: (body["id"], body["province"]), _provinces),
    "windowed_orders": Input(
        lambda count: (json.dumps(each).encode() for each in _orders(count)),
        lambda body: ((body["key"], body["start_ms"]), (body["count"], body["sum"])),
        _totals,
    ),
    "word_count": Input(
        lambda count: (each.encode() for each in _sentences(count)),
        lambda body: (body["word"], body["count"]),
        _words,
    ),
}


def load(name_server: str, topic: str, bodies: Iterator[bytes]) -> None:
    """In batches, in turn to all queues."""
    producer = RemotingClientFactory(ClientOptions(name_server)).producer("bench")
    try:
        queues = itertools.cycle(producer.queues(topic))
        while batch := [Message(body, topic=topic) for body in itertools.islice(bodies, _BATCH)]:
            producer.send_batch(batch, next(queues))
    finally:
        producer.close()


def require_result(name: str, name_server: str, sink: str, count: int) -> None:
    """Raises `UnequalWork` if what is in the sink is not what must come of so many messages."""
    found = dict(INPUTS[name].result(json.loads(each.body)) for each in records_of(name_server, sink))
    if found != INPUTS[name].wanted(count):
        raise UnequalWork(f"{name}: {len(found)} results in {sink} are not those of {count} messages")
