"""Builds requests and parses answers. Field names and their quirks are those of RocketMQ's header classes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rmqio.errors import SubscriptionGroupNotExist, WireError, broker_error
from rmqio.model import (
    BrokerData,
    MessageFilter,
    MessageQueue,
    PullResult,
    PullStatus,
    QueueData,
    SendStatus,
    TopicRoute,
)
from rmqio.wire import static_topics
from rmqio.wire.codes import PullFlag, RequestCode, ResponseCode
from rmqio.wire.command import Command
from rmqio.wire.messages.stored import Room, decode_records

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
        logical = static_topics.owners(body)
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
        delta = static_topics.offset_delta(queue, ext)
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
    if static_topics.is_logical(queue):
        decoded = static_topics.as_logical(decoded, queue, delta)
    is_border = static_topics.is_border(queue, status, next_offset, minimum)
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
