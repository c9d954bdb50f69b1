"""Requests for single messages: by a key of the broker's index, and by the position in the commit log."""

from __future__ import annotations

from typing import Final

from rmqio.errors import broker_error
from rmqio.wire.codes import ResponseCode
from rmqio.wire.command import Command
from rmqio.wire.messages.stored import Decoded, decode_records

QUERY_MESSAGE: Final = 12
VIEW_MESSAGE_BY_ID: Final = 33
_FOR_EVER_MS: Final = (1 << 63) - 1


def query_message(
    topic: str, key: str, *, is_unique_id: bool, most: int, begin_ms: int = 0, end_ms: int = _FOR_EVER_MS
) -> Command:
    """Ask for messages by a business key, or by the unique id (UNIQ_KEY).

    The index has hashes only, so other messages can be among the answers. For a unique id, the broker ignores `most`.
    """
    return Command(
        QUERY_MESSAGE,
        {
            "topic": topic,
            "key": key,
            "maxNum": str(most),
            "beginTimestamp": str(begin_ms),
            "endTimestamp": str(end_ms),
            "indexType": "U" if is_unique_id else "K",
            "_UNIQUE_KEY_QUERY": "true" if is_unique_id else "false",
        },
    )


def view_message(topic: str, commit_log_offset: int) -> Command:
    """Ask for the message at a position of the commit log. Another position is a wrong answer, or an error."""
    return Command(VIEW_MESSAGE_BY_ID, {"topic": topic, "offset": str(commit_log_offset)})


def parse_messages(answer: Command, broker: str, what: str) -> Decoded:
    """Return the messages of an answer, none if nothing was found. Raises `BrokerError`, and for lost framing."""
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return Decoded([], ())
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, what)
    return decode_records(answer.body, broker=broker)
