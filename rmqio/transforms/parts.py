"""The parts of our transforms, for transforms on top of them: batches, failures, metrics, coders, elements that wait.

Packages on top of `rmqio.transforms` import its public names and these, and none of its other modules.
"""

from __future__ import annotations

from rmqio.transforms.coders import DECODE_ERRORS, ENCODE_ERRORS, BatchConstraint, RecordCoder, ValueCoder
from rmqio.transforms.failures import failed_of, failure_of_record, failure_of_value
from rmqio.transforms.map_records import HandlesFailures
from rmqio.transforms.metrics import Count, Latency, Share, observe_process
from rmqio.transforms.reading.in_process import is_in_process
from rmqio.transforms.reading.options import factory_of
from rmqio.transforms.reading.record_batches import ERRORS_TAG, failure_of_member, located, located_at, located_member
from rmqio.transforms.reading.restriction import (
    Claim,
    QueueRange,
    QueueRangeCoder,
    QueueRangeTracker,
    QueueWatermark,
    QueueWatermarks,
    beam_timestamp,
)
from rmqio.transforms.waiting import WAITING_LEVELS, Waiting, second_after
from rmqio.transforms.writing.elements import check_sendable
from rmqio.wire.batch import copy_of
from rmqio.wire.properties import is_reserved

__all__ = [
    "DECODE_ERRORS",
    "ENCODE_ERRORS",
    "ERRORS_TAG",
    "WAITING_LEVELS",
    "BatchConstraint",
    "Claim",
    "Count",
    "HandlesFailures",
    "Latency",
    "QueueRange",
    "QueueRangeCoder",
    "QueueRangeTracker",
    "QueueWatermark",
    "QueueWatermarks",
    "RecordCoder",
    "Share",
    "ValueCoder",
    "Waiting",
    "beam_timestamp",
    "check_sendable",
    "copy_of",
    "factory_of",
    "failed_of",
    "failure_of_member",
    "failure_of_record",
    "failure_of_value",
    "is_in_process",
    "is_reserved",
    "located",
    "located_at",
    "located_member",
    "observe_process",
    "second_after",
]
