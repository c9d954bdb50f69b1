"""A system that is away, in the log: one line at once, few later on, one when it is back, from real sinks, too."""

from __future__ import annotations

import itertools
import logging
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

from rmqio.connect import BatchSink, Retry
from rmqio.connect.delivery import Delivery, Item
from rmqio.connect.outage import Outage, outage_of
from rmqio.connect.sink import SinkFailed


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Away(BatchSink):
    """Is away until the clock has a time."""

    name = "table t"

    def __init__(self, clock: Clock, until: float) -> None:
        self.clock, self.until = clock, until

    def write(self, rows: Any, destination: Any) -> None:
        if self.clock.now < self.until:
            raise ConnectionRefusedError("connection\n  refused")


def deliver(sink: BatchSink, clock: Clock, outage: Outage) -> None:
    retry = Retry(first_wait_s=1, max_wait_s=1)
    found = Delivery(sink, retry, clock=clock, sleep=clock.sleep, spread=lambda: 1.0, outage=outage)
    found.write(None, [Item(1, 1, None, None)])


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each for each in caplog.records if each.name.startswith("rmqio.connect")]
    assert all(each.levelno == logging.WARNING for each in found), "rmqio copy shows warnings"
    return [each.getMessage() for each in found]


def test_an_outage_is_a_line_at_once_one_each_30_s_and_one_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    deliver(Away(clock, until=70), clock, Outage("table t", clock=clock))
    assert lines(caplog) == [
        "table t is away or busy; it is tried again for 120 s at most: connection refused",
        "table t is away or busy for 30 s; it is tried again for 90 s at most: connection refused",
        "table t is away or busy for 60 s; it is tried again for 60 s at most: connection refused",
        "table t is back after 70 s",
    ]


def test_a_system_that_stays_away_is_the_error_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with pytest.raises(SinkFailed, match="gave up after 121 tries in 120 s"):
        deliver(Away(clock, until=1_000), clock, Outage("table t", clock=clock))
    assert len(lines(caplog)) == 4
    assert "is back" not in caplog.text


def test_a_system_that_comes_and_goes_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage("table t", clock=clock)
    for _ in range(10):
        deliver(Away(clock, until=clock.now + 2), clock, outage)
    assert [" ".join(line.split()[2:5]) for line in lines(caplog)] == ["is away or", "is back after"]


def test_writers_of_one_system_share_the_lines(caplog: pytest.LogCaptureFixture) -> None:
    assert outage_of("index i") is outage_of("index i")
    for _ in range(5):
        outage_of("index i").failed("refused", 3)
    outage_of("index i").passed()
    assert len(lines(caplog)) == 2


def _sql(url: str) -> Callable[[int], BatchSink]:
    def made(port: int) -> BatchSink:
        pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")
        from rmqio.connect.sql.engine import Database, TableOptions
        from rmqio.connect.sql.sink import SqlSink

        return SqlSink(Database(url.format(port)), "users", TableOptions(None, "upsert", None, False))

    return made


def _search(port: int) -> BatchSink:
    pytest.importorskip("requests", reason="search engines need the extra 'search'")
    from rmqio.connect.search import SearchOptions, SearchSink

    return SearchSink(f"http://127.0.0.1:{port}", "users", SearchOptions(None, "index", None, None, None, None, 5.0))


def _kafka(port: int) -> BatchSink:
    pytest.importorskip("confluent_kafka", reason="Kafka needs the extra 'kafka'")
    from rmqio.connect.kafka.client import Cluster
    from rmqio.connect.kafka.sink import KafkaSink

    return KafkaSink(Cluster.of(f"127.0.0.1:{port}", None), "users", None)


@pytest.mark.parametrize(
    "made",
    [_sql("mysql://me@127.0.0.1:{}/shop"), _sql("postgresql://me@127.0.0.1:{}/shop"), _search, _kafka],
    ids=["mysql", "postgresql", "search", "kafka"],
)
def test_a_server_that_is_not_there_is_one_line_with_its_name_and_the_reason(
    made: Callable[[int], BatchSink], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        sink = made(port)
        monkeypatch.setattr("rmqio.connect.kafka.client._TIMEOUT_S", 2.5)
        times = itertools.count(step=70.0)
        found = Delivery(sink, Retry(), clock=lambda: next(times), sleep=lambda _: None)

        def write() -> None:
            found.open()
            row = sink.convert({"id": 1})
            found.write(sink.destination(row), [Item(row, row, None, None)])

        with pytest.raises(SinkFailed) as caught:
            write()
        sink.close()
    (line,) = lines(caplog)
    assert line.startswith(f"{sink.name} is away or busy; it is tried again for ")
    for text in (line, str(caught.value)):
        assert re.search("[Cc]onnection refused", text)
        assert "\n" not in text
        assert not re.search("Background on|HTTPConnection|thrd:|\\.OperationalError", text)
