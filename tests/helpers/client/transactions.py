"""Shared by the tests of transactions: a producer, the checks of a broker, and the decisions that it received."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqio.client.transactions import UNKNOWN, TransactionProducer
from rmqio.model import Message, Record
from rmqio.options import ClientOptions
from rmqio.wire.command import Command, RequestCode
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.waiting import until
from tests.helpers.wire.stored_bytes import Stored

SEND, END, CHECK = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION, RequestCode.CHECK_TRANSACTION_STATE
HEARTBEAT = RequestCode.HEART_BEAT
ONEWAY = 2
MESSAGE = Message(b"body", topic="topic", tags="a")


def options(broker: FakeBroker, **changes: Any) -> ClientOptions:
    quick = {"request_timeout_ms": 300, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "heartbeat_ms": 600_000}
    return ClientOptions(broker.name_server, **(quick | changes))


def producer(
    broker: FakeBroker, check: Callable[[Record], Any] = lambda _: UNKNOWN, **more: Any
) -> TransactionProducer:
    defaults: dict[str, Any] = {"topics": ["topic"], "background": False}
    more = defaults | more
    changes = more.pop("changes", {})
    return TransactionProducer(options(broker, **changes), "group", check, **more)


def ends(broker: FakeBroker) -> list[dict[str, str]]:
    """Returns the decisions that brokers received, without the fields that are always the same."""
    return [dict(request.ext) for _, request in tuple(broker.requests) if request.code == END]


def asked(message_id: str, queue_offset: int, commit_log_offset: int) -> Command:
    """Returns the broker's check of a half message that it has stored again at this place."""
    ext = {
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(commit_log_offset),
        "msgId": message_id,
        "transactionId": message_id,
        "bname": "broker-a",
    }
    properties = f"UNIQ_KEY\x01{message_id}\x02TAGS\x01a\x02".encode()
    return Command(CHECK, ext, Stored(body=b"half", topic=b"topic", properties=properties).encode(), flag=ONEWAY)


def serve_until(made: TransactionProducer, is_done: Callable[[], object]) -> None:
    """Lets a producer without a thread serve until this is done."""

    def holds() -> object:
        if done := is_done():
            return done
        made.serve(20)
        return None

    until(holds, "the requests of a transaction", pause_s=0)
