"""Builds requests and parses answers. Field names and their quirks are those of RocketMQ's header classes."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from rmqio.errors import CorruptMessage, LocalError, SubscriptionGroupNotExist, WireError, broker_error
from rmqio.model import (
    BrokerData,
    MessageFilter,
    MessageQueue,
    PullResult,
    PullStatus,
    QueueData,
    Record,
    SendResult,
    SendStatus,
    TopicRoute,
)
from rmqio.wire import stored
from rmqio.wire.command import Command, CommandFlag, PullFlag, RequestCode, ResponseCode
from rmqio.wire.stored import Decoded, Room, decode_records

# Half messages, their commits and rollbacks, and the broker's checks (EndTransactionProcessor.java).
#
# A broker keeps a half message in a system topic, invisible to consumers until it is told to commit it.

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


# Requests for single messages: by a key of the broker's index, and by the position in the commit log.

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


# Recalls a message that waits for its delivery time (RecallMessageProcessor.java, RecallMessageHandle.java).

_HANDLE_VERSION = "v1"
_PARTS = 5
"""Version, topic, broker, time, unique id."""


def broker_of_handle(handle: str) -> str:
    """Return the name of the broker of a recall handle. Raises `LocalError` for an invalid handle."""
    try:
        parts = base64.b64decode(handle.encode(), altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeError, AttributeError, ValueError) as error:
        raise LocalError(f"recall handle {handle!r} is invalid: {error}") from error
    if len(parts) != _PARTS or parts[0] != _HANDLE_VERSION:
        raise LocalError(f"recall handle {handle!r} is invalid, or has an unknown version")
    return parts[2]


def recall(group: str, topic: str, handle: str, broker: str) -> Command:
    """Return the request to recall the message of a handle at the handle's broker."""
    ext = {"producerGroup": group, "topic": topic, "recallHandle": handle, "bname": broker}
    return Command(RequestCode.RECALL_MESSAGE, ext)


# ---- name server ----------------------------------------------------------------------------------------------------


def get_route(topic: str) -> Command:
    """Request a topic's route. The flag asks for standard JSON: without it, broker ids are bare integer keys."""
    return Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})


def parse_route(topic: str, answer: Command) -> TopicRoute:
    """Return the route. Raises `TopicNotExist` or another `BrokerError`, and `WireError` for an invalid body."""
    expect_success(answer, f"route of topic {topic!r}")
    body = _json_object(answer.body, "route")
    try:
        queues = tuple(
            QueueData(str(q["brokerName"]), int(q["readQueueNums"]), int(q["writeQueueNums"]), int(q["perm"]))
            for q in body.get("queueDatas") or ()
        )
        brokers = {
            str(b["brokerName"]): BrokerData(
                str(b["brokerName"]),
                str(b.get("cluster") or ""),
                {int(number): str(address) for number, address in (b.get("brokerAddrs") or {}).items()},
            )
            for b in body.get("brokerDatas") or ()
        }
        logical = stored.owners(body)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise WireError(f"route of topic {topic!r} is malformed: {error!r}") from error
    return TopicRoute(topic, queues, brokers, order_conf=body.get("orderTopicConf"), logical=logical)


def get_topic_list() -> Command:
    """Request all topics of a name server."""
    return Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


def parse_topic_list(answer: Command) -> list[str]:
    """Return the topic names, sorted, including RocketMQ's own."""
    expect_success(answer, "list of topics")
    topics = _json_object(answer.body, "list of topics").get("topicList") or []
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise WireError("list of topics is malformed: topicList is not a list of strings")
    return sorted(topics)


_BARE_KEY = re.compile(rb"([{,])(\d+):")


def get_cluster_info() -> Command:
    """Request all brokers that a name server knows."""
    return Command(RequestCode.GET_BROKER_CLUSTER_INFO)


def parse_cluster_info(answer: Command) -> list[BrokerData]:
    """Return the brokers, sorted by name."""
    expect_success(answer, "cluster info")
    # 5.5.0's name server writes broker ids as bare integer keys here, whatever version the client states.
    body = _BARE_KEY.sub(rb'\1"\2":', answer.body)
    table = _json_object(body, "cluster info").get("brokerAddrTable") or {}
    try:
        return [
            BrokerData(name, str(b.get("cluster") or ""), {int(k): str(v) for k, v in b["brokerAddrs"].items()})
            for name, b in sorted(table.items())
        ]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise WireError(f"cluster info is malformed: {error!r}") from error


# ---- offsets --------------------------------------------------------------------------------------------------------


def get_max_offset(queue: MessageQueue) -> Command:
    """Request one past the newest visible offset. Unknown topics and queues answer 0 with success: check the route."""
    return Command(RequestCode.GET_MAX_OFFSET, _queue(queue))


def get_min_offset(queue: MessageQueue) -> Command:
    """Request the oldest offset that retention has left; has the same trap as `get_max_offset`."""
    return Command(RequestCode.GET_MIN_OFFSET, _queue(queue))


def search_offset(queue: MessageQueue, timestamp_ms: int) -> Command:
    """Request the first offset at or after a time (by store time); the maximum offset when there is none."""
    ext = _queue(queue) | {"timestamp": str(timestamp_ms), "boundaryType": "LOWER"}
    return Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)


def parse_offset(answer: Command, what: str) -> int:
    """Return the number in the answer to an offset request."""
    expect_success(answer, what)
    return _ext_int(answer, "offset", what)


def query_group_offset(group: str, queue: MessageQueue) -> Command:
    """Request a group's committed offset. Without `setZeroIfNotFound=false` an unknown group's can be 0."""
    ext = _queue(queue) | {"consumerGroup": group, "setZeroIfNotFound": "false"}
    return Command(RequestCode.QUERY_CONSUMER_OFFSET, ext)


def parse_group_offset(answer: Command, group: str) -> int | None:
    """Return the committed offset; None when the group has none."""
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    what = f"offset of group {group!r}"
    expect_success(answer, what)
    return _ext_int(answer, "offset", what)


def commit_group_offset(group: str, queue: MessageQueue, offset: int) -> Command:
    """Set a group's offset. The broker checks nothing: offsets before or beyond the current range are accepted."""
    ext = _queue(queue) | {"consumerGroup": group, "commitOffset": str(offset)}
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


RESET_PENDING_REMARK = "Offset has been previously reset"


def is_ignored_commit(answer: Command) -> bool:
    """Return whether a commit answered with success was in fact ignored because an operator's reset is pending."""
    return answer.code == ResponseCode.SUCCESS and (answer.remark or "").startswith(RESET_PENDING_REMARK)


# ---- pull -----------------------------------------------------------------------------------------------------------


def pull(
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    max_messages: int,
    message_filter: MessageFilter,
    suspend_ms: int = 0,
) -> Command:
    """Request messages from an offset on; with `suspend_ms` > 0 the broker can hold the request until one arrives.

    The subscription is part of the request, so that no consumer heartbeat is needed (with one, the broker would share
    the topic's queues with us). Code 11, not 361: brokers can disable that one.
    """
    flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if suspend_ms > 0 else 0)
    ext = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "bname": queue.broker,
        "queueOffset": str(offset),
        "maxMsgNums": str(max_messages),
        "sysFlag": str(int(flags)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subscription": "*" if message_filter.is_all else message_filter.expression,
        "subVersion": "0",
        "expressionType": "SQL92" if message_filter.sql else "TAG",
    }
    return Command(RequestCode.PULL_MESSAGE, ext)


_PULL_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MESSAGE,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCH,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


def parse_pull(answer: Command, queue: MessageQueue, offset: int) -> PullResult:
    """Return the result of a pull. Raises `BrokerError`, `WireError`, and `CorruptMessage` for lost framing."""
    status = _PULL_STATUS.get(answer.code)
    if status is None:
        remark = answer.remark
        if answer.code == SubscriptionGroupNotExist.number:
            # With autoCreateSubscriptionGroup=false, a broker knows only the groups that an operator has made.
            remark = f"{remark}; pulls need it (pull_group): mqadmin updateSubGroup -c CLUSTER -g GROUP creates it"
        raise broker_error(answer.code, remark, f"pull of {queue} at {offset}")
    ext = answer.ext
    try:
        next_offset, suggested = int(ext["nextBeginOffset"]), int(ext["suggestWhichBrokerId"])
        minimum, maximum = int(ext["minOffset"]), int(ext["maxOffset"])
        delta = stored.offset_delta(queue, ext)
    except (KeyError, ValueError) as error:
        raise WireError(f"pull of {queue} at {offset}: an offset is missing or not a number: {error}") from error
    room = Room()
    decoded = decode_records(
        answer.body if status is PullStatus.FOUND else b"",
        broker=queue.broker,
        min_offset=offset - delta,
        topic=queue.topic,
        queue_id=queue.queue_id,
        room=room,
    )
    next_offset = room.behind(offset, next_offset, delta)
    if stored.is_logical(queue):
        decoded = stored.as_logical(decoded, queue, delta)
    is_border = stored.is_border(queue, status, next_offset, minimum)
    return PullResult(
        status, next_offset, minimum, maximum, decoded.records, decoded.corrupt, suggested, answer.remark, is_border,
        room.used_bytes,
    )  # fmt: skip


def check_filter(client_id: str, group: str, topic: str, message_filter: MessageFilter) -> Command:
    """Have the broker compile a filter: it answers 23 on failure, where a pull would deliver everything instead."""
    subscription: dict[str, Any] = {
        "topic": topic,
        "subString": message_filter.expression,
        "expressionType": "SQL92" if message_filter.sql else "TAG",
        "tagsSet": [],
        "codeSet": [],
        "subVersion": 0,
        "classFilterMode": False,
    }
    body = {"clientId": client_id, "group": group, "subscriptionData": subscription}
    return Command(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(body).encode())


OFFSET_RESET_REMARK = "OFFSET_RESET"


def parse_reset(answer: Command) -> int | None:
    """Return the offset to which an operator has reset the group, if the answer to a pull contains it."""
    if answer.code == ResponseCode.PULL_OFFSET_MOVED and answer.remark == OFFSET_RESET_REMARK:
        return _ext_int(answer, "nextBeginOffset", "reset of an offset")
    return None


# ---- send -----------------------------------------------------------------------------------------------------------

AUTO_CREATE_TOPIC = "TBW102"


def send(
    group: str,
    queue: MessageQueue,
    body: bytes,
    *,
    properties: str = "",
    born_ms: int,
    sys_flag: int = 0,
    flag: int = 0,
    batch: bool = False,
    create_topic: bool = False,
    topic_queues: int = 4,
) -> Command:
    """Send one message, or an encoded batch (`batch=True`: that field decides, not the code).

    With `create_topic`, a missing topic is created from the broker's template if the broker permits it; with any other
    template name it answers 17.
    """
    ext = {
        "a": group,
        "b": queue.topic,
        "c": AUTO_CREATE_TOPIC if create_topic else "",
        "d": str(topic_queues),
        "e": str(queue.queue_id),
        "f": str(sys_flag),
        "g": str(born_ms),
        "h": str(flag),
        "i": properties,
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "true" if batch else "false",
        "n": queue.broker,
    }
    return Command(RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2, ext, body)


_SEND_STATUS = {status.value: status for status in SendStatus}


def parse_send(answer: Command, what: object) -> tuple[SendStatus, int, int, list[str]]:
    """As `parse_stored`, with the offset message ids as a list: one per message of a batch."""
    status, queue_id, first_offset, ids = parse_stored(answer, what)
    return status, queue_id, first_offset, ids.split(",") if ids else []


def parse_stored(answer: Command, what: object) -> tuple[SendStatus, int, int, str]:
    """Return the status, queue id, first queue offset and offset message ids, separated by commas.

    `what` is used in error messages.

    Codes 10, 11 and 12 are not failures: the message is stored, but its flush or copy was not confirmed in time.
    """
    status = _SEND_STATUS.get(answer.code)
    if status is None:
        raise broker_error(answer.code, answer.remark, str(what))
    return (
        status,
        _ext_int(answer, "queueId", what),
        _ext_int(answer, "queueOffset", what),
        answer.ext.get("msgId") or "",
    )


# ---- topics and membership ------------------------------------------------------------------------------------------


def create_topic(
    topic: str,
    *,
    read_queues: int = 4,
    write_queues: int = 4,
    permission: int = 6,
    attributes: Mapping[str, str] | None = None,
) -> Command:
    """Create or change a topic on one broker. Attributes are set with a leading plus, as the broker requires."""
    ext = {
        "topic": topic,
        "defaultTopic": AUTO_CREATE_TOPIC,
        "readQueueNums": str(read_queues),
        "writeQueueNums": str(write_queues),
        "perm": str(permission),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": ",".join(f"+{name}={value}" for name, value in (attributes or {}).items()),
    }
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


def delete_topic_in_broker(topic: str) -> Command:
    """Delete a topic's queues on one broker."""
    return Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


def delete_topic_in_name_server(topic: str) -> Command:
    """Delete a topic's route at one name server."""
    return Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})


def reset_group_offset(group: str, queue: MessageQueue, offset: int) -> Command:
    """Reset one queue as an operator does: the group's first pull gets the offset; until then commits are ignored."""
    ext = {
        "topic": queue.topic,
        "group": group,
        "queueId": str(queue.queue_id),
        "offset": str(offset),
        "timestamp": "-1",
        "isForce": "true",
    }
    return Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)


def producer_heartbeat(client_id: str, groups: list[str]) -> Command:
    """Register producers of these groups at a broker. Never sent as a consumer."""
    body = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": group} for group in groups],
        "consumerDataSet": [],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }
    return Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


# ---- helpers --------------------------------------------------------------------------------------------------------


def expect_success(answer: Command, what: str) -> None:
    """Raise the `BrokerError` of an answer's code unless it is success. A remark alone is never an error."""
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, what)


def _queue(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker}  # a proxy forwards by name


def _ext_int(answer: Command, name: str, what: object) -> int:
    try:
        return int(answer.ext[name])
    except (KeyError, ValueError) as error:
        raise WireError(f"{what}: the answer's field {name} is missing or not a number") from error


def _json_object(body: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{what}: the answer's body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise WireError(f"{what}: the answer's body is a JSON {type(value).__name__}, not an object")
    return value
