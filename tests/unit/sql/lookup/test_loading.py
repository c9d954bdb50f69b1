"""Dimension tables in processes: loaded once, shared, loaded again, and kept up to date."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.enrich import following, refresh
from rmqio.errors import BrokerSilent
from rmqio.sql.lookup import dimensions, topic
from rmqio.sql.lookup.dimensions import DimensionRows
from rmqio.sql.planning.plan import LookupJoin
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import dimension_of
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.own_process import in_own_process
from tests.helpers.transforms.reading import clean_cluster
from tests.helpers.waiting import until
from tests.unit.sql.lookup.dimension_tables import LOOK_UP, ORDERS, SINK, TOPIC, customer, customers
from tests.unit.sql.running import put, stored


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "u", "sink", "letters"):
            made.create_topic(topic, 2)
        yield made
        dimensions.close_all()


def customers_of(table: str, connection: Connection, column: str = "id") -> Any:
    """Returns what workers know of the customers, looked up by a column."""
    script = Script()
    script.run(f"{ORDERS} {SINK} {table} {LOOK_UP.replace('o.customer = c.id', f'o.customer = c.{column}')}")
    relation: Any = script.sinks[0]
    while not isinstance(relation, LookupJoin):
        (relation,) = relation.inputs()
    return dimension_of(relation.dimension, tuple(place for _, place in relation.keys), "job", connection.of)


def test_rows_of_one_key_are_ordered_when_they_are_looked_up(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with each message: the cost of 3,000 of them is linear. The last row of a key, and none, come back, too."""
    ordered = 0

    def counting(rows: Any, key: Any) -> list[Any]:
        nonlocal ordered
        ordered += len(rows)
        return sorted(rows, key=key)

    monkeypatch.setattr(topic, "sorted", counting, raising=False)
    table = TOPIC.format("").replace("level STRING", "level INT")
    dimension = customers_of(table, Connection(client_factory=InMemoryClientFactory(cluster.name)), "level")
    rows = topic._UpsertRows(dimension)

    def come(*bodies: Any, **fields: Any) -> None:
        before = len(stored(cluster, "u"))
        put(cluster, "u", *bodies, queue_id=0, **fields)
        rows.update(stored(cluster, "u")[before:])

    come(*({"id": n, "name": f"n{n}", "level": int(n >= 2_998)} for n in range(3_000)))
    assert ordered == 0
    assert len(rows.get(0)) == len(rows.get(0)) == 2_998
    assert ordered == 2_998
    come(
        {"id": 7, "name": "N7", "level": 0}, {"id": 8, "name": "n8", "level": 5}, {"id": 2_998, "name": "x", "level": 2}
    )
    assert [len(rows.get(each)) for each in (0, 1, 2, 5, 6)] == [2_997, 1, 1, 1, 0]
    assert "N7" in rows.get(0)[0]
    assert ordered == 2_998 + 2_997
    come(b"", keys=["2999"])
    come(b"", keys=["7"])
    assert [len(rows.get(each)) for each in (0, 1)] == [2_996, 0]


def test_both_zeros_are_one_key_of_a_topic(cluster: InMemoryCluster) -> None:
    dimension = customers_of(
        TOPIC.format("").replace("id INT", "id DOUBLE"), Connection(client_factory=InMemoryClientFactory(cluster.name))
    )
    rows = topic._UpsertRows(dimension)
    put(cluster, "u", {"id": 0.0, "name": "old"}, {"id": -0.0, "name": "new"}, {"id": 1.0, "name": "other"}, queue_id=0)
    rows.update(stored(cluster, "u"))
    assert [name for _, name in rows.get(0.0)] == [name for _, name in rows.get(-0.0)] == ["new"]
    put(cluster, "u", b"", queue_id=0, keys=["0.0"])
    rows.update(stored(cluster, "u")[-1:])
    assert (len(rows.get(0.0)), len(rows.get(1.0))) == (0, 1)


def test_a_table_is_loaded_again_and_a_failure_keeps_its_last_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dimension = customers_of(customers(tmp_path, "csv", ", 'lookup.cache.ttl' = '20 ms'"), Connection())
    path = tmp_path / "customers.csv"
    lease = dimensions.acquire(dimension)
    try:
        assert list(lease.getter()(1)) == [(1, "Ann")]
        replaced(path, "1,Anne,\n7,Gus,\n")
        until(lambda: lease.getter()(7), "the row of the new file")
        assert list(lease.getter()(1)) == [(1, "Anne")]
        assert not lease.getter()(2)
        replaced(path, "many,Anne,\n")
        until(lambda: "cannot be loaded again" in caplog.text, "a failed load")
        assert list(lease.getter()(1)) == [(1, "Anne")]
        replaced(path, "1,Ann,\n")
        until(lambda: list(lease.getter()(1)) == [(1, "Ann")], "the row of the newest file")
    finally:
        dimensions.close_all()


def replaced(path: Path, text: str) -> None:
    """Replaces a file at once: a load must not find it half written."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def test_threads_and_dofns_of_a_process_share_one_copy(tmp_path: Path) -> None:
    dimension = customers_of(customers(tmp_path, "csv"), Connection())
    found: list[Any] = []
    barrier = threading.Barrier(8)

    def look() -> None:
        barrier.wait()
        lease = dimensions.acquire(pickle.loads(pickle.dumps(dimension)))
        getter = lease.getter()
        found.append((lease._rows, [list(getter(each)) for each in (1, 2, 3, 4)]))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    try:
        assert len({id(table) for table, _ in found}) == 1
        assert all(rows == [[(1, "Ann")], [(2, "Bob")], [(3, "Cy"), (3, "Cyd")], []] for _, rows in found)
        other = dimensions.acquire(replace(dimension, job="another"))
        other.getter()
        assert other._rows is not found[0][0]
    finally:
        dimensions.close_all()


def test_processes_share_the_files_of_a_job_which_go_with_the_last_one(tmp_path: Path) -> None:
    """Another process finds the same folder, whose rows are no longer those of the source."""
    dimension = customers_of(customers(tmp_path, "sqlite"), Connection())
    (tmp_path / "dimension").write_bytes(pickle.dumps(dimension))
    lease = dimensions.acquire(dimension)
    assert list(lease.getter()(1)) == [(1, "Ann")]
    with sqlite3.connect(tmp_path / "customers.sqlite") as connection:
        connection.execute("UPDATE customers SET name = 'Anne' WHERE id = 1")
    connection.close()
    program = (
        "import pathlib, pickle, sys; from rmqio.sql.lookup import dimensions; "
        "dimension = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()); "
        "lease = dimensions.acquire(dimension); print(lease.getter()(1), lease._rows.folder.parent)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "dimension")], capture_output=True, text=True)
    folder = lease._rows.folder.parent
    assert done.stdout.strip() == f"[(1, 'Ann')] {folder}", done.stderr
    assert folder.exists(), "this process uses it"
    dimensions.close_all()
    assert not folder.exists()
    left = folder.parent / "left-by-a-killed-process"
    left.mkdir()
    (left / "users").touch()
    os.utime(left / "users", (1, 1))
    assert list(dimensions.acquire(dimension).getter()(1)) == [(1, "Anne")]
    dimensions.close_all()
    assert not left.exists()


def test_files_are_loaded_again_if_they_have_changed_or_a_filter_depends_on_the_time(tmp_path: Path) -> None:
    table = customers(tmp_path, "json")
    view = (
        table.replace("TABLE customers", "TABLE kept")
        + "CREATE VIEW customers AS SELECT * FROM kept WHERE level <> {};"
    )
    still, timed = (
        DimensionRows(customers_of(view.format(each), Connection())) for each in ("'tin'", "CAST(NOW() AS STRING)")
    )
    before = still.version()
    assert before is not None
    assert timed.version() is None
    (tmp_path / "customers.json").write_text('{"id": 1}\n')
    assert still.version() not in (None, before)
    assert DimensionRows(customers_of(customers(tmp_path, "sqlite"), Connection())).version() is None


def test_a_topic_is_kept_up_to_date(cluster: InMemoryCluster) -> None:
    put(cluster, "u", customer(1, "Ann"), queue_id=0)
    connection = Connection(client_factory=InMemoryClientFactory(cluster.name))
    lease = dimensions.acquire(customers_of(TOPIC.format(""), connection))
    assert list(lease.getter()(1)) == [(1, "Ann")]
    put(cluster, "u", customer(1, "Anne"), customer(2, "Bob"), queue_id=0)
    until(lambda: lease.getter()(2), "the new row")
    assert list(lease.getter()(1)) == [(1, "Anne")]
    put(cluster, "u", b"", keys=["1"], queue_id=0)
    until(lambda: not lease.getter()(1), "the deletion")
    put(cluster, "u", b"[", queue_id=0)
    with pytest.raises(
        Exception, match="the dimension table customers cannot be kept up to date: queue u/broker-a/0, offs"
    ):
        until(lambda: lease.getter()(1), "the error")


def test_a_broker_that_is_away_holds_up_no_rows_of_others(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(following, "_ROUTE_S", 0.05)
    (other, *_) = cluster.create_topic("u", 1, ("broker-b",))[-1:]
    put(cluster, "u", customer(1, "Ann"), queue_id=0)
    cluster.append("u", json.dumps(customer(2, "Bob")).encode(), broker="broker-b", queue_id=0)
    lease = dimensions.acquire(
        customers_of(TOPIC.format(""), Connection(client_factory=InMemoryClientFactory(cluster.name)))
    )
    assert list(lease.getter()(2)) == [(2, "Bob")]
    cluster.fail_next("poll", BrokerSilent("silent"), 10**6, queue=other)
    cluster.append("u", json.dumps(customer(2, "Bea")).encode(), broker="broker-b", queue_id=0)
    put(cluster, "u", customer(1, "Anne"), queue_id=0)
    until(lambda: list(lease.getter()(1)) == [(1, "Anne")], "the row of the broker that answers")
    cluster._failures._planned.clear()
    until(lambda: list(lease.getter()(2)) == [(2, "Bea")], "the row of the broker that was silent")
    assert len([each for each in caplog.messages if "rows of broker-b stay as they are: silent" in each]) == 1


@in_own_process
def test_a_topic_that_nobody_looks_up_is_read_no_longer(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "_IDLE_S", 0.1)
    put(cluster, "u", customer(1, "Ann"), queue_id=0)
    connection = Connection(client_factory=InMemoryClientFactory(cluster.name))
    lease = dimensions.acquire(customers_of(TOPIC.format(""), connection))
    lease.getter()
    assert {"read u", "refresh customers"} <= {each.name for each in threading.enumerate()}
    del lease
    until(
        lambda: not {"read u", "refresh customers"} & {each.name for each in threading.enumerate()},
        "the end of the threads",
    )
    assert not refresh._tables
