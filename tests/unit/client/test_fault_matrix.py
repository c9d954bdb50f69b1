"""Answers that a real server cannot be brought to, times what a client asks: right, or a typed error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.connection import Connection
from rmqio.client.producer import RemotingProducer
from rmqio.errors import (
    BrokerError,
    BrokerSystemError,
    GoAway,
    NoPermission,
    OffsetOutOfRange,
    RequestTimeout,
    RmqioError,
    TopicNotExist,
    TransportError,
    WireError,
    broker_error,
)
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.testing import ManualClock
from rmqio.wire.command import Command, CommandFlag, RequestCode, encode_frame
from tests.helpers.client.harm import Read, read_until
from tests.helpers.client.unplugged import environment_on
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import NAME_SERVER, FakeBroker
from tests.helpers.fakes.network import ScriptedNetwork, ScriptedTransport
from tests.helpers.waiting import until
from tests.helpers.watchdog import nothing_is_left, within

A0 = MessageQueue("topic", "broker-a", 0)
GROUP = "a-group"
BACKLOG = 300
WATCHDOG_S = 20.0
PULL, ROUTE = RequestCode.PULL_MESSAGE, RequestCode.GET_ROUTEINFO_BY_TOPIC
ONEWAY = 2


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        fake.cluster.create_topic("topic", 1)
        for n in range(BACKLOG):
            fake.cluster.append("topic", b"%d" % n)
        yield fake


def options(broker: FakeBroker, **changes: Any) -> ClientOptions:
    quick = {"request_timeout_ms": 5_000, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, **changes}
    return ClientOptions(broker.name_server, **quick)


# ---- one request and its answer --------------------------------------------------------------------------------------

Op = Callable[[FakeBroker, RemotingQueueClient, RemotingProducer], object]


def _commit(broker: FakeBroker, client: RemotingQueueClient, producer: RemotingProducer) -> object:
    client.commit_offset(GROUP, A0, 7)
    return broker.cluster.committed(GROUP, A0)


OPS: dict[str, tuple[RequestCode, Op, object]] = {
    "route": (ROUTE, lambda _, client, __: client.queues("topic"), (A0,)),
    "maximum offset": (RequestCode.GET_MAX_OFFSET, lambda _, client, __: client.max_offset(A0), BACKLOG),
    "minimum offset": (RequestCode.GET_MIN_OFFSET, lambda _, client, __: client.min_offset(A0), 0),
    "offset by time": (
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        lambda _, client, __: client.offset_for_time(A0, 1 << 50),
        BACKLOG,
    ),
    "group offset": (RequestCode.QUERY_CONSUMER_OFFSET, lambda _, client, __: client.committed_offset(GROUP, A0), 3),
    "commit": (RequestCode.UPDATE_CONSUMER_OFFSET, _commit, 7),
    "send": (
        RequestCode.SEND_MESSAGE_V2,
        lambda _, __, producer: producer.send(Message(b"x"), A0, message_id="ID").message_id,
        "ID",
    ),
    "batch": (
        RequestCode.SEND_BATCH_MESSAGE,
        lambda _, __, producer: [r.message_id for r in producer.send_batch([Message(b"x")], A0, message_ids=["ID"])],
        ["ID"],
    ),
}
SENDS = ("send", "batch")
CODES = [1, 2, 3, 4, 11, 12, 14, 16, 17, 19, 20, 21, 215, 501, 1500, 9_999]
STORED = (10, 11, 12)
"""To a send these say that it is stored."""


def _error(op: str, code: int) -> type[RmqioError] | None:
    """Returns the error that comes of a code without retries; None: the right result."""
    if op in SENDS and code in STORED:
        return None
    if op == "route" and code == BrokerSystemError.number:
        return TransportError  # it is not ready: another one is asked, if there is one
    return type(broker_error(code, None, ""))


@pytest.mark.parametrize("retries", [0, 5], ids=["once", "retried"])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("op", OPS)
def test_a_code_is_its_error_or_tried_again(broker: FakeBroker, op: str, code: int, retries: int) -> None:
    request, ask, right = OPS[op]
    broker.cluster.commit(GROUP, A0, 3)
    executed = op in SENDS and code in STORED
    # Asked to go away, a client asks once more elsewhere at once: only twice is it an error.
    times = 2 if code == GoAway.number and op not in SENDS else 1
    broker.on(request, faults.answer(code, "why", executed=executed), times=times, broker=_server(op))
    error = _error(op, code)
    expected: type[RmqioError] | None = error
    if error is not None and retries:
        again = error.retriable or (error is TopicNotExist and op != "route")
        expected = None if again else error
    changes = options(broker, max_retries=retries)
    with nothing_is_left(), closing(RemotingQueueClient(changes)) as client, RemotingProducer(changes, "g") as producer:
        if expected is None:
            assert within(WATCHDOG_S, lambda: ask(broker, client, producer)) == right
        else:
            with pytest.raises(expected, match="why") as caught:
                within(WATCHDOG_S, lambda: ask(broker, client, producer))
            assert caught.type is expected
        assert within(WATCHDOG_S, lambda: ask(broker, client, producer)) == right
        assert producer.statistics.unknown_outcomes == 0
    if op in SENDS:
        stored = [record.message_id for record in broker.cluster.records("topic")]
        assert stored.count("ID") == (2 if expected is None else 1)


def _server(op: str) -> str:
    return NAME_SERVER if op == "route" else "broker-a"


PUSHES = {
    "group changed": Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, flag=ONEWAY),
    "check of a transaction": Command(RequestCode.CHECK_TRANSACTION_STATE, {"tranStateTableOffset": "1"}, flag=ONEWAY),
    "reset": Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "topic", "group": "g"}),
    "consume directly": Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"brokerName": "broker-a"}),
}


@pytest.mark.parametrize("push", PUSHES)
@pytest.mark.parametrize("op", OPS)
def test_a_pushed_request_with_our_opaque_is_no_answer(broker: FakeBroker, op: str, push: str) -> None:
    request, ask, right = OPS[op]
    broker.cluster.commit(GROUP, A0, 3)
    broker.on(request, faults.push(PUSHES[push]), broker=_server(op))
    once = options(broker, max_retries=0)
    with nothing_is_left(), closing(RemotingQueueClient(once)) as client, RemotingProducer(once, "g") as producer:
        for _ in range(3):
            assert within(WATCHDOG_S, lambda: ask(broker, client, producer)) == right
        refused = [] if PUSHES[push].is_oneway else [3]
        until(lambda: len(broker.client_answers) >= len(refused), "the refusal, which nobody waits for")
    assert [answer.code for answer in broker.client_answers] == refused


@pytest.mark.parametrize("op", OPS)
def test_a_second_answer_is_no_answer_to_the_next_request(broker: FakeBroker, op: str) -> None:
    request, ask, right = OPS[op]
    broker.cluster.commit(GROUP, A0, 3)
    broker.on(request, faults.reply_twice(), broker=_server(op))
    once = options(broker, max_retries=0)
    with nothing_is_left(), closing(RemotingQueueClient(once)) as client, RemotingProducer(once, "g") as producer:
        assert within(WATCHDOG_S, lambda: ask(broker, client, producer)) == right
        assert within(WATCHDOG_S, lambda: ask(broker, client, producer)) == right
        end = len(broker.cluster.records("topic"))
        assert within(WATCHDOG_S, lambda: client.max_offset(A0)) == end
        assert within(WATCHDOG_S, lambda: producer.send(Message(b"y"), A0)).queue_offset == end


# ---- reading ---------------------------------------------------------------------------------------------------------


def _read(broker: FakeBroker, client: RemotingQueueClient, *, held: bool) -> Read:
    """All messages, and with `held` one that comes while the end is awaited and the next pull meets its fate."""
    if not held:
        reader = client.open_reader(A0, 0, message_filter=MessageFilter())
        return within(WATCHDOG_S, lambda: read_until(client, reader, BACKLOG))
    reader = client.open_reader(A0, BACKLOG, message_filter=MessageFilter())

    def until_held() -> None:
        while not reader.is_at_end:
            client.wait([reader], 10)

    within(WATCHDOG_S, until_held)
    broker.cluster.append("topic", b"%d" % BACKLOG)
    return within(WATCHDOG_S, lambda: read_until(client, reader, BACKLOG + 1))


PULL_CODES = [1, 2, 3, 11, 12, 14, 16, 17, 215, 501, 1500, 9_999]


@pytest.mark.parametrize("skip", [0, 1, 3])
@pytest.mark.parametrize("code", PULL_CODES)
def test_a_pull_answered_with_a_code_is_asked_again_or_its_error(broker: FakeBroker, code: int, skip: int) -> None:
    """The first pull, the second of those in flight, and one in their midst."""
    for _ in range(skip):
        broker.on(PULL, lambda exchange: exchange.send(exchange.handle()))
    broker.on(PULL, faults.answer(code, "why"))
    with nothing_is_left(), closing(RemotingQueueClient(options(broker, pull_depth=4))) as client:
        read = _read(broker, client, held=False)
    assert [(record.queue_offset, record.body) for record in read.records] == [(n, b"%d" % n) for n in range(BACKLOG)]
    error = type(broker_error(code, None, ""))
    assert [type(found) for found in read.errors] == ([] if error.retriable else [error])
    assert (read.corrupt, read.skipped) == ([], 0)


@pytest.mark.parametrize("code", PULL_CODES)
def test_a_held_pull_answered_with_a_code_is_asked_again_or_its_error(broker: FakeBroker, code: int) -> None:
    broker.on(PULL, lambda exchange: exchange.send(exchange.handle()))
    broker.on(PULL, faults.answer(code, "why"))
    with nothing_is_left(), closing(RemotingQueueClient(options(broker))) as client:
        reader = client.open_reader(A0, BACKLOG, message_filter=MessageFilter())

        def until_answered() -> None:
            while broker.count(PULL) < 2:
                client.wait([reader], 10)

        within(WATCHDOG_S, until_answered)
        broker.cluster.append("topic", b"new")
        read = within(WATCHDOG_S, lambda: read_until(client, reader, BACKLOG + 1))
    assert [record.body for record in read.records] == [b"new"]
    error = type(broker_error(code, None, ""))
    assert [type(found) for found in read.errors] == ([] if error.retriable else [error])


TURNS: dict[str, tuple[int, str, int, list[type[RmqioError]], int]] = {
    # code, remark, next offset less the one asked for, errors, offsets skipped
    "end that is none": (19, "OFFSET_OVERFLOW_ONE", 0, [], 0),
    "nothing there, go on further": (19, "OFFSET_FOUND_NULL", 5, [], 5),
    "again, and nothing moved": (20, "NO_MATCHED_MESSAGE", 0, [], 0),
    "again, and it went back": (20, "NO_MATCHED_MESSAGE", -9, [], 0),
    "again behind a removed file": (20, "MESSAGE_WAS_REMOVING", 5, [], 5),
    "moved": (21, "OFFSET_OVERFLOW_BADLY", 0, [OffsetOutOfRange], 0),
    "found, and nothing is there": (0, "FOUND", 0, [], 0),
    "found, and it went back": (0, "FOUND", -9, [], 0),
}


@pytest.mark.parametrize("name", TURNS)
def test_a_pull_that_gives_no_messages_loses_none(broker: FakeBroker, name: str) -> None:
    code, remark, step, errors, skipped = TURNS[name]

    def turn(exchange: faults.Exchange) -> None:
        after = int(exchange.request.ext["queueOffset"]) + step
        ext = {"nextBeginOffset": str(after), "minOffset": "0", "maxOffset": str(BACKLOG), "suggestWhichBrokerId": "0"}
        exchange.send(Command(code, ext, remark=remark))

    for _ in range(2):
        broker.on(PULL, lambda exchange: exchange.send(exchange.handle()))
    broker.on(PULL, turn)
    with nothing_is_left(), closing(RemotingQueueClient(options(broker, pull_depth=4))) as client:
        read = _read(broker, client, held=False)
    missing = range(64, 64 + skipped)
    assert [record.queue_offset for record in read.records] == [n for n in range(BACKLOG) if n not in missing]
    assert [type(found) for found in read.errors] == errors
    assert (read.corrupt, read.skipped) == ([], skipped)


@pytest.mark.parametrize("held", [False, True], ids=["backlog", "held"])
@pytest.mark.parametrize("fault", [*PUSHES, "twice"])
def test_a_reader_is_not_confused(broker: FakeBroker, fault: str, held: bool) -> None:
    done = faults.reply_twice() if fault == "twice" else faults.push(PUSHES[fault])
    broker.on(PULL, done, times=None if not held else 1)
    with nothing_is_left(), closing(RemotingQueueClient(options(broker, pull_depth=4))) as client:
        read = _read(broker, client, held=held)
    first, end = (BACKLOG, BACKLOG + 1) if held else (0, BACKLOG)
    assert [record.queue_offset for record in read.records] == list(range(first, end))
    assert (read.corrupt, read.skipped, read.errors) == ([], 0, [])


# ---- the life of a socket --------------------------------------------------------------------------------------------

ADDRESS = "broker:10911"


def _answer(opaque: int, body: bytes = b"") -> bytes:
    return encode_frame(Command(0, opaque=opaque, flag=CommandFlag.RESPONSE, body=body))


def _connection(clock: ManualClock, *transports: ScriptedTransport) -> Connection:
    network = ScriptedNetwork({ADDRESS: transports})
    return Connection(ADDRESS, environment=environment_on(clock, network))


def _echo(request: Command) -> list[Command]:
    return [Command(0, body=b"answer to %d" % request.code)]


def test_a_length_that_is_too_large_does_not_swallow_the_answers_that_follow() -> None:
    """Unnoticed, each answer would be taken for the rest of the first: nobody would ever get one again."""
    clock = ManualClock()
    broken = bytearray(_answer(1))
    broken[1] = 1  # 64 KiB more than there are
    stuck = ScriptedTransport([bytes(broken)], clock=clock)
    connection = _connection(clock, stuck, ScriptedTransport(responder=_echo))
    with pytest.raises(RequestTimeout):
        connection.request(Command(1), 1_000)
    assert stuck.is_closed
    assert connection.request(Command(2), 1_000).body == b"answer to 2"


def test_a_large_answer_that_is_still_coming_is_waited_for() -> None:
    clock = ManualClock()
    whole = _answer(1, bytes(1_000))
    slow = ScriptedTransport(clock=clock)
    connection = _connection(clock, slow)
    large, small = connection.start_all([Command(1), Command(2)])
    slow.feed(whole[:100])
    assert large.session.pump(0)
    clock.advance(0.9)
    slow.feed(whole[100:200])
    with pytest.raises(RequestTimeout):
        small.result(timeout_ms=150)
    slow.feed(whole[200:])
    assert large.result(1_000).body == bytes(1_000)


def test_what_failed_a_connection_does_not_keep_the_callers_variables() -> None:
    clock = ManualClock()
    connection = _connection(clock, ScriptedTransport([TransportError("reset by peer")], clock=clock))
    with pytest.raises(TransportError, match="reset by peer") as caught:
        connection.request(Command(1), 1_000)
    kept = caught.value.__cause__
    assert isinstance(kept, TransportError)
    assert kept.__traceback__ is None


@pytest.mark.parametrize("late", [faults.drop(), faults.delay(30)], ids=["lost", "late"])
def test_a_socket_that_the_server_asked_to_leave_is_closed_though_an_answer_is_missing(
    broker: FakeBroker, late: faults.Fault
) -> None:
    broker.on(RequestCode.HEART_BEAT, late)
    broker.on(RequestCode.SEND_MESSAGE_V2, faults.answer(1500))
    with nothing_is_left():
        producer = RemotingProducer(options(broker), "g")
        producer.send(Message(b"x"), A0)
        assert broker.connections() == 2
        producer.close()


def test_a_socket_that_was_left_is_closed_with_the_next_one(broker: FakeBroker) -> None:
    broker.on(RequestCode.HEART_BEAT, faults.delay(30))
    broker.on(RequestCode.SEND_MESSAGE_V2, faults.answer(1500))
    with RemotingProducer(options(broker), "g") as producer:
        producer.send(Message(b"x"), A0)
        broker.drop_connections("broker-a")
        producer.send(Message(b"x"), A0)
        connection = next(iter(producer._owned_pool._connections.values()))  # type: ignore[union-attr]
        assert connection._retired == []


def test_unknown_codes_are_broker_errors_with_their_number(broker: FakeBroker) -> None:
    broker.on(RequestCode.GET_MAX_OFFSET, faults.answer(9_999, "news"))
    with closing(RemotingQueueClient(options(broker))) as client, pytest.raises(BrokerError) as caught:
        client.max_offset(A0)
    assert (caught.value.code, caught.value.remark) == (9_999, "news")


@pytest.mark.parametrize(
    ("answer", "error"), [(faults.answer(16), NoPermission), (faults.answer(0), WireError)], ids=["refused", "rubbish"]
)
def test_a_retry_that_gets_no_route_is_the_outcome_of_that_send_alone(
    broker: FakeBroker, answer: faults.Fault, error: type[RmqioError]
) -> None:
    with nothing_is_left():
        producer = RemotingProducer(options(broker, route_refresh_ms=1, max_retries=3), "g")
        producer.send(Message(b"x"), A0)
        broker.on(RequestCode.SEND_BATCH_MESSAGE, faults.close())
        pending = producer.submit([Message(b"x")], A0)
        broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, answer, times=None)
        producer.close()
        with pytest.raises(error):
            pending.result()


def test_an_answer_that_makes_no_sense_says_nothing_of_what_is_stored(broker: FakeBroker) -> None:
    broker.on(RequestCode.SEND_MESSAGE_V2, faults.answer(0))
    with RemotingProducer(options(broker), "g") as producer:
        with pytest.raises(WireError):
            producer.send(Message(b"x"), A0)
        assert producer.statistics.unknown_outcomes == 1
