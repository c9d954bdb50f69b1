"""Elements that are batches, beside the same values one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.batches import Batch, MessageBatch, place_ids, record_id
from rmqio.dead_letters.letters import ORIGIN, SINK_MESSAGE_ID
from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message, MessageQueue, Record, SendResult
from rmqio.options import WriteOptions
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.write_fn import BatchWriteFn, WriteFn
from tests.helpers.transforms.write_bundles import FIRST, SECOND, Bundles

QUEUE = MessageQueue("orders", "broker-a", 3)


def record(offset: int, body: bytes = b"body", properties: bytes = b"") -> Record:
    return Record("orders", "broker-a", 3, offset, body, 1, 2, properties, 0, 0, 0, 0, 0, b"", b"", 0, 0)


@pytest.fixture
def bundles() -> Iterator[Bundles]:
    made = Bundles(kind=BatchWriteFn)
    yield made
    made.fn.teardown()
    assert made.cluster.open_clients == 0


bodies = st.sampled_from([b"a", b"bb", b"c" * 300, b""])
messages = st.builds(
    Message,
    bodies,
    topic=st.sampled_from([None, "t", "u", "not a topic", 5]),
    tags=st.sampled_from([None, "x", "", 5]),
    keys=st.sampled_from([(), ("k",), ("a b",)]),
    properties=st.sampled_from([{}, {"p": "v"}, {"KEYS": "reserved"}, {"p": 5}, {5: "v"}]),
    sharding_key=st.sampled_from([None, "s1", "s2", "s3", 5, b"s1"]),
    deliver_at_ms=st.sampled_from([None, None, None, 1]),
)
records = st.builds(
    record,
    st.integers(0, 3),
    bodies,
    st.sampled_from(
        [b"", b"TAGS\x01x\x02", b"p\x01v\x02UNIQ_KEY\x01u\x02", b"p\x01\xff\x02", b"__SHARDINGKEY\x01s1\x02"]
    ),
)
kinds = [messages, records, bodies, st.sampled_from(["text", "\udcff", ""]), st.sampled_from([1, None])]
batches = st.lists(
    st.one_of(*(st.lists(kind, max_size=6) for kind in kinds), st.lists(st.one_of(*kinds), max_size=6)), max_size=4
)


def odd(value: Any) -> Message:
    if value in ("text", b"bb"):
        raise SerdeError("no")
    return Message(str(value).encode("utf-8", "replace"))


def choose(value: Any) -> str | None:
    return {"text": "u", b"a": "u", 1: "not a topic"}.get(value) if isinstance(value, (str, bytes, int)) else None


def named(value: Any) -> str:
    return "" if value == b"a" else repr(value)[:40]


def decoded(value: bytes) -> str:
    return f"id-{value.decode()}"


MAKERS = [
    MessageMaker("t"),
    MessageMaker(),
    MessageMaker("t", serializer=odd),
    MessageMaker("t", selector=None, id_fn=named),
]


def outcome(bundles: Bundles, elements: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the messages stored in each topic, with ids where a function gives them, and the failures."""
    is_random = bundles.fn._maker.id_fn is None
    bundles.cluster.create_topic("u", 2)
    bundles.run(*elements)
    stored = {}
    for topic in ("t", "u"):
        found = bundles.records(topic)
        by_key: dict[str, list[bytes]] = {}
        for each in found:
            if each.sharding_key:
                by_key.setdefault(each.sharding_key, []).append(each.body)
        contents = sorted(
            (
                each.body,
                each.tags or "",
                each.keys,
                sorted(item for item in each.properties.items() if item[0] != "UNIQ_KEY" or not is_random),
            )
            for each in found
        )
        stored[topic] = contents, by_key
    failures = [value.value for value in bundles.failed]
    letters = [each for each in failures if isinstance(each, Message)]
    failed = sorted(
        repr(each._replace(position=None, **_unknown(each))) for each in failures if not isinstance(each, Message)
    )
    return stored, failed, sorted(map(repr, letters))


def _unknown(failure: Any) -> dict[str, None]:
    """The fields that only a batch knows: the message of a value without a topic, or with one that is not text."""
    no_topic = failure.reason.startswith(("no topic", "topic of a message"))
    return {"message": None, "topic": None} if no_topic else {}


@pytest.mark.parametrize("maker", MAKERS, ids=["plain", "no topic", "serializer", "id_fn"])
@pytest.mark.parametrize("with_letters", [False, True])
@settings(max_examples=25)
@given(batches, st.integers(1, 5))
def test_batches_are_written_as_their_values_would_be(
    maker: MessageMaker, with_letters: bool, given_batches: list[list[Any]], most: int
) -> None:
    options = WriteOptions(max_batch_messages=most, max_batch_bytes=500)
    outcomes = []
    for kind, elements in (
        (BatchWriteFn, given_batches),
        (WriteFn, [value for values in given_batches for value in values]),
    ):
        bundles = Bundles(options, maker, kind=kind, with_letters=with_letters)
        outcomes.append(outcome(bundles, elements))
        bundles.fn.teardown()
    if maker.topic is None:
        assert outcomes[0][:2] == outcomes[1][:2]
    else:
        assert outcomes[0] == outcomes[1]


def test_results_are_lists_in_the_order_of_their_batch(bundles: Bundles) -> None:
    first = WindowedValue([b"%d" % n for n in range(5)], 1, (FIRST,))
    second = WindowedValue(MessageBatch(bodies=[b"x", b"y"]), 2, (FIRST, SECOND))
    bundles.run(first, second)
    assert [(value.timestamp.micros, value.windows, len(value.value)) for value in bundles.sent] == [
        (first.timestamp.micros, first.windows, 5),
        (second.timestamp.micros, second.windows, 2),
    ]
    results = [result for value in bundles.sent for result in value.value]
    assert all(isinstance(result, SendResult) for result in results)
    stored = {(each.queue, each.queue_offset): each.body for each in bundles.records()}
    bodies = [stored[result.queue, result.queue_offset] for result in results]
    assert bodies == [b"0", b"1", b"2", b"3", b"4", b"x", b"y"]
    assert len({result.queue for result in results}) == 1, "small batches share a request"


def test_large_batches_are_split_by_number_and_by_size() -> None:
    for options, requests in ((WriteOptions(max_batch_messages=3), 4), (WriteOptions(max_batch_bytes=300), 5)):
        bundles = Bundles(options, kind=BatchWriteFn)
        bundles.run([b"%060d" % n for n in range(10)])
        assert [len(value.value) for value in bundles.sent] == ([3, 3, 3, 1] if requests == 4 else [2] * 5)
        assert len(bundles.bodies()) == 10
        bundles.fn.teardown()


def test_a_failure_has_the_position_of_its_value(bundles: Bundles) -> None:
    bundles.run(["good", 1, "good", b""], 7, [b"x" * 5_000_000])
    found = {(value.value.position, value.value.error) for value in bundles.failed}
    assert found == {(1, "SerdeError"), (None, "LocalError"), (3, "LocalError"), (0, "LocalError")}
    assert bundles.bodies() == [b"good", b"good"]


def test_columns_make_their_messages_once_for_all_failures(bundles: Bundles, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[MessageBatch] = []
    messages_of = MessageBatch.messages

    def counted(batch: MessageBatch) -> list[Message]:
        made.append(batch)
        return messages_of(batch)

    monkeypatch.setattr(MessageBatch, "messages", counted)
    bundles.run(MessageBatch(bodies=[b"", b"good"] * 50))
    assert len(bundles.failed) == 50
    assert len(made) <= 2


def test_a_batch_that_was_changed_fails_whole(bundles: Bundles) -> None:
    batch = Batch(["a", "b"], QUEUE, [1, 2])
    batch.append("c")
    bundles.run(batch)
    (failure,) = [value.value for value in bundles.failed]
    assert failure.position is None
    assert "use with_values" in failure.reason
    assert not bundles.bodies()


@pytest.mark.parametrize(
    ("element", "ids"),
    [
        (Batch([b"a", b"b"], QUEUE, [7, 9]), place_ids(QUEUE, [7, 9])),
        (Batch([b"a", b"b"], QUEUE, [7, 9], "/Map"), place_ids(QUEUE, [7, 9], "/Map")),
        (Batch([b"a", 1, b"b"], QUEUE, [7, 8, 9]), place_ids(QUEUE, [7, 9])),  # 1 cannot be sent
        ([record(7), record(9)], [record_id(record(7)), record_id(record(9))]),
        (
            [record(7), record(9)._replace(broker="b")],
            [record_id(record(7)), record_id(record(9)._replace(broker="b"))],
        ),
        (MessageBatch(bodies=[b"a", b"b"], ids=["1", "2"]), ["1", "2"]),
    ],
)
def test_ids_are_the_same_when_a_bundle_is_run_again(bundles: Bundles, element: Any, ids: list[str]) -> None:
    for _ in range(2):
        bundles.run(element)
    assert sorted(each.message_id for each in bundles.records()) == sorted(ids * 2)


def test_ids_of_an_id_function_come_first() -> None:
    bundles = Bundles(maker=MessageMaker("t", id_fn=decoded), kind=BatchWriteFn)
    bundles.run(Batch([b"a", b"b"], QUEUE, [7, 9]))
    assert [each.message_id for each in bundles.records()] == ["id-a", "id-b"]
    bundles.fn.teardown()


def test_a_dead_letter_of_a_mapped_value_has_its_place_and_id() -> None:
    bundles = Bundles(kind=BatchWriteFn, with_letters=True)
    bundles.run(Batch([b"a", b""], QUEUE, [7, 9], "/Map"))
    (letter,) = [value.value for value in bundles.failed if isinstance(value.value, Message)]
    assert letter.properties[ORIGIN] == "orders/broker-a/3/9"
    assert letter.properties[SINK_MESSAGE_ID] == place_ids(QUEUE, [9], "/Map")[0]
    bundles.fn.teardown()


def test_a_topic_that_is_refused_fails_each_value() -> None:
    bundles = Bundles(maker=MessageMaker(), kind=BatchWriteFn)
    bundles.run([Message(b"a", topic="no topic!"), Message(b"b", topic="no topic!"), Message(b"c", topic="t")])
    assert sorted(value.value.position for value in bundles.failed) == [0, 1]
    assert {value.value.error for value in bundles.failed} == {LocalError.__name__}
    assert bundles.bodies() == [b"c"]
    bundles.fn.teardown()


def test_a_column_of_keys_is_as_in_a_message_and_a_bad_key_fails_alone(bundles: Bundles) -> None:
    keys: Any = [("a", "b"), ["c"], "d e", "", None, 5]
    bundles.run(MessageBatch(bodies=[b"%d" % n for n in range(6)], keys=keys))
    assert {each.body: each.keys for each in bundles.records()} == {
        b"0": ("a", "b"),
        b"1": ("c",),
        b"2": ("d", "e"),
        b"3": (),
        b"4": (),
    }
    assert [value.value.position for value in bundles.failed] == [5]


@pytest.mark.parametrize("column", ["topics", "sharding_keys"])
def test_a_topic_or_sharding_key_that_is_no_text_fails_alone(bundles: Bundles, column: str) -> None:
    bad: list[Any] = ["t", 5, ["t"], None]
    bundles.run(MessageBatch(bodies=[b"0", b"1", b"2", b"3"], **{column: bad}))
    assert sorted(bundles.bodies()) == [b"0", b"3"]
    found = {value.value.position: value.value.reason for value in bundles.failed}
    name = column.removesuffix("s")
    kinds = ((1, "int"), (2, "list"))
    assert found == {at: f"{name} of a message is a {kind}; it must be a text" for at, kind in kinds}
