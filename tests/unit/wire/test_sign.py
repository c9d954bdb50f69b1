"""Signatures: the vectors of Java's client, and templates against the general way."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rmqio.model import MessageFilter, MessageQueue
from rmqio.security import Credentials
from rmqio.wire import requests
from rmqio.wire.command import Command, FrameDecoder, RequestCode, encode_frame
from rmqio.wire.templates import PullTemplate, SendRequest, SendTemplate, encode_request, signed

ROOT = Credentials("root", "rootpw")
QUEUE = MessageQueue("orders", "broker-a", 3)
HOSTILE = ["", "100%d %s %% %b", '"f":"" "i":"" "opaque":0', "}}", "\u00e9\U0001f600\\\n\0\x01\x7f", '"quoted"']
texts = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
credentials = st.builds(Credentials, texts.filter(bool), texts.filter(bool), st.none() | texts)


def decoded(frame: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.receive_data(frame)
    command = decoder.next_command()
    assert command is not None
    return command


def test_the_vectors_of_javas_client() -> None:
    command = Command(105, {"topic": "a1", "queueId": "0"})
    assert signed(command, ROOT).ext == {
        "topic": "a1",
        "queueId": "0",
        "AccessKey": "root",
        "Signature": "W5YYqgwSLz7oBEUkIFNp1CWupRI=",
    }
    command.body = b"BODY"
    assert signed(command, ROOT).ext["Signature"] == "d75GGuagHqq1n6X8xaSjPVBRKcE="
    assert "AccessKey" not in command.ext


def test_a_request_without_fields_is_signed_too() -> None:
    found = decoded(encode_request(Command(RequestCode.GET_BROKER_CLUSTER_INFO), 7, ROOT))
    assert sorted(found.ext) == ["AccessKey", "Signature"]
    assert found.opaque == 7


def test_the_security_token_is_part_of_what_is_signed() -> None:
    command = Command(105, {"topic": "a1"})
    with_token = signed(command, Credentials("root", "rootpw", "token"))
    assert with_token.ext["SecurityToken"] == "token"
    assert with_token.ext["Signature"] != signed(command, ROOT).ext["Signature"]


@given(texts, texts, texts, credentials, st.booleans(), st.integers(0, 2**31 - 1), st.binary(max_size=50))
def test_a_send_from_a_template_is_signed_like_the_request_that_it_stands_for(
    group: str, topic: str, properties: str, who: Credentials, batch: bool, sys_flag: int, body: bytes
) -> None:
    queue = MessageQueue(topic, "broker-a", 3)
    values: dict[str, Any] = {"properties": properties, "born_ms": 17, "sys_flag": sys_flag, "batch": batch}
    frame = encode_request(SendRequest(SendTemplate(group, queue), body, **values), 7, who)
    expected = signed(requests.send(group, queue, body, **values), who)
    expected.opaque = 7
    assert decoded(frame) == expected == decoded(encode_frame(expected))


@given(texts, texts, credentials, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.booleans())
def test_a_pull_from_a_template_is_signed_like_the_request_that_it_stands_for(
    group: str, expression: str, who: Credentials, offset: int, count: int, is_held: bool
) -> None:
    wanted = MessageFilter(expression or "*")
    template = PullTemplate(group, QUEUE, message_filter=wanted, suspend_ms=15_000)
    suspend_ms = 15_000 if is_held else 0
    pull = requests.pull(group, QUEUE, offset, max_messages=count, message_filter=wanted, suspend_ms=suspend_ms)
    expected = signed(pull, who)
    expected.opaque = 7
    assert decoded(template.frame(7, offset, count, is_held, who)) == expected
