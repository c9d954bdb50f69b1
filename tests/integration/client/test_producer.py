"""The producer against a real broker that dies or hangs while messages are on their way."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.errors import RequestTimeout
from rmqio.interfaces import PendingSend
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, MessageQueue, Record, SendResult
from rmqio.options import ClientOptions
from tests.helpers.waiting import until

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def own() -> Iterator[LocalRocketMQ]:
    """A broker of our own: these tests kill and stop it.

    By default a broker refuses what lay in its queue for 200 ms, and everything while a write takes over a second
    (SYSTEM_BUSY). Continued after a pause on a loaded machine it may do so, and the client then rightly tries again:
    with more patience all that these tests see comes from the pause itself.
    """
    patience = {"waitTimeMillsInSendQueue": 10_000, "osPageCacheBusyTimeOutMills": 10_000}
    with LocalRocketMQ(broker_config=patience) as broker:
        yield broker


def _queues(broker: LocalRocketMQ, count: int) -> list[MessageQueue]:
    topic = f"producer-{uuid.uuid4().hex[:12]}"
    broker.create_topic(topic, queues=count)
    return [MessageQueue(topic, broker.name, i) for i in range(count)]


def _read_all(broker: LocalRocketMQ, queue: MessageQueue, sent: Iterable[SendResult]) -> list[Record]:
    """All messages of a queue, once those that were acknowledged are visible: that comes a moment later."""
    client = RemotingQueueClient(ClientOptions(broker.name_server))
    try:
        acknowledged = max((r.queue_offset + 1 for r in sent if r.queue == queue), default=0)
        until(lambda: client.max_offset(queue) >= acknowledged, f"{acknowledged} messages in {queue}")
        end = client.max_offset(queue)
        reader = client.open_reader(queue, 0, message_filter=MessageFilter())
        records: list[Record] = []

        def is_read() -> bool:
            if reader.position < end:
                client.wait([reader], 1_000)
                fetched = reader.poll()
                if fetched is not None:
                    assert fetched.corrupt == ()
                    records.extend(fetched.records)
            return reader.position >= end

        until(is_read, f"offset {end}", progress=lambda: reader.position, details=lambda: reader, pause_s=0)
        return records
    finally:
        client.close()


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed_and_restarted(own: LocalRocketMQ) -> None:
    queues = _queues(own, 4)
    ordered = set(queues[:2])
    options = ClientOptions(
        own.name_server,
        request_timeout_ms=3_000,
        connect_timeout_ms=1_000,
        max_retries=100,
        retry_backoff_ms=100,
        retry_backoff_max_ms=500,
    )
    is_back = threading.Event()
    failures: list[BaseException] = []

    def disturb() -> None:
        try:
            until(lambda: len(sent) >= 200, "batches before the kill")
            own.kill()
            own.restart()
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failures.append(error)
        finally:
            is_back.set()

    sent: list[tuple[list[str], PendingSend]] = []
    thread = threading.Thread(target=disturb)
    with RemotingProducer(options, "producers") as producer:
        thread.start()
        number, last = 0, None
        while number != last:
            if last is None and is_back.is_set():
                last = number + 100
            queue = queues[number % 4]
            ids = [f"{number:08d}-{i:03d}" for i in range(50)]
            messages = [Message(message_id.encode() + b"." * 80) for message_id in ids]
            sent.append((ids, producer.submit(messages, queue, ordered=queue in ordered, message_ids=ids)))
            number += 1
        thread.join()
        results = [pending.result() for _, pending in sent]
        statistics = producer.statistics
    assert failures == []
    assert statistics.retries > 0, "the broker was not killed while anything was in flight"

    acknowledged = [r for batch in results for r in batch]
    records = {queue: _read_all(own, queue, acknowledged) for queue in queues}
    at = {(queue, r.queue_offset): r.message_id for queue, found in records.items() for r in found}
    for (ids, _), batch in zip(sent, results, strict=True):
        assert [r.message_id for r in batch] == ids
        for r in batch:
            assert at.get((r.queue, r.queue_offset)) == r.message_id
    counts = Counter(r.message_id for found in records.values() for r in found)
    duplicates = sum(counts.values()) - len(counts)
    print(f"{len(counts)} messages, {duplicates} duplicates, {statistics}")
    assert duplicates <= statistics.unknown_outcomes * 50
    assert set(counts) == {message_id for ids, _ in sent for message_id in ids}
    for queue in ordered:
        first_seen = list(dict.fromkeys(r.message_id for r in records[queue]))
        assert first_seen == sorted(first_seen)


def test_a_broker_that_hangs_is_a_timeout_and_is_used_again_when_it_is_back(own: LocalRocketMQ) -> None:
    (queue,) = _queues(own, 1)
    impatient = ClientOptions(own.name_server, request_timeout_ms=500, max_retries=1, retry_backoff_ms=10)
    with RemotingProducer(impatient, "producers") as producer:

        def stored(body: bytes) -> SendResult | None:
            try:
                return producer.send(Message(body), queue)
            except RequestTimeout:  # of a machine that is slow
                return None

        until(lambda: stored(b"before"), "an answer")
        before = producer.statistics.retries
        own.pause()
        try:
            with pytest.raises(RequestTimeout):
                producer.send(Message(b"during"), queue)
            assert producer.statistics.retries - before == 1
        finally:
            own.resume()
        sent = until(lambda: stored(b"after"), "an answer")
        assert sent is not None
    bodies = [r.body for r in _read_all(own, queue, [sent])]
    # A message that timed out may have been stored, each try of it.
    assert bodies[0] == b"before"
    assert bodies[sent.queue_offset] == b"after"
    assert set(bodies) <= {b"before", b"during", b"after"}
    assert bodies.count(b"during") <= 2


def test_a_short_hang_is_ridden_out(own: LocalRocketMQ) -> None:
    (queue,) = _queues(own, 1)
    patient = ClientOptions(own.name_server, request_timeout_ms=10_000)
    with RemotingProducer(patient, "producers") as producer:
        producer.send(Message(b"before"), queue)
        pending: list[PendingSend] = []

        def resume_later() -> None:
            try:
                until(lambda: pending, "a batch in flight")
            finally:
                own.resume()

        own.pause()
        resume = threading.Thread(target=resume_later)
        resume.start()
        try:
            for n in range(10):
                pending.append(producer.submit([Message(b"%d" % n)], queue, ordered=True))
            offsets = [p.result()[0].queue_offset for p in pending]
        finally:
            resume.join()
        assert offsets == list(range(1, 11))
        assert producer.statistics.retries == 0


def test_many_batches_in_flight_from_many_threads(own: LocalRocketMQ) -> None:
    queues = _queues(own, 4)
    with RemotingProducer(ClientOptions(own.name_server, request_timeout_ms=10_000), "producers") as producer:
        results: list[SendResult] = []

        def work(number: int) -> None:
            pending = [
                producer.submit([Message(b"%d-%d-%d" % (number, n, i)) for i in range(100)], queues[n % 4])
                for n in range(20)
            ]
            results.extend(r for p in pending for r in p.result())

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 4 * 20 * 100
    records = [record for queue in queues for record in _read_all(own, queue, results)]
    assert len({record.body for record in records}) == len(records) == 8_000
