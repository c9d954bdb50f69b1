"""Entries of the message trace: the bytes that Java's TraceDataEncoder writes, and what its decoder takes of them."""

from __future__ import annotations

from rmqio.model import Message, MessageQueue, Record, SendResult, SendStatus
from rmqio.wire import traces

QUEUE = MessageQueue("orders", "broker-a", 3)
OFFSET_ID = "C0A80102" + "00002A9F" + "0000000000000F00"


def fields(text: str) -> list[str]:
    """Splits one entry as Java does: String.split drops empty strings at the end."""
    assert text.endswith("\x02")
    found = text[:-1].split("\x01")
    while found and not found[-1]:
        found.pop()
    return found


def record(properties: bytes, **changes: object) -> Record:
    made = Record(
        "orders", "broker-a", 3, 7, b"body", 1, 2, properties, 2, 0, 0, 0xF00, 0, bytes(8),
        bytes([192, 168, 1, 2, 0, 0, 0x2A, 0x9F]), 0, 100,
    )  # fmt: skip
    return made._replace(**changes)  # type: ignore[arg-type]


def test_a_stored_message_is_the_entry_of_javas_pub() -> None:
    message = Message(b"12345", tags="red", keys=("k1", "k2"))
    result = SendResult(QUEUE, 7, "ID7", OFFSET_ID)
    assert traces.sent("makers", "orders", message, result, started_ms=1_000, latency_ms=4) == (
        "Pub\x011000\x01DefaultRegion\x01makers\x01orders\x01ID7\x01red\x01k1 k2\x01192.168.1.2:10911\x015\x014\x010"
        f"\x01{OFFSET_ID}\x01true\x02"
    )


def test_what_a_message_lacks_is_the_null_of_java() -> None:
    """An empty field at the end would be dropped by Java's split, and then be missed."""
    result = SendResult(QUEUE, 7, "ID7", "", SendStatus.FLUSH_SLAVE_TIMEOUT)
    found = fields(traces.sent("g", "t", Message(b"1", deliver_at_ms=5), result, started_ms=1, latency_ms=2))
    assert found[6:] == ["null", "null", "broker-a", "1", "2", "3", "null", "false"]
    plain = traces.traced([record(b"UNIQ_KEY\x01ID7\x02")])
    (before,) = traces.read("g", "R", plain, region="null", now_ms=9)
    assert fields(before) == ["SubBefore", "9", "null", "g", "R", "ID7", "2", "null"]
    (after,) = traces.handled("g", "R", plain, now_ms=9, cost_ms=3)
    assert fields(after) == [
        "SubAfter", "R", "ID7", "3", "true", "null", "0", "9", "g",
    ]  # fmt: skip


def test_a_received_message_has_two_entries_with_one_request_id() -> None:
    found = record(b"MSG_REGION\x01north\x02KEYS\x01a b\x02UNIQ_KEY\x01ID7\x02TRACE_ON\x01true")
    seen = traces.traced([found])
    (text,) = traces.read("readers", "R1", seen, region=traces.region_of(found), now_ms=5)
    assert text == "SubBefore\x015\x01north\x01readers\x01R1\x01ID7\x012\x01a b\x02"
    (text,) = traces.handled("readers", "R1", seen, now_ms=6, cost_ms=1)
    assert text == "SubAfter\x01R1\x01ID7\x011\x01true\x01a b\x010\x016\x01readers\x02"


def test_a_broker_can_say_that_its_messages_are_not_traced() -> None:
    off, lookalike = b"TRACE_ON\x01false\x02UNIQ_KEY\x01ID7", b"X_TRACE_ON\x01false\x02UNIQ_KEY\x01ID8"
    assert [each.message_id for each in traces.traced([record(off), record(lookalike)])] == ["ID8"]


def test_the_address_in_an_offset_id() -> None:
    assert traces.store_host(OFFSET_ID) == "192.168.1.2:10911"
    assert (
        traces.store_host("00" * 15 + "01" + "00002A9F" + "00" * 8) == "[0000:0000:0000:0000:0000:0000:0000:0001]:10911"
    )
    for odd in ("", "not hex", "00", "00" * 13):
        assert traces.store_host(odd) == ""
