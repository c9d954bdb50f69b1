"""Ids that depend on places: in C, beside Python's hashlib."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio import batches
from rmqio.model import MessageQueue
from rmqio.wire import accelerator, ids
from tests.helpers.wire.implementations import BOTH, needs_c

QUEUE = MessageQueue("orders", "broker-a", 3)


@pytest.fixture(params=BOTH)
def place_ids(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(ids, "_usual_place_ids", accelerator.usual_place_ids if request.param == "c" else None)
    return ids.place_ids


@given(
    st.builds(MessageQueue, st.text(max_size=40), st.text(max_size=9), st.integers(0, 2**31 - 1)),
    st.lists(st.integers(0, 2**63 - 1) | st.integers(-5, 2**65), max_size=9),
    st.text(max_size=60) | st.sampled_from(["x" * 200, "x" * 490, "x" * 900]),
)
def test_ids_are_those_of_hashlib(queue: MessageQueue, offsets: list[int], steps: str) -> None:
    assert ids.place_ids(queue, offsets, steps) == batches.place_ids(queue, offsets, steps)


@pytest.mark.parametrize("size", [*range(100, 140), *range(240, 260), *range(480, 520)])
def test_texts_that_fill_blocks(place_ids: Any, size: int) -> None:
    queue = MessageQueue("t" * size, "b", 0)
    assert place_ids(queue, [7, 10**18]) == batches.place_ids(queue, [7, 10**18])


def test_ids_stay_what_they_were_in_earlier_versions(place_ids: Any) -> None:
    """A restart after an upgrade must find the messages that were sent before."""
    assert place_ids(QUEUE, range(2), "/Map") == [
        "5D3085644B383E31996551D8C99463BF",
        "F9DA3E6EFF0A3BE2A3768046020204F3",
    ]


@needs_c
def test_wrong_arguments_are_refused_and_nothing_leaks() -> None:
    usual: Any = accelerator.usual_place_ids
    for arguments in (("text", [1], b""), (b"", [1], None), (b"", 5, b""), (b"", [1])):
        with pytest.raises(TypeError):
            usual(*arguments)
    assert usual(b"", [True], b"") is None
    assert usual(b"", ["1"], b"") is None

    def run() -> int:
        for _ in range(200):
            usual(b"a/b/1/", range(50), b"/Map")
            usual(b"a/b/1/", [1, 2, -1], b"/Map")
        return sys.getallocatedblocks()

    run()
    before = run()
    assert run() - before < 50
