"""A write waits for brokers that are away: for how long, and for which failures it does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from rmqio.errors import LocalError, MessageIllegal, RmqioError, TopicNotExist, TransportError
from rmqio.interfaces import PendingSend
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.sending.producers import RetryingProducer
from rmqio.testing import ManualClock


class Failing:
    """A producer whose sends, and looks for queues, fail as told, and then do not."""

    def __init__(self, *errors: RmqioError) -> None:
        self.errors = list(errors)
        self.tries = 0

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        self._fail()
        return [MessageQueue(topic, "b", 0)]

    def send(self, message: Message, queue: Any = None, *, message_id: str | None = None) -> SendResult:
        self._fail()
        return SendResult(MessageQueue("t", "b", 0), 0, message_id or "", "")

    def send_batch(self, messages: Any, queue: Any = None, *, message_ids: Any = None) -> list[SendResult]:
        return [self.send(message) for message in messages]

    def submit(self, messages: Any, queue: Any, *, ordered: bool = False, message_ids: Any = None) -> PendingSend:
        return _Pending(self)

    def close(self) -> None:
        raise AssertionError("it belongs to somebody else")

    def _fail(self) -> None:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)


class _Pending:
    def __init__(self, producer: Failing) -> None:
        self._producer = producer

    def is_done(self) -> bool:
        return True

    def result(self) -> list[SendResult]:
        return [self._producer.send(Message(b"x"))]


def patient(producer: Failing, clock: ManualClock, *, awaits_topic: bool = False) -> RetryingProducer:
    return RetryingProducer(
        producer, outage_timeout_s=10, awaits_topic=lambda topic: awaits_topic, clock=clock.monotonic, sleep=clock.sleep
    )


NUMBERS = itertools.count()
CALLS: dict[str, Callable[[RetryingProducer], object]] = {
    "queues": lambda producer: producer.queues(f"t{next(NUMBERS)}"),
    "send": lambda producer: producer.send(Message(b"x")),
    "send_batch": lambda producer: producer.send_batch([Message(b"x")]),
    "submit": lambda producer: producer.submit([Message(b"x")], MessageQueue("t", "b", 0)).result(),
}


@pytest.mark.parametrize("name", CALLS)
def test_patience_lasts_as_long_as_it_is_told(name: str) -> None:
    call, clock = CALLS[name], ManualClock()
    producer = Failing(*[TransportError("gone")] * 9)
    call(patient(producer, clock))
    assert producer.tries == 10
    endless = Failing(*[TransportError("gone")] * 99)
    waiting = patient(endless, clock)
    with pytest.raises(TransportError):
        call(waiting)
    assert endless.tries == 11
    with pytest.raises(TransportError):
        call(waiting)
    assert endless.tries == 12, "what comes behind has no time of its own"
    endless.errors.clear()
    call(waiting)
    endless.errors += [TransportError("gone")] * 5
    call(waiting)


@pytest.mark.parametrize("error", [LocalError("closed"), MessageIllegal(13, "illegal", "send")])
def test_there_is_no_patience_with_what_stays(error: RmqioError) -> None:
    producer = Failing(error)
    with pytest.raises(type(error)):
        patient(producer, ManualClock()).send(Message(b"x"))
    assert producer.tries == 1


def test_a_topic_is_awaited_where_it_may_be_away() -> None:
    missing = TopicNotExist(17, "no route", "route")
    with pytest.raises(TopicNotExist):
        patient(Failing(missing), ManualClock()).queues("t")
    producer = Failing(missing, missing)
    waiting = patient(producer, ManualClock(), awaits_topic=True)
    assert waiting.queues("t") == [MessageQueue("t", "b", 0)]
    producer.errors.append(TransportError("gone"))
    with pytest.raises(TransportError):
        waiting.queues("t")  # who has a list goes on with that
    waiting.close()
