"""The fake broker's encoder against the one of the tests' own, and against the client's decoder."""

from __future__ import annotations

import pytest

from rmqio.testing import InMemoryCluster
from rmqio.testing.cluster import encode_stored
from rmqio.wire.stored import decode_records
from tests.helpers.wire.stored_bytes import V2, Stored


@pytest.mark.parametrize("topic", ["orders", "%RETRY%" + "g" * 130])
@pytest.mark.parametrize("body", [b"x", b"", bytes(range(256)) * 10])
def test_a_stored_message_is_laid_out_as_a_broker_does(topic: str, body: bytes) -> None:
    with InMemoryCluster() as cluster:
        cluster.create_topic(topic, 3)
        cluster.append(topic, b"before", queue_id=2)
        record = cluster.append(topic, body, queue_id=2, tags="ä", properties={"p": "v"}, born_ms=11, store_ms=12)
    expected = Stored(
        body=body,
        topic=topic.encode(),
        properties="TAGS\x01ä\x02p\x01v\x02".encode(),
        queue_id=2,
        queue_offset=1,
        commit_log_offset=record.commit_log_offset,
        born_timestamp_ms=11,
        born_host=b"\x7f\x00\x00\x01\x00\x00\xc3\x50",
        store_timestamp_ms=12,
    )
    if len(topic) > 127:
        expected = expected.but(magic=V2)
    data = encode_stored(record)
    assert data == expected.encode()
    assert len(data) == record.stored_size
    assert decode_records(data, broker="broker-a").records == [record]
