"""Half messages, their commits and rollbacks, and the broker's checks (EndTransactionProcessor.java).

A broker keeps a half message in a system topic, invisible to consumers until it is told to commit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from rmqio.errors import CorruptMessage, WireError
from rmqio.model import Record, SendResult
from rmqio.wire.codes import CommandFlag, RequestCode
from rmqio.wire.command import Command
from rmqio.wire.messages.stored import decode_records

PREPARED: Final = 0x4
"""System flag of a half message. Requires `half_properties`: without them the broker acknowledges and loses it."""


class Decision(Enum):
    """The decision on a half message. The values are the protocol's."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0
    """Not decided yet: the broker asks again."""


class HalfMessage(NamedTuple):
    """The place of a half message in a broker. It moves with each check: the newest position is the one to end."""

    topic: str
    """The broker's name for it."""
    message_id: str
    queue_offset: int
    commit_log_offset: int


def half_properties(group: str) -> Mapping[str, str]:
    """Return the properties that make a message a half message of a producer group (as the broker names it)."""
    return {"TRAN_MSG": "true", "PGROUP": group}


def stored_half(topic: str, result: SendResult) -> HalfMessage:
    """Return the position of a half message stored by a send with `PREPARED`. Raises `WireError` for a malformed id."""
    try:
        commit_log_offset = int(result.offset_message_id[-16:], 16)
    except ValueError as error:
        raise WireError(f"half message {result.message_id}: the broker returned no offset message id") from error
    return HalfMessage(topic, result.message_id, result.queue_offset, commit_log_offset)


def end_transaction(group: str, half: HalfMessage, decision: Decision, *, from_check: bool) -> Command:
    """End a half message at the broker that keeps it. Not idempotent: two commits create two messages.

    With `UNKNOWN` it is one-way: the broker never answers it.
    """
    ext = {
        "topic": half.topic,
        "producerGroup": group,
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.commit_log_offset),
        "commitOrRollback": str(decision.value),
        "fromTransactionCheck": "true" if from_check else "false",
        "msgId": half.message_id,
        "transactionId": half.message_id,
    }
    flag = CommandFlag.ONEWAY if decision is Decision.UNKNOWN else 0
    return Command(RequestCode.END_TRANSACTION, ext, flag=int(flag))


def parse_check(command: Command) -> tuple[HalfMessage, Record]:
    """Return the half message of a pushed CHECK_TRANSACTION_STATE: its current position and its content."""
    ext = command.ext
    try:
        queue_offset, commit_log_offset = int(ext["tranStateTableOffset"]), int(ext["commitLogOffset"])
    except (KeyError, ValueError) as error:
        raise WireError(f"check of a transaction: an offset is missing or not a number: {error}") from error
    decoded = decode_records(command.body, broker=ext.get("bname", ""))
    if decoded.corrupt:
        raise decoded.corrupt[0]
    if len(decoded.records) != 1:
        raise CorruptMessage(f"check of a transaction with {len(decoded.records)} messages", raw=command.body)
    record = decoded.records[0]
    message_id = ext.get("transactionId") or ext.get("msgId") or record.message_id
    return HalfMessage(record.topic, message_id, queue_offset, commit_log_offset), record
