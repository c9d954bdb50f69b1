"""Commits of a bounded read wait for the stages behind it: what a later one fails on is read again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest

from rmqio import ReadFromRocketMQ, Record, StartFrom, StopAt, repeats
from rmqio.runners import options
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

_seen: list[bytes] = []


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    _seen.clear()
    with InMemoryCluster() as made:
        made.create_topic("t", 2)
        for number in range(10):
            made.append("t", b"%d" % number, queue_id=number % 2)
        yield made


def see(element: Any) -> None:
    bodies = element[1] if isinstance(element, tuple) else [element]
    if b"fail" in _seen:
        raise ValueError("it fails")
    _seen.extend(bodies)


def body(record: Record) -> bytes:
    return record.body


def run(
    cluster: InMemoryCluster,
    *,
    is_grouped: bool = True,
    fails: bool = False,
    start: StartFrom | None = None,
) -> list[bytes]:
    """The bodies that came to the end."""
    _seen[:] = [b"fail"] if fails else []
    pipeline = beam.Pipeline(options=options([]))
    bodies = (
        pipeline
        | ReadFromRocketMQ(
            "t",
            consumer_group="g",
            start=start or StartFrom.group_offsets("earliest"),
            stop=StopAt.latest(),
            client_factory=InMemoryClientFactory(cluster.name),
        )
        | beam.Map(body).with_output_types(bytes)
    )
    if is_grouped:
        bodies = bodies | beam.WithKeys(1) | beam.GroupByKey()
    _ = bodies | "See" >> beam.Map(see)
    pipeline.run().wait_until_finish()
    return sorted(_seen)


def committed(cluster: InMemoryCluster) -> set[int | None]:
    client = InMemoryClientFactory(cluster.name).queue_client()
    return {client.committed_offset("g", queue) for queue in client.queues("t")}


def test_what_fails_behind_a_shuffle_is_read_again(cluster: InMemoryCluster) -> None:
    with pytest.raises(Exception, match="it fails"):
        run(cluster, fails=True)
    assert committed(cluster) == {None}
    assert len(run(cluster)) == 10
    assert committed(cluster) == {5}
    assert run(cluster) == []


def test_a_group_without_an_offset_gets_one_where_nothing_was_to_be_read(cluster: InMemoryCluster) -> None:
    """Without it, the next run would not read what comes in between."""
    assert run(cluster, start=StartFrom.latest()) == []
    assert committed(cluster) == {5}
    cluster.append("t", b"later", queue_id=0)
    assert run(cluster, start=StartFrom.group_offsets("latest")) == [b"later"]


def test_what_no_stage_follows_is_committed_at_once(cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that is killed goes on where it was."""
    during: list[set[int | None]] = []
    monkeypatch.setattr("rmqio.repeats.Ending.come", lambda ending: during.append(committed(cluster)))
    run(cluster, is_grouped=False)
    assert during == [{5}]


def test_an_end_that_does_not_come_forgets_what_waits() -> None:
    made: list[str] = []

    def wait(owner: str, position: int) -> bool:
        return repeats.waits_for_end(owner, "key", position, lambda: made.append(f"{owner} {position}"))

    with repeats.Ending() as one, repeats.Ending() as other:
        one.awaited_by(["one"])
        other.awaited_by(["other"])
        assert [wait("one", 2), wait("one", 1), wait("other", 3), wait("none", 4)] == [True, True, True, False]
        one.come()
    assert made == ["one 2"]
    assert not wait("one", 5)


def test_a_call_that_fails_fails_neither_the_pipeline_nor_other_calls(caplog: pytest.LogCaptureFixture) -> None:
    made: list[int] = []

    def fail() -> None:
        raise OSError("no such file")

    with repeats.Ending() as ending:
        ending.awaited_by(["one"])
        for key, call in enumerate((fail, lambda: made.append(1))):
            assert repeats.waits_for_end("one", key, 1, call)
        ending.come()
    assert made == [1]
    assert "a bundle finalizer failed: OSError: no such file" in caplog.text
