"""Faults on the way to a real broker, times what a client sends and asks: right, or a typed error.

The way leads through a proxy that breaks one frame. Each cell: it ends; the outcome is the one permitted; what is
stored is what was acknowledged and, of an unknown outcome, what may be; the same objects work again; nothing is left.
Reading is in `test_matrix_reading`.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.errors import RequestTimeout, RmqioError, SystemBusy, TransportError, WireError
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from rmqio.wire.command import RequestCode
from tests.helpers.client.harm import HARMS, WATCHDOG_S, Harm, Net, net_of, new_ids, recovered, send
from tests.helpers.client.proxy import Side, faults
from tests.helpers.client.raw_send import read_to, records_of
from tests.helpers.waiting import at_most
from tests.helpers.watchdog import nothing_is_left, within

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def net(rocketmq: LocalRocketMQ) -> Iterator[Net]:
    with net_of(rocketmq) as net:
        yield net


@pytest.fixture(autouse=True)
def healed(net: Net) -> Iterator[None]:
    yield
    net.heal()


# ---- sends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 5], ids=["once", "retried"])
@pytest.mark.parametrize("name", HARMS)
@pytest.mark.parametrize("way", ["send", "batch"])
def test_sends(net: Net, way: str, name: str, retries: int) -> None:
    harm = HARMS[name]
    begin = net.direct.max_offset(net.queue)
    with nothing_is_left():
        for _ in range(10):
            with closing(RemotingProducer(net.options(harm, max_retries=retries), "faulty")) as producer:
                try:
                    _send_through(net, producer, harm, way, begin, is_retried=retries > 0)
                except SystemBusy:  # on a loaded machine, and nothing was stored
                    net.heal()
                else:
                    return
        raise AssertionError("the broker is too busy for each of ten tries")


def _send_through(net: Net, producer: RemotingProducer, harm: Harm, way: str, begin: int, *, is_retried: bool) -> None:
    code = RequestCode.SEND_MESSAGE_V2 if way == "send" else RequestCode.SEND_BATCH_MESSAGE
    recovered(lambda: producer.queues(net.topic))
    net.broker.on(harm.fault, harm.side, code)
    hits, ids = net.broker.hits, new_ids(1 if way == "send" else 3)
    offsets: list[int] = []
    if harm.error is None or is_retried:
        offsets = within(WATCHDOG_S, lambda: send(producer, net.queue, way, ids))
    else:
        with pytest.raises((harm.error, SystemBusy)) as caught:
            within(WATCHDOG_S, lambda: send(producer, net.queue, way, ids))
        if caught.type is not harm.error:
            raise caught.value
    assert net.broker.hits == hits + 1
    unknown = producer.statistics.unknown_outcomes
    assert (unknown > 0) is (harm.error is not None)
    net.heal()
    after = new_ids(1)
    (marker,) = recovered(lambda: send(producer, net.queue, "send", after))
    stored = net.stored(begin, marker)
    assert stored[after[0]] >= 1
    for message_id in ids:
        acknowledged = len(offsets) > 0
        assert acknowledged <= stored[message_id] <= acknowledged + unknown
        if harm.is_executed is not None:
            assert stored[message_id] == acknowledged + unknown * harm.is_executed


def test_batches_in_flight_get_their_own_answers_in_whatever_order(net: Net) -> None:
    net.broker.on(faults.reorder(3, at_most_ms=1_000), Side.ANSWER, RequestCode.SEND_BATCH_MESSAGE, times=2)
    begin, hits = net.direct.max_offset(net.queue), net.broker.hits
    with nothing_is_left(), closing(RemotingProducer(net.options(Harm(faults.cut())), "faulty")) as producer:
        ids = [new_ids(3) for _ in range(6)]
        pending = [
            producer.submit([Message(each.encode()) for each in some], net.queue, message_ids=some) for some in ids
        ]
        results = [within(WATCHDOG_S, each.result) for each in pending]
    assert net.broker.hits == hits + 2
    last = max(result.queue_offset for some in results for result in some)
    records = {r.queue_offset: r for r in records_of(read_to(net.direct, net.queue, begin, last + 1))}
    assert len(records) == 18
    assert [[records[result.queue_offset].message_id for result in some] for some in results] == ids


@pytest.mark.parametrize("name", ["cut before the request", "cut before the answer"])
def test_retries_end_and_each_is_accounted_for(net: Net, name: str) -> None:
    harm, ids = HARMS[name], new_ids(1)
    begin, hits = net.direct.max_offset(net.queue), net.broker.hits
    net.broker.on(harm.fault, harm.side, RequestCode.SEND_MESSAGE_V2, times=1_000)
    with nothing_is_left(), closing(RemotingProducer(net.options(harm, max_retries=2), "faulty")) as producer:
        with pytest.raises(TransportError):
            within(WATCHDOG_S, lambda: send(producer, net.queue, "send", ids))
        assert net.broker.hits - hits == producer.statistics.unknown_outcomes == 3
        net.heal()
        (marker,) = within(WATCHDOG_S, lambda: send(producer, net.queue, "send", new_ids(1)))
    assert net.stored(begin, marker)[ids[0]] == (3 if harm.is_executed else 0)


@pytest.mark.parametrize("retries", [0, 5], ids=["once", "retried"])
def test_a_broker_that_closes_new_connections(net: Net, retries: int) -> None:
    ids, begin = new_ids(1), net.direct.max_offset(net.queue)
    with (
        nothing_is_left(),
        closing(RemotingProducer(net.options(Harm(faults.cut()), max_retries=retries), "faulty")) as producer,
    ):
        net.broker.refuse(2 if retries else 1)
        if retries:
            within(WATCHDOG_S, lambda: send(producer, net.queue, "send", ids))
        else:
            with pytest.raises(TransportError):
                within(WATCHDOG_S, lambda: send(producer, net.queue, "send", ids))
        (marker,) = within(WATCHDOG_S, lambda: send(producer, net.queue, "send", new_ids(1)))
    assert net.stored(begin, marker)[ids[0]] == (1 if retries else 0)


# ---- questions and commits -------------------------------------------------------------------------------------------

Ask = Callable[[RemotingQueueClient, Net], object]
QUESTIONS: dict[str, tuple[RequestCode, Ask]] = {
    "route": (RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda client, net: client.queues(net.topic)),
    "maximum offset": (RequestCode.GET_MAX_OFFSET, lambda client, net: client.max_offset(net.queue)),
    "group offset": (
        RequestCode.QUERY_CONSUMER_OFFSET,
        lambda client, net: client.committed_offset(net.group, net.queue),
    ),
}


CELLS = [*itertools.product(QUESTIONS, HARMS), ("route", "body broken")]  # the other answers have none
BODY_BROKEN = Harm(faults.corrupt("body"), error=WireError)


@pytest.mark.parametrize("retries", [0, 5], ids=["once", "retried"])
@pytest.mark.parametrize(("what", "name"), CELLS)
def test_questions(net: Net, what: str, name: str, retries: int) -> None:
    harm = HARMS.get(name, BODY_BROKEN)
    code, ask = QUESTIONS[what]
    right = ask(net.direct, net)
    assert right
    proxy = net.name_server if what == "route" else net.broker
    with nothing_is_left(), closing(RemotingQueueClient(net.options(harm, max_retries=retries))) as client:
        if what != "route":
            recovered(lambda: client.min_offset(net.queue))
        proxy.on(harm.fault, harm.side, code)
        hits = proxy.hits
        error = _as_asked(harm.error, what)
        if error is None or (retries and error.retriable):
            assert within(WATCHDOG_S, lambda: ask(client, net)) == right
        else:
            with pytest.raises(error) as caught:
                within(WATCHDOG_S, lambda: ask(client, net))
            assert caught.type is error
        assert proxy.hits == hits + 1
        net.heal()
        assert recovered(lambda: ask(client, net)) == right


def _as_asked(error: type[RmqioError] | None, what: str) -> type[RmqioError] | None:
    # A failure of one name server is not the reason of all: the error that names them all is of no finer kind.
    return TransportError if what == "route" and error is RequestTimeout else error


def test_threads_get_their_own_answers_in_whatever_order(net: Net) -> None:
    empty = net.queue._replace(topic=f"faults-{uuid.uuid4().hex[:12]}")
    net.rocketmq.create_topic(empty.topic, queues=1)
    right = {net.queue: net.direct.max_offset(net.queue), empty: 0}
    net.broker.on(faults.reorder(2, at_most_ms=50), Side.ANSWER, RequestCode.GET_MAX_OFFSET, skip=2, times=10)
    hits = net.broker.hits
    wrong: list[object] = []
    with nothing_is_left(), closing(RemotingQueueClient(net.options(Harm(faults.cut())))) as client:

        def ask(queue: MessageQueue) -> None:
            found = {client.max_offset(queue) for _ in range(15)}
            if found != {right[queue]}:
                wrong.append((queue, found))

        threads = [threading.Thread(target=ask, args=(queue,)) for queue in (net.queue, empty) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(at_most(WATCHDOG_S))
            assert not thread.is_alive()
    assert wrong == []
    assert net.broker.hits == hits + 10


@pytest.mark.parametrize("retries", [0, 5], ids=["once", "retried"])
@pytest.mark.parametrize("name", HARMS)
def test_commits(net: Net, name: str, retries: int) -> None:
    harm = HARMS[name]
    old = net.direct.committed_offset(net.group, net.queue)
    assert old is not None
    new = old + 1
    with nothing_is_left(), closing(RemotingQueueClient(net.options(harm, max_retries=retries))) as client:
        recovered(lambda: client.min_offset(net.queue))
        net.broker.on(harm.fault, harm.side, RequestCode.UPDATE_CONSUMER_OFFSET)
        hits = net.broker.hits

        def commit() -> None:
            client.commit_offset(net.group, net.queue, new)

        if harm.error is None or retries:
            within(WATCHDOG_S, commit)
            permitted = {new}
        else:
            with pytest.raises(harm.error) as caught:
                within(WATCHDOG_S, commit)
            assert caught.type is harm.error
            permitted = {None: {old, new}, True: {new}, False: {old}}[harm.is_executed]
        assert net.broker.hits == hits + 1
        assert net.direct.committed_offset(net.group, net.queue) in permitted
        net.heal()
        assert net.direct.committed_offset(net.group, net.queue) in permitted | (
            {new} if harm.is_executed is None else set()
        )
        recovered(commit)
        assert net.direct.committed_offset(net.group, net.queue) == new
