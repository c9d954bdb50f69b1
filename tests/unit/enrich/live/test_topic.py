"""A topic as a table: upserts and deletions are seen, and files take what memory has."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")

from rmqio.client.factory import RemotingClientFactory
from rmqio.enrich import Table, following
from rmqio.enrich.live import LiveTable
from rmqio.enrich.store import Wanted
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError, RmqioError, TransportError
from rmqio.model import TOMBSTONE, Message, MessageQueue, Record
from rmqio.options import ClientOptions
from rmqio.serde.registry.base import RegistryUnavailable
from rmqio.sql.compile.messages import row_key
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.topics import queue_for_key
from rmqio.wire.command import RequestCode
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.waiting import until

TYPES = {"id": "int64", "name": "string", "day": "date32"}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as found:
        found.cluster.create_topic("users")
        yield found


class Users:
    """Sends rows and deletions, and makes tables of them."""

    def __init__(self, factory: Any, folder: Path) -> None:
        self.factory = factory
        self.producer = factory.producer("p")
        self.folder = folder
        self.live: list[LiveTable] = []

    def put(self, key: int, name: str | None, **more: Any) -> None:
        body = json.dumps({"id": key, "name": name, **more}).encode()
        self.producer.send(Message(body, topic="users", keys=str(key), sharding_key=str(key)))

    def delete(self, key: str) -> None:
        message = Message(b"", topic="users", keys=(key,), properties={TOMBSTONE: "1"})
        self.producer.send_batch([message], queue_for_key(self.producer.queues("users"), key))

    def table(self, *, compact_at: int = 100_000, keys: tuple[str, ...] = ("id",), **more: Any) -> LiveTable:
        more = {"types": TYPES, **more}
        table = Table.from_topic("users", client_factory=self.factory, cache_dir=str(self.folder), **more)
        made = LiveTable(Wanted(table, Spec(keys)), compact_at=compact_at)
        self.live.append(made)
        made.start()
        return made


@pytest.fixture
def users(broker: FakeBroker, tmp_path: Path) -> Iterator[Users]:
    found = Users(RemotingClientFactory(ClientOptions(broker.name_server)), tmp_path)
    yield found
    for each in found.live:
        each.stop()
    found.producer.close()


def test_the_first_key_of_a_deletion_names_the_row(users: Users) -> None:
    users.put(1, "Ann")
    users.put(2, "Bob")
    table = users.table()
    message = Message(b"", topic="users", keys=("1", "2"), properties={TOMBSTONE: "1"})
    users.producer.send_batch([message], queue_for_key(users.producer.queues("users"), "1"))
    until(lambda: table.now()[0].get_one(1) is None, "the deletion of key 1")
    assert table.now()[0].get_one(2) is not None


@pytest.mark.parametrize("site", [(), ("x y",)])
def test_a_deletion_of_sql_finds_its_row_whatever_its_key_escapes(users: Users, site: tuple[str, ...]) -> None:
    texts = [
        "a",
        "a b",
        "a\tb",
        "a 00",
        "a\u3000b",
        "a\u2003b",
        "a\u00a0b",
        "c%20d",
        "c d",
        "100%",
        "a_b",
        "%00",
        " ",
        "",
    ]
    table = users.table(types=dict.fromkeys(("site", "id", "name"), "string"), keys=("site", "id")[1 - len(site) :])
    keys = [(*site, each) for each in texts]
    look = [key if site else key[0] for key in keys]
    for each in texts:
        body = json.dumps({"site": "".join(site), "id": each, "name": "Ann"}).encode()
        users.producer.send(Message(body, topic="users", keys="k", sharding_key="k"))
    until(lambda: None not in table.now()[0].get(look), "all rows")

    def are_gone(count: int) -> bool:
        return [each is None for each in table.now()[0].get(look)] == [place < count for place in range(len(look))]

    for count, key in enumerate(keys, 1):
        users.delete(row_key(key))
        until(partial(are_gone, count), f"the deletion of {count} rows", details=lambda: table.now()[0].get(look))


def test_a_topic_without_messages_is_a_table_without_rows(users: Users) -> None:
    table = users.table()
    assert table.now()[0].get([1, 2]) == [None, None]
    users.put(1, "Ann")
    until(lambda: table.now()[0].get_one(1) == (None, "Ann"), "the first row")


def test_a_start_without_a_broker_fails(tmp_path: Path) -> None:
    """It would load a part of the table, and nobody would know."""
    with InMemoryCluster() as cluster:
        users = Users(InMemoryClientFactory(cluster.name), tmp_path)

        def permit(permission: int, name: str = "broker-a") -> None:
            cluster.create_topic("users", 4, (name,), permission=permission)

        permit(2)  # the route names no queue that can be read
        with pytest.raises(LocalError, match="the topic users has no queue that can be read"):
            users.table()
        permit(6)
        with pytest.raises(LocalError, match="names 4 queues, and the table wants 8: a broker is down"):
            users.table(queues=8)
        permit(6, "broker-b")
        for number in range(30):
            body = json.dumps({"id": number, "name": "Ann"}).encode()
            cluster.append("users", body, broker="broker-b", queue_id=number % 4)
        first = users.table(queues=8, compact_at=10)
        until(lambda: len(first.now()[0].base) > 0, "a file")
        first.stop()
        permit(2, "broker-b")
        with pytest.raises(LocalError, match=r"have rows of broker-b/0, .*broker-b/3, which the route .* remove /"):
            users.table()
        permit(6, "broker-b")
        again = users.table()
        assert again.now()[0].get_one(29) == (None, "Ann")
        again.stop()
    for wrong in (0, True, "8"):
        with pytest.raises(LocalError, match="it must be the number of the topic's queues"):
            Table.from_topic("users", queues=wrong)  # type: ignore[arg-type]


def test_upserts_and_deletions_are_seen(users: Users) -> None:
    users.put(1, "Ann", day="2024-05-01")
    users.put(2, "Bob")
    table = users.table()
    ann, bob = (dt.date(2024, 5, 1), "Ann"), (None, "Bob")
    assert table.now()[0].get([1, 2, 3, None, "1", True]) == [ann, bob, None, None, NotImplemented, NotImplemented]
    users.put(1, "Anne")
    until(lambda: table.now()[0].get_one(1) == (None, "Anne"), "the upsert")
    users.delete("2")
    until(lambda: table.now()[0].get_one(2) is None, "the deletion")
    assert table.now()[0].get([2, 1], many=True) == [None, [(None, "Anne")]]
    now = time.time()
    until(lambda: table.now()[1] >= now, "a table that has read its topic to the end since")


def test_changes_become_files_while_it_is_read_and_a_restart_goes_on_there(users: Users) -> None:
    random = Random(5)
    wanted: dict[int, Any] = {}
    table = users.table(compact_at=20)
    for step in range(300):
        key = random.randrange(60)
        if random.random() < 0.3:
            users.delete(str(key))
            wanted.pop(key, None)
        else:
            users.put(key, f"name {step}")
            wanted[key] = (None, f"name {step}")
    expected = [wanted.get(key) for key in range(60)]
    until(lambda: table.now()[0].get(list(range(60))) == expected, "all changes")
    until(lambda: len(table.now()[0].base) > 0, "a file")
    table.stop()
    again = users.table(compact_at=20)
    assert again.now()[0].get(list(range(60))) == expected
    assert len(again.now()[0].delta) < len(expected)
    assert len(again.now()[0].base) > 0
    other = users.table(compact_at=1)
    users.put(59, "the newest")
    until(
        lambda: again.now()[0].get_one(59) == other.now()[0].get_one(59) == (None, "the newest"),
        "the newest row in both tables",
    )


def test_a_decimal_keeps_all_digits_of_its_number(users: Users) -> None:
    digits = "12345678901234567890.0123456789"
    for key, number in enumerate((digits, f'"{digits}"', "1.5", "2", "null")):
        users.producer.send(Message(f'{{"id": {key}, "price": {number}}}'.encode(), topic="users"))
    types = {"id": "int64", "price": "decimal128(30, 10)"}
    table = users.table(types=types)
    wanted = [Decimal(digits), Decimal(digits), Decimal("1.5"), Decimal(2), None]
    assert [table.now()[0].get_one(key) for key in range(5)] == [(each,) for each in wanted]
    users.producer.send(Message(b'{"id": 5, "price": 0.12345678901}', topic="users"))
    with pytest.raises(RmqioError, match=r"its field price is float, and no decimal128\(30, 10\)"):
        users.table(types=types)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"id": "x", "name": "n"}, "its field id is str, and no int64"),
        ({"id": "5", "name": "n"}, "its field id is str, and no int64"),
        ({"id": 1.5, "name": "n"}, "its field id is the float 1.5, which int64 would cut: send an integer, or declare"),
        ({"id": 5.0, "name": "n"}, "its field id is the float 5.0, which int64 would cut"),
        ({"id": 5, "day": 1.5}, r"its field day is the float 1.5, which date32\[day\] would cut"),
        ({"name": "n"}, "its id, a part of the key, is null"),
        ([], "it is list, and no object"),
        ({"id": 5, "day": "soon"}, "its field day is str, and no date32"),
    ],
)
def test_a_message_that_is_no_row_is_an_error_or_is_left_out(users: Users, body: Any, message: str) -> None:
    users.put(1, "Ann")
    users.producer.send(Message(json.dumps(body).encode(), topic="users"))
    with pytest.raises(RmqioError, match=f"offset .*{message}"):
        users.table()
    skipping = users.table(on_bad_row="skip")
    assert skipping.now()[0].get_one(1) == (None, "Ann")


def away(_: Record) -> Any:
    raise RegistryUnavailable("the registry does not answer")


def test_a_registry_that_is_away_leaves_no_message_out(users: Users) -> None:
    users.put(1, "Ann")
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        users.table(deserializer=away, on_bad_row="skip")


def test_files_of_a_topic_that_was_created_anew_are_refused(users: Users, broker: FakeBroker) -> None:
    for number in range(40):
        users.put(number, "old")
    table = users.table(compact_at=1)
    until(lambda: len(table.now()[0].base) == 40, "all rows in files")
    table.stop()
    broker.cluster.delete_topic("users")
    broker.cluster.create_topic("users")
    with pytest.raises(LocalError, match="created again; remove"):
        users.table()


def test_a_broker_that_does_not_send_its_messages_fails_the_start(
    users: Users, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers everything else. The start would wait for ever, and say nothing."""
    users.put(1, "Ann")
    broker.on(RequestCode.PULL_MESSAGE, faults.drop(), None)
    with monkeypatch.context() as patch:
        patch.setattr(following, "_STALLED_S", 0.5)
        with pytest.raises(
            TransportError, match=r"users/broker-a/\d ends at 1, and its broker has sent nothing from offset 0"
        ):
            users.table()
    broker.heal()
    assert users.table().now()[0].get_one(1) == (None, "Ann")


@pytest.mark.parametrize("compact_at", [5, 100_000])
def test_a_table_begins_anew_with_its_topic(
    users: Users, broker: FakeBroker, compact_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One of two processes has files. Old rows serve until the new topic was read; then none of them is left."""
    for number in range(40):
        users.put(number, "old")
    tables = [users.table(compact_at=compact_at), users.table()]
    until(lambda: all(None not in table.now()[0].get([*range(40)]) for table in tables), "all rows in both tables")
    broker.cluster.delete_topic("users")
    broker.cluster.create_topic("users")
    users.producer.close()
    users.producer = users.factory.producer("q")
    for number in range(30, 36):
        users.put(number, "new")
    wanted = [(None, "new") if 30 <= number < 36 else None for number in range(40)]
    until(lambda: all(table.now()[0].get([*range(40)]) == wanted for table in tables), "the rows of the new topic")
    assert "the topic was deleted and created again" in caplog.text
    users.put(1, "newer")
    until(lambda: all(table.now()[0].get_one(1) == (None, "newer") for table in tables), "a newer row in both tables")
    for table in tables:
        table.stop()
    assert users.table().now()[0].get([1, 30, 36]) == [(None, "newer"), (None, "new"), None]


def test_a_table_that_begins_anew_waits_for_all_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rows of the one that is away, it would say that they do not exist."""
    monkeypatch.setattr(following, "_ROUTE_S", 0.1)

    def fill(name: str) -> None:
        for broker, key in (("broker-a", 1), ("broker-b", 2)):
            cluster.create_topic("users", 1, (broker,))
            body = json.dumps({"id": key, "name": name}).encode()
            for _ in range(3 if name == "old" else 1):
                cluster.append("users", body, broker=broker, queue_id=0)

    with InMemoryCluster() as cluster:
        users = Users(InMemoryClientFactory(cluster.name), tmp_path)
        fill("old")
        table = users.table()
        tries: list[str] = []

        def away() -> TransportError:
            tries.append("broker-b")
            return TransportError("away")

        cluster.fail_next("max_offset", away, 10**6, queue=MessageQueue("users", "broker-b", 0))
        with cluster.changed:
            cluster.delete_topic("users")
            fill("new")
        seen: list[Any] = []

        def is_new() -> bool:
            rows = table.now()[0].get([1, 2])
            seen.append(rows)
            return bool(rows == [(None, "new"), (None, "new")])

        until(lambda: is_new() or len(tries) > 2, "looks at the broker that is away")
        cluster._failures._planned.clear()
        until(is_new, "the rows of the new topic", details=lambda: seen[-1])
        assert [each for each in seen if None in each] == []
        table.stop()
