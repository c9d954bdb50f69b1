"""Batches of values with their places, and messages as columns."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from apache_beam.coders import FastPrimitivesCoder
from hypothesis import given
from hypothesis import strategies as st

from rmqio.batches import Batch, MessageBatch, offsets_of, place_ids, record_id
from rmqio.errors import LocalError
from rmqio.model import Message, MessageQueue, Record
from rmqio.transforms.coders import BatchCoder

QUEUE = MessageQueue("orders", "broker-a", 3)


def record(offset: int) -> Record:
    return Record("orders", "broker-a", 3, offset, b"body", 1, 2, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)


def test_a_batch_is_a_list_with_places() -> None:
    batch = Batch("ab", QUEUE, range(7, 9))
    assert batch == ["a", "b"]
    assert batch.ids() == [record_id(record(7)), record_id(record(8))]
    again = pickle.loads(pickle.dumps(batch))
    assert type(again) is Batch
    assert (again, again.queue, again.offsets, again.steps) == (batch, QUEUE, range(7, 9), "")


def test_ids_stay_what_they_were_in_earlier_versions() -> None:
    """A restart after an upgrade must find the messages that were sent before."""
    assert place_ids(QUEUE, range(2), "/Map") == [
        "5D3085644B383E31996551D8C99463BF",
        "F9DA3E6EFF0A3BE2A3768046020204F3",
    ]


def test_other_values_have_the_places_and_other_steps_have_other_ids() -> None:
    batch = Batch("abc", QUEUE, [7, 9, 12])
    assert batch.with_values("xyz").ids() == batch.ids() == place_ids(QUEUE, [7, 9, 12])
    some = batch.with_values("x", [2])
    assert (some, some.offsets) == (["x"], [12])
    ids = [batch.with_values("xyz", step=step).ids() for step in ("", "A", "B")]
    ids.append(batch.with_values("xyz", step="A").with_values("xyz", step="B").ids())
    assert len({each for some in ids for each in some or []}) == 12
    for wrong in (("xy", None), ("xy", [0])):
        with pytest.raises(LocalError, match="values, but"):
            batch.with_values(*wrong)


def test_several_values_of_one_record_have_ids_of_their_own() -> None:
    batch = Batch("abc", QUEUE, [7, 9, 12])
    several = batch.with_values("uvwxyz", [0, 1, 1, 1, 2, 0], step="A")
    ids = several.ids() or []
    assert len(set(ids)) == 6
    assert [several.id_at(position) for position in range(6)] == ids
    assert ids[:2] + ids[4:5] == batch.with_values("abc", step="A").ids(), "the first is as if it were alone"
    assert several.with_values("uvwxyz").ids() == ids
    assert batch.with_values("vw", [1, 1], step="A").ids() == ids[1:3], "other records do not matter"


def test_a_batch_without_places_has_no_ids() -> None:
    assert Batch([1, 2]).ids() is None
    assert Batch([1, 2]).with_values([3], [0]).ids() is None
    assert Batch([], QUEUE, []).ids() == []


def test_a_batch_that_was_changed_is_found_out() -> None:
    batch = Batch("ab", QUEUE, [7, 9])
    batch.append("c")
    with pytest.raises(LocalError, match="3 values and 2 offsets; use with_values"):
        batch.ids()


@pytest.mark.parametrize("offsets", [[], [5], [5, 6, 7], [5, 7], [5, 6, 8]])
def test_offsets_of_records(offsets: list[int]) -> None:
    assert list(offsets_of([record(offset) for offset in offsets])) == offsets


def test_ids_of_text_that_is_not_utf8() -> None:
    odd = record(1)._replace(broker="\udcff")
    assert place_ids(MessageQueue("orders", "\udcff", 3), [1]) == [record_id(odd)]


def test_columns_become_messages() -> None:
    assert MessageBatch(bodies=[b"a", b"b"]).messages() == [Message(b"a"), Message(b"b")]
    columns = MessageBatch(
        bodies=[b"a", b"b"],
        topics="t",
        tags=["x", None],
        keys=[("k",), ()],
        properties=[{"p": "v"}, {}],
        sharding_keys=[None, "s"],
        ids=["1", "2"],
    )
    first, second = columns.messages()
    assert first == Message(b"a", topic="t", tags="x", keys="k", properties={"p": "v"})
    assert second == Message(b"b", topic="t", sharding_key="s")
    assert len(columns) == 2
    assert pickle.loads(pickle.dumps(columns)) == columns


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"tags": ["x"]}, "a MessageBatch has 2 bodies, but 1 tags"),
        ({"keys": "ab"}, "keys of a MessageBatch is 'ab'; it must be a list"),
        ({"ids": {"a", "b"}}, "ids of a MessageBatch is"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, Any], error: str) -> None:
    with pytest.raises(LocalError, match=error):
        MessageBatch(bodies=[b"a", b"b"], **columns)


class Lying(Sequence[Any]):
    """Says that it has another length."""

    def __init__(self, values: list[Any], told: int) -> None:
        self.values = values
        self.told = told

    def __len__(self) -> int:
        return self.told

    def __getitem__(self, at: Any) -> Any:
        return self.values[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


COLUMNS: dict[str, Any] = {
    "bodies": b"body",
    "topics": "t",
    "tags": None,
    "keys": ("k",),
    "properties": {"p": "v"},
    "sharding_keys": "s",
    "ids": "id",
}


@given(
    st.integers(0, 4),
    st.sets(st.sampled_from(sorted(COLUMNS))).map(lambda some: {*some, "bodies"}),
    st.dictionaries(st.sampled_from(sorted(COLUMNS)), st.integers(0, 6), max_size=2),
    st.booleans(),
)
def test_no_message_is_lost_or_invented_whatever_a_column_says(
    count: int, names: set[str], real: dict[str, int], told: bool
) -> None:
    """A column that is shorter or longer than the bodies: it lies from the start, or is changed later."""
    columns: dict[str, Any] = {name: [COLUMNS[name]] * count for name in names}
    if told:
        columns |= {name: Lying([COLUMNS[name]] * number, count) for name, number in real.items() if name in names}
    batch = MessageBatch(**columns)
    if not told:
        for name, number in real.items():
            if name in names:
                columns[name][:] = [COLUMNS[name]] * number
    lengths = {name: len([*column]) for name, column in columns.items()}
    if len({*lengths.values(), len(batch)}) == 1:
        assert len(batch.messages()) == len(batch)
        return
    try:
        messages = batch.messages()
    except LocalError:
        return
    lengths.pop("ids", None)  # who writes them pairs them with the messages
    assert {*lengths.values(), len(messages)} == {len(batch)}
    assert all(message.body == b"body" for message in messages)


def test_variants_go_with_their_values() -> None:
    batch = Batch("ab", QUEUE, [4, 5]).with_values("xyzx", [0, 0, 1, 0], step="s", variants=["1", "2", "1", "1"])
    ids = batch.ids()
    assert ids == [batch.id_at(place) for place in range(4)]
    assert len({*ids}) == 4
    assert pickle.loads(pickle.dumps(batch)).ids() == ids
    coder = BatchCoder(FastPrimitivesCoder())
    back = coder.decode(coder.encode(batch))
    assert (back, back.ids(), list(back.variants)) == (batch, ids, ["1", "2", "1", "1"])
    assert batch.with_values("zy", [2, 1]).ids() == [ids[2], ids[1]]
    assert Batch("ab", QUEUE, [4, 4], "/s").id_at(1) not in ids  # the second of a place is no variant "1"
    with pytest.raises(LocalError, match="a batch has 1 values, but 2 variants"):
        Batch("a", variants=["x", "y"])
