"""Rows and messages of other systems that `rmqio copy` makes messages, and what it prints."""

from __future__ import annotations

from typing import Any

import pytest

from rmqio.connect.copying.messages import PrintFn, RowId, ToMessage, kafka_id
from rmqio.errors import SerdeError
from rmqio.model import TOMBSTONE, Message


@pytest.mark.parametrize(
    ("element", "key", "message"),
    [
        ({"id": 7}, "id", Message(b'{"id":7}', keys=("7",))),
        (b'{"a": 1}', None, Message(b'{"a":1}')),
    ],
)
def test_rows_become_messages(element: Any, key: str | None, message: Message) -> None:
    assert ToMessage(key)(element) == message


@pytest.mark.parametrize("row", [{}, {"id": None}, {"id": ""}, {"id": [1]}])
@pytest.mark.parametrize(("read", "use"), [(ToMessage("id"), "a key"), (RowId("id"), "an id")], ids=["key", "id"])
def test_a_row_without_its_key_or_id_is_refused(row: dict[str, Any], read: Any, use: str) -> None:
    with pytest.raises(SerdeError, match=f"the row has no id that can be {use}"):
        read(row)


def test_messages_of_kafka_keep_keys_headers_and_tombstones() -> None:
    from rmqio.connect import KafkaRecord

    found = ToMessage(None)(KafkaRecord(b"v", b"k", (("h", b"x"),)))
    assert found == Message(b"v", keys=("k",), sharding_key="k", properties={"h": "x"})
    assert ToMessage(None)(KafkaRecord(b"v", b"two words")).keys == ()
    assert ToMessage(None)(KafkaRecord(None, b"k")) == Message(
        b"", keys=("k",), sharding_key="k", properties={TOMBSTONE: "true"}
    )
    with pytest.raises(SerdeError, match="a tombstone of Kafka needs a key"):
        ToMessage(None)(KafkaRecord(None))


def test_copies_of_a_message_of_kafka_have_one_id() -> None:
    from rmqio.connect import KafkaRecord

    record = KafkaRecord(b"v", topic="t", partition=1, offset=7)
    assert kafka_id(record) == kafka_id(record._replace(value=b"w", timestamp_ms=9))
    assert len(kafka_id(record)) == 32
    others = [record._replace(topic="u"), record._replace(partition=2), record._replace(offset=8)]
    assert len({kafka_id(each) for each in (record, *others)}) == 4


def test_a_tombstone_is_printed_as_null(capsys: pytest.CaptureFixture[str]) -> None:
    from rmqio.connect import KafkaRecord

    printing = PrintFn()
    printing.start_bundle()
    for each in (KafkaRecord(None, b"k"), KafkaRecord(b"v"), {"a": None}):
        printing.process(each)
    printing.finish_bundle()
    assert capsys.readouterr().out == 'null\nv\n{"a":null}\n'
