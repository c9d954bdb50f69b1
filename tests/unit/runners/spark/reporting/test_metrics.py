"""Metrics of many tasks, joined."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import BoundedTrieData, StringSetData

from rmqio.runners.spark.reporting import consolidate


def test_string_sets_and_tries_of_tasks_are_joined() -> None:
    def sets(*strings: str) -> Any:
        return monitoring_infos.user_set_string("ns", "set", StringSetData(set(strings)), ptransform="step")

    def trie(*path: str) -> Any:
        return monitoring_infos.user_bounded_trie("ns", "trie", BoundedTrieData(singleton=path), ptransform="step")

    count = monitoring_infos.int64_user_counter("ns", "count", 2, ptransform="step")
    found = consolidate([sets("a"), trie("x", "y"), count, sets("b", "a"), trie("x", "z"), count, sets("c")])
    values = {info.urn: monitoring_infos.extract_metric_result_map_value(info) for info in found}
    assert len(found) == 3
    assert values[monitoring_infos.USER_STRING_SET_URN] == {"a", "b", "c"}
    assert values[monitoring_infos.USER_COUNTER_URN] == 4
    trie_value = values[monitoring_infos.USER_BOUNDED_TRIE_URN]
    assert trie_value.contains(("x", "y"))
    assert trie_value.contains(("x", "z"))
