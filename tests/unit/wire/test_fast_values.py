"""Messages, and what C makes of them against Python, the reference: sizes, results of a send."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.model import Message, MessageQueue, SendResult, SendStatus
from rmqio.wire import accelerator
from rmqio.wire.batch import batchable, estimated_size, send_results_in_python
from tests.helpers.leaks import assert_leaks_nothing
from tests.helpers.wire.implementations import needs_c

ROOT = Path(__file__).resolve().parents[3]
QUEUE = MessageQueue("orders", "broker-a", 3)


class Special(Message):
    __slots__ = ()


class Text(str):
    """Has a dictionary, so that it can be part of a cycle."""


# ---- calls of Message ------------------------------------------------------------------------------------------------


def test_a_generator_of_keys_is_used_up_once() -> None:
    assert Message(b"x", keys=(key for key in "ab")).keys == ("a", "b")  # type: ignore[arg-type]


def test_an_error_of_the_keys_passes_through() -> None:
    def broken() -> Any:
        yield "a"
        raise KeyError("of the caller's")

    with pytest.raises(KeyError, match="of the caller's"):
        Message(b"x", keys=broken())


def test_subclasses_and_copies_keep_their_type() -> None:
    assert type(Special(b"x", tags="t")) is Special
    message = Message(b"x", tags="t", keys=["k"], properties={"a": "b"})
    assert pickle.loads(pickle.dumps(message)) == message
    assert type(message.replace(tags="u")) is Message
    assert type(message._replace(tags="u")) is Message


@needs_c
def test_a_plain_message_that_is_measured_is_no_longer_tracked() -> None:
    size: Any = accelerator.usual_size
    plain = (
        Message(b"x"),
        Message(b"x", topic="t", tags="a", keys=["k", "l"]),
    )
    assert all(map(size, plain))
    assert not any(map(gc.is_tracked, plain))
    special: Any = object()
    others = (
        Message(b"x", properties={"a": "b"}),
        Message(b"x", properties=MappingProxyType({})),
        Message(b"x", tags=Text("t")),
        Message(b"x", keys=(Text("k"),)),
        Message(b"x", keys=(["k"],)),  # type: ignore[arg-type]
        Message(special),
    )
    for message in others:
        size(message)
    assert all(map(gc.is_tracked, others))


@needs_c
def test_a_cycle_is_collected() -> None:
    gone: list[str] = []

    class Tag(str):
        def __del__(self) -> None:
            gone.append("gone")

    tag: Any = Tag("t")
    tag.message = Message(b"x", tags=tag)
    size: Any = accelerator.usual_size
    size(tag.message)
    del tag
    gc.collect()
    assert gone == ["gone"]


# ---- sizes -----------------------------------------------------------------------------------------------------------


@needs_c
@given(
    st.builds(
        Message,
        st.binary(max_size=40) | st.sampled_from(["text", None, bytearray(b"x")]),
        topic=st.sampled_from([None, "t"]),
        tags=st.sampled_from([None, "", "tag", 5]),
        keys=st.lists(st.sampled_from(["", "key", 5]), max_size=3),
        sharding_key=st.sampled_from([None, None, None, "s"]),
        properties=st.sampled_from([{}, None, {"a": "b"}]),
        delay_level=st.sampled_from([None, None, None, 0, 3]),
        deliver_at_ms=st.sampled_from([None, None, None, 1]),
    )
    | st.builds(Message, st.binary(min_size=1), keys=st.lists(st.text()), tags=st.none() | st.text())
)
def test_a_size_is_the_estimated_one_or_none(message: Message) -> None:
    assert accelerator.usual_size is not None
    size = accelerator.usual_size(message)
    usual = (
        type(message.body) is bytes
        and len(message.body) > 0
        and (message.tags is None or type(message.tags) is str)
        and message.properties is Message(b"x").properties
        and message.sharding_key is None
        and batchable(message)
    )
    assert size == (estimated_size(message) if usual else 0)


@needs_c
def test_what_is_not_exactly_a_message_has_no_size() -> None:
    assert accelerator.usual_size is not None
    for element in (Special(b"x"), tuple.__new__(Message, (b"x", None)), b"x", "x", None, tuple(Message(b"x"))):
        assert accelerator.usual_size(element) == 0


# ---- results ---------------------------------------------------------------------------------------------------------


@needs_c
@pytest.mark.parametrize(
    ("ids", "offset_ids"), [([], []), (["a"], ["A"]), (("a", "b"), ["A", "B", "C"]), (["a", "b"], ["A"])]
)
@pytest.mark.parametrize("first", [0, 255, 2**31, 2**62])
def test_results_are_the_same(ids: Any, offset_ids: list[str], first: int) -> None:
    assert accelerator.send_results is not None
    call = (QUEUE, first, ids, offset_ids, SendStatus.SLAVE_NOT_AVAILABLE)
    results = accelerator.send_results(*call)
    assert results == send_results_in_python(*call)
    assert all(type(result) is SendResult for result in results)
    assert not any(map(gc.is_tracked, results))


@needs_c
def test_results_of_unusual_values_are_tracked() -> None:
    make: Any = accelerator.send_results
    for call in (
        (["queue"], 0, ["a"], ["A"], SendStatus.OK),
        (QUEUE._replace(topic=Text("t")), 0, ["a"], ["A"], SendStatus.OK),
        (QUEUE, 0, [Text("a")], ["A"], SendStatus.OK),
        (QUEUE, 0, ["a"], [["A"]], SendStatus.OK),
    ):
        (result,) = make(*call)
        assert result == send_results_in_python(*call)[0]
        assert gc.is_tracked(result)


@needs_c
def test_arguments_that_only_a_bug_could_pass_are_refused() -> None:
    make: Any = accelerator.send_results
    for call, error in (
        ((QUEUE,), TypeError),
        ((QUEUE, "0", [], [], SendStatus.OK), TypeError),
        ((QUEUE, 2**63, [], [], SendStatus.OK), OverflowError),
        ((QUEUE, 0, None, [], SendStatus.OK), TypeError),
        ((QUEUE, 0, [], (), SendStatus.OK), TypeError),
    ):
        with pytest.raises(error):
            make(*call)


# ---- references ------------------------------------------------------------------------------------------------------


@needs_c
def test_nothing_leaks() -> None:
    body, tags, keys = b"x" * 100, "".join(["ta", "g"]), ["".join(["k", "ey"])]
    ids = ["".join(["i", str(number)]) for number in range(50)]
    make: Any = accelerator.send_results
    size: Any = accelerator.usual_size

    def work() -> None:
        size(Message(body, tags=tags, keys=keys))
        Message(body=body, tags=tags)
        make(QUEUE, 5, ids, ids, SendStatus.OK)

    counted = (body, tags, keys, keys[0], ids[0], QUEUE, SendStatus.OK, Message)
    assert_leaks_nothing(work, counted)


@needs_c
def test_the_garbage_collector_may_run_at_any_time() -> None:
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        call = (QUEUE, 5, ["a"] * 50, ["A"] * 50, SendStatus.OK)
        assert accelerator.send_results is not None
        assert accelerator.send_results(*call) == send_results_in_python(*call)
    finally:
        gc.set_threshold(*threshold)
