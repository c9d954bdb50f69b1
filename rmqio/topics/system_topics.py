"""Identifies RocketMQ's own topics (TopicValidator.java, MixAll.java, TopicConfigManager.java)."""

from __future__ import annotations

from collections.abc import Iterable

from rmqio.model import BrokerData

_NAMES = frozenset(
    {
        "TBW102",  # the template for new topics
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
_PREFIXES = ("rmq_sys_", "RMQ_SYS_", "%RETRY%", "%DLQ%")


def users_topics(topics: Iterable[str], brokers: Iterable[BrokerData]) -> list[str]:
    """Return the topics without RocketMQ's own, sorted. Brokers also create topics named after them and the cluster."""
    own = set(_NAMES)
    for broker in brokers:
        own |= {broker.broker, broker.cluster, f"{broker.cluster}_REPLY_TOPIC"}
    return sorted(topic for topic in topics if topic not in own and not topic.startswith(_PREFIXES))
