"""`rmqio topics create`, `update` and `delete` on two fake brokers: what they change, and what they refuse."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from rmqio.wire.command import Command, RequestCode
from tests.helpers.command_line import Tool
from tests.helpers.fakes.broker import NAME_SERVER, FakeBroker
from tests.helpers.fakes.faults import Exchange, answer

BROKERS = ("broker-a", "broker-b")
PUT_ORDER, GET_ORDER, DELETE_ORDER = 100, 101, 102
WHO_CONSUMES = 300


class Configs:
    """The part of a broker that the fake one lacks: it keeps the configuration of topics, a name server their order."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.of: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in BROKERS}
        self.orders: dict[str, str] = {}
        for name in BROKERS:
            self.add(name, "orders", 2)
            on = lambda code, fault, name=name: broker.on(code, fault, times=None, broker=name)  # noqa: E731
            on(RequestCode.GET_TOPIC_CONFIG, self._get(name))
            on(RequestCode.UPDATE_AND_CREATE_TOPIC, self._put(name))
            on(RequestCode.DELETE_TOPIC_IN_BROKER, self._delete(name))
            on(WHO_CONSUMES, lambda exchange: exchange.send(Command(0, body=b'{"groupList":["billing"]}')))
        for code, act in ((PUT_ORDER, self._put_order), (GET_ORDER, self._get_order), (DELETE_ORDER, self._drop_order)):
            broker.on(code, act, times=None, broker=NAME_SERVER)

    def add(self, name: str, topic: str, queues: int, **more: Any) -> None:
        self.of[name][topic] = {
            "readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "order": False, "attributes": {},
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "topicName": topic,
        } | more  # fmt: skip

    def _get(self, name: str) -> Callable[[Exchange], None]:
        def fault(exchange: Exchange) -> None:
            found = self.of[name].get(exchange.request.ext["topic"])
            exchange.send(
                Command(17, remark="No topic") if found is None else Command(0, body=json.dumps(found).encode())
            )

        return fault

    def _put(self, name: str) -> Callable[[Exchange], None]:
        def fault(exchange: Exchange) -> None:
            ext = exchange.request.ext
            attributes = dict(self.of[name].get(ext["topic"], {}).get("attributes", {}))
            attributes |= dict(part[1:].split("=") for part in ext["attributes"].split(",") if part)
            self.add(
                name, ext["topic"], int(ext["readQueueNums"]), writeQueueNums=int(ext["writeQueueNums"]),
                perm=int(ext["perm"]), order=ext["order"] == "true", attributes=attributes,
            )  # fmt: skip
            exchange.send(exchange.handle())

        return fault

    def _delete(self, name: str) -> Callable[[Exchange], None]:
        def fault(exchange: Exchange) -> None:
            self.of[name].pop(exchange.request.ext["topic"], None)
            exchange.send(exchange.handle())

        return fault

    def _put_order(self, exchange: Exchange) -> None:
        self.orders[exchange.request.ext["key"]] = exchange.request.ext["value"]
        exchange.send(Command(0))

    def _get_order(self, exchange: Exchange) -> None:
        found = self.orders.get(exchange.request.ext["key"])
        exchange.send(Command(22) if found is None else Command(0, {"value": found}))

    def _drop_order(self, exchange: Exchange) -> None:
        self.orders.pop(exchange.request.ext["key"], None)
        exchange.send(Command(0))

    def changes(self) -> list[tuple[str, int]]:
        """The requests that change something, by receiver."""
        codes = {17, 215, 216, PUT_ORDER, DELETE_ORDER}
        return [(role, request.code) for role, request in self.broker.requests if request.code in codes]


@pytest.fixture
def configs(broker: FakeBroker) -> Configs:
    return Configs(broker)


# ---- create ----------------------------------------------------------------------------------------------------------


def test_a_topic_is_created_on_every_master(rmqio: Tool, configs: Configs, broker: FakeBroker) -> None:
    out = rmqio("topics", "create", "new", "--queues", "3", "--message_type", "fifo")
    assert out.splitlines() == [
        f"topic new on {name}: created with 3 queues, read and write, message type FIFO" for name in BROKERS
    ]
    for name in BROKERS:
        config = configs.of[name]["new"]
        assert (config["readQueueNums"], config["perm"], config["attributes"]) == (3, 6, {"message.type": "FIFO"})
    assert len(broker.cluster.create_topic("new", 3)) == 6
    assert configs.orders == {}


def test_a_topic_is_created_on_the_broker_that_is_named(rmqio: Tool, configs: Configs) -> None:
    assert rmqio("topics", "create", "new", "--broker", "broker-b").count("created with 4 queues") == 1
    assert "new" not in configs.of["broker-a"]
    rmqio("topics", "create", "new", "--broker", "broker-c", status=1)
    assert "--broker broker-c: the masters are broker-a, broker-b; did you mean broker-" in rmqio.err
    rmqio("topics", "create", "new", "--cluster", "DefaultClustre", status=1)
    assert "--cluster DefaultClustre: the name servers know DefaultCluster; did you mean" in rmqio.err


def test_what_exists_already_is_said_and_what_lacks_it_gets_it(rmqio: Tool, configs: Configs) -> None:
    del configs.of["broker-b"]["orders"]
    out = rmqio("topics", "create", "orders", "--queues", "2")
    assert out.splitlines() == [
        "topic orders on broker-a: exists already, with 2 queues, read and write",
        "topic orders on broker-b: created with 2 queues, read and write",
    ]
    assert configs.changes() == [("broker-b", 17)]


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (["--queues", "8"], "2 queues (not 8 queues)"),
        (["--permission", "r"], "read and write (not read only)"),
        (["--order"], "unordered (not ordered)"),
        (["--message_type", "DELAY"], "message type unset (not message type DELAY)"),
        (["--attribute", "cleanup.policy=COMPACTION"], "cleanup.policy unset (not cleanup.policy COMPACTION)"),
    ],
)
def test_what_differs_is_refused_and_nothing_is_changed(
    rmqio: Tool, configs: Configs, options: list[str], difference: str
) -> None:
    del configs.of["broker-a"]["orders"]
    rmqio("topics", "create", "orders", *options, status=1)
    assert f"topic 'orders' exists on broker-b with {difference}; nothing has been changed" in rmqio.err
    assert f"`rmqio topics update orders {' '.join(options)}` changes it" in rmqio.err
    assert configs.changes() == []


def test_a_dry_run_changes_nothing(rmqio: Tool, configs: Configs) -> None:
    out = rmqio("topics", "create", "new", "--dry-run")
    assert "topic new on broker-a: would be created with 4 queues, read and write" in out
    assert out.endswith("Nothing has been changed. To make the change, leave out --dry_run.\n")
    assert rmqio("topics", "create", "orders", "--dry_run").endswith("Nothing to change.\n")
    rmqio("topics", "update", "orders", "--queues", "4", "--dry_run")
    rmqio("topics", "delete", "orders", "--dry_run")
    found = rmqio.json("topics", "create", "new", "--dry_run")
    assert (found["executed"], found["brokers"][0]["before"]) == (False, None)
    assert found["brokers"][1]["after"] == {
        "read_queues": 4, "write_queues": 4, "permission": 6, "order": False, "attributes": {},
    }  # fmt: skip
    assert configs.changes() == []


def test_a_broker_that_drops_attributes_is_reported(rmqio: Tool, configs: Configs, broker: FakeBroker) -> None:
    """One before 5.0, which does not know the request for one topic either."""
    broker.heal()
    table = {"topicConfigTable": configs.of["broker-a"]}
    for name in BROKERS:
        broker.on(21, lambda exchange: exchange.send(Command(0, body=json.dumps(table).encode())), None, broker=name)
    configs.add("broker-a", "new", 4)
    rmqio("topics", "create", "orders", "--queues", "2")
    assert "exists already" not in rmqio.err
    configs.of["broker-a"].pop("new")

    def accept(exchange: Exchange) -> None:
        configs.add("broker-a", "new", 4)
        exchange.send(exchange.handle())

    broker.on(17, accept, times=None)
    rmqio("topics", "create", "new", "--message_type", "FIFO", status=1)
    assert "broker-a has accepted the change of topic 'new', but has message type unset" in rmqio.err


def test_a_failure_says_what_has_been_done(rmqio: Tool, configs: Configs, broker: FakeBroker) -> None:
    broker.heal()
    for name in BROKERS:
        broker.on(351, answer(17, "none"), times=None, broker=name)
    broker.on(17, answer(16, "not you"), broker="broker-b", times=None)
    rmqio("topics", "create", "new", status=1)
    assert "topic 'new' on broker-b: code 16 NO_PERMISSION: not you; already done on broker-a" in rmqio.err
    broker.stop_broker("broker-b")
    rmqio("topics", "create", "newer", status=1)
    assert "broker broker-b does not answer: cannot connect to" in rmqio.err
    assert "; nothing has been changed" in rmqio.err
    assert [role for role, code in configs.changes() if code == 17] == ["broker-a", "broker-b"]


def test_several_clusters_need_a_name(rmqio: Tool, configs: Configs, broker: FakeBroker) -> None:
    table = {
        name: {"cluster": f"cluster-{name[-1]}", "brokerName": name, "brokerAddrs": {"0": broker.address(name)}}
        for name in BROKERS
    }
    body = json.dumps({"brokerAddrTable": table}).encode()
    broker.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda exchange: exchange.send(Command(0, body=body)), times=None)
    rmqio("topics", "create", "new", status=1)
    assert "the name servers know several clusters, cluster-a, cluster-b: name one with --cluster" in rmqio.err
    rmqio("topics", "create", "new", "--cluster", "cluster-b")
    assert configs.changes() == [("broker-b", 17)]


# ---- update ----------------------------------------------------------------------------------------------------------


def test_an_update_changes_what_is_said_and_keeps_the_rest(rmqio: Tool, configs: Configs) -> None:
    configs.add("broker-a", "orders", 2, attributes={"message.type": "FIFO"}, topicSysFlag=3, perm=7)
    out = rmqio("topics", "update", "orders", "--permission", "r", "--broker", "broker-a")
    assert out == "topic orders on broker-a: changed from read and write to read only\n"
    (sent,) = (request for _, request in configs.broker.requests if request.code == 17)
    assert (sent.ext["perm"], sent.ext["topicSysFlag"], sent.ext["readQueueNums"]) == ("5", "3", "2")
    assert configs.of["broker-a"]["orders"]["attributes"] == {"message.type": "FIFO"}
    assert configs.of["broker-b"]["orders"]["perm"] == 6


def test_an_update_of_what_is_so_already_sends_nothing(rmqio: Tool, configs: Configs) -> None:
    out = rmqio("topics", "update", "orders", "--queues", "2")
    assert out.count("exists already, with 2 queues") == 2
    assert configs.changes() == []


def test_an_update_needs_a_topic(rmqio: Tool, configs: Configs) -> None:
    rmqio("topics", "update", "order", "--queues", "4", status=1)
    assert "topic 'order' does not exist; did you mean orders?" in rmqio.err
    del configs.of["broker-b"]["orders"]
    rmqio("topics", "update", "orders", "--queues", "4", "--broker", "broker-b", status=1)
    assert "topic 'orders' is not on broker-b" in rmqio.err
    rmqio("topics", "update", "orders", "--queues", "4")
    assert "topic orders is not on broker-b; `rmqio topics create orders` creates it there" in rmqio.err


def test_queues_with_messages_are_not_hidden_unasked(rmqio: Tool, configs: Configs, broker: FakeBroker) -> None:
    broker.cluster.append("orders", b"x", queue_id=1, broker="broker-b")
    rmqio("topics", "update", "orders", "--queues", "1", status=2)
    assert "1 message of topic orders could no longer be read. Go on? Standard input is not a terminal" in rmqio.err
    rmqio("topics", "update", "orders", "--queues", "1", "--dry_run")
    assert "1 message of topic orders could no longer be read" in rmqio.err
    assert configs.changes() == []


def test_queues_that_nobody_would_read_are_refused(rmqio: Tool, configs: Configs) -> None:
    rmqio("topics", "update", "orders", "--write_queues", "3", status=2)
    assert "--write_queues 3: there are 2 queues, and nobody would read the others; add --queues 3" in rmqio.err


def test_order_is_fixed_at_the_name_servers_and_forgotten_first(rmqio: Tool, configs: Configs) -> None:
    rmqio("topics", "update", "orders", "--order")
    assert configs.orders == {"orders": "broker-a:2;broker-b:2"}
    rmqio("topics", "update", "orders", "--order", "--queues", "4", "--broker", "broker-b")
    assert configs.orders == {"orders": "broker-a:2;broker-b:4"}
    before = len(configs.changes())
    rmqio("topics", "update", "orders", "--no_order")
    assert configs.orders == {}
    assert [code for _, code in configs.changes()[before:]] == [DELETE_ORDER, 17, 17]


# ---- delete ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_deletion_says_what_is_lost_and_asks(
    rmqio: Tool, configs: Configs, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.cluster.append("orders", b"x")
    assert rmqio("topics", "delete", "orders", status=2).splitlines() == [
        "topic orders on broker-a, broker-b: 4 queues, 1 message",
        "consumer groups with offsets in it: billing",
    ]
    assert "Standard input is not a terminal: add --yes to continue" in rmqio.err
    for reply in ("n\n", "\n", "", "nonsense\n"):
        monkeypatch.setattr("sys.stdin", Terminal(reply))
        rmqio("topics", "delete", "orders", status=1)
        assert rmqio.err == "Delete the topic and its messages? [y/N] rmqio: nothing has been deleted\n"
    assert configs.changes() == []
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert rmqio("topics", "delete", "orders").endswith("deleted topic orders\n")
    assert broker.cluster.topic_names() == []


def test_a_deletion_with_yes_asks_nothing(rmqio: Tool, configs: Configs, broker: FakeBroker) -> None:
    configs.orders["orders"] = "broker-a:2"
    found = rmqio.json("topics", "delete", "orders", "--yes")
    assert found == {
        "topic": "orders", "executed": True, "brokers": list(BROKERS), "queues": 4, "messages": 0,
        "groups": ["billing"],
    }  # fmt: skip
    assert configs.changes() == [("broker-a", 215), ("broker-b", 215), (NAME_SERVER, 216), (NAME_SERVER, DELETE_ORDER)]
    assert configs.orders == {}
    rmqio("topics", "delete", "orders", "--yes", status=1)
    assert "topic 'orders' does not exist" in rmqio.err


def test_a_misspelt_name_deletes_nothing(rmqio: Tool, configs: Configs) -> None:
    rmqio("topics", "delete", "order", "--yes", status=1)
    assert "topic 'order' does not exist; did you mean orders?" in rmqio.err
    assert configs.changes() == []


def test_a_broker_that_is_down_keeps_the_topic_whole(rmqio: Tool, configs: Configs, broker: FakeBroker) -> None:
    broker.stop_broker("broker-b")
    rmqio("topics", "delete", "orders", "--yes", status=1)
    assert "broker broker-b does not answer: cannot connect to" in rmqio.err
    assert configs.changes() == []
