"""`table.exec.state.ttl` of groups without a window: a group is given when it has changed, and forgotten."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
import msgspec
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio.sql.rows import pack_group
from rmqio.sql.runtime import windows
from rmqio.sql.runtime.aggregate_fn import ExpiringGroupFn
from rmqio.sql.runtime.groups import GroupChangesFn, GroupUpdatesFn
from tests.unit.sql.runtime.groups.test_group_updates import spec_of
from tests.unit.sql.runtime.ranks.updating import Cell


class Time:
    now_ms = 0

    @classmethod
    def time_ns(cls) -> int:
        return cls.now_ms * 1_000_000


class Group:
    """A group of a stream, with a time to live of ten seconds: its rows, the clock, and what the table gets."""

    def __init__(self, query: str, clock: type[Time]) -> None:
        spec = spec_of(query)
        self.spec = replace(spec, aggregate=replace(spec.aggregate, ttl_ms=10_000))
        self.clock, clock.now_ms = clock, 0
        self.fn = ExpiringGroupFn(self.spec)
        self.fn.setup()
        self.kept, self.due, self.there = Cell(), Cell(), Cell()
        self.changes: Any = (GroupChangesFn if "HAVING" in query else GroupUpdatesFn)(self.spec)
        self.changes.setup()

    def come(self, *accumulators: Any) -> list[Any]:
        return self._written(self.fn.process((b"k", pack_group(("a",), accumulators)), self.kept, self.due))

    def pass_time(self, until_ms: int) -> list[Any]:
        found = []
        while self.due.value is not None and self.due.value * 1000 <= until_ms:
            self.clock.now_ms, self.due.value = max(self.clock.now_ms, int(self.due.value * 1000)), None
            found += self._written(self.fn.give(b"k", self.kept, self.due))
        self.clock.now_ms = until_ms
        return found

    def _written(self, elements: Any) -> list[Any]:
        """The values of the rows that the table gets; None: its row is deleted."""
        self.changes.start_bundle()
        found: list[Any] = []
        for element in elements:
            given = (self.there,) if isinstance(self.changes, GroupChangesFn) else ()
            found += self.changes.process(element, *given, GlobalWindow(), MIN_TIMESTAMP)
        found += [each.value for each in self.changes.finish_bundle()]
        return [None if each.is_tombstone else json.loads(each.body)["n"] for batch in found for each in batch]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Time]:
    monkeypatch.setattr(windows, "time", Time)
    return Time


SUM = "SELECT k, SUM(v) AS n FROM t GROUP BY k"


def test_a_group_is_given_a_second_after_a_change_and_begins_anew_after_its_time(clock: type[Time]) -> None:
    group = Group(SUM, clock)
    assert group.come(1) == group.come(2) == group.pass_time(999) == []
    assert group.pass_time(1000) == [3]
    assert group.pass_time(9000) == []
    group.come(4)
    assert group.pass_time(18_999) == [7], "the time is counted from the last row"
    assert group.kept.value is not None
    assert group.pass_time(19_000) == []
    assert (group.kept.value, group.due.value) == (None, None)
    group.come(5)
    assert group.pass_time(30_000) == [5]


def test_a_group_that_always_gets_rows_is_given_each_second_and_kept(clock: type[Time]) -> None:
    group = Group(SUM, clock)
    given = []
    for _ in range(100):
        group.come(1)
        given += group.pass_time(clock.now_ms + 500)
    assert given == list(range(2, 101, 2))


def test_equal_values_count_again_when_their_group_was_forgotten(clock: type[Time]) -> None:
    group = Group("SELECT k, COUNT(DISTINCT v) AS n FROM t GROUP BY k", clock)
    group.come([7, 8])
    group.come([8, 9])
    assert group.pass_time(11_000) == [3]
    group.come([8])
    assert group.pass_time(20_000) == [1]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_row_that_was_forgotten_is_not_deleted_by_the_group_that_follows(is_late: bool, clock: type[Time]) -> None:
    """As in Flink. Whether it was there is forgotten, too, even if the timer comes too late."""
    group = Group(f"{SUM} HAVING SUM(v) > 10", clock)
    group.come(11)
    assert group.pass_time(1000) == [11]
    group.come(-5)
    assert group.pass_time(5000) == [None]
    group.come(20)
    assert group.pass_time(6000) == [26]
    if is_late:
        clock.now_ms = 20_000
    else:
        assert group.pass_time(20_000) == []
        assert group.there.value is None
    group.come(1)
    assert group.pass_time(22_000) == []


def test_the_state_of_spark_s_streams_has_the_groups_of_their_time_only(clock: type[Time]) -> None:
    pytest.importorskip("pyspark", reason="the levels of the Spark runner need the extra 'spark'")
    from tests.helpers.spark.spark_stream import Stream

    spec = Group(SUM, clock).spec
    grouped = beam.ParDo(ExpiringGroupFn(spec)).with_output_types(tuple[bytes, bytes])
    stream = Stream(beam.Map(group_of).with_output_types(tuple[bytes, bytes]) | grouped)

    def at(second: int, *rows: tuple[str, int]) -> list[Any]:
        clock.now_ms = second * 1000
        found = stream.values([(key, n, 1) for key, n in rows], None, clock=second)
        return [(key, msgspec.msgpack.decode(payload)[1] if payload else []) for key, payload in found]

    assert at(0, ("a", 1), ("b", 2)) == []
    assert at(1, ("a", 3)) == [(b"a", [4]), (b"b", [2])]
    assert at(2) == []
    assert at(11) == [(b"a", []), (b"b", [])]
    assert not stream.is_pending
    assert at(12, ("a", 5)) == []
    assert at(13) == [(b"a", [5])]


def group_of(element: tuple[str, int]) -> tuple[bytes, bytes]:
    key, number = element
    return key.encode(), pack_group((key,), [number])
