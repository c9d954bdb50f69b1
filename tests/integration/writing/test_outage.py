"""The write while its broker is killed and restarted: nothing that was acknowledged is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import TaggedOutput
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.client.client import RemotingQueueClient
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import RmqioError
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, Record
from rmqio.options import ClientOptions, WriteOptions
from rmqio.transforms.write import WriteToRocketMQ
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.write_fn import WriteFn
from tests.helpers.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[LocalRocketMQ]:
    with LocalRocketMQ(name="mortal-write") as broker:
        yield broker


def read_all(broker: LocalRocketMQ, topic: str, bodies: set[bytes]) -> list[Record]:
    """Everything in a topic, each queue in order; waits for the given bodies.

    A broker shows the last messages a little after their acknowledgement.
    """
    client = RemotingQueueClient(ClientOptions(broker.name_server))
    readers = [client.open_reader(queue, 0, message_filter=MessageFilter()) for queue in client.queues(topic)]
    records: list[Record] = []
    missing = set(bodies)

    def are_read() -> bool:
        parts = [part for reader in readers if (part := reader.poll()) is not None]
        for part in parts:
            records.extend(part.records)
            missing.difference_update(record.body for record in part.records)
        if not parts:
            client.wait(readers, 500)
        return not missing and all(reader.is_at_end for reader in readers)

    until(
        are_read,
        "all bodies",
        progress=lambda: len(records),
        details=lambda: f"{len(missing)} missing, e.g. {sorted(missing)[:10]}",
        pause_s=0,
    )
    client.close()
    return records


def run_bundle(fn: WriteFn, elements: Iterable[Any]) -> list[str]:
    """Runs one bundle; the ids of what was acknowledged. Raises what fails the bundle."""
    outputs: list[Any] = []
    fn.start_bundle()
    for element in elements:
        value = WindowedValue(element, 0, (GlobalWindow(),))
        outputs += fn.process(element, value) or []
    outputs += fn.finish_bundle()
    assert not any(isinstance(output, TaggedOutput) for output in outputs)  # nothing is taken for a message's fault
    return [output.value.message_id for output in outputs]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_bundles_that_a_killed_broker_fails_are_retried_without_loss(
    own_broker: LocalRocketMQ, asynchronous: bool
) -> None:
    topic = f"outage-{asynchronous}"
    own_broker.create_topic(topic, queues=4)
    # Few retries of the client's own, so that bundles do fail.
    factory = RemotingClientFactory(ClientOptions(own_broker.name_server, max_retries=1, request_timeout_ms=1_000))
    options = WriteOptions(asynchronous=asynchronous, max_batch_messages=100)

    def made() -> WriteFn:
        fn = WriteFn(MessageMaker(topic, id_fn=lambda message: message.body.decode()), factory, "outage", options)
        fn.setup()
        return fn

    fn = made()
    acknowledged: list[str] = []
    failures = 0
    restarted: threading.Thread | None = None

    killer = threading.Thread(target=own_broker.kill)

    def killing(elements: list[Message]) -> Iterator[Message]:
        for element in elements:
            if element.body == b"030500" and killer.ident is None:
                killer.start()
            yield element

    def is_run(elements: list[Message]) -> bool:
        nonlocal fn, failures, restarted
        try:
            acknowledged.extend(run_bundle(fn, killing(elements)))
            return True
        except RmqioError as error:
            if not (error.retriable or error.stale_route):
                raise
            failures += 1
            fn.teardown()  # as a runner does with a DoFn whose bundle has failed
            fn = made()
            if restarted is None:
                restarted = threading.Thread(target=own_broker.restart)
                restarted.start()
            return False

    for bundle in range(100):
        elements = [
            Message(b"%06d" % n, sharding_key=f"key-{n % 5}" if n % 2 else None)
            for n in range(bundle * 1_000, bundle * 1_000 + 1_000)
        ]
        until(partial(is_run, elements), f"an acknowledged bundle {bundle}", still_s=120, pause_s=0)
        if bundle == 30:
            killer.join()  # if that bundle has ended before, the next one fails
    fn.teardown()
    assert restarted is not None
    restarted.join()
    assert failures > 0
    assert len(acknowledged) == 100_000
    sent = {b"%06d" % n for n in range(100_000)}
    records = read_all(own_broker, topic, sent)
    assert {record.body for record in records} == sent
    assert {record.message_id for record in records} == set(acknowledged)
    _assert_first_arrivals_are_in_order(records)


def _assert_first_arrivals_are_in_order(records: list[Record]) -> None:
    """Checks each sharding key; duplicates are dropped by id, as a reader does."""
    seen: set[str] = set()
    last: dict[str, int] = {}
    for record in records:
        key = record.sharding_key
        if key is None or record.message_id in seen:
            continue
        seen.add(record.message_id)
        assert int(record.body) > last.get(key, -1), f"key {key}: {record.body!r} came behind {last[key]}"
        last[key] = int(record.body)


class KillOnce(beam.DoFn):
    """Passes elements on; at the given one, kills the broker of this process's test."""

    def process(self, element: bytes) -> Iterator[bytes]:
        if element == b"030000":
            _on_kill()
        yield element


def _on_kill() -> None:
    broker = _brokers[0]
    broker.kill()
    thread = threading.Thread(target=broker.restart)
    thread.start()
    _threads.append(thread)


_brokers: list[LocalRocketMQ] = []
_threads: list[threading.Thread] = []


def test_a_pipeline_rides_out_a_killed_broker_with_enough_retries(own_broker: LocalRocketMQ) -> None:
    own_broker.create_topic("pipeline", queues=4)
    _brokers[:] = [own_broker]
    options = WriteOptions(max_retries=40, asynchronous=True)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create([b"%06d" % n for n in range(60_000)])
            | beam.ParDo(KillOnce()).with_output_types(bytes)
            | WriteToRocketMQ("pipeline", name_server=own_broker.name_server, options=options)
        )
        assert_that(result.sent | beam.combiners.Count.Globally(), equal_to([60_000]))
        assert_that(result.failed, equal_to([]), label="failed")
    for thread in _threads:
        thread.join()
    sent = {b"%06d" % n for n in range(60_000)}
    assert {record.body for record in read_all(own_broker, "pipeline", sent)} == sent
