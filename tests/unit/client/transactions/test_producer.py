"""The transaction producer against a broker that misbehaves: what it sends, how often, and what it makes of it."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqio.client.environment import Environment
from rmqio.client.transactions.check_back import KnownConnections
from rmqio.client.transactions.producer import COMMIT, ROLLBACK, UNKNOWN, TransactionOutcomeUnknown, TransactionProducer
from rmqio.errors import FlushDiskTimeout, LocalError, RequestTimeout, TransportError
from rmqio.model import Message, Record
from rmqio.options import ClientOptions
from rmqio.security import Security
from rmqio.testing import FakeBroker, faults
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command
from tests.helpers.stored_bytes import Stored

SEND, END, CHECK = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION, RequestCode.CHECK_TRANSACTION_STATE
HEARTBEAT = RequestCode.HEART_BEAT
ONEWAY = 2
MESSAGE = Message(b"body", topic="topic", tags="a")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=("broker-a", "broker-b")) as fake:
        fake.cluster.create_topic("topic", 1, ("broker-a",))
        fake.on(END, faults.answer(0), times=None)
        yield fake


def options(broker: FakeBroker, **changes: Any) -> ClientOptions:
    quick = {"request_timeout_ms": 300, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "heartbeat_ms": 600_000}
    return ClientOptions(broker.name_server, **(quick | changes))


def producer(
    broker: FakeBroker, check: Callable[[Record], Any] = lambda _: UNKNOWN, **more: Any
) -> TransactionProducer:
    defaults: dict[str, Any] = {"topics": ["topic"], "background": False}
    more = defaults | more
    changes = more.pop("changes", {})
    return TransactionProducer(options(broker, **changes), "group", check, **more)


def ends(broker: FakeBroker) -> list[dict[str, str]]:
    """What brokers were told, without what is always the same."""
    return [dict(request.ext) for _, request in tuple(broker.requests) if request.code == END]


def asked(message_id: str, queue_offset: int, commit_log_offset: int) -> Command:
    """The broker's question, about a half message that it has stored anew at these places."""
    ext = {
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(commit_log_offset),
        "msgId": message_id,
        "transactionId": message_id,
        "bname": "broker-a",
    }
    properties = f"UNIQ_KEY\x01{message_id}\x02TAGS\x01a\x02".encode()
    return Command(CHECK, ext, Stored(body=b"half", topic=b"topic", properties=properties).encode(), flag=ONEWAY)


def serve_until(made: TransactionProducer, is_done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not is_done():
        assert time.monotonic() < deadline
        made.serve(20)


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
def test_what_execute_decides_is_told_once(broker: FakeBroker, decision: Any, number: str, is_oneway: int) -> None:
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


def test_what_name_servers_say_by_then_does_not_matter_to_an_end(broker: FakeBroker) -> None:
    with producer(broker) as made:

        def store_and_forget(exchange: Any) -> None:
            broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, faults.answer(17), times=None)
            made._routes.invalidate("topic")
            exchange.send(exchange.handle())

        broker.on(SEND, store_and_forget)
        made.begin(MESSAGE).commit()
    assert [end["commitOrRollback"] for end in ends(broker)] == ["8"]


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


def test_a_refused_heartbeat_is_told_once_until_the_broker_takes_one(
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
        deadline = time.monotonic() + 30
        while not broker.count(HEARTBEAT):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        broker.push(asked("x", 5, 600))
        while not ends(broker):
            assert time.monotonic() < deadline
            time.sleep(0.01)
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
    """What may be tried again is retriable; this may not."""
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
