"""Sketches name the messages that were lost or doubled, and the hop where that was."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.audit.checking import Result
from rmqio.audit.findings import Place
from rmqio.audit.hops import SINK, SOURCE, Candidate, Comparison, Edge, edges_of, hops_of_block, outcome_of, passed_of
from rmqio.audit.reading import Sketches
from rmqio.audit.sketch import MASK, Hop, Key, Sketch, Total, Unit, Units, decode, encode, fold, mixed, mixed_one
from rmqio.errors import WireError
from rmqio.model import MessageQueue
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

QUEUE = MessageQueue("t", "b", 0)
UNIT = Unit(QUEUE, 0)


def total_of(offsets: list[int]) -> Total:
    return Total(len(offsets), sum(map(mixed_one, offsets)) & MASK)


def sketch(hop: Hop, offsets: list[int], *, run: str = "r") -> Sketch:
    return Sketch(Key(run, hop.name, *QUEUE, 0, 0, ""), hop, total_of(offsets))


def test_blocks_that_are_lost_as_a_whole_are_told_without_a_look_at_each_message_for_each_other_one() -> None:
    compared = 0

    class Offset(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

    count = 5
    places = [(QUEUE, Offset(offset)) for offset in range(count * 4_096)]
    lost: dict[Unit, list[Candidate]] = {}
    for queue, offset in places:
        lost.setdefault(Unit(queue, offset >> 12), []).append(Candidate(queue, offset, mixed_one(0)))
    there = {unit: Total(4_096, 4_096 * mixed_one(0) & MASK) for unit in lost}
    edges = [Edge((SOURCE,), "one"), Edge(("one",), SINK)]
    faults = Comparison({SOURCE: there, "one": there, SINK: {}}, edges, lost, {}, {}).faults(there)
    assert [len(fault.lost_messages) for fault in faults] == [4_096] * count
    unused: Any = dict.fromkeys(("request", "identity", "findings", "source", "sink", "letters", "hops"))
    result = Result(
        **unused, faults=faults, edges=edges, delays={}, units_judged=0, units_left_out=0, notes=[], checked_ms=0
    )
    for queue, offset in places:
        assert result.edge_of(Place("lost", queue, offset, 0, 0)) == [edges[1]]
    assert compared <= len(places)


def test_a_trace_counts_what_retention_has_deleted_of_a_block() -> None:
    with InMemoryCluster() as cluster:
        cluster.create_topic("hops", 1)
        (queue,) = cluster.create_topic("t", 1)
        for number in range(10):
            cluster.append("t", b"%d" % number)
        cluster.append(
            "hops", encode(Sketch(Key("r", "one", *queue, 0, 0, ""), Hop("one", 0, ()), total_of([*range(10)])))
        )
        client = InMemoryClientFactory(cluster.name).queue_client()
        for kept in (0, 4):
            cluster.delete_before(queue, kept)
            assert hops_of_block(client, "hops", queue, 5) == ([("one", 10, 10, True, "passed")], [])
        client.close()


BLOCK = [*range(4_096)]


@pytest.mark.parametrize(
    ("came", "expected"),
    [
        (BLOCK, {7: "passed", 8: "passed"}),
        ([], {7: "missing"}),
        (BLOCK[:7] + BLOCK[8:], {7: "missing", 6: "passed", 8: "passed"}),
        (BLOCK[:7] + BLOCK[8:99] + BLOCK[100:], {7: "missing", 99: "missing", 8: "passed"}),
        (BLOCK[:7] + BLOCK[400:], {6: "passed", 7: "missing", 399: "missing", 400: "passed"}),
        ([*BLOCK, 7], {7: "doubled", 8: "passed"}),
        ([*BLOCK, 7, 99], {7: "doubled", 99: "doubled", 8: "passed"}),
        ([*BLOCK[:7], *BLOCK[8:], 99], {7: "missing", 99: "doubled", 8: "passed"}),
        ([*BLOCK, 7, 7], {7: None, 8: None}),
        ([each for each in BLOCK if each not in (7, 99, 500)], {7: None, 8: None}),
        ([*(each for each in BLOCK if each not in (7, 99)), 500, 501], {7: None, 8: None}),
    ],
)
def test_a_hop_tells_of_one_message_whether_it_came(came: list[int], expected: dict[int, str | None]) -> None:
    hashes, total = mixed(np.array(BLOCK)), total_of(came)
    assert {offset: outcome_of(hashes, mixed_one(offset), total) for offset in expected} == expected


@pytest.mark.parametrize("is_later", [True, False])
def test_the_last_sketch_of_a_key_counts_by_its_place(is_later: bool) -> None:
    """The broker's clock was set back between two totals."""
    with InMemoryCluster() as cluster:
        cluster.create_topic("hops", 1)
        for count in (1, 2):
            made = sketch(Hop("one", 0, ()), [*range(count)])
            cluster.append("hops", encode(made), store_ms=5_000 + (count if is_later else -count))
        client = InMemoryClientFactory(cluster.name).queue_client()
        sketches = Sketches()
        sketches.read(client, "hops")
        assert [each.total.elements for each in sketches] == [2]
        sketches.forget({QUEUE: 4_095})
        assert len([*sketches]) == 1
        sketches.forget({QUEUE: 4_096})
        assert [*sketches] == []
        client.close()


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
    comparison = Comparison(totals, edges, {UNIT: lost}, {UNIT: doubled}, {})
    found = {
        (each.offset, edges.index(fault.edge), is_doubled)
        for fault in comparison.faults({UNIT})
        for is_doubled, those in ((False, fault.lost_messages), (True, fault.doubled_messages))
        for each in those
    }
    assert found == set(faults)


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        # What is lost and what became a letter, at each of three hops; then lost, letters, and one of both.
        ([([], BLOCK[:200]), (BLOCK[300:538], []), ([], [])], [(0, 200, 0), (238, 0, 0)]),
        ([(BLOCK[300:538], []), ([], []), ([], BLOCK[:200])], [(238, 0, 0), (0, 200, 0)]),
        ([([], BLOCK[:200]), (BLOCK[300:420], []), (BLOCK[420:538], [])], [(0, 200, 0), (120, 0, 0), (118, 0, 0)]),
        ([(BLOCK[300:538], BLOCK[:200]), (BLOCK[600:601], []), ([], [])], [(238, 200, 0), (1, 0, 0)]),
        ([(BLOCK[300:400], BLOCK[:90]), (BLOCK[400:500], BLOCK[90:200]), ([], [])], [(0, 0, 190), (10, 10, 190)]),
    ],
)
def test_losses_and_dead_letters_are_told_apart_by_their_counts(
    gone: list[tuple[list[int], list[int]]], expected: list[tuple[int, int, int]]
) -> None:
    """They are too many to try which of them explain a difference."""
    names, now = ["one", "two", "three"], set(BLOCK)
    totals = {SOURCE: {UNIT: total_of(BLOCK)}}
    for name, kinds in zip(names, gone, strict=True):
        now -= {*kinds[0], *kinds[1]}
        totals[name] = {UNIT: total_of([*now])}
    totals[SINK] = totals["three"]
    edges = [Edge((SOURCE,), "one"), Edge(("one",), "two"), Edge(("two",), "three"), Edge(("three",), SINK)]
    lost, letters = (
        {UNIT: [Candidate(QUEUE, offset, mixed_one(offset)) for each in gone for offset in each[kind]]}
        for kind in (0, 1)
    )
    faults = Comparison(totals, edges, lost, {}, letters).faults({UNIT})
    assert [(each.lost, each.letters, each.unclear) for each in faults] == expected
    assert {each.doubled for each in faults} == {0}


def test_what_cannot_be_told_apart_is_counted() -> None:
    """A message that a hop had twice and the end has once is in neither list."""
    totals = {
        SOURCE: {UNIT: total_of([1, 2])},
        "one": {UNIT: total_of([1, 2, 2])},
        SINK: {UNIT: total_of([1, 2])},
    }
    comparison = Comparison(totals, [Edge((SOURCE,), "one"), Edge(("one",), SINK)], {}, {}, {})
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
    assert Comparison({**totals, **ends}, edges, {}, {}, {}).faults({UNIT}) == []
    ends[SINK] = {UNIT: total_of([1])}  # the other branch ends elsewhere
    assert Comparison({**totals, **ends}, edges, {}, {}, {}).faults({UNIT}) == []


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
    from rmqio.audit.reading import entries_of

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
