"""From an element to its message, topic and id."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from rmqio.batches import record_id
from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message, Record
from rmqio.sending.batches import MAX_ELEMENT_TEXT, FailedMessage, element_text
from rmqio.serde import JsonSerializer, SimpleKeyValueSerializer, json, plain
from rmqio.testing import InMemoryCluster
from rmqio.transforms.writing.elements import (
    BatchMaker,
    ConstantTopic,
    MessageMaker,
    TopicFromFields,
    letter_of_failure,
)


def serialize_pair(element: tuple[str, bytes]) -> Message:
    return Message(element[1], keys=[element[0]])


def untyped(value: Any) -> Any:
    return value


@pytest.fixture
def record() -> Record:
    with InMemoryCluster() as cluster:
        cluster.create_topic("source", 4)
        cluster.append("source", b"first", queue_id=2)
        return cluster.append(
            "source",
            b"body",
            queue_id=2,
            tags="red",
            keys=["k1", "k2"],
            properties={
                "UNIQ_KEY": "0A",
                "__SHARDINGKEY": "s",
                "DELAY": "3",
                "REAL_TOPIC": "source",
                "CLUSTER": "c",
                "mine": "1",
            },
        )


@pytest.mark.parametrize(
    ("maker", "element", "message", "topic"),
    [
        (MessageMaker("t"), b"b", Message(b"b"), "t"),
        (MessageMaker("t"), "é", Message("é".encode()), "t"),
        (MessageMaker("t"), Message(b"b"), Message(b"b"), "t"),
        (MessageMaker("t"), Message(b"b", topic="own"), Message(b"b", topic="own"), "own"),
        (MessageMaker("t", ConstantTopic("s")), Message(b"b", topic="own"), Message(b"b", topic="own"), "own"),
        (MessageMaker("t", ConstantTopic("s")), b"b", Message(b"b"), "s"),
        (MessageMaker("t", ConstantTopic("s", "red")), b"b", Message(b"b", tags="red"), "s"),
        (MessageMaker(None, ConstantTopic("s", "red")), Message(b"b", tags="own"), Message(b"b", tags="own"), "s"),
        (MessageMaker("t", TopicFromFields("x")), b"b", Message(b"b"), "t"),
        (MessageMaker("t", None, serialize_pair), ("k", b"b"), Message(b"b", keys=["k"]), "t"),
        (MessageMaker("t", None, serialize_pair), Message(b"as it is"), Message(b"as it is"), "t"),
        # The selector sees the element, not its message.
        (MessageMaker(None, TopicFromFields("to"), lambda e: Message(b"b")), {"to": "s"}, Message(b"b"), "s"),
    ],
)  # fmt: skip
def test_make(maker: MessageMaker, element: Any, message: Message, topic: str) -> None:
    assert maker.make(element) == (message, topic, None)


@pytest.mark.parametrize(
    ("maker", "element", "error", "text"),
    [
        (MessageMaker("t"), {"a": 1}, SerdeError, "cannot write dict: give serializer="),
        (MessageMaker(None), b"b", LocalError, "no topic"),
        (MessageMaker("t", None, lambda e: untyped(b"bytes")), 1, SerdeError, "the serializer returned bytes"),
        (MessageMaker("t", None, lambda e: e["missing"]), {}, KeyError, "missing"),
        (MessageMaker("t", None, None, lambda e: untyped(5)), b"b", SerdeError, "id_fn returned 5"),
        (MessageMaker("t", None, None, lambda e: ""), b"b", SerdeError, "id_fn returned ''"),
    ],
)
def test_make_refuses(maker: MessageMaker, element: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        maker.make(element)


@pytest.mark.parametrize(
    ("serializer", "owner", "name"),
    [(JsonSerializer(), json, "message_of"), (SimpleKeyValueSerializer(), plain, "message_of")],
)
def test_a_fault_of_a_serializer_of_ours_is_counted(
    serializer: Any, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, no_internal_errors: list[int]
) -> None:
    def fails(*given: Any, **more: Any) -> Any:
        raise KeyError("secret")

    monkeypatch.setattr(owner, name, fails)
    maker, element = MessageMaker("t", None, serializer), {"key": "1", "value": "x"}
    with pytest.raises(SerdeError, match=r"internal error: KeyError$") as caught:
        maker.make(element)
    made = BatchMaker(maker).make([element, Message(b"x")])
    assert [(at, str(error)) for at, (_, error) in made.failed.items()] == [(0, "internal error: KeyError")]
    assert no_internal_errors == [1, 1]
    letter_of_failure(maker, element, FailedMessage(None, "", "t", "SerdeError", str(caught.value)))  # the same fault
    assert no_internal_errors == [1, 1]
    no_internal_errors.clear()


def test_record_does_not_go_back_to_its_own_topic(record: Record) -> None:
    assert MessageMaker("copy").make(record).topic == "copy"
    with pytest.raises(LocalError, match="no topic"):
        MessageMaker().make(record)


def test_record_goes_through_a_serializer_if_there_is_one(record: Record) -> None:
    maker = MessageMaker("t", serializer=lambda r: Message(r.body.upper()))
    assert maker.make(record) == (Message(b"BODY"), "t", record_id(record))


def test_record_id_depends_on_coordinates_alone(record: Record) -> None:
    base = record_id(record)
    assert re.fullmatch("[0-9A-F]{32}", base)
    assert record_id(record._replace(body=b"other", store_timestamp_ms=1, raw_properties=b"")) == base
    others = [
        record._replace(topic="x"),
        record._replace(broker="x"),
        record._replace(queue_id=1),
        record._replace(queue_offset=0),
    ]
    assert len({base, *map(record_id, others)}) == 5


def test_id_function_goes_before_the_records_coordinates(record: Record) -> None:
    assert MessageMaker("t", id_fn=lambda r: f"id-{r.queue_offset}").make(record).message_id == "id-1"
    assert MessageMaker("t", id_fn=lambda e: e.decode()).make(b"text").message_id == "text"


def test_required_topics_are_those_that_no_element_chooses() -> None:
    assert MessageMaker().required_topics == frozenset()
    assert MessageMaker("t", ConstantTopic("s")).required_topics == {"t", "s"}
    assert MessageMaker("t", TopicFromFields("x", default_topic="d")).required_topics == {"t"}


def test_maker_pickles() -> None:
    maker = MessageMaker("t", ConstantTopic("s"), serialize_pair, str)
    assert pickle.loads(pickle.dumps(maker)) == maker


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("element", "text"),
    [(b"b", "b'b'"), (Unprintable(), "<Unprintable>"), ("x" * 5000, "'" + "x" * (MAX_ELEMENT_TEXT - 4) + "...")],
)
def test_element_text(element: Any, text: str) -> None:
    assert element_text(element) == text
