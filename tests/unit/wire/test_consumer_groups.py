"""The tables of consumer groups, as a 5.5.0 broker writes them, and malformed ones."""

from __future__ import annotations

import pytest

from rmqio.errors import NoPermission, WireError
from rmqio.wire.admin_requests import get_groups, get_offsets, parse_groups, parse_offset_topics
from rmqio.wire.command import Command

GROUPS = b'{"dataVersion":{"counter":0},"forbiddenTable":{},"subscriptionGroupTable":{"a":{"attributes":{}},"b":{}}}'
OFFSETS = (
    b'{"dataVersion":{"counter":0},"groupTopicMap":{},"offsetTable":{"orders@billing":{0:12,1:0},"orders@audit":{0:1},'
    b'"%RETRY%billing@billing":{0:0},"nonsense":{}},"pullOffsetTable":{}}'
)


def test_requests() -> None:
    assert (get_groups().code, get_offsets().code) == (201, 43)


def test_groups() -> None:
    assert parse_groups(Command(0, body=GROUPS), "x").keys() == {"a", "b"}
    assert parse_groups(Command(0, body=b'{"subscriptionGroupTable":null}'), "x") == {}


def test_topics_of_offsets_whose_queues_are_no_json_keys() -> None:
    found = parse_offset_topics(Command(0, body=OFFSETS), "x")
    assert found == {"billing": {"orders", "%RETRY%billing"}, "audit": {"orders"}}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b'{"offsetTable":[1],"subscriptionGroupTable":[1]}', b"\xff"])
def test_a_malformed_answer_is_reported(body: bytes) -> None:
    for parse in (parse_groups, parse_offset_topics):
        with pytest.raises(WireError, match=r"^x: "):
            parse(Command(0, body=body), "x")
        with pytest.raises(NoPermission):
            parse(Command(16, body=body), "x")
