"""Rows and messages of other systems that `rmqio copy` makes messages, and what it prints."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from rmqio.connect import KafkaRecord
from rmqio.connect.copying.job import PrintFn, RowId, ToMessage, kafka_id
from rmqio.errors import SerdeError
from rmqio.model import Message


@pytest.mark.parametrize(
    ("element", "key", "message"),
    [
        ({"id": 7}, "id", Message(b'{"id":7}', keys=("7",))),
        (b'{"a": 1}', None, Message(b'{"a":1}')),
        ({"d": Decimal("0E-10"), "e": Decimal("1E+3")}, "d",
         Message(b'{"d":"0.0000000000","e":"1000"}', keys=("0.0000000000",))),
        (KafkaRecord(b"v", b"k"), None, Message(b"v", keys=("k",), sharding_key="k")),
    ],
)  # fmt: skip
def test_rows_become_messages(element: Any, key: str | None, message: Message) -> None:
    assert ToMessage(key)(element) == message


@pytest.mark.parametrize("row", [{}, {"id": None}, {"id": ""}, {"id": [1]}])
@pytest.mark.parametrize(("read", "use"), [(ToMessage("id"), "a key"), (RowId("id"), "an id")], ids=["key", "id"])
def test_a_row_without_its_key_or_id_is_refused(row: dict[str, Any], read: Any, use: str) -> None:
    with pytest.raises(SerdeError, match=f"the row has no id that can be {use}"):
        read(row)


def test_copies_of_a_message_of_kafka_have_one_id() -> None:
    record = KafkaRecord(b"v", topic="t", partition=1, offset=7)
    assert kafka_id(record) == kafka_id(record._replace(value=b"w", timestamp_ms=9))
    assert len(kafka_id(record)) == 32
    others = [record._replace(topic="u"), record._replace(partition=2), record._replace(offset=8)]
    assert len({kafka_id(each) for each in (record, *others)}) == 4


def test_a_tombstone_is_printed_as_null(capsys: pytest.CaptureFixture[str]) -> None:
    printing = PrintFn()
    printing.start_bundle()
    for each in (KafkaRecord(None, b"k"), KafkaRecord(b"v"), {"a": None}):
        printing.process(each)
    printing.finish_bundle()
    assert capsys.readouterr().out == 'null\nv\n{"a":null}\n'
