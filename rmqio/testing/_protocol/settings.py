"""Settings that an operator would put into a broker's configuration file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of fake brokers; the defaults are those of `LocalRocketMQ`.

    Args:
      auto_create_topics: whether a send to a missing topic creates it (`autoCreateTopicEnable`).
      sql_filters: whether to accept SQL92 filters (`enablePropertyFilter`); `InMemoryCluster.define_sql` defines them.
    """

    auto_create_topics: bool = False
    sql_filters: bool = True
