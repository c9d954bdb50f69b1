"""The DoFn of a write gathers messages and sends them: which, when, and to which queues."""

from __future__ import annotations

import pytest

from rmqio.model import Message
from rmqio.options import WriteOptions
from rmqio.topics import queue_for_key
from tests.helpers.transforms.write_bundles import Bundles, batches_of

pytestmark = pytest.mark.usefixtures("both_ways")


def test_nothing_is_sent_before_a_batch_is_full_or_the_bundle_ends(bundles: Bundles) -> None:
    bundles.fn.start_bundle()
    bundles.process(b"a", b"b")
    assert bundles.bodies() == []
    assert bundles.outputs == []
    bundles.finish()
    assert bundles.bodies() == [b"a", b"b"]
    assert len(batches_of(bundles.records())) == 1  # one batch, one queue
    assert [output.value.message_id for output in bundles.sent] == [r.message_id for r in bundles.records()]


def test_max_batch_messages_bounds_a_batch() -> None:
    bundles = Bundles(WriteOptions(max_batch_messages=3))
    bundles.fn.start_bundle()
    bundles.process(*[b"%d" % i for i in range(4)])
    assert len(bundles.records()) == 3
    assert len(bundles.outputs) == 3  # given out at once, not at the end
    bundles.process(*[b"%d" % i for i in range(4, 12)])
    bundles.finish()
    assert sorted(len([r for r in bundles.records() if r.queue == q]) for q in batches_of(bundles.records())) == [3] * 4
    assert len(bundles.sent) == 12


def test_max_batch_bytes_bounds_a_batch() -> None:
    bundles = Bundles(WriteOptions(max_batch_bytes=1000))
    bundles.fn.start_bundle()
    bundles.process(*[b"x" * 300] * 3)
    assert len(bundles.records()) == 2
    bundles.process(b"y" * 1000)  # with its head larger than a batch: sent alone, and nobody waits for it
    assert sorted(map(len, bundles.bodies())) == [300, 300, 1000]
    bundles.finish()
    assert len(bundles.records()) == 4


def test_properties_count_into_the_size_of_a_batch() -> None:
    bundles = Bundles(WriteOptions(max_batch_bytes=1000))
    bundles.fn.start_bundle()
    bundles.process(*[Message(b"x", tags="t" * 100, keys=["k" * 100], properties={"p": "v" * 150})] * 3)
    assert len(bundles.records()) == 2
    bundles.finish()


def test_a_batch_that_is_too_large_after_all_is_split() -> None:
    """Sizes are estimated for ASCII; wide characters take up to four times as much."""
    bundles = Bundles(WriteOptions(max_batch_bytes=1 << 20))
    bundles.run(*[Message(b"x", properties={"p": "\U0001f600" * 7000}) for _ in range(100)])
    assert len(bundles.records()) == 100
    assert not bundles.failed


@pytest.mark.parametrize("asynchronous", [False, True])
def test_without_batches_messages_go_one_by_one(asynchronous: bool) -> None:
    bundles = Bundles(WriteOptions(batch_flush=False, asynchronous=asynchronous))
    bundles.fn.start_bundle()
    bundles.process(b"a", b"b", b"c")
    assert len(bundles.records()) == (2 if asynchronous else 3)
    bundles.finish()
    assert sorted(bundles.bodies()) == [b"a", b"b", b"c"]
    assert len(batches_of(bundles.records())) == 3
    assert len(bundles.sent) == 3


def test_topics_are_batched_apart(bundles: Bundles) -> None:
    bundles.cluster.create_topic("u", 4)
    bundles.run(b"a", Message(b"b", topic="u"), b"c", Message(b"d", topic="u"))
    assert (bundles.bodies("t"), bundles.bodies("u")) == ([b"a", b"c"], [b"b", b"d"])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_sharding_keys_go_to_javas_queues_and_keep_their_order(asynchronous: bool) -> None:
    bundles = Bundles(WriteOptions(max_batch_messages=3, asynchronous=asynchronous))
    bundles.run(*[Message(b"%d" % i, sharding_key=f"key-{i % 7}") for i in range(100)])
    queues = bundles.cluster.create_topic("t", 4)
    seen: dict[str, list[int]] = {}
    for record in bundles.records():
        assert record.sharding_key is not None
        assert record.queue == queue_for_key(queues, record.sharding_key)
        seen.setdefault(record.sharding_key, []).append(int(record.body))
    assert sum(map(len, seen.values())) == 100
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_a_large_or_delayed_message_of_a_key_does_not_overtake_it() -> None:
    bundles = Bundles(WriteOptions(max_batch_bytes=500))
    bundles.run(*[Message(body, sharding_key="k") for body in (b"1", b"2" * 600, b"3")])
    assert [body[:1] for body in bundles.bodies()] == [b"1", b"2", b"3"]


def test_delayed_messages_are_sent_alone_and_delayed(bundles: Bundles) -> None:
    at_ms = bundles.clock.time_ms() + 10_000
    bundles.fn.start_bundle()
    bundles.process(b"now", Message(b"level", delay_level=2), Message(b"at", deliver_at_ms=at_ms))
    assert len(bundles.outputs) == 2
    bundles.finish()
    assert bundles.bodies() == [b"now"]
    bundles.clock.advance(5)
    assert sorted(bundles.bodies()) == [b"level", b"now"]
    bundles.clock.advance(5)
    assert sorted(bundles.bodies()) == [b"at", b"level", b"now"]
    assert len(bundles.sent) == 3


def test_new_queues_are_used_and_keys_move_behind_what_was_sent_before() -> None:
    bundles = Bundles(WriteOptions(max_batch_messages=2, name_server_poll_interval_ms=1_000, asynchronous=True))
    bundles.fn.start_bundle()
    bundles.process(*[Message(b"%d" % i, sharding_key="k") for i in range(2)])
    bundles.process(Message(b"other", sharding_key="q"))
    queues = bundles.cluster.add_queues("t", 3)
    queues = bundles.cluster.create_topic("t", 7)
    bundles.clock.advance(2)
    bundles.process(*[Message(b"%d" % i, sharding_key="k") for i in range(2, 6)])
    bundles.finish()
    order = sorted((r for r in bundles.records() if r.sharding_key == "k"), key=lambda r: r.commit_log_offset)
    assert [int(record.body) for record in order] == list(range(6))
    assert {record.queue for record in order} == {queue_for_key(queues[:4], "k"), queue_for_key(queues, "k")}
    assert queue_for_key(queues[:4], "k") != queue_for_key(queues, "k")


def test_queues_are_refreshed_between_bundles() -> None:
    bundles = Bundles(WriteOptions(name_server_poll_interval_ms=1_000))
    bundles.run(b"a")
    bundles.cluster.add_queues("t", 4)
    bundles.clock.advance(2)
    for _ in range(8):
        bundles.run(b"b")
    assert len(batches_of(bundles.records())) == 8
