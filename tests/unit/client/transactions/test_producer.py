"""Half messages and their ends, at a broker that misbehaves: what is sent, how often, and what is made of it."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest

from rmqio.client.check_back import KnownConnections
from rmqio.client.environment import Environment
from rmqio.client.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    TransactionOutcomeUnknown,
    TransactionProducer,
)
from rmqio.errors import FlushDiskTimeout, LocalError, RequestTimeout, TransportError
from rmqio.options import ClientOptions
from rmqio.security import Security
from rmqio.wire.command import RequestCode
from tests.helpers.client.transactions import END, MESSAGE, SEND, ends, producer, serve_until
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker


def test_a_half_message_is_marked_as_one_and_ended_where_it_was_stored(broker: FakeBroker) -> None:
    broker.on(SEND, faults.answer(0, executed=True, queueOffset="77", msgId="7F000001000078BF00000000000000FF"))
    with producer(broker) as made, made.begin(MESSAGE, message_id="the-id") as transaction:
        assert (transaction.message_id, transaction.half.queue_offset) == ("the-id", 77)
        assert not ends(broker)
    (half,) = (request for _, request in broker.requests if request.code == SEND)
    assert half.ext["f"] == "4"
    assert {"TRAN_MSG\x01true", "PGROUP\x01group", "UNIQ_KEY\x01the-id"} <= set(half.ext["i"].split("\x02"))
    (end,) = ends(broker)
    assert end == {
        "topic": "topic",
        "producerGroup": "group",
        "tranStateTableOffset": "77",
        "commitLogOffset": "255",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "the-id",
        "transactionId": "the-id",
    }


@pytest.mark.parametrize(
    ("decision", "number", "is_oneway"), [(COMMIT, "8", 0), (ROLLBACK, "12", 0), (UNKNOWN, "0", 1)]
)
def test_what_execute_decides_is_sent_once(broker: FakeBroker, decision: Any, number: str, is_oneway: int) -> None:
    seen: list[str] = []

    def execute(message_id: str) -> Any:
        seen.append(message_id)
        return decision

    with producer(broker) as made:
        result = made.send(MESSAGE, execute)
        made.serve(50)  # what is one-way leaves no answer to wait for
    assert (seen, result.decision) == ([result.half.message_id], decision)
    (request,) = (request for _, request in broker.requests if request.code == END)
    assert (request.ext["commitOrRollback"], request.is_oneway) == (number, decision is UNKNOWN)


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("fault", [faults.drop(), faults.close(), faults.answer(1, "?"), faults.truncate()])
def test_an_end_without_confirmation_is_not_repeated(broker: FakeBroker, decision: Any, fault: Any) -> None:
    broker.heal()
    broker.on(END, fault, times=None)
    with producer(broker) as made:
        transaction = made.begin(MESSAGE)
        with pytest.raises(TransactionOutcomeUnknown, match="its check decides") as caught:
            transaction.commit() if decision is COMMIT else transaction.rollback()
        assert caught.value.__cause__ is not None
        assert (caught.value.message_id, caught.value.decision) == (transaction.message_id, decision)
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (str(copy), copy.decision) == (str(caught.value), decision)
        for again in (transaction.commit, transaction.rollback, transaction.leave):
            with pytest.raises(LocalError, match=f"was ended with {decision.name}"):
                again()
    assert len(ends(broker)) == 1


def test_an_end_that_could_not_be_sent_is_tried_again(broker: FakeBroker) -> None:
    with producer(broker, changes={"max_retries": 20}) as made:
        transaction = made.begin(MESSAGE)
        broker.stop_broker()
        made.serve(50)  # it notices
        broker.server.call(lambda: broker.start_broker(), 0.02)
        transaction.commit()
    assert [end["commitOrRollback"] for end in ends(broker)] == ["8"]


def test_an_orderly_shutdown_makes_an_end_be_sent_once_more(broker: FakeBroker) -> None:
    broker.heal()
    broker.on(END, faults.answer(1500))
    broker.on(END, faults.answer(0))
    with producer(broker) as made:
        made.begin(MESSAGE).commit()
    assert len(ends(broker)) == 2


@pytest.mark.parametrize("fault", [faults.drop(executed=True), faults.close(), faults.answer(1, "?")])
def test_a_half_message_that_may_be_stored_is_not_sent_again(broker: FakeBroker, fault: Any) -> None:
    broker.on(SEND, fault)
    with producer(broker) as made, pytest.raises(Exception, match=r"no answer|lost|unknown|SYSTEM_ERROR"):
        made.begin(MESSAGE)
    assert (broker.count(SEND), ends(broker)) == (1, [])


def test_a_half_message_that_was_refused_is_sent_again(broker: FakeBroker) -> None:
    broker.on(SEND, faults.answer(2, "[OVERLOAD]"), times=2)
    with producer(broker) as made:
        made.begin(MESSAGE).commit()
    assert broker.count(SEND) == 3


def test_a_half_message_that_is_not_safe_is_rolled_back(broker: FakeBroker) -> None:
    broker.on(SEND, faults.answer(10, executed=True))
    with producer(broker) as made, pytest.raises(FlushDiskTimeout, match="rolled back"):
        made.begin(MESSAGE)
    assert [end["commitOrRollback"] for end in ends(broker)] == ["12"]


def test_a_local_transaction_that_raises_is_left_to_the_check(broker: FakeBroker) -> None:
    def fail(_: str) -> Any:
        raise ZeroDivisionError

    with producer(broker) as made:
        with pytest.raises(ZeroDivisionError):
            made.send(MESSAGE, fail)
        with pytest.raises(ZeroDivisionError), made.begin(MESSAGE):
            raise ZeroDivisionError
        with pytest.raises(LocalError, match="must return COMMIT"):
            made.send(MESSAGE, lambda _: None)  # type: ignore[arg-type,return-value]
        with made.begin(MESSAGE) as transaction:
            transaction.rollback()
        serve_until(made, lambda: len(ends(broker)) == 4)
    assert [end["commitOrRollback"] for end in ends(broker)] == ["0", "0", "0", "12"]


def test_what_name_servers_say_by_then_does_not_matter_to_an_end(broker: FakeBroker) -> None:
    with producer(broker) as made:

        def store_and_forget(exchange: Any) -> None:
            broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, faults.answer(17), times=None)
            made._routes.invalidate("topic")
            exchange.send(exchange.handle())

        broker.on(SEND, store_and_forget)
        made.begin(MESSAGE).commit()
    assert [end["commitOrRollback"] for end in ends(broker)] == ["8"]


def test_what_cannot_be_sent_is_refused_here(broker: FakeBroker) -> None:
    with producer(broker) as made:
        for message in (MESSAGE.replace(delay_level=1), MESSAGE.replace(deliver_at_ms=1), MESSAGE.replace(body=b"")):
            with pytest.raises(LocalError):
                made.begin(message)
        with pytest.raises(LocalError, match="not one of the producer's topics: topic"):
            made.begin(MESSAGE.replace(topic="other"))
    wrong: list[dict[str, Any]] = [{"topics": []}, {"topics": "topic"}, {"changes": {"vip_channel": True}}]
    for more in wrong:
        with pytest.raises(LocalError):
            producer(broker, **more)
    assert broker.count(SEND) == 0


def test_transactions_of_a_closed_producer_are_left(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    made = producer(broker)
    with made:
        transaction = made.begin(MESSAGE)
    made.close()
    with pytest.raises(LocalError, match="closed"):
        transaction.commit()
    assert transaction.is_open
    assert "will check open transactions" in caplog.text
    assert not ends(broker)


def test_a_forked_child_is_refused(broker: FakeBroker) -> None:
    with producer(broker, background=True) as made:
        child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                made.begin(MESSAGE)
            except LocalError as error:
                os._exit(0 if "parent process" in str(error) else 2)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        made.begin(MESSAGE).commit()
    assert len(ends(broker)) == 1


def test_an_unknown_outcome_is_no_other_error() -> None:
    """An error whose call may be tried again is retriable; this may not."""
    error = TransactionOutcomeUnknown("id", COMMIT)
    assert not error.retriable
    assert not isinstance(error, TransportError | RequestTimeout)


def test_two_addresses_that_lead_to_one_place_have_one_connection() -> None:
    """Else what ends a transaction goes by another than its half message did."""
    security = Security(address_map={"a:1": "gateway:7", "b:1": "gateway:7"})
    pool = KnownConnections(ClientOptions("name-server:9876", security=security), Environment())
    assert pool.connection("a:1") is pool.connection("b:1") is pool.leading_to("gateway:7")
    pool.close()


def test_a_check_that_is_no_function_is_refused() -> None:
    with pytest.raises(LocalError, match="check is None; it must be a function"):
        TransactionProducer(ClientOptions("a:1"), "group", None, topics=["t"])  # type: ignore[arg-type]
