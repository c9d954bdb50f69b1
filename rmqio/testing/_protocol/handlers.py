"""Answers of a name server and a broker, including their traps. Pure except for the cluster: commands in and out.

The behavior pinned here was seen on a 5.5.0 broker; tests/contract runs the same tests against a real one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from rmqio.model import READ_PERMISSION, WRITE_PERMISSION, MessageQueue
from rmqio.testing._protocol.pull import pull
from rmqio.testing._protocol.send import send
from rmqio.testing._protocol.settings import BrokerSettings
from rmqio.testing._storage import StoredQueue
from rmqio.testing.cluster import InMemoryCluster
from rmqio.wire.command import Command, RequestCode, ResponseCode
from rmqio.wire.requests import AUTO_CREATE_TOPIC, RESET_PENDING_REMARK

CLUSTER = "DefaultCluster"
SYSTEM_TOPICS = (
    "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_wheel_timer", CLUSTER,
)  # fmt: skip


class NameServerHandlers:
    """Answers of the name server; `addresses` returns the brokers' current `host:port`."""

    def __init__(
        self, cluster: InMemoryCluster, addresses: Callable[[], Mapping[str, str]], settings: BrokerSettings
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._addresses = addresses

    def __call__(self, request: Command) -> Command:
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return self._route(request.ext["topic"])
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            table = {name: self._broker(name) for name in self._addresses()}
            answer = _json({"brokerAddrTable": table, "clusterAddrTable": {CLUSTER: sorted(table)}})
            # Seen on 5.5.0: broker ids are bare integer keys here, which is invalid JSON, whatever the client's
            # version.
            answer.body = answer.body.replace(b'"0":', b"0:")
            return answer
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            topics = {*self._cluster.topic_names(), *SYSTEM_TOPICS, *self._addresses()}
            if self._settings.auto_create_topics:
                topics.add(AUTO_CREATE_TOPIC)
            return _json({"topicList": sorted(topics)})
        if request.code == RequestCode.DELETE_TOPIC_IN_NAMESRV:
            return Command(ResponseCode.SUCCESS)
        return not_supported(request)

    def _broker(self, name: str) -> dict[str, object]:
        return {"cluster": CLUSTER, "brokerName": name, "brokerAddrs": {"0": self._addresses()[name]}}

    def _route(self, topic: str) -> Command:
        with self._cluster.changed:
            if topic == AUTO_CREATE_TOPIC and self._settings.auto_create_topics:  # the template exists on every broker
                return self._route_answer(dict.fromkeys(self._addresses(), (8, 7)))
            if topic not in self._cluster.topic_names():
                return Command(
                    ResponseCode.TOPIC_NOT_EXIST, remark=f"No topic route info in name server for the topic: {topic}"
                )
            stored = self._cluster.stored_topic(topic)
            return self._route_answer(
                {
                    name: (sum(queue.broker == name for queue in stored.queues), permission)
                    for name, permission in stored.permission.items()
                }
            )

    def _route_answer(self, brokers: Mapping[str, tuple[int, int]]) -> Command:
        queues = [
            {"brokerName": name, "readQueueNums": count, "writeQueueNums": count, "perm": perm, "topicSysFlag": 0}
            for name, (count, perm) in brokers.items()
        ]
        known = [self._broker(name) for name in brokers if name in self._addresses()]
        return _json({"queueDatas": queues, "brokerDatas": known, "filterServerTable": {}})


class BrokerHandlers:
    """Answers of one broker, named `name`, listening on `port`."""

    def __init__(self, cluster: InMemoryCluster, name: str, port: int, settings: BrokerSettings) -> None:
        self._cluster = cluster
        self._name = name
        self._table: dict[int, Callable[[Command], Command]] = {
            RequestCode.PULL_MESSAGE: lambda request: pull(cluster, name, settings, request),
            RequestCode.SEND_MESSAGE_V2: lambda request: send(cluster, name, port, settings, request),
            RequestCode.SEND_BATCH_MESSAGE: lambda request: send(cluster, name, port, settings, request),
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit_offset,
            RequestCode.GET_MAX_OFFSET: lambda request: self._offset(request, lambda stored: stored.end),
            RequestCode.GET_MIN_OFFSET: lambda request: self._offset(request, lambda stored: stored.minimum),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_filter,
            RequestCode.UNREGISTER_CLIENT: lambda request: Command(ResponseCode.SUCCESS),
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset_offset,
        }

    def __call__(self, request: Command) -> Command:
        handler = self._table.get(request.code)
        if handler is None:
            return not_supported(request)
        with self._cluster.changed:
            try:
                return handler(request)
            except (KeyError, ValueError) as error:
                # On a real broker, a missing field is a NullPointerException, a malformed one a NumberFormatException.
                return Command(1, remark=f"java.lang.NullPointerException: {error!r}")

    def _queue(self, request: Command) -> MessageQueue:
        return MessageQueue(request.ext["topic"], self._name, int(request.ext["queueId"]))

    def _find(self, queue: MessageQueue) -> StoredQueue | None:
        if queue.topic not in self._cluster.topic_names():
            return None
        return self._cluster.stored_topic(queue.topic).queues.get(queue)

    def _offset(self, request: Command, pick: Callable[[StoredQueue], int]) -> Command:
        stored = self._find(self._queue(request))
        # The trap: an unknown topic or queue is answered with success and 0.
        return _offset(0 if stored is None else pick(stored))

    def _search_offset(self, request: Command) -> Command:
        queue, timestamp_ms = self._queue(request), int(request.ext["timestamp"])
        stored = self._find(queue)
        if stored is None:
            return _offset(0)
        if request.ext.get("boundaryType", "LOWER").upper() == "UPPER":
            upper = self._cluster.offset_for_time(queue, timestamp_ms + 1) - 1
            return _offset(min(max(upper, stored.minimum), stored.end))
        return _offset(self._cluster.offset_for_time(queue, timestamp_ms))

    def _query_offset(self, request: Command) -> Command:
        queue = self._queue(request)
        offset = self._cluster.committed(request.ext["consumerGroup"], queue)
        if offset is not None and offset >= 0:
            return _offset(offset)
        stored = self._find(queue)
        # The trap: by default, a group never seen starts at 0 while message 0 still exists.
        if request.ext.get("setZeroIfNotFound") != "false" and (stored is None or stored.minimum <= 0):
            return _offset(0)
        return Command(ResponseCode.QUERY_NOT_FOUND, remark="Not found, maybe this group consumer boot first")

    def _commit_offset(self, request: Command) -> Command:
        queue, group = self._queue(request), request.ext["consumerGroup"]
        offset = int(request.ext["commitOffset"])
        if queue.topic not in self._cluster.topic_names():
            return Command(ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {queue.topic} not exist!")
        if group not in self._cluster.groups:
            return Command(26, remark=f"Group {group} not exist!")
        done = self._cluster.commit(group, queue, offset)
        return Command(ResponseCode.SUCCESS, remark=None if done else RESET_PENDING_REMARK)

    def _heartbeat(self, request: Command) -> Command:
        for consumer in json.loads(request.body).get("consumerDataSet") or ():
            self._cluster.groups.add(consumer["groupName"])
        return Command(ResponseCode.SUCCESS, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})

    def _check_filter(self, request: Command) -> Command:
        subscription = json.loads(request.body)["subscriptionData"]
        expression = subscription["subString"]
        if subscription.get("expressionType", "TAG") == "TAG" or expression in self._cluster.predicates:
            return Command(ResponseCode.SUCCESS)
        return Command(23, remark=f"{expression!r} does not compile: define its meaning with define_sql()")

    def _create_topic(self, request: Command) -> Command:
        ext = request.ext
        attributes = ext.get("attributes") or ""
        if any(not item.startswith(("+", "-")) for item in attributes.split(",") if item):
            return Command(1, remark="java.lang.RuntimeException: Operating symbol missing in attributes")
        permission = int(ext["perm"])
        queues = max(int(ext["readQueueNums"]), int(ext["writeQueueNums"]))
        if permission & (READ_PERMISSION | WRITE_PERMISSION):
            self._cluster.create_topic(ext["topic"], queues, (self._name,), permission=permission)
        return Command(ResponseCode.SUCCESS)

    def _delete_topic(self, request: Command) -> Command:
        self._cluster.delete_topic(request.ext["topic"])
        return Command(ResponseCode.SUCCESS)

    def _reset_offset(self, request: Command) -> Command:
        self._cluster.reset_group(request.ext["group"], self._queue(request), int(request.ext["offset"]))
        return Command(ResponseCode.SUCCESS)


def not_supported(request: Command) -> Command:
    """Return the answer to an unknown request code."""
    return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {request.code} not supported")


def _offset(value: int) -> Command:
    return Command(ResponseCode.SUCCESS, {"offset": str(value)})


def _json(value: object) -> Command:
    return Command(ResponseCode.SUCCESS, body=json.dumps(value).encode())
