"""Where a batch goes, and what its results are, when the first try has no answer or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rmqio.errors import BrokerSilent, RequestTimeout, RmqioError, SystemBusy
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.sending.certain import CertainProducer

HERE, THERE = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-b", 0)
IDS = ("x", "y", "z")


class Broker:
    """A producer whose first tries fail, and the look-up of what it has stored all the same."""

    def __init__(self, errors: Sequence[RmqioError], *stored: str) -> None:
        self._errors, self._stored = [*errors], stored
        self.tries: list[tuple[str, str]] = []
        self.looks = 0
        self.now = 0.0

    def queues(self, _: str) -> Sequence[MessageQueue]:
        return HERE, THERE

    def submit(self, _: Any, queue: MessageQueue, *, ordered: bool, message_ids: Sequence[str]) -> Any:
        self.tries.append((queue.broker[-1], "".join(message_ids)))
        self._message_ids, self._queue = message_ids, queue
        return self

    def result(self) -> list[SendResult]:
        if self._errors:
            self.now += 60
            raise self._errors.pop(0)
        return [SendResult(self._queue, IDS.index(each), each, "") for each in self._message_ids]

    def floor(self, _: MessageQueue) -> int:
        return 0

    def find(self, _: MessageQueue, begin: int, ids: Sequence[str]) -> Mapping[str, int]:
        self.looks += 1
        return {each: IDS.index(each) for each in ids if each in self._stored}


def sent(broker: Broker, *, ordered: bool = True, outage_timeout_s: float = 600) -> Sequence[SendResult]:
    made: Any = broker
    producer = CertainProducer(
        made, made, max_retries=3, outage_timeout_s=outage_timeout_s, awaits_topic=lambda _: False,
        clock=lambda: broker.now, sleep=lambda _: None,
    )  # fmt: skip
    return producer.submit([Message(b"", topic="t")] * len(IDS), HERE, ordered=ordered, message_ids=IDS).result()


@pytest.mark.parametrize(
    ("error", "stored", "ordered", "tries", "looks"),
    [
        (RequestTimeout("no answer"), "", True, ["a xyz", "a xyz"], 1),
        (RequestTimeout("no answer"), "x", True, ["a xyz", "a yz"], 1),
        (RequestTimeout("no answer"), "y", True, ["a xyz", "a xz"], 1),
        (RequestTimeout("no answer"), "z", False, ["a xyz", "a xy"], 1),
        (RequestTimeout("no answer"), "xyz", True, ["a xyz"], 1),
        (SystemBusy(2, "busy", "send"), "", True, ["a xyz", "a xyz"], 0),
        (SystemBusy(2, "busy", "send"), "", False, ["a xyz", "b xyz"], 0),
        (BrokerSilent("away"), "", True, ["a xyz", "a xyz"], 0),
        (BrokerSilent("away"), "", False, ["a xyz", "b xyz"], 0),
    ],
    ids=str,
)
def test_only_what_is_missing_is_sent_again_and_only_without_order_to_another_broker(
    error: RmqioError, stored: str, ordered: bool, tries: list[str], looks: int
) -> None:
    broker = Broker([error], *stored)
    results = sent(broker, ordered=ordered)
    assert [" ".join(each) for each in broker.tries] == tries
    assert broker.looks == looks
    assert [(each.message_id, each.queue_offset) for each in results] == [(each, IDS.index(each)) for each in IDS]


def test_what_is_found_when_the_time_is_up_was_sent() -> None:
    lost = [RequestTimeout("no answer"), RequestTimeout("no answer")]
    assert len(sent(Broker(lost, *IDS), outage_timeout_s=0)) == len(IDS)
    with pytest.raises(RequestTimeout):
        sent(Broker(lost, "x", "y"), outage_timeout_s=0)


def test_the_time_of_an_outage_begins_with_its_first_failure() -> None:
    broker = Broker([RequestTimeout("no answer")] * 9)
    with pytest.raises(RequestTimeout):
        sent(broker, outage_timeout_s=150)
    assert len(broker.tries) == 4, "at 60, 120, 180 and 240 s"
