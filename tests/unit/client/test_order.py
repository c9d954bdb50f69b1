"""Order of a sharding key through retries: a send that is tried again is not overtaken, whatever happens to it.

On a manual clock: an answer is late because it is, not because a machine is slow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.client.producer import RemotingProducer
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire.command import RequestCode
from tests.helpers.client.unplugged import UnpluggedBroker
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.fakes.faults import Fault

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
KEYS = [f"key-{number}" for number in range(5)]
MISHAPS: dict[str, Callable[[], Fault]] = {
    "lost request": faults.drop,
    "lost answer": lambda: faults.drop(executed=True),
    "late answer": lambda: faults.delay(150),
    "broken before": faults.close,
    "broken after": lambda: faults.close(executed=True),
    "half an answer": faults.truncate,
    "busy": lambda: faults.answer(2, "[OVERLOAD]"),
    "flow control": lambda: faults.answer(215),
    "system error": lambda: faults.answer(1, "?"),
    "not the leader": lambda: faults.answer(501),
    "shutting down": lambda: faults.answer(1500),
    "twice": faults.reply_twice,
}


def producer(broker: UnpluggedBroker) -> RemotingProducer:
    """One that is quick to give up on an answer, and slow to give up on a message."""
    quick = {"request_timeout_ms": 80, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "max_retries": 30}
    options = ClientOptions(broker.name_server, **quick)  # type: ignore[arg-type]
    return RemotingProducer(options, "group", environment=broker.environment)


@contextmanager
def topic_on_two_brokers() -> Iterator[UnpluggedBroker]:
    with UnpluggedBroker(brokers=("broker-a", "broker-b")) as broker:
        broker.cluster.create_topic("topic", 2, ("broker-a", "broker-b"))
        yield broker


def assert_in_order(broker: FakeBroker, sent: dict[str, list[int]]) -> None:
    """Each key in one queue; a message may be there again, but only before the next one came."""
    by_key: dict[str, list[tuple[MessageQueue, int]]] = {}
    for record in broker.cluster.records("topic"):
        assert record.sharding_key is not None
        by_key.setdefault(record.sharding_key, []).append((record.queue, int(record.body)))
    assert by_key.keys() == sent.keys()
    for key, found in by_key.items():
        assert len({queue for queue, _ in found}) == 1
        numbers = [number for _, number in found]
        assert numbers == sorted(numbers), f"{key}: {numbers}"
        assert sorted(set(numbers)) == sent[key]


@settings(max_examples=25)
@given(st.lists(st.sampled_from(sorted(MISHAPS)), max_size=6), st.integers(0, 2**32))
def test_single_sends_of_a_key_stay_in_order(mishaps: list[str], seed: int) -> None:
    chance = random.Random(seed)
    sent: dict[str, list[int]] = {}
    with topic_on_two_brokers() as broker, producer(broker) as made:
        for number in range(12):
            if mishaps and chance.random() < 0.6:
                broker.on(SEND, MISHAPS[mishaps.pop()]())
            key = chance.choice(KEYS)
            made.send(Message(b"%d" % number, topic="topic", sharding_key=key))
            sent.setdefault(key, []).append(number)
    assert_in_order(broker, sent)


@settings(max_examples=25)
@given(st.lists(st.sampled_from(sorted(MISHAPS)), max_size=6), st.integers(0, 2**32))
def test_ordered_batches_of_a_key_stay_in_order(mishaps: list[str], seed: int) -> None:
    """Several on their way at once, to several queues."""
    chance = random.Random(seed)
    queues = [MessageQueue("topic", name, number) for name in ("broker-a", "broker-b") for number in (0, 1)]
    sent: dict[str, list[int]] = {}
    with topic_on_two_brokers() as broker, producer(broker) as made:
        pending = []
        for number in range(0, 36, 3):
            if mishaps and chance.random() < 0.6:
                broker.on(BATCH, MISHAPS[mishaps.pop()]())
            place = chance.randrange(len(queues))
            key = f"key-{place}"
            numbers = [number, number + 1, number + 2]
            messages = [Message(b"%d" % n, sharding_key=key) for n in numbers]
            pending.append(made.submit(messages, queues[place], ordered=True))
            sent.setdefault(key, []).extend(numbers)
        for one in pending:
            assert len(one.result()) == 3
    in_batches = {
        key: [record for record in broker.cluster.records("topic") if record.sharding_key == key] for key in sent
    }
    for key, records in in_batches.items():
        first_seen = list(dict.fromkeys(int(record.body) for record in records))
        assert first_seen == sent[key]
        batches = [int(record.body) // 3 for record in records]
        assert batches == sorted(batches), "a batch that was tried again lies behind a later one"
