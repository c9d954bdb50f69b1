"""Sketches name the messages that were lost or doubled, and the hop where that was."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.audit.hops import SINK, SOURCE, Candidate, Comparison, Edge, edges_of, passed_of
from rmqio.audit.sketch import MASK, Hop, Key, Sketch, Total, decode, encode, fold, mixed, mixed_one
from rmqio.audit.units import Unit, Units
from rmqio.errors import WireError
from rmqio.model import MessageQueue

QUEUE = MessageQueue("t", "b", 0)
UNIT = Unit(QUEUE, 0)


def total_of(offsets: list[int]) -> Total:
    return Total(len(offsets), sum(map(mixed_one, offsets)) & MASK)


def sketch(hop: Hop, offsets: list[int], *, run: str = "r") -> Sketch:
    return Sketch(Key(run, hop.name, *QUEUE, 0, 0, ""), hop, total_of(offsets))


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 2), st.booleans()), max_size=4, unique_by=lambda each: each[0]
    )
)
def test_each_message_is_named_with_its_edge(faults: list[tuple[int, int, bool]]) -> None:
    """Faults: an offset, the edge, and whether it is doubled there."""
    hops = ["one", "two"]
    streams, now = {SOURCE: [*range(100)]}, [*range(100)]
    for number, name in enumerate([*hops, SINK]):
        for offset, edge, is_doubled in faults:
            if edge == number:
                if is_doubled:
                    now.append(offset)
                else:
                    now.remove(offset)
        streams[name] = [*now]
    edges = [Edge((SOURCE,), "one"), Edge(("one",), "two"), Edge(("two",), SINK)]
    lost, doubled = (
        [Candidate(QUEUE, offset, mixed_one(offset)) for offset, _, is_doubled in faults if is_doubled == wanted]
        for wanted in (False, True)
    )
    totals = {name: {UNIT: total_of(offsets)} for name, offsets in streams.items()}
    comparison = Comparison(totals, edges, {UNIT: lost}, {UNIT: doubled})
    found = {
        (each.offset, edges.index(fault.edge), is_doubled)
        for fault in comparison.faults({UNIT})
        for is_doubled, those in ((False, fault.lost_messages), (True, fault.doubled_messages))
        for each in those
    }
    assert found == set(faults)


def test_what_cannot_be_told_apart_is_counted() -> None:
    """A message that a hop had twice and the end has once is in neither list."""
    totals = {
        SOURCE: {UNIT: total_of([1, 2])},
        "one": {UNIT: total_of([1, 2, 2])},
        SINK: {UNIT: total_of([1, 2])},
    }
    comparison = Comparison(totals, [Edge((SOURCE,), "one"), Edge(("one",), SINK)], {}, {})
    assert [(each.edge.hop, each.lost, each.doubled) for each in comparison.faults({UNIT})] == [
        ("one", 0, 1),
        (SINK, 1, 0),
    ]


def test_branches_share_what_came_before() -> None:
    first, left, right = Hop("first", 0, ()), Hop("left", 1, ("first",)), Hop("right", 1, ("first",))
    hops = passed_of([sketch(first, [1, 2, 3]), sketch(left, [1]), sketch(right, [2, 3])], "t")
    edges = edges_of(hops)
    assert edges == [
        Edge((SOURCE,), "first"), Edge(("first",), "left"), Edge(("first",), "right"), Edge(("left", "right"), SINK)
    ]  # fmt: skip
    totals = {name: each.units for name, each in hops.items()}
    ends = {SOURCE: {UNIT: total_of([1, 2, 3])}, SINK: {UNIT: total_of([1, 2, 3])}}
    assert Comparison({**totals, **ends}, edges, {}, {}).faults({UNIT}) == []
    ends[SINK] = {UNIT: total_of([1])}  # the other branch ends elsewhere
    assert Comparison({**totals, **ends}, edges, {}, {}).faults({UNIT}) == []


def test_runs_are_added_and_other_topics_left_out() -> None:
    hop = Hop("one", 0, ())
    other = sketch(hop, [9])
    other = other._replace(key=other.key._replace(topic="u"))
    (passed,) = passed_of([sketch(hop, [1]), sketch(hop, [2, 3], run="s"), other], "t").values()
    assert (passed.count, passed.runs, passed.units[UNIT]) == (3, {"r", "s"}, total_of([1, 2, 3]))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 1 << 62), st.integers(0, 100)), max_size=50))
def test_fold_adds_up_like_a_loop(rows: list[tuple[int, int, int]]) -> None:
    codes, hashes, times = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.array([]),) * 3
    found = dict(fold(codes.astype(np.int64), hashes.astype(np.uint64), times.astype(np.int64)))
    wanted: dict[int, Total] = {}
    for code, hash_, ms in rows:
        wanted[code] = wanted.get(code, Total()).plus(Total(1, hash_, ms, ms, ms))
    assert found == wanted


def test_units_of_rows_are_those_of_offsets() -> None:
    from rmqio.audit.compare.entries import entries_of

    offsets = random.Random(1).sample(range(20_000), 500)
    hashes = [offset.to_bytes(8, "big") for offset in offsets]
    rows, units = entries_of(hashes, 0, offsets, [0] * 500), Units()
    for some in np.array_split(rows, 7):
        units.add(some, [QUEUE], some["time"])
    blocks = Counter(offset >> 12 for offset in offsets)
    assert {unit.block: total.elements for unit, total in units.places.items()} == blocks
    for unit, total in units.places.items():
        there = [offset for offset in offsets if offset in unit.offsets]
        assert total.hash_sum == int(mixed(np.array(there)).sum(dtype=np.uint64))
    assert sum(total.elements for total in units.ids.values()) == 500


def test_a_sketch_comes_back_and_other_messages_are_refused() -> None:
    made = sketch(Hop("one", 3, ("zero",)), [1, 2])
    assert decode(encode(made)) == made
    for body in (b"", b"[]", b"{}", b'{"version": 1}', encode(made).replace(b'"version":1', b'"version":2')):
        with pytest.raises(WireError):
            decode(body)
