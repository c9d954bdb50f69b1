"""Descriptors of queues, as values."""

from __future__ import annotations

import json

import pytest

from rmqio import MessageQueue, QueueDescriptor, StartFrom, StopAt
from rmqio.errors import WireError
from rmqio.transforms.reading.restriction import QueueDescriptorCoder
from tests.helpers.transforms.reading import T0

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


@pytest.mark.parametrize(
    "descriptor",
    [
        QueueDescriptor(Q0),
        QueueDescriptor(Q0, StartFrom.earliest(), StopAt.latest(), 5),
        QueueDescriptor(Q0, StartFrom.timestamp(T0), StopAt.timestamp(T0)),
        QueueDescriptor(Q0, StartFrom.group_offsets("error"), StopAt.offsets({Q0: 9})),
        QueueDescriptor(Q0, StartFrom.specific_offsets({Q0: 4}, "earliest")),
    ],
)
def test_a_descriptor_survives_its_coder(descriptor: QueueDescriptor) -> None:
    coder = QueueDescriptorCoder()
    assert coder.decode(coder.encode(descriptor)) == descriptor
    assert coder.encode(descriptor) == coder.encode(coder.decode(coder.encode(descriptor)))


def test_a_descriptor_carries_the_offsets_of_its_own_queue_only() -> None:
    both = {Q0: 4, Q1: 5}
    encoded = QueueDescriptorCoder().encode(QueueDescriptor(Q1, StartFrom.specific_offsets(both), StopAt.offsets(both)))
    decoded = QueueDescriptorCoder().decode(encoded)
    assert decoded.start == StartFrom.specific_offsets({Q1: 5})
    assert decoded.stop == StopAt.offsets({Q1: 5})


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"null", json.dumps({"queue": [1]}).encode()])
def test_garbage_is_no_descriptor(data: bytes) -> None:
    with pytest.raises(WireError, match="not a queue descriptor"):
        QueueDescriptorCoder().decode(data)
