"""Pairs, losses and copies are those of a plain count, in memory and in files; order is that of a plain loop."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.audit.findings import Order, match
from rmqio.audit.reading import ENTRY, Entries, Spool, contained, parts_of

IDS = [1, 2, 3, (1 << 63) + 1, (1 << 64) - 1, 1 << 56, (7 << 56) + 5]


def rows_of(ids: list[int], queues: int) -> Entries:
    """Rows of queues in turn, in order of time."""
    rows = np.empty(len(ids), ENTRY)
    rows["id"] = ids
    rows["queue"] = np.arange(len(ids)) % queues
    rows["offset"] = np.arange(len(ids)) // queues
    rows["time"] = np.arange(len(ids)) * 10
    return rows


def filled(rows: Entries, most: int, folder: Path) -> Spool:
    spool = Spool(most, folder)
    for begin in range(0, len(rows), 5):
        spool.add(rows[begin : begin + 5])
    return spool


@given(st.lists(st.sampled_from(IDS), max_size=40), st.lists(st.sampled_from(IDS), max_size=40), st.booleans())
def test_counts_are_those_of_an_oracle(
    tmp_path_factory: pytest.TempPathFactory, sent: list[int], got: list[int], on_disk: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    most = 7 if on_disk else 1 << 62
    lost: collections.Counter[int] = collections.Counter()
    doubled: collections.Counter[int] = collections.Counter()
    foreign: collections.Counter[int] = collections.Counter()
    arrived = 0
    with filled(rows_of(sent, 3), most, folder) as one, filled(rows_of(got, 2), most, folder) as other:
        assert one.is_on_disk == (on_disk and len(sent) >= 7)
        for source, sink in parts_of(one, other):
            found = match(source, sink)
            lost.update(found.lost["id"].tolist())
            doubled.update(found.doubled["id"].tolist())
            foreign.update(found.foreign["id"].tolist())
            assert (found.sent["id"] == found.got["id"]).all()
            assert (found.doubled_of["id"] == found.doubled["id"]).all()
            arrived += len(found.sent)
        assert contained(other, [each.to_bytes(8, "big") for each in IDS]) == len({*got})
    wanted, there = collections.Counter(sent), collections.Counter(got)
    assert lost == wanted - there
    assert foreign == collections.Counter({id_: n for id_, n in there.items() if id_ not in wanted})
    assert doubled == (there - wanted) - foreign
    assert arrived == (wanted & there).total()


def test_copies_are_paired_in_order_of_time() -> None:
    sent, got = rows_of([5, 5], 1), rows_of([5, 5, 5], 1)
    sent["time"], got["time"] = [20, 10], [12, 30, 24]
    found = match(sent, got)
    assert found.sent["time"].tolist() == [10, 20]
    assert found.got["time"].tolist() == [12, 24]
    assert found.doubled["time"].tolist() == [30]


@given(st.lists(st.integers(0, 30), max_size=40, unique=True))
def test_disorder_is_that_of_a_loop(tmp_path_factory: pytest.TempPathFactory, offsets: list[int]) -> None:
    """Messages of one queue came to another in this order."""
    sent, got = rows_of([0] * len(offsets), 1), rows_of([0] * len(offsets), 1)
    sent["offset"] = offsets
    got["offset"] = np.arange(len(offsets)) * (1 << 19)  # over several files
    highest, wanted = -1, []
    for offset in offsets:
        if offset < highest:
            wanted.append(offset)
        highest = max(highest, offset)
    shuffled = np.random.default_rng(len(offsets)).permutation(len(offsets))
    for most in (3, 1 << 62):
        with Order(most, tmp_path_factory.getbasetemp()) as order:
            for some in np.array_split(shuffled, 4):
                order.add(sent[some], got[some])
            found = [offset for pairs in order.disorder() for offset in pairs["offset"].tolist()]
        assert found == wanted


def test_files_are_gone_in_the_end(tmp_path: Path) -> None:
    with filled(rows_of(IDS * 10, 1), 7, tmp_path) as spool:
        assert spool.is_on_disk
        assert [*tmp_path.iterdir()]
        assert spool.count == 70
    assert [*tmp_path.iterdir()] == []
