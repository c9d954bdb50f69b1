"""`rmqio find` without the brokers' index, on a fake cluster: places, times, contents, dead letters.

The index is that of real brokers only: tests/integration/cli/test_find.py.
"""

from __future__ import annotations

import pytest

from rmqio.batches import record_id
from rmqio.dead_letters.letters import Failed, make_letter
from rmqio.model import MessageQueue
from tests.helpers.command_line import Tool
from tests.helpers.fakes.broker import FakeBroker


@pytest.fixture(autouse=True)
def messages(broker: FakeBroker) -> None:
    for number in range(12):
        name, queue_id = ("broker-a", "broker-b")[number % 2], number // 2 % 2
        broker.cluster.append(
            "orders",
            b'{"n": %d, "town": "\xe6\x9d\xad%d"}' % (number, number % 3),
            broker=name,
            queue_id=queue_id,
            store_ms=1_000 + number,
            keys=(f"k{number}",),
        )


def numbers(rmqio: Tool, *words: str) -> list[str]:
    return [line["keys"][0] for line in rmqio.lines("find", "orders", *words)]


def test_by_place_time_and_content(rmqio: Tool) -> None:
    assert numbers(rmqio, "--queue", "broker-b:1", "--offset", "2") == ["k11"]
    assert numbers(rmqio, "--at", "1009") == ["k9", "k10", "k11"]
    assert numbers(rmqio, "--at", "1003", "-n", "2") == ["k3", "k4"]
    assert numbers(rmqio, "--grep", '"town": "杭1"') == ["k1", "k4", "k7", "k10"]
    assert numbers(rmqio, "--grep", "town", "--from", "1004", "--to", "1007") == ["k4", "k5", "k6"]
    assert numbers(rmqio, "--grep", "town", "--queue", "broker-a:0") == ["k0", "k4", "k8"]
    assert rmqio("find", "orders", "--grep", "Paris", status=1) == ""
    assert "no such message in topic orders" in rmqio.err


def test_all_that_is_known_is_shown(broker: FakeBroker, rmqio: Tool) -> None:
    record = next(each for each in broker.cluster.records("orders") if each.keys == ("k11",))
    text = rmqio("find", "orders", "--queue", "broker-b:1", "--offset", "2")
    assert f"  offset id {record.offset_message_id}\n" in text
    assert f"  a copy of it would have the id {record_id(record)}\n" in text
    assert text.index("offset id") < text.index("body") < text.index('"n": 11')
    (line,) = rmqio.lines("find", "orders", "--queue", "broker-b:1", "--offset", "2")
    assert (line["id_of_a_copy"], line["store_host"]) == (record_id(record), record.store_host)
    assert (line["dead_letter_of"], line["transaction"], line["is_compressed"]) == (None, None, False)


def test_a_dead_letter_says_what_it_is_about(broker: FakeBroker, rmqio: Tool) -> None:
    broker.cluster.create_topic("dead", 1)
    letter = make_letter(
        Failed(b"x", "KeyError", "no 'id'", origin=MessageQueue("orders", "broker-a", 1), queue_offset=2)
    )
    broker.cluster.append("dead", letter.body, properties=letter.properties)
    text = rmqio("find", "dead", "--offset", "0")
    assert "  dead letter of orders broker-a:1 @ 2: KeyError: no 'id'" in text
    (line,) = rmqio.lines("find", "dead", "--offset", "0")
    assert (line["dead_letter_of"]["queue_offset"], line["dead_letter_of"]["goes_back_to"]) == ("2", "orders")


@pytest.mark.parametrize("origin", ["", "orders", "a/b/c/d", "orders/broker-a/1/-2", "orders/broker-a/0/²"])
def test_a_letter_with_a_strange_place_is_shown_and_not_traced(origin: str, broker: FakeBroker, rmqio: Tool) -> None:
    broker.cluster.create_topic("dead", 1)
    broker.cluster.append("dead", b"x", properties={"RMQIO_ERROR": "E: r", "RMQIO_ORIGIN": origin})
    assert "  dead letter of an unknown place: E: r" in rmqio("find", "dead", "--offset", "0")
    rmqio("trace", "dead", "--offset", "0", "--to", "orders", status=1)
    assert "a dead letter without the place" in rmqio.err


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (["orders"], 2, "nothing says which message: give one of --id, --key, --offset, --at, --grep or --sql"),
        (["orders", "--offset", "1", "--at", "5m"], 2, "--offset and --at are given"),
        (["orders", "--offset", "1"], 2, "topic 'orders' has 4; add --queue, e.g. --queue broker-a:0"),
        (
            ["orders", "--queue", "broker-a:0", "--key", "k"],
            2,
            "--queue can be used only with --offset, --grep and --sql",
        ),
        (["orders", "--key", "k1", "--from", "latest"], 2, "--from must be a TIME if --key is given"),
        (["orders", "--key", "k1", "--to", "earliest"], 2, "--to must be a TIME if --key is given"),
        (["orders", "--sql", ""], 2, "argument --sql: it is empty"),
        (
            ["orders", "--at", "5m", "--from", "1h"],
            2,
            "--from and --to can be used only with --key, --grep and --sql, not with --at",
        ),
        (["orders", "--queue", "broker-a:1", "--offset", "9"], 1, "has no offset 9: it holds 0 to 2"),
        (["ordres", "--at", "5m"], 1, "did you mean orders?"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], status: int, expected: str, rmqio: Tool) -> None:
    rmqio("find", *words, status=status)
    assert expected in rmqio.err
    assert len(rmqio.err.splitlines()) == 1


def test_a_bad_pattern_is_refused(rmqio: Tool) -> None:
    rmqio("find", "orders", "--grep", r"\p(", status=2)
    assert r"'\p(' is not a regular expression" in rmqio.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--to", "bills"], "give the message's --id, or its --queue and --offset"),
        (["--id", "A", "--offset", "1", "--to", "bills"], "give the message's --id, or its --queue and --offset"),
        (["--id", "A"], "give --to with a topic"),
    ],
)
def test_a_trace_needs_a_message_and_a_topic(words: list[str], expected: str, rmqio: Tool) -> None:
    rmqio("trace", "orders", *words, status=2)
    assert expected in rmqio.err


def test_an_audit_is_a_command_of_the_command_line(broker: FakeBroker, rmqio: Tool) -> None:
    broker.cluster.create_topic("bills", 1)
    for record in broker.cluster.records("orders")[:-1]:
        broker.cluster.append("bills", record.body, keys=record.keys)
    assert rmqio.json("audit", "--from-topic", "orders", "--to-topic", "bills", "--by", "keys", status=1)["lost"] == 1
    rmqio("audit", "--from-topic", "orders", "--to-topic", "bils", status=1)
    assert rmqio.err == "rmqio: --to_topic bils: the topic does not exist; did you mean bills?\n"
