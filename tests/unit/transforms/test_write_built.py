"""`WriteToRocketMQ` before it runs: what is refused, what is accepted, and what is displayed."""

from __future__ import annotations

import datetime as dt
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.display import DisplayData

from rmqio.batches import MessageBatch
from rmqio.errors import LocalError
from rmqio.model import Message, Record
from rmqio.options import WriteOptions
from rmqio.repeats import LookBack
from rmqio.testing import InMemoryClientFactory
from rmqio.transforms.write import WriteToRocketMQ
from rmqio.transforms.writing.elements import ConstantTopic
from tests.helpers.transforms.written_orders import Order, serialize_order

FACTORY = InMemoryClientFactory("nowhere")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topic": "not legal"}, "topic name 'not legal' is illegal"),
        ({"topic": ""}, "topic name '' is illegal: it is empty"),
        ({"topic": ["t", "u"]}, r"topic is \['t', 'u'\]; it must be text. For several topics give selector="),
        ({"topic": "t", "producer_group": "not legal"}, "group name 'not legal' is illegal"),
        ({"topic": "t", "selector": "t"}, "selector is 't'; it must be a callable"),
        ({"topic": "t", "serializer": "json"}, "serializer is 'json'; it must be a callable"),
        ({"topic": "t", "id_fn": "id"}, "id_fn is 'id'; it must be a callable"),
        ({"topic": "t", "options": {"max_retries": 1}}, "options is {'max_retries': 1}; it must be rmqio.WriteOptions"),
        (
            {"topic": "t", "fail_on_error": True, "dead_letter_topic": "d"},
            "fail_on_error and dead_letter_topic",
        ),
        ({"topic": "t", "name_server": "localhost:9876"}, "name_server and client_factory are both given"),
        ({"topic": "t", "client_factory": None, "name_server": "localhost"}, "address 'localhost' is not host:port"),
        ({"topic": "t", "client_factory": None}, "no name server given: pass name_server="),
    ],
)
def test_what_is_wrong_is_said_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], text: str
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(LocalError, match=text):
        WriteToRocketMQ(**{"client_factory": FACTORY, **arguments})


@pytest.mark.parametrize(
    ("arguments", "element_type", "text"),
    [
        ({"topic": "t"}, int, "cannot write elements of type int: give serializer="),
        ({"topic": "t"}, Order, "cannot write elements of type Order: give serializer="),
        ({}, bytes, "has no topic for elements of type bytes: give topic= or selector="),
        ({}, Record, "has no topic for elements of type Record: give topic= or selector="),
        ({"topic": "t"}, list[Record], r"cannot write lists as elements: give batches=True, or serializer="),
        ({"topic": "t"}, MessageBatch, r"cannot write lists as elements: give batches=True, or serializer="),
        ({"topic": "t", "batches": True}, bytes, r"writes lists, and its elements are of type bytes: leave batches="),
        ({"topic": "t", "batches": True}, list[Order], "cannot write elements of type Order: give serializer="),
        ({"batches": True}, list[bytes], "has no topic for elements of type bytes: give topic= or selector="),
    ],
)
def test_what_can_never_work_is_said_when_it_is_applied(
    arguments: dict[str, Any], element_type: type, text: str
) -> None:
    elements = beam.Pipeline() | beam.Create([]).with_output_types(element_type)
    with pytest.raises(LocalError, match=text):
        elements | WriteToRocketMQ(client_factory=FACTORY, **arguments)


@pytest.mark.parametrize(
    ("arguments", "element_type"),
    [
        ({}, Message),
        ({}, Any),
        ({}, object),
        ({"topic": "t"}, Record),
        ({"selector": ConstantTopic("t")}, str),
        ({"serializer": serialize_order}, Order),
    ],
)
def test_what_may_work_is_accepted(arguments: dict[str, Any], element_type: Any) -> None:
    elements = beam.Pipeline() | beam.Create([]).with_output_types(element_type)
    elements | WriteToRocketMQ(client_factory=FACTORY, **arguments)


def _display(transform: WriteToRocketMQ) -> Any:
    return DisplayData.create_from(transform).items


def test_display_data() -> None:
    items = _display(
        WriteToRocketMQ(
            "t",
            name_server="one:9876;two:9876",
            serializer=serialize_order,
            selector=ConstantTopic("u", "red"),
            id_fn=str,
            options=WriteOptions(asynchronous=True, max_in_flight=3, producer_group="from_options"),
            with_sent=False,
        )
    )
    for name, value in {
        "topic": "t",
        "name_server": "one:9876;two:9876",
        "producer_group": "from_options",
        "selector": "ConstantTopic(topic='u', tags='red')",
        "serializer": "serialize_order",
        "id_fn": "str",
        "asynchronous": True,
        "max_in_flight": 3,
        "with_sent": False,
        "ordered_by_sharding_key": True,
        "batch_flush": True,
        "max_batch_messages": 1000,
    }.items():
        assert [item.value for item in items if item.key == name] == [value], name
    assert not any(item.key == "client_factory" for item in items)


def test_display_data_of_an_exactly_once_write() -> None:
    since = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    for look_back, expected in (
        (LookBack(), {}),
        (LookBack(group="sink", since=since, redo_within_s=7), {"redo_within_s": 7, "since_ms": 1767225600000}),
    ):
        write = WriteToRocketMQ("t", exactly_once=look_back, producer_group="g", id_fn=str, client_factory=FACTORY)
        found = {item.key: item.value for item in _display(write)}
        assert found["exactly_once"] == (look_back.group or "g")
        assert found["client_factory"] == "InMemoryClientFactory"
        of_look_back = {key.partition(".")[2]: value for key, value in found.items() if key.startswith("look_back.")}
        assert of_look_back == expected


def test_group_and_name_server_come_from_arguments_then_options_then_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    options = WriteOptions(name_server="option:1", producer_group="option")

    def shown(**arguments: Any) -> tuple[Any, Any]:
        values = {item.key: item.value for item in _display(WriteToRocketMQ("t", **arguments))}
        return values["name_server"], values["producer_group"]

    monkeypatch.setenv("NAMESRV_ADDR", "variable:1")
    assert shown() == ("variable:1", "rmqio_producer")
    assert shown(options=options) == ("option:1", "option")
    assert shown(options=options, name_server="argument:1", producer_group="argument") == ("argument:1", "argument")
