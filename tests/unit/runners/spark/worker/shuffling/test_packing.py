"""Many keys in one value."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rmqio.runners.spark.worker.shuffling import pack, parted, unpack

PAIRS = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=300)), max_size=40)


def arrays(pairs: list[tuple[bytes, bytes]]) -> tuple[pa.Array, pa.Array]:
    return pa.array([key for key, _ in pairs], pa.binary()), pa.array([run for _, run in pairs], pa.binary())


@given(PAIRS)
def test_what_is_packed_comes_out_again(pairs: list[tuple[bytes, bytes]]) -> None:
    keys, runs = unpack(pack(*arrays(pairs)))
    assert list(zip(keys, runs, strict=True)) == pairs


@given(PAIRS, st.data())
def test_a_slice_packs_as_a_copy_of_it_does(pairs: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(pairs)))
    end = data.draw(st.integers(begin, len(pairs)))
    keys, runs = arrays(pairs)
    packed = pack(keys.slice(begin, end - begin), runs.slice(begin, end - begin))
    assert packed == pack(*arrays(pairs[begin:end]))
    assert list(zip(*unpack(packed), strict=True)) == pairs[begin:end]


def test_the_layout_is_counts_lengths_keys_runs() -> None:
    expected = b"".join(number.to_bytes(4, "little") for number in (2, 1, 2, 3, 0)) + b"abc" + b"xyz"
    assert pack(*arrays([(b"a", b"xyz"), (b"bc", b"")])) == expected
    assert pack(*arrays([])) == bytes(4)
    assert unpack(bytes(4)) == ([], [])


@given(st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=5), st.binary(max_size=5)), max_size=40))
def test_parts_hold_the_pairs_of_their_place_in_order(rows: list[tuple[int, bytes, bytes]]) -> None:
    keys, runs = arrays([(key, run) for _, key, run in rows])
    found = list(parted(np.array([place for place, _, _ in rows], dtype=np.int64), keys, runs))
    expected: dict[int, list[tuple[bytes, bytes]]] = {}
    for place, key, run in rows:
        expected.setdefault(place, []).append((key, run))
    assert [place for place, _, _ in found] == sorted(expected)
    for place, part_keys, part_runs in found:
        assert list(zip(*unpack(pack(part_keys, part_runs)), strict=True)) == expected[place]
