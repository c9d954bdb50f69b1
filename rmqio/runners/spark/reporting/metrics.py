"""Combines the metrics of many bundles and tasks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from apache_beam import coders

from rmqio.runners.spark.beam.private import BoundedTrieData, is_bounded_trie, is_string_set, metrics_pb2, to_key
from rmqio.runners.spark.beam.private import consolidate as beam_consolidate

_STRINGS: Final = coders.IterableCoder(coders.StrUtf8Coder())


def consolidate(infos: Iterable[metrics_pb2.MonitoringInfo]) -> list[metrics_pb2.MonitoringInfo]:
    """Returns one MonitoringInfo for each metric and step.

    Beam's own consolidation does not combine string sets and bounded tries, so the last one would win.
    """
    found: dict[Hashable, metrics_pb2.MonitoringInfo] = {}
    for info in beam_consolidate(infos):
        key = to_key(info)
        known = found.get(key)
        found[key] = info if known is None else _joined(known, info)
    return list(found.values())


def _joined(known: metrics_pb2.MonitoringInfo, info: metrics_pb2.MonitoringInfo) -> metrics_pb2.MonitoringInfo:
    if is_string_set(info):
        strings = set(_STRINGS.decode(known.payload)) | set(_STRINGS.decode(info.payload))
        payload = _STRINGS.encode(sorted(strings))
    elif is_bounded_trie(info):
        tries = [BoundedTrieData.from_proto(metrics_pb2.BoundedTrie.FromString(each.payload)) for each in (known, info)]
        payload = tries[0].combine(tries[1]).to_proto().SerializeToString()
    else:
        return info
    return metrics_pb2.MonitoringInfo(urn=info.urn, type=info.type, labels=dict(info.labels), payload=payload)
