"""Entries of a bucket's state, read and written once."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.streaming.state import Store


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
