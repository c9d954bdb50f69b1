"""`rmqio groups` on two fake brokers: who is listed, and how lags add up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqio.model import MessageQueue
from rmqio.wire.command import Command, RequestCode
from tests.helpers.command_line import Tool
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.fakes.faults import Fault, answer

ALL_GROUPS, ALL_OFFSETS, MEMBERS = 201, 43, 38


def answers(body: str) -> Fault:
    return lambda exchange: exchange.send(Command(0, body=body.encode()))


def serve(
    broker: FakeBroker,
    name: str,
    groups: list[str],
    offsets: dict[str, dict[int, int]],
    *,
    members: list[str] | None = None,
) -> None:
    """Let a broker report these groups, and offsets by `topic@group` and queue, which are also committed."""
    table = {"subscriptionGroupTable": {group: {"groupName": group} for group in groups}}
    # As a real broker writes it: queue ids are no JSON keys.
    rows = ",".join(
        f'"{key}":{{{",".join(f"{queue}:{offset}" for queue, offset in row.items())}}}' for key, row in offsets.items()
    )
    bodies = {ALL_GROUPS: json.dumps(table), ALL_OFFSETS: f'{{"offsetTable":{{{rows}}}}}'}
    for code, body in bodies.items():
        broker.on(code, answers(body), None, broker=name)
    online = Command(1, remark=f"no consumer for this group on {name}")
    if members:
        online = Command(0, body=json.dumps({"consumerIdList": members}).encode())
    broker.on(MEMBERS, lambda exchange: exchange.send(online), times=None, broker=name)
    for key, row in offsets.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in row.items():
            broker.cluster.commit(group, MessageQueue(topic, name, queue_id), offset)


@pytest.fixture
def groups(broker: FakeBroker) -> FakeBroker:
    """Ten messages in each of two queues of `orders`, on each broker."""
    broker.cluster.create_topic("payments", 1)
    for name in ("broker-a", "broker-b"):
        for queue_id in (0, 1):
            for _ in range(10):
                broker.cluster.append("orders", b"x", broker=name, queue_id=queue_id)
    broker.cluster.append("payments", b"x")
    serve(
        broker, "broker-a", ["billing", "idle", "TOOLS_CONSUMER", "rmqio_reader"],
        {"orders@billing": {0: 4, 1: 10}, "payments@billing": {0: 0}, "gone@billing": {0: 7}},
    )  # fmt: skip
    serve(broker, "broker-b", ["billing", "CID_RMQ_SYS_TRANS"], {"orders@billing": {0: 9}, "orders@audit": {1: 0}})
    return broker


def test_groups_of_all_brokers_are_listed_with_their_lag(rmqio: Tool, groups: FakeBroker) -> None:
    assert rmqio("groups").splitlines() == [
        "GROUP    TOPICS  LAG",
        "audit         1   10",
        "billing       2    8",
        "idle          0    -",
    ]
    assert rmqio.json("groups", "b*") == {"groups": [{"group": "billing", "topics": 2, "lag_messages": 8}]}
    assert [line.split()[0] for line in rmqio("groups", "--all").splitlines()] == [
        "GROUP", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "audit", "billing", "idle", "rmqio_reader",
    ]  # fmt: skip


def test_names_alone_are_for_scripts_and_ask_for_no_lag(rmqio: Tool, groups: FakeBroker) -> None:
    assert rmqio("groups", "--names").splitlines() == ["audit", "billing", "idle"]
    assert rmqio("groups", "--names", "b*").splitlines() == ["billing"]
    assert rmqio("groups", "--names", "billing").splitlines() == ["billing"]
    assert RequestCode.QUERY_CONSUMER_OFFSET not in {request.code for _, request in groups.requests}
    assert rmqio("groups", "--names", "biling", status=1) == ""
    assert "no broker knows a consumer group that matches 'biling'" in rmqio.err
    rmqio("groups", "--names", "--json", status=2)
    assert "--names cannot be combined with --long or --json" in rmqio.err


def test_one_group_is_shown_by_topic(rmqio: Tool, groups: FakeBroker) -> None:
    assert rmqio("groups", "billing").splitlines() == [
        "group billing, nobody online",
        "",
        "TOPIC     QUEUES  LAG",
        "orders         3    7",
        "payments       1    1",
        "--------  ------  ---",
        "total               8",
    ]
    assert rmqio.json("groups", "billing")["topics"][0] == {"topic": "orders", "queues": 3, "lag_messages": 7}
    assert "The group has no offset in any topic." in rmqio("groups", "idle")


def test_the_position_of_an_exactly_once_write_is_no_lag(rmqio: Tool, broker: FakeBroker) -> None:
    """Its two groups have offsets in the sink; one that is named like the second alone is a group as any other."""
    for number in range(3):
        broker.cluster.append("orders", bytes([number]), broker="broker-a", queue_id=0)
    broker.cluster.create_topic("payments", 1)
    broker.cluster.append("payments", b"x")
    offsets = {
        "orders@sink": {0: 1}, "orders@sink_queues": {0: 2}, "orders@both": {0: 1}, "orders@both_queues": {0: 2},
        "payments@both": {0: 0}, "orders@print_queues": {0: 1}, "payments@print": {0: 0},
    }  # fmt: skip
    serve(broker, "broker-a", [], offsets)
    serve(broker, "broker-b", [], {})
    assert [line.split() for line in rmqio("groups").splitlines()[1:]] == [
        ["both", "1", "1"], ["print", "1", "1"], ["print_queues", "1", "2"],
    ]  # fmt: skip
    assert ["sink_queues", "0", "-"] in [line.split() for line in rmqio("groups", "--all").splitlines()]
    assert rmqio.json("groups", "--all", "sink*")["groups"][1]["lag_messages"] is None
    said = "Its offsets in orders are the position of an exactly-once write, and no lag."
    assert rmqio("groups", "sink").splitlines() == ["group sink, nobody online", "", said]
    shown = rmqio("groups", "both").splitlines()
    assert shown[3].split() == ["payments", "1", "1"]
    assert shown[-1] == said
    assert rmqio.json("groups", "sink_queues")["total"]["lag_messages"] is None


def test_members_are_counted_at_all_brokers(rmqio: Tool, broker: FakeBroker) -> None:
    for name, members in (("broker-a", ["m1", "m2"]), ("broker-b", ["m2", "m3"])):
        serve(broker, name, ["billing"], {}, members=members)
    assert "3 members online: m1, m2, m3" in rmqio("groups", "billing")
    assert rmqio("groups", "--long").splitlines() == ["GROUP    TOPICS  LAG  MEMBERS", "billing       0    -        3"]
    assert rmqio.json("groups", "--long")["groups"][0]["members"] == ["m1", "m2", "m3"]


def test_members_that_are_not_reported_are_unknown(rmqio: Tool, broker: FakeBroker) -> None:
    broker.on(MEMBERS, answer(16, "not you"), times=None)
    for name in ("broker-a", "broker-b"):
        serve(broker, name, ["billing"], {})
    assert "group billing, members online unknown" in rmqio("groups", "billing")
    assert rmqio.json("groups", "-l")["groups"][0]["members"] is None


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["biling"], 1, "no broker knows the group 'biling'; did you mean billing?"),
        (["nothing-like-it"], 1, "no broker knows the group 'nothing-like-it'; `rmqio groups` lists the groups"),
        (["x*"], 1, "no broker knows a consumer group that matches 'x*'"),
    ],
)
def test_a_group_that_nobody_knows(
    rmqio: Tool, groups: FakeBroker, arguments: list[str], status: int, expected: str
) -> None:
    rmqio("groups", *arguments, status=status)
    assert expected in rmqio.err


def test_no_group_at_all_is_no_failure(rmqio: Tool, broker: FakeBroker) -> None:
    for name in ("broker-a", "broker-b"):
        serve(broker, name, [], {})
    assert rmqio("groups") == ""
    assert "no broker knows a consumer group" in rmqio.err


def test_a_broker_that_is_down_does_not_hide_the_others_groups(rmqio: Tool, groups: FakeBroker) -> None:
    groups.stop_broker("broker-b")
    out = rmqio("groups", status=1)
    assert out.splitlines()[1].split() == ["billing", "2", "7"]
    assert "cannot connect to" in rmqio.err
    rmqio("groups", "billing", status=1)
    groups.stop_broker("broker-a")
    assert rmqio("groups", status=1) == ""


def test_asking_for_groups_changes_nothing(rmqio: Tool, groups: FakeBroker) -> None:
    rmqio("groups", "--long")
    rmqio("groups", "billing")
    asked = {request.code for _, request in groups.requests}
    reading: set[Any] = {
        RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET, ALL_GROUPS, ALL_OFFSETS, MEMBERS,
    }  # fmt: skip
    assert asked <= reading


def test_groups_of_a_namespace_lose_its_name(broker: FakeBroker, rmqio: Tool) -> None:
    broker.cluster.create_topic("prod%orders", 1)
    broker.cluster.create_topic("%RETRY%prod%billing", 1)
    broker.cluster.append("prod%orders", b"x")
    offsets = {"prod%orders@prod%billing": {0: 0}, "%RETRY%prod%billing@prod%billing": {0: 0}, "orders@other": {0: 0}}
    serve(broker, "broker-a", ["prod%billing", "other"], offsets)
    serve(broker, "broker-b", [], {})
    lines = rmqio("groups", "billing", "--namespace", "prod").splitlines()
    assert [line.split() for line in lines[3:5]] == [["%RETRY%billing", "1", "0"], ["orders", "1", "1"]]
    assert rmqio("groups", "--namespace", "prod").splitlines()[1:] == ["billing       2    1"]
