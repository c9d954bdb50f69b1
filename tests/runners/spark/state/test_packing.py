"""Many keys in one value, and the entries of a bucket: the building blocks of the streaming runner's state."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rmqio.runners.spark.streaming.state.store import Store
from rmqio.runners.spark.worker.shuffling.packing import pack, parted, unpack

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


# ---- entries of a bucket --------------------------------------------------------------------------------------------


class Counted(dict[bytes, bytes]):
    """Entries in memory. `calls` records the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, bytes]] = []

    def get(self, key: bytes) -> bytes | None:  # type: ignore[override]
        self.calls.append(("get", key))
        return super().get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.calls.append(("put", key))
        self[key] = value

    def remove(self, key: bytes) -> None:
        self.calls.append(("remove", key))
        self.pop(key, None)


def test_an_entry_is_read_once_whether_it_is_there_or_not() -> None:
    entries = Counted()
    entries[b"a"] = b"1"
    store = Store(entries)
    assert [store.get(b"a"), store.get(b"a"), store.get(b"b"), store.get(b"b")] == [b"1", b"1", None, None]
    assert entries.calls == [("get", b"a"), ("get", b"b")]


def test_an_entry_is_written_once_and_only_if_it_has_changed() -> None:
    entries = Counted()
    entries[b"a"] = b"1"
    store = Store(entries)
    store.get(b"a")
    for value in (b"1", b"2", b""):
        store.put(b"b", value)
    assert store.get(b"b") == b"", "what was put is known without a look"
    assert entries.calls == [("get", b"a")]
    store.flush()
    store.flush()
    assert entries.calls == [("get", b"a"), ("put", b"b")]
    assert entries == {b"a": b"1", b"b": b""}
    store.put(b"b", b"3")
    store.flush()
    assert entries == {b"a": b"1", b"b": b"3"}


def test_none_removes_an_entry() -> None:
    entries = Counted()
    entries[b"a"] = b"1"
    store = Store(entries)
    store.put(b"a", None)
    assert store.get(b"a") is None
    store.put(b"b", b"1")
    store.put(b"b", None)
    assert entries == {b"a": b"1"}, "nothing changes before the flush"
    store.flush()
    assert entries == {}
    assert ("put", b"b") not in entries.calls


def test_changes_are_written_in_the_order_of_their_names() -> None:
    entries = Counted()
    store = Store(entries)
    for name in (b"c", b"a", b"b"):
        store.put(name, name)
    store.flush()
    assert entries.calls == [("put", b"a"), ("put", b"b"), ("put", b"c")]
