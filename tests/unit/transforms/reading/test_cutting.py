"""What of an answer is before the stop and within the limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmqio.errors import CorruptMessage
from rmqio.interfaces import FetchedBatch
from rmqio.transforms.reading.readers import cut_to


def answer(offsets: str, next_offset: int) -> FetchedBatch:
    """Returns an answer of the messages at some offsets; those after a `!` cannot be decoded."""
    good, _, bad = offsets.partition("!")
    records: list[Any] = [SimpleNamespace(queue_offset=int(each)) for each in good]
    return FetchedBatch(records, tuple(CorruptMessage("bad", queue_offset=int(each)) for each in bad), next_offset, 99)


@pytest.mark.parametrize(
    ("offsets", "next_offset", "stop", "limit", "left", "left_next"),
    [
        ("3456", 7, None, None, "3456", 7),
        ("3456", 7, 7, None, "3456", 7),
        ("3456", 7, 6, None, "345", 6),
        ("3456", 7, 3, None, "", 3),
        ("346", 9, 5, None, "34", 5),  # a filter has left out the message at the stop
        ("34!56", 7, 6, None, "34!5", 6),
        ("36!45", 7, 5, None, "3!4", 5),
        ("3456", 7, None, 4, "3456", 7),
        ("3456", 7, None, 3, "345", 6),
        ("35", 9, None, 2, "35", 6),
        ("35!46", 7, None, 2, "35!4", 6),
        ("35!46", 7, None, 1, "3", 4),
        ("3456", 7, 6, 2, "34", 5),
        ("3456", 7, 5, 3, "34", 5),
    ],
)
def test_nothing_is_left_from_the_stop_on_and_nothing_is_lost_before_it(
    offsets: str, next_offset: int, stop: int | None, limit: int | None, left: str, left_next: int
) -> None:
    found = cut_to(answer(offsets, next_offset), stop, limit)
    places = "".join(str(each.queue_offset) for each in found.records)
    bad = "".join(str(each.queue_offset) for each in found.corrupt)
    assert (f"{places}!{bad}".rstrip("!"), found.next_offset) == (left, left_next)
