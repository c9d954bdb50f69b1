"""Sends made from a template against `requests.send`, which they stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqio.errors import LocalError
from rmqio.model import Message, MessageQueue
from rmqio.wire import requests
from rmqio.wire.command import Command, FrameDecoder, encode_frame
from rmqio.wire.properties import encode_properties
from rmqio.wire.templates import SendRequest, SendTemplate, encode_request, properties_text
from tests.helpers.wire.implementations import BOTH, using

QUEUE = MessageQueue("orders", "broker-a", 3)
# Texts that look like a hole, like formatting, or like the end of a text.
HOSTILE = [
    "",
    "100%d %s %% %b",
    '"f":"" "g":"" "i":"" "opaque":0',
    'x","i":"","opaque":0,"f":"%d',
    "\u00e9\U0001f600\\\n\0\x01\x02\x7f",
    "\ud800 alone",
]
texts = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=()), max_size=20)
values = st.fixed_dictionaries(
    {
        "properties": texts,
        "born_ms": st.integers(0, 2**63 - 1),
        "sys_flag": st.integers(0, 2**31 - 1),
        "batch": st.booleans(),
    }
)


def decoded(frame: bytes) -> Command | None:
    decoder = FrameDecoder()
    decoder.receive_data(frame)
    command = decoder.next_command()
    assert repr(decoder) == "<FrameDecoder 0 B buffered>"
    return command


@given(texts, texts, texts, st.integers(-1, 2**31 - 1), st.booleans(), st.integers(0, 0x7FFFFFFF), values)
@example("%d", "%%", "%", 0, True, 7, {"properties": "%s", "born_ms": 1, "sys_flag": 0, "batch": False})
def test_a_frame_is_that_of_the_command_but_for_the_order_of_fields(
    group: str, topic: str, broker: str, queue_id: int, create_topic: bool, opaque: int, values: dict[str, Any]
) -> None:
    queue = MessageQueue(topic, broker, queue_id)
    template = SendTemplate(group, queue, create_topic=create_topic, topic_queues=8)
    frame = encode_request(SendRequest(template, b"the body", **values), opaque)
    command = requests.send(group, queue, b"the body", create_topic=create_topic, topic_queues=8, **values)
    command.opaque = opaque
    assert decoded(frame) == command
    expected = encode_frame(command)
    assert (len(frame), sorted(frame)) == (len(expected), sorted(expected))


@given(texts, texts, texts, values)
def test_a_request_for_another_queue_differs_in_the_queue_only(
    group: str, topic: str, broker: str, values: dict[str, Any]
) -> None:
    elsewhere = SendTemplate(group, MessageQueue(topic, broker, 5))
    moved = SendRequest(SendTemplate(group, QUEUE), b"body", **values).by(elsewhere)
    assert moved.frame(9) == SendRequest(elsewhere, b"body", **values).frame(9)


def test_a_request_may_be_written_again_with_another_opaque() -> None:
    request = SendRequest(SendTemplate("g", QUEUE), b"body", "p\x01v\x02", 5)
    first, second = decoded(request.frame(1)), decoded(request.frame(2))
    assert first is not None
    assert second is not None
    assert (first.ext, first.body, first.code) == (second.ext, second.body, second.code)
    assert (first.opaque, second.opaque) == (1, 2)


def test_a_command_is_given_its_opaque() -> None:
    command = Command(34, {"a": "b"})
    assert encode_request(command, 77) == encode_frame(Command(34, {"a": "b"}, opaque=77))
    assert command.opaque == 77


def test_a_frame_that_no_server_takes_is_refused() -> None:
    request = SendRequest(SendTemplate("g", QUEUE), bytes(17 << 20), "", 0)
    with pytest.raises(LocalError, match=r"<request code=310 .* makes a frame of \d+ bytes.*16 MiB"):
        request.frame(1)


def test_its_text_shows_no_values() -> None:
    request = SendRequest(SendTemplate("g", QUEUE), b"payload", "key\x01s3cret\x02", 0, batch=True)
    assert repr(request) == "<request code=320 body=7 B>"


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize(
    "message",
    [
        Message(b"x"),
        Message(b"x", tags="tag", keys=("k1", "k\u00e9y"), properties={"a": "\U0001f600"}, sharding_key="s"),
        Message(b"x", delay_level=3),
        Message(b"x", deliver_at_ms=1_700_000_000_000),
    ],
)
def test_properties_as_text_are_the_stored_form(message: Message, implementation: str) -> None:
    with using(implementation):
        assert properties_text(message, "ID").encode() == encode_properties(message, message_id="ID")


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(b"x", tags="\x01"), "separator"),
        (Message(b"x", properties={"KEYS": "a"}), "reserved"),
        (Message(b"x", delay_level=99), "delay_level"),
        (Message(b"x", properties={"a": "v" * 32_000}), "32000"),
    ],
)
def test_properties_that_may_not_be_sent_are_refused(message: Message, reason: str, implementation: str) -> None:
    with using(implementation), pytest.raises(LocalError, match=reason):
        properties_text(message, "ID")
