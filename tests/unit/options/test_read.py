"""Every field of `ReadOptions` has an effect in every mode, or is refused there; docs/options.md says the same.

A field without an entry here fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import MessageQueue, ReadAllFromRocketMQ, ReadFromRocketMQ, ReadOptions, Security, StartFrom, StopAt, Tls
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import GroupOffsetReset, LocalError, RmqioError
from rmqio.options import option_names
from rmqio.sending.traces import close_tracers
from rmqio.testing import InMemoryCluster
from rmqio.transforms.reading.discovery import DiscoverFn
from rmqio.transforms.shared import shared_client
from tests.helpers.transforms.read_modes import ALL, ENDS, MODES, PLANNED, REFUSED, Reading
from tests.helpers.transforms.reading import T0, append, clean_cluster, fill

Q0 = MessageQueue("t", "broker-a", 0)
Observe = Callable[[str, InMemoryCluster, dict[str, Any]], Any]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster(poll_records=10) as made:
        yield made


class Entry(NamedTuple):
    """Two values of an option, what is seen with each, and how it is looked at."""

    values: tuple[Any, Any]
    seen: tuple[Any, Any]
    observe: Observe
    planned: tuple[Any, Any] | None = None
    """The values seen where the runner plans, if they are others."""


def reading(mode: str, cluster: InMemoryCluster, options: dict[str, Any], **arguments: Any) -> Reading:
    made = Reading(mode, cluster, options, **arguments)
    _readings.append(made)
    return made


_readings: list[Reading] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _readings:
        _readings.pop().close()


def first_bundle(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> int:
    fill(cluster, 100)
    return len(reading(mode, cluster, options).bundle())


def gets_through(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> bool:
    """Whether a bundle gets to the end of what the filter drops, if each look at the clock takes a second."""
    fill(cluster, 200, tags="other")
    made = reading(mode, cluster, options, tags="wanted")
    made.bundle()
    return made.starts[Q0] == 200


def longest_wait(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> int:
    """For how long a read waits for what does not come."""
    fill(cluster, 5)
    made = reading(mode, cluster, options)
    client: Any = shared_client(made.config.factory)
    waits: list[int] = []
    opened = client.open_reader

    class Late:
        """A reader whose broker takes its time."""

        def __init__(self, reader: Any) -> None:
            self._reader = reader

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reader, name)

        def is_ready(self) -> bool:
            return len(waits) > 2 and bool(self._reader.is_ready())

        def poll(self) -> Any:
            return self._reader.poll() if len(waits) > 2 else None

    client.wait = lambda readers, timeout_ms: waits.append(timeout_ms)
    if mode == PLANNED:
        client.open_reader = lambda *given, **named: Late(opened(*given, **named))
    for _ in range(3):
        made.bundle()
    return max(waits)


def queues_later(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> int:
    """Counts the queues that are known after one was added."""
    fill(cluster, 5)
    made = reading(mode, cluster, options)
    made.bundle()
    cluster.add_queues("t", 1)
    time.sleep(0.005)
    made.bundle()
    return len(made.starts)


def read_of_a_new_queue(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> int:
    fill(cluster, 5)
    made = reading(mode, cluster, {"discovery_interval_ms": 1} | options)
    made.bundle()
    (queue,) = cluster.add_queues("t", 1)
    for _ in range(3):
        cluster.append("t", b"new", queue_id=queue.queue_id)
    time.sleep(0.005)
    return len(made.bundle())


def behind_the_deleted(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> Any:
    fill(cluster, 6)
    cluster.delete_before(Q0, 4)
    start = StartFrom.specific_offsets({Q0: 1})
    return outcome(lambda: [each.queue_offset for each in reading(mode, cluster, options, start=start).bundle()])


def behind_the_end(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> Any:
    fill(cluster, 6)
    start = StartFrom.timestamp(T0 + 1_000_000)
    return outcome(lambda: reading(mode, cluster, options, start=start).bundle())


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except RmqioError as error:
        return type(error).__name__


def commits(mode: str, cluster: InMemoryCluster, options: dict[str, Any], **arguments: Any) -> list[tuple[str, int]]:
    """Returns the commits of two bundles, one right after the other."""
    fill(cluster, 5)
    made = reading(mode, cluster, {"offset_commit_interval_ms": 0} | options, **arguments)
    for _ in range(2):
        made.bundle()
        made.commit()
        append(cluster, Q0, 1)
    return [(group, offset) for group, _, offset in cluster.commits]


def after_a_reset(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> str | None:
    """Returns the error that stops a read whose group is reset by an operator."""
    fill(cluster, 5)
    made = reading(mode, cluster, {"offset_commit_interval_ms": 0} | options)
    try:
        for _ in range(3):
            made.bundle()
            made.commit()
            cluster.reset_group("g", Q0, 2)
            append(cluster, Q0, 1)
    except GroupOffsetReset as error:
        return type(error).__name__
    return None


def watermark(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> int:
    fill(cluster, 5)
    made = reading(mode, cluster, {"idle_timeout_ms": 3_600_000} | options)
    made.bundle()
    return max(made.watermarks.values())


def follows_the_clock(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> bool:
    fill(cluster, 5)
    made = reading(mode, cluster, options)
    for _ in range(3):
        made.bundle()
    return max(made.watermarks.values()) > T0 + 1_000_000


def limit(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> Any:
    """Returns the limit of a read; it is then one with an end, whoever runs it."""
    fill(cluster, 5)
    made = reading(mode, cluster, options)
    (descriptor,) = DiscoverFn(made.discovery).process(b"")
    assert made.transform._is_bounded is (mode == ENDS or descriptor.limit is not None)
    return descriptor.limit


def parts(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> list[tuple[int, int | None]]:
    fill(cluster, 5)
    made = reading(mode, cluster, {"commit_offsets": False} | options)
    (descriptor,) = DiscoverFn(made.discovery).process(b"")
    ranges = made.fn.split(descriptor, made.fn.initial_restriction(descriptor))
    return [(each.start, each.stop) for each in ranges]


def passed(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> int:
    (queue,) = fill(cluster, 3, tags="a")
    append(cluster, queue, 2, tags="b")
    return len(reading(mode, cluster, options).bundle())


def traced(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> list[bytes]:
    """Returns the kinds of the traces of three messages."""
    fill(cluster, 3)
    cluster.create_topic("Trace", 1)
    reading(mode, cluster, options).bundle()
    close_tracers()
    return [line.split(b"\x01")[0] for record in cluster.records("Trace") for line in record.body.split(b"\x02")[:-1]]


def subscribed(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> str:
    read: Any = ReadAllFromRocketMQ if mode == ALL else ReadFromRocketMQ
    return str(read(name_server="h:9876", options=ReadOptions(**options))._subscription)


def told_the_client(name: str) -> Observe:
    """Observes the options that the clients of the read are made with; test_client.py shows what they do."""

    def observe(mode: str, cluster: InMemoryCluster, options: dict[str, Any]) -> Any:
        given: dict[str, Any] = {"options": ReadOptions(**{"name_server": "h:9876"} | options)}
        if mode == ENDS:
            given["stop"] = StopAt.latest()
        if "broker_heartbeat_interval_ms" in options:
            given["dead_letter_topic"] = "dead"
        read: Any = ReadAllFromRocketMQ(**given) if mode == ALL else ReadFromRocketMQ("t", **given)
        factory = read._config.factory
        assert isinstance(factory, RemotingClientFactory)
        return getattr(factory.options, name)

    return observe


def client(name: str, one: Any, other: Any) -> Entry:
    return Entry((one, other), (one, other), told_the_client(name))


SECURE: Final = Security(tls=Tls())
EFFECTS: dict[str, Entry] = {
    "max_records_per_bundle": Entry((20_000, 20), (100, 20), first_bundle),
    "max_bundle_ms": Entry((5_000, 10**9), (False, True), gets_through),
    "poll_timeout_ms": Entry((1_000, 150), (1_000, 150), longest_wait, planned=(200, 150)),
    "discovery_interval_ms": Entry((30_000, 1), (1, 2), queues_later),
    "new_queue_start": Entry(("earliest", "latest"), (3, 0), read_of_a_new_queue),
    "on_offset_out_of_range": Entry(("fail", "earliest"), ("OffsetOutOfRange", [4, 5]), behind_the_deleted),
    "on_timestamp_after_end": Entry(("latest", "fail"), ([], "StartOffsetError"), behind_the_end),
    "commit_offsets": Entry((True, False), ([("g", 5), ("g", 6)], []), commits),
    "offset_commit_interval_ms": Entry((60_000, 0), ([("g", 5)], [("g", 5), ("g", 6)]), commits),
    "on_group_reset": Entry(("refuse", "honour"), (None, "GroupOffsetReset"), after_a_reset),
    "max_out_of_orderness_ms": Entry((0, 1_500), (T0 + 4_000, T0 + 2_500), watermark),
    "idle_timeout_ms": Entry((3_600_000, 0), (False, True), follows_the_clock),
    "max_num_records": Entry((None, 3), (None, 3), limit),
    "splits_per_queue": Entry((1, 2), ([(0, 1_000_000)], [(0, 500_000), (500_000, 1_000_000)]), parts),
    "pull_batch": client("pull_batch", 32, 7),
    "pull_depth": client("pull_depth", 16, 7),
    "name_server_poll_interval_ms": client("route_refresh_ms", 5_000, 2_000),
    "broker_heartbeat_interval_ms": client("heartbeat_ms", 30_000, 7),
    "request_timeout_ms": client("request_timeout_ms", 3_000, 7),
    "namespace": client("namespace", "", "n"),
    "trace": Entry((False, "Trace"), ([], [b"SubBefore"] * 3 + [b"SubAfter"] * 3), traced),
    "name_server": Entry(("a:1", "b:2"), (("a:1",), ("b:2",)), told_the_client("name_servers")),
    "consumer_group": Entry(
        ("g", "h"),
        ([("g", 5), ("g", 6)], [("h", 5), ("h", 6)]),
        lambda mode, cluster, options: commits(mode, cluster, options, consumer_group=None),
    ),
    "topic": Entry(("t", "u"), ("t", "u"), subscribed),
    "tags": Entry(("a || b", "b"), (5, 2), passed),
    "security": client("security", Security(), SECURE),
}


class _Planning(FnApiRunner):
    """As a runner that plans: it offers a source, which an endless read takes."""

    def planned_source(self, options: Any) -> Any:
        def source(planner: Any) -> Any:
            raise AssertionError("nothing was refused")

        return source


CASES: Final = [(name, mode) for name in option_names(ReadOptions) for mode in MODES]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_every_option_of_a_read_is_heeded_or_refused_in_every_mode(
    name: str, mode: str, cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in EFFECTS, f"ReadOptions.{name} is new: show here what it does"
    entry = EFFECTS[name]
    if mode in REFUSED.get(name, ()):
        other = next(value for value in entry.values if value != getattr(ReadOptions(), name))
        cluster.create_topic("t", 1)
        with pytest.raises(LocalError, match=name):
            _ = beam.Pipeline(runner=_Planning()) | reading(mode, cluster, {name: other}).transform
        return
    if name == "max_bundle_ms":
        ticks = iter(range(10**9))
        monkeypatch.setattr("rmqio.transforms.reading.read_fn.time", _Ticking(ticks))
    seen = []
    for value in entry.values:
        with clean_cluster(poll_records=10) as fresh:
            seen.append(entry.observe(mode, fresh, {name: value}))
            while _readings:
                _readings.pop().close()
    expected = entry.planned if mode == PLANNED and entry.planned is not None else entry.seen
    assert tuple(seen) == expected
    assert expected[0] != expected[1]


class _Ticking:
    """The module `time`, whose clock moves a second each time that it is looked at."""

    def __init__(self, ticks: Iterator[int]) -> None:
        self._ticks = ticks

    def monotonic(self) -> float:
        return float(next(self._ticks))

    def time(self) -> float:
        return time.time()
