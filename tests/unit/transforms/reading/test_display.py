"""A read's display data: every argument that is not default, and no secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.transforms.display import DisplayData

from rmqio import (
    ClientOptions,
    DropDuplicates,
    FileCredentials,
    MessageQueue,
    ReadAllFromRocketMQ,
    ReadFromRocketMQ,
    ReadOptions,
    Record,
    Security,
    StartFrom,
    StopAt,
    Tls,
)
from rmqio.testing import InMemoryClientFactory

AT = "h:9876"
TO_THE_END = StopAt.latest()
SIGNED = Security(FileCredentials("/a/file"), Tls(insecure=True), allowed_addresses=("10.0.*",))
Make = Callable[..., Any]


def one(**arguments: Any) -> ReadFromRocketMQ:
    return ReadFromRocketMQ("t", **arguments)


def shown(transform: Any) -> dict[str, Any]:
    return {item.key: item.value for item in DisplayData.create_from(transform).items}


def test_display_data_has_the_name_server_and_no_option_that_is_default() -> None:
    plain = shown(one(name_server="a:1;b:2", stop=TO_THE_END))
    assert plain["name_server"] == "a:1;b:2"
    assert set(plain) == {"name_server", "topic", "start", "stop", "filter"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_bundle_ms": 7}, {"max_bundle_ms": 7}),
        ({"pull_depth": 7, "namespace": "n"}, {"pull_depth": 7, "namespace": "n"}),
        ({"commit_offsets": False}, {"commit_offsets": False}),
        ({"tags": "a", "consumer_group": "g"}, {"filter": "a", "consumer_group": "g"}),
        ({"max_num_records": 3}, {"max_num_records": 3}),
    ],
)
def test_display_data_has_what_is_not_default(options: dict[str, Any], expected: dict[str, Any]) -> None:
    found = shown(one(name_server=AT, options=ReadOptions(**options)))
    assert {name: found.get(name) for name in expected} == expected


class Decoder:
    """A deserializer that knows a secret, which even its repr tells."""

    def __call__(self, record: Record) -> bytes:
        return record.body

    def __repr__(self) -> str:
        return "secret"


def minute_of(record: Record) -> int:
    return record.born_timestamp_ms // 60_000 * 60_000


Q = MessageQueue("orders", "broker-a", 0)
MANY = {Q._replace(queue_id=number): number for number in range(22)}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"start": StartFrom.timestamp(7)}, {"start": "timestamp", "start_timestamp_ms": 7}),
        (
            {"start": StartFrom.group_offsets("earliest"), "consumer_group": "g"},
            {"start": "group_offsets", "start_reset": "earliest", "consumer_group": "g"},
        ),
        ({"consumer_group": "g"}, {"start": "group_offsets", "consumer_group": "g"}),
        (
            {"start": StartFrom.specific_offsets({Q: 5, Q._replace(queue_id=1): 6}, reset="error")},
            {
                "start": "specific_offsets",
                "start_offsets": "orders/broker-a/0: 5, orders/broker-a/1: 6",
                "start_reset": "error",
            },
        ),
        ({"stop": StopAt.timestamp(8)}, {"stop": "timestamp", "stop_timestamp_ms": 8}),
        ({"stop": StopAt.offsets({Q: 9})}, {"stop": "offsets", "stop_offsets": "orders/broker-a/0: 9"}),
        ({"sql_filter": "price > 10"}, {"filter": "price > 10", "filter_type": "SQL92"}),
        ({"deserializer": Decoder()}, {"deserializer": "Decoder"}),
        ({"deserializer": minute_of}, {"deserializer": "minute_of"}),
        ({"timestamp": "store"}, {"timestamp": "store"}),
        ({"timestamp": "sent_at"}, {"timestamp": "sent_at"}),
        ({"timestamp": minute_of}, {"timestamp": "minute_of"}),
        ({"batches": True}, {"batches": True}),
        ({"dead_letter_topic": "dead"}, {"dead_letter_topic": "dead"}),
        (
            {"deduplicate": DropDuplicates(within_ms=5, id_of=str)},
            {"deduplicate_within_ms": 5, "deduplicate_id_of": "str"},
        ),
    ],
)
@pytest.mark.parametrize("make", [one, ReadAllFromRocketMQ])
def test_display_data_has_every_argument_that_is_not_default(
    make: Make, arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    plain = shown(make(name_server=AT))
    assert shown(make(name_server=AT, **arguments)) == plain | expected


def test_display_data_has_a_few_of_many_offsets() -> None:
    found = shown(one(name_server=AT, start=StartFrom.specific_offsets(MANY)))["start_offsets"]
    assert found.startswith("orders/broker-a/0: 0, orders/broker-a/1: 1, ")
    assert found.endswith("orders/broker-a/19: 19, 2 more")


def test_display_data_has_the_clients_options_and_no_secret() -> None:
    client = ClientOptions(AT, pull_group="pulls", long_poll_ms=9, security=SIGNED)
    found = shown(one(client=client))
    assert (found["client.pull_group"], found["client.long_poll_ms"], found["name_server"]) == ("pulls", 9, AT)
    assert found["security"] == "credentials by FileCredentials, TLS, not verified, addresses among 10.0.*"
    assert not [
        name
        for name in found
        if name.startswith("client.") and name not in ("client.pull_group", "client.long_poll_ms")
    ]


def test_display_data_has_what_the_client_is_made_of() -> None:
    at = ClientOptions(AT, route_refresh_ms=25_000)
    assert shown(one(client=at))["client.route_refresh_ms"] == 15_000, "half of the interval of looks"
    assert shown(one(client=at, stop=TO_THE_END))["client.route_refresh_ms"] == 25_000


def test_a_factory_of_ones_own_is_shown_by_name() -> None:
    assert shown(one(client_factory=InMemoryClientFactory("a cluster")))["client_factory"] == "InMemoryClientFactory"
