"""The output of the DoFn of a write, its windows and its ids; and its end."""

from __future__ import annotations

import os
from itertools import product
from typing import Any

import pytest
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, PaneInfo, PaneInfoTiming, WindowedValue

from rmqio.errors import TransportError
from rmqio.model import Message, Record
from rmqio.options import WriteOptions
from rmqio.sending.producers import ProducerLease
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.write_fn import WriteFn
from tests.helpers.transforms.write_bundles import FIRST, SECOND, Bundles, batches_of

pytestmark = pytest.mark.usefixtures("both_ways")

OTHER_PANE = PaneInfo(False, False, PaneInfoTiming.LATE, 3, 1)


def test_outputs_keep_window_timestamp_and_pane(bundles: Bundles) -> None:
    good = WindowedValue(b"good", Timestamp(7), (FIRST,), OTHER_PANE)
    bad = WindowedValue({"not": "bytes"}, Timestamp(8), (SECOND,), OTHER_PANE)
    refused = WindowedValue(Message(b"x", topic="missing"), Timestamp(9), (SECOND,), OTHER_PANE)
    bundles.run(good, bad, refused)
    (sent,) = bundles.sent
    assert (sent.timestamp, sent.windows, sent.pane_info) == (Timestamp(7), (FIRST,), OTHER_PANE)
    assert [(f.timestamp, f.windows, f.pane_info) for f in bundles.failed] == [
        (Timestamp(8), (SECOND,), OTHER_PANE),
        (Timestamp(9), (SECOND,), OTHER_PANE),
    ]


def test_each_output_of_a_batch_keeps_its_own_window_timestamp_and_pane(bundles: Bundles) -> None:
    """Elements of one batch that differ in one of them, and some that agree in all with the one before."""
    times, windows, panes = (Timestamp(7), Timestamp(8)), ((FIRST,), (SECOND,)), (OTHER_PANE, PANE_INFO_UNKNOWN)
    origins = [origin for origin in product(times, windows, panes) for _ in range(2)]
    origins += [(Timestamp(7), (IntervalWindow(0, 10),), OTHER_PANE)]  # equal, and not the same
    bundles.run(*[WindowedValue(Message(b"%d" % i), *origin) for i, origin in enumerate(origins)])
    assert len(batches_of(bundles.records())) == 1
    of_id = {record.message_id: int(record.body) for record in bundles.records()}
    found = {of_id[sent.value.message_id]: (sent.timestamp, sent.windows, sent.pane_info) for sent in bundles.sent}
    assert [found[i] for i in range(len(origins))] == origins


def test_while_an_element_of_several_windows_is_processed_nothing_is_given_out() -> None:
    """Beam would multiply the windows of the outputs by those of the element."""
    bundles = Bundles(WriteOptions(max_batch_messages=1))
    bundles.fn.start_bundle()
    bundles.process(*[WindowedValue(b"x", Timestamp(7), (FIRST, SECOND))] * 3)
    assert len(bundles.records()) == 2
    assert bundles.outputs == []
    bundles.process(WindowedValue(b"y", Timestamp(7), (FIRST,)))
    assert [output.windows for output in bundles.outputs] == [(FIRST, SECOND)] * 3
    bundles.finish()
    assert len(bundles.sent) == len(bundles.records()) == 4


def source_record(number: int) -> Record:
    with InMemoryCluster() as cluster:
        cluster.create_topic("source", 1)
        for _ in range(number):
            cluster.append("source", b"before")
        return cluster.append("source", b"body", properties={"UNIQ_KEY": "0A"})


def test_a_retried_bundle_of_records_writes_the_same_ids(bundles: Bundles) -> None:
    elements = [source_record(0), source_record(1), b"random"]
    bundles.cluster.fail_next("send", TransportError("answer lost"), after=True)
    with pytest.raises(TransportError):
        bundles.run(*elements)
    bundles.run(*elements)
    ids = [record.message_id for record in sorted(bundles.records(), key=lambda r: r.commit_log_offset)]
    assert ids[:2] == ids[3:5]
    assert ids[2] != ids[5]
    assert len(set(ids)) == 4


def test_id_function_sets_the_unique_key() -> None:
    bundles = Bundles(maker=MessageMaker("t", id_fn=lambda_id))
    bundles.run(b"one", Message(b"two"))
    assert [record.get_property("UNIQ_KEY") for record in bundles.records()] == ["id-one", "id-two"]
    assert [output.value.message_id for output in bundles.sent] == ["id-one", "id-two"]


def lambda_id(element: Any) -> str:
    return "id-" + (element if isinstance(element, bytes) else element.body).decode()


def test_without_sent_there_are_no_results_but_failures() -> None:
    bundles = Bundles(with_sent=False)
    bundles.run(b"a", {"refused": 1})
    assert bundles.bodies() == [b"a"]
    assert (len(bundles.sent), len(bundles.failed)) == (0, 1)


def test_a_fn_that_was_forked_after_setup_makes_its_own_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = Bundles()
    first = bundles.fn._lease
    assert first is not None
    monkeypatch.setattr(first, "_pid", os.getpid() + 1)  # as the child sees the parent's
    bundles.run(b"a")
    assert bundles.fn._lease is not first
    assert bundles.bodies() == [b"a"]


def test_teardown_closes_the_producer_once() -> None:
    bundles = Bundles()
    keeper = ProducerLease(InMemoryClientFactory(bundles.cluster.name), "g")
    bundles.fn.teardown()
    assert bundles.cluster.open_clients == 1
    keeper.release()
    assert bundles.cluster.open_clients == 0
    bundles.fn.teardown()


def test_teardown_before_setup_is_harmless() -> None:
    WriteFn(MessageMaker("t"), InMemoryClientFactory("nowhere"), "g", WriteOptions()).teardown()
