"""Shared by the tests of a misbehaving broker: a client that retries at once, and faults that do no harm."""

from __future__ import annotations

from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire.command import Command, RequestCode
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.fakes.faults import Fault

SEND, BATCH, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.PULL_MESSAGE
NOTIFY, RUN_HERE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.CONSUME_MESSAGE_DIRECTLY
A0 = MessageQueue("topic", "broker-a", 0)
ONEWAY = 2


def quick_options(broker: FakeBroker, **changes: object) -> ClientOptions:
    quick = {"request_timeout_ms": 20_000, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, **changes}
    return ClientOptions(broker.name_server, **quick)  # type: ignore[arg-type]


def stored_bodies(broker: FakeBroker) -> list[bytes]:
    return sorted(record.body for record in broker.cluster.records("topic"))


HARMLESS: dict[str, tuple[Fault, int]] = {
    # what happens to one request, and how often its message is stored in the end
    "request lost": (faults.drop(), 1),
    "answer lost": (faults.drop(executed=True), 2),
    "answer cut short": (faults.truncate(11), 2),
    "garbage": (faults.garbage(), 1),
    "closed before": (faults.close(), 1),
    "closed after": (faults.close(executed=True), 2),
    "answered twice": (faults.reply_twice(), 1),
    "answered late": (faults.delay(60), 1),
    "push with our opaque": (faults.push(Command(NOTIFY, {"consumerGroup": "g"}, flag=ONEWAY)), 1),
    "push that wants an answer": (faults.push(Command(RUN_HERE)), 1),
    "busy": (faults.answer(2, "[PCBUSY_CLEAN_QUEUE]"), 1),
    "flow control": (faults.answer(215), 1),
    "not available": (faults.answer(14), 1),
    "system error": (faults.answer(1, "java.lang.IllegalStateException"), 1),
    "system error, yet stored": (faults.answer(1, executed=True), 2),
    "not in this unit": (faults.answer(205), 1),
    "not the leader": (faults.answer(501), 1),
    "topic unknown": (faults.answer(17), 1),
    "shutting down": (faults.answer(1500), 1),
}
