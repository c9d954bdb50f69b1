"""The display data of a read: where it starts and stops, and what it makes of messages. No secrets, no contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StopAt
from rmqio.transforms.deduplicate import DropDuplicates
from rmqio.transforms.reading.config import ReadConfig
from rmqio.transforms.reading.options import name_of
from rmqio.transforms.reading.watermark import TimestampPolicy

_MOST_OFFSETS: Final = 20


def shown_config(
    config: ReadConfig,
    timestamp: TimestampPolicy,
    dead_letter_topic: str | None,
    deduplicate: DropDuplicates | None,
) -> dict[str, Any]:
    """The arguments of a read by name; None for those that have their default."""
    return {
        **_shown_start(config.start),
        **_shown_stop(config.stop),
        "consumer_group": config.group,
        "filter": config.message_filter.expression,
        "filter_type": "SQL92" if config.message_filter.sql else None,
        "deserializer": name_of(config.deserializer),
        "timestamp": _shown_timestamp(timestamp),
        "batches": config.batches or None,
        "claim_check": None if config.claim_check is None else config.claim_check.path,
        "dead_letter_topic": dead_letter_topic,
        "deduplicate_within_ms": deduplicate.within_ms if deduplicate else None,
        "deduplicate_id_of": name_of(deduplicate.id_of) if deduplicate else None,
    }


def _shown_timestamp(policy: TimestampPolicy) -> str | None:
    if isinstance(policy, str):
        return None if policy == "born" else policy
    return name_of(policy)


def _shown_start(start: StartFrom) -> dict[str, Any]:
    return {
        "start": start.kind,
        "start_timestamp_ms": start.timestamp_ms if start.kind == "timestamp" else None,
        "start_offsets": _listed(start.offsets),
        "start_reset": start.reset if start.needs_group and start.reset != "latest" else None,
    }


def _shown_stop(stop: StopAt | None) -> dict[str, Any]:
    if stop is None:
        return {}
    return {
        "stop": stop.kind,
        "stop_timestamp_ms": stop.timestamp_ms if stop.kind == "timestamp" else None,
        "stop_offsets": _listed(stop.stops),
    }


def _listed(offsets: Sequence[tuple[MessageQueue, int]]) -> str | None:
    shown = [f"{queue.topic}/{queue.broker}/{queue.queue_id}: {offset}" for queue, offset in offsets[:_MOST_OFFSETS]]
    more = len(offsets) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])]) or None
