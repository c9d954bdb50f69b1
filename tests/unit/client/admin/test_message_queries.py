"""Queries by id and key, on answers of brokers: fake brokers have no index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from rmqio.client.admin import MOST, Admin, MessageQueries
from rmqio.errors import CorruptMessage, TransportError
from rmqio.model import BrokerData
from rmqio.wire.command import Command
from tests.helpers.wire.stored_bytes import Stored

MASTER, REPLICA = "127.0.0.1:10911", "127.0.0.1:10912"
B = BrokerData("broker-b", "c", {0: "127.0.0.1:10921"})


class Answers:
    """Brokers that answer each query with these messages, but for those that are away."""

    def __init__(self, *messages: Stored, away: Sequence[str] = (), brokers: Sequence[BrokerData] = ()) -> None:
        self._body = b"".join(each.encode() for each in messages)
        self._away = away
        self._brokers = brokers or [BrokerData("broker-a", "c", {0: MASTER})]
        self.asked: list[str] = []
        self.fields: list[Any] = []

    def brokers(self) -> Sequence[BrokerData]:
        return self._brokers

    def answer_at(self, address: str, command: Command) -> Command:
        self.asked.append(address)
        self.fields.append(command.ext)
        if address in self._away:
            raise TransportError(f"{address} is away")
        return Command(0, body=self._body)

    def wire_name(self, topic: str) -> str:
        return topic

    users_name = wire_name


def by_key(*messages: Stored) -> list[Any]:
    return MessageQueries(cast("Admin", Answers(*messages))).by_key("orders", "k")


GOOD = Stored(queue_offset=3, properties=b"KEYS\x01k\x02")


def test_a_message_that_does_not_decode_is_not_no_message() -> None:
    damaged = GOOD.but(queue_offset=4, crc=1)
    assert [each.queue_offset for each in by_key(GOOD, damaged)] == [3]
    with pytest.raises(CorruptMessage, match="offset 4"):
        by_key(damaged)


def test_others_with_the_same_hash_are_left_out() -> None:
    assert by_key(GOOD.but(properties=b"KEYS\x01other\x02"), GOOD.but(topic=b"bills")) == []


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "offsets"),
    [(0, None, [0, 1, 2]), (10_900, 10_901, [1]), (10_901, None, [2]), (0, 10_900, [0]), (11_000, 11_000, [])],
)
def test_times_are_exact_although_those_of_the_index_are_seconds(
    begin_ms: int, end_ms: int | None, offsets: list[int]
) -> None:
    """A broker compares the second in which a message was stored with the times that are asked for."""
    stored = [GOOD.but(queue_offset=n, store_timestamp_ms=ms) for n, ms in enumerate((10_100, 10_900, 11_200))]
    answers = Answers(*stored)
    found = MessageQueries(cast("Admin", answers)).by_key("orders", "k", begin_ms=begin_ms, end_ms=end_ms)
    assert [each.queue_offset for each in found] == offsets
    assert int(answers.fields[-1]["beginTimestamp"]) == max(0, begin_ms - 1_000)


def test_a_full_answer_is_noted_also_if_others_with_the_same_hash_are_in_it() -> None:
    answers = Answers(*[GOOD] * (MOST - 1), GOOD.but(properties=b"KEYS\x01other\x02"))
    found = MessageQueries(cast("Admin", answers))
    assert len(found.by_key("orders", "k")) == MOST - 1
    assert found.may_have_more == {"broker-a"}


def queries(**arguments: Any) -> tuple[MessageQueries, Answers]:
    answers = Answers(GOOD, **arguments)
    return MessageQueries(cast("Admin", answers)), answers


def test_the_others_answer_while_a_broker_is_away_which_is_named_and_waited_for_once() -> None:
    found, answers = queries(away=[MASTER], brokers=[BrokerData("broker-a", "c", {0: MASTER}), B])
    for _ in range(3):
        assert [each.broker for each in found.by_key("orders", "k")] == ["broker-b"]
    assert found.away == {"broker-a": f"{MASTER} is away"}
    assert answers.asked.count(MASTER) == 1


@pytest.mark.parametrize("addresses", [{0: MASTER, 1: REPLICA}, {1: REPLICA}], ids=["away", "unknown"])
def test_a_replica_answers_for_its_master(addresses: dict[int, str]) -> None:
    found, _ = queries(away=[MASTER], brokers=[BrokerData("broker-a", "c", addresses)])
    assert [each.broker for each in found.by_key("orders", "k")] == ["broker-a"]
    assert found.away == {}
    assert list(found.from_replica) == ["broker-a"]


def test_nobody_answers() -> None:
    found, _ = queries(away=[MASTER, REPLICA], brokers=[BrokerData("broker-a", "c", {0: MASTER, 1: REPLICA})])
    with pytest.raises(TransportError, match=rf"no broker answers \(broker-a: {MASTER} is away\)"):
        found.by_key("orders", "k")


def test_the_broker_that_an_id_names_is_asked_at_its_replica() -> None:
    found, answers = queries(away=[MASTER], brokers=[BrokerData("broker-a", "c", {0: MASTER, 1: REPLICA}), B])
    found.by_offset_id("orders", "7F000001" + "00002A9F" + "0" * 16)
    assert answers.asked == [MASTER, REPLICA]
