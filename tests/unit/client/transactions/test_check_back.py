"""The broker's questions about transactions: which are answered, with what, and on which connection."""

from __future__ import annotations

from typing import Any

import pytest

from rmqio.client.transactions import COMMIT, ROLLBACK, UNKNOWN
from rmqio.errors import LocalError
from rmqio.model import Record
from rmqio.security import Security
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.transactions import (
    CHECK,
    HEARTBEAT,
    MESSAGE,
    ONEWAY,
    SEND,
    asked,
    ends,
    producer,
    serve_until,
)
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.waiting import until


@pytest.mark.parametrize(("decision", "number"), [(COMMIT, "8"), (ROLLBACK, "12"), (UNKNOWN, "0")])
def test_a_question_is_answered_for_the_place_that_it_names(broker: FakeBroker, decision: Any, number: str) -> None:
    seen: list[Record] = []

    def check(record: Record) -> Any:
        seen.append(record)
        return decision

    with producer(broker, check) as made:
        serve_until(made, lambda: broker.count(HEARTBEAT))
        assert broker.count(SEND) == 0, "it is known to the broker before it sends anything"
        broker.push(asked("left-behind", 5, 600))
        serve_until(made, lambda: ends(broker))
    (record,) = seen
    assert (record.topic, record.body, record.tags, record.message_id) == ("topic", b"half", "a", "left-behind")
    (end,) = ends(broker)
    assert (end["commitOrRollback"], end["fromTransactionCheck"]) == (number, "true")
    assert (end["tranStateTableOffset"], end["commitLogOffset"], end["msgId"]) == ("5", "600", "left-behind")


@pytest.mark.parametrize("answer", [None, "COMMIT", 8, True])
def test_a_check_that_gives_no_decision_decides_nothing(
    broker: FakeBroker, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    with producer(broker, lambda _: answer) as made:
        serve_until(made, lambda: broker.count(HEARTBEAT))
        broker.push(asked("x", 5, 600))
        serve_until(made, lambda: ends(broker))
    assert ends(broker)[0]["commitOrRollback"] == "0"
    assert "not COMMIT, ROLLBACK or UNKNOWN" in caplog.text


def test_a_check_that_fails_decides_nothing(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    with producer(broker, lambda record: 1 // 0) as made:
        serve_until(made, lambda: broker.count(HEARTBEAT))
        broker.push(asked("x", 5, 600))
        broker.push(Command(CHECK, {"commitLogOffset": "none"}, flag=ONEWAY))
        broker.push(asked("y", 6, 700))
        serve_until(made, lambda: len(ends(broker)) == 2)
    assert [end["commitOrRollback"] for end in ends(broker)] == ["0", "0"]
    assert "ZeroDivisionError" in caplog.text
    assert "cannot be read" in caplog.text


def test_an_open_transaction_is_not_asked_about_and_ended_where_it_is_now(broker: FakeBroker) -> None:
    checks: list[Record] = []

    def check(record: Record) -> Any:
        checks.append(record)
        return ROLLBACK

    with producer(broker, check) as made:
        transaction = made.begin(MESSAGE)
        broker.push(asked(transaction.message_id, 41, 4100))
        broker.push(asked("another", 42, 4200))
        serve_until(made, lambda: checks)
        transaction.commit()
    assert [record.message_id for record in checks] == ["another"]
    places = [(end["msgId"], end["commitOrRollback"], end["tranStateTableOffset"]) for end in ends(broker)]
    assert places == [("another", "12", "42"), (transaction.message_id, "8", "41")]


def test_a_question_about_what_was_confirmed_drops_the_copy_while_the_connection_lasts(broker: FakeBroker) -> None:
    with producer(broker, lambda _: COMMIT) as made:
        transaction = made.begin(MESSAGE)
        transaction.commit()
        broker.push(asked(transaction.message_id, 41, 4100))
        serve_until(made, lambda: len(ends(broker)) == 2)
        heartbeats = broker.count(HEARTBEAT)
        broker.drop_connections("broker-a")  # who is there now may have lost it
        serve_until(made, lambda: broker.count(HEARTBEAT) > heartbeats)
        broker.push(asked(transaction.message_id, 43, 4300))
        serve_until(made, lambda: len(ends(broker)) == 3)
    places = [(end["commitOrRollback"], end["commitLogOffset"]) for end in ends(broker)[1:]]
    assert places == [("12", "4100"), ("8", "4300")]


def test_an_id_that_begins_again_is_asked_about_again(broker: FakeBroker) -> None:
    """The first try of an order fails and is rolled back; the second one crashes when its database has committed."""
    seen: list[str] = []

    def check(record: Record) -> Any:
        seen.append(record.message_id)
        return COMMIT

    with producer(broker, check) as made:
        made.begin(MESSAGE, message_id="order-1").rollback()
        made.begin(MESSAGE, message_id="order-1").leave()
        broker.push(asked("order-1", 5, 50))
        serve_until(made, lambda: len(ends(broker)) == 3)
    assert seen == ["order-1"]
    assert [(end["commitOrRollback"], end["commitLogOffset"]) for end in ends(broker)][2:] == [("8", "50")]


def test_the_end_of_an_older_transaction_leaves_a_newer_one_with_the_same_id_open(broker: FakeBroker) -> None:
    seen: list[str] = []

    def check(record: Record) -> Any:
        seen.append(record.message_id)
        return ROLLBACK

    with producer(broker, check) as made:
        older = made.begin(MESSAGE, message_id="order-1")
        newer = made.begin(MESSAGE, message_id="order-1")
        older.leave()
        broker.push(asked("order-1", 5, 50))
        broker.push(asked("another", 6, 60))
        serve_until(made, lambda: seen)
        newer.commit()
    assert seen == ["another"]
    assert [(end["commitOrRollback"], end["commitLogOffset"]) for end in ends(broker)][2:] == [("8", "50")]


def test_a_question_is_answered_where_it_came_from_though_routes_name_another_address(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    port = broker.address().rpartition(":")[2]
    target = f"localhost:{port}"
    security = Security(address_map={broker.address(): target}, allowed_addresses=["10.0.0.0/8"])
    with producer(broker, lambda _: COMMIT, changes={"security": security}) as made:
        transaction = made.begin(MESSAGE)
        broker.push(asked("left-behind", 5, 50))
        transaction.rollback()  # whose answer comes behind the question: before the first heartbeat
        assert broker.connections() == 1
        serve_until(made, lambda: len(ends(broker)) == 2)
        assert broker.connections() == 1
    assert [(end["msgId"], end["commitOrRollback"]) for end in ends(broker)][1:] == [("left-behind", "8")]
    assert "cannot be read" not in caplog.text


def test_a_refused_heartbeat_is_reported_once_until_the_broker_takes_one(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    with producer(broker) as made:
        for number, (code, told) in enumerate([(16, 1), (16, 1), (0, 1), (16, 2)], 1):
            broker.on(HEARTBEAT, faults.answer(code, "check signature failed."))
            broker.drop_connections("broker-a")  # which makes it register anew
            serve_until(made, lambda wanted=number: broker.count(HEARTBEAT) == wanted)  # type: ignore[misc]
            made.serve(50)  # it reads the answer
            assert len(warnings()) == told
    assert f"'group' at broker {broker.address()}" in warnings()[0]
    assert "check signature failed" in warnings()[0]


def test_a_transaction_that_nobody_holds_is_asked_about(broker: FakeBroker) -> None:
    with producer(broker, lambda _: COMMIT) as made:
        message_id = made.begin(MESSAGE).message_id  # and the handle is gone
        broker.push(asked(message_id, 41, 4100))
        serve_until(made, lambda: ends(broker))
    assert ends(broker)[0]["fromTransactionCheck"] == "true"


def test_the_thread_registers_and_answers_by_itself(broker: FakeBroker) -> None:
    with producer(broker, lambda _: COMMIT, background=True) as made:
        with pytest.raises(LocalError, match="background thread"):
            made.serve(1)
        until(lambda: broker.count(HEARTBEAT), "its registration")
        broker.push(asked("x", 5, 600))
        until(lambda: ends(broker), "its answer")
    with pytest.raises(LocalError, match="closed"):
        made.begin(MESSAGE)


def test_a_broker_that_was_away_is_told_again(broker: FakeBroker) -> None:
    broker.stop_broker()
    with producer(broker, changes={"connect_timeout_ms": 200}) as made:
        made.serve(30)
        assert broker.count(HEARTBEAT) == 0
        broker.start_broker()
        serve_until(made, lambda: broker.count(HEARTBEAT))


def test_pushed_requests_of_other_kinds_are_refused_as_ever(broker: FakeBroker) -> None:
    with producer(broker) as made:
        serve_until(made, lambda: broker.count(HEARTBEAT))
        broker.push(Command(RequestCode.CONSUME_MESSAGE_DIRECTLY))
        serve_until(made, lambda: broker.client_answers)
    assert [answer.code for answer in broker.client_answers] == [3]
