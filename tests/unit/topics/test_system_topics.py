"""The names of RocketMQ's own topics."""

from __future__ import annotations

from rmqio.model import BrokerData
from rmqio.topics import users_topics


def test_users_topics_are_without_rocketmqs_own() -> None:
    brokers = [BrokerData("broker-a", "Prod", {0: "x:1"})]
    own = [
        "TBW102",
        "broker-a",
        "Prod",
        "Prod_REPLY_TOPIC",
        "%RETRY%g",
        "%DLQ%g",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRACE_TOPIC",
    ]
    assert users_topics(["b", "a", *own], brokers) == ["a", "b"]
