"""Half messages, their end, and what a broker asks about them (EndTransactionProcessor.java).

A broker keeps a half message in a system topic and shows it to nobody until it is told to commit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from rmqio.errors import CorruptMessage, WireError
from rmqio.model import Record, SendResult
from rmqio.wire.codes import CommandFlag, RequestCode
from rmqio.wire.command import Command
from rmqio.wire.stored import decode_records

PREPARED: Final = 0x4
"""System flag of a half message. Never without `half_properties`: the broker acknowledges such a one and loses it."""


class Decision(Enum):
    """What is to become of a half message. The values are the protocol's."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0
    """Not decided yet: the broker asks again."""


class HalfMessage(NamedTuple):
    """Where a broker keeps a half message. It moves with each check: the newest place is the one to end."""

    topic: str
    """As the broker names it."""
    message_id: str
    queue_offset: int
    commit_log_offset: int


def half_properties(group: str) -> Mapping[str, str]:
    """The properties that make a message a half message of a producer group (as the broker names it)."""
    return {"TRAN_MSG": "true", "PGROUP": group}


def stored_half(topic: str, result: SendResult) -> HalfMessage:
    """Where the half message is that a send with `PREPARED` has stored. Raises `WireError` for a malformed id."""
    try:
        commit_log_offset = int(result.offset_message_id[-16:], 16)
    except ValueError as error:
        raise WireError(f"half message {result.message_id}: the broker gave no offset message id") from error
    return HalfMessage(topic, result.message_id, result.queue_offset, commit_log_offset)


def end_transaction(group: str, half: HalfMessage, decision: Decision, *, from_check: bool) -> Command:
    """Decide over a half message, at the broker that keeps it. Not idempotent: two commits give two messages.

    With `UNKNOWN` it is one-way: the broker never answers that.
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
    """The half message that a pushed CHECK_TRANSACTION_STATE asks about: where it is now, and what it says.

    Raises `WireError`, and `CorruptMessage` for a message that does not decode.
    """
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
