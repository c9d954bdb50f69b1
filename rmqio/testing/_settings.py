"""What an operator would write into a broker's configuration file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of fake brokers; the defaults are those of `LocalRocketMQ`.

    Args:
      auto_create_topics: a send to a missing topic makes it (`autoCreateTopicEnable`).
      sql_filters: take SQL92 filters (`enablePropertyFilter`); what they mean says `InMemoryCluster.define_sql`.
    """

    auto_create_topics: bool = False
    sql_filters: bool = True
