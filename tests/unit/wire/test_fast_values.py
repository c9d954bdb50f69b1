"""Values made in C against those made in Python, the reference: calls of `Message`, sizes, results of a send."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
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


def in_python(*args: Any, **named: Any) -> Message:
    return Message.__new__(Message, *args, **named)


def outcome(make: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> object:
    try:
        made = make(*args, **named)
    except Exception as error:  # noqa: BLE001  # whatever it is, it must be the same
        return type(error), str(error)
    return type(made), [(type(field), field) for field in made]


# ---- calls of Message ------------------------------------------------------------------------------------------------

anything = st.sampled_from([None, "", "text", b"bytes", 5, 1.5, ("a",), [], {"a": "b"}, Text("t"), object()])
keys = anything | st.lists(st.text(max_size=3), max_size=3) | st.lists(st.text(max_size=3), max_size=3).map(tuple)
names = st.sampled_from([*Message._fields, "no_such_field"])


@needs_c
@given(st.lists(anything, max_size=3), st.dictionaries(names, anything), keys)
def test_calls_right_or_wrong_have_the_same_outcome(args: list[Any], named: dict[str, Any], keys: Any) -> None:
    for given_keys in ({}, {"keys": keys}):
        call = (*args,), named | given_keys
        assert outcome(Message, *call) == outcome(in_python, *call)


@needs_c
@pytest.mark.parametrize(
    ("args", "named"),
    [
        ((), {}),
        ((), {"body": b"x"}),
        ((b"x",), {"body": b"x"}),
        ((b"x", "topic"), {}),
        ((b"x",), {"".join(["ta", "gs"]): "t"}),  # a name that is not interned
        ((b"x",), {"keys": "abc"}),
        ((b"x",), {"keys": 5}),
        ((b"x",), {"keys": {"a": 1}}),
        ((b"x",), {"typo": 5}),
    ],
)
def test_each_unusual_call_has_the_same_outcome(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    assert outcome(Message, args, named) == outcome(in_python, args, named)


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
    assert message == in_python(b"x", tags="t", keys=["k"], properties={"a": "b"})
    assert pickle.loads(pickle.dumps(message)) == message
    assert type(message.replace(tags="u")) is Message
    assert type(message._replace(tags="u")) is Message


@needs_c
def test_only_what_can_be_part_of_a_cycle_is_tracked() -> None:
    plain = (
        Message(b"x"),
        Message(b"x", topic="t", tags="a", keys=["k", "l"], sharding_key="s", delay_level=3, deliver_at_ms=10**13),
    )
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
    assert all(map(gc.is_tracked, others))


@needs_c
def test_a_cycle_is_collected() -> None:
    gone: list[str] = []

    class Tag(str):
        def __del__(self) -> None:
            gone.append("gone")

    tag: Any = Tag("t")
    tag.message = Message(b"x", tags=tag)
    del tag
    gc.collect()
    assert gone == ["gone"]


TELL = "from rmqio import Message; import rmqio.wire.batch, gc; print(gc.is_tracked(Message(b'x')))"


@needs_c
@pytest.mark.parametrize(("value", "expected"), [("", "False"), ("1", "True")])
def test_the_environment_turns_it_off(value: str, expected: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", TELL],
        capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, "RMQIO_PURE_PYTHON": value},
    )  # fmt: skip
    assert answer.stdout.strip() == expected


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
        and message.properties is in_python(b"x").properties
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
        with pytest.raises(TypeError):
            Message(body, typo=tags)  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            Message(body, keys=5)  # type: ignore[arg-type]

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
        assert Message(b"x", keys=["a"]) == in_python(b"x", keys=["a"])
    finally:
        gc.set_threshold(*threshold)
