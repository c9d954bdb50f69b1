"""Topics, routes and queues."""

from __future__ import annotations

import uuid

import pytest

from rmqio.client.admin import Admin
from rmqio.errors import LocalError, TopicNotExist
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command, RequestCode
from tests.contract.support import Backend


def test_queues_are_those_of_the_topic_sorted(backend: Backend) -> None:
    topic = backend.topic(queues=3)
    expected = [MessageQueue(topic, "broker-a", i) for i in range(3)]
    assert list(backend.client().queues(topic)) == expected
    assert list(backend.producer().queues(topic)) == expected


def test_an_unknown_topic_raises_and_is_not_made(backend: Backend) -> None:
    missing = f"missing-{uuid.uuid4().hex}"
    client, producer = backend.client(), backend.producer()
    queue = MessageQueue(missing, "broker-a", 0)
    for ask in (
        lambda: client.queues(missing),
        lambda: client.min_offset(queue),
        lambda: client.max_offset(queue),
        lambda: client.offset_for_time(queue, 0),
        lambda: client.committed_offset("group", queue),
        lambda: client.commit_offset("group", queue, 1),
        lambda: client.open_reader(queue, 0, message_filter=MessageFilter()),
        lambda: producer.queues(missing),
        lambda: producer.send(Message(b"x", topic=missing)),
    ):
        with pytest.raises(TopicNotExist):
            ask()
    assert missing not in client.topics()


def test_an_unknown_queue_of_a_known_topic_is_misuse(backend: Backend) -> None:
    client = backend.client()
    beyond = MessageQueue(backend.topic(queues=2), "broker-a", 2)
    with pytest.raises(LocalError):
        client.max_offset(beyond)
    with pytest.raises(LocalError):
        client.open_reader(beyond, 0, message_filter=MessageFilter())


def test_topics_are_the_users_only(backend: Backend) -> None:
    topic = backend.topic()
    topics = backend.client().topics()
    assert topic in topics
    assert list(topics) == sorted(topics)
    for system in ("TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"):
        assert system not in topics
    assert not [name for name in topics if name.startswith(("RMQ_SYS", "rmq_sys", "%RETRY%"))]


def test_the_broker_answers_zero_for_what_it_does_not_have(server: Backend) -> None:
    """The trap behind the checks above: success, and 0."""
    queue = MessageQueue(f"missing-{uuid.uuid4().hex}", "broker-a", 0)
    for command in (
        requests.get_max_offset(queue),
        requests.get_min_offset(queue),
        requests.search_offset(queue, 1_700_000_000_000),
    ):
        answer = server.ask(command)
        assert (answer.code, answer.ext["offset"]) == (0, "0")


def test_queues_added_to_a_topic_are_found(server: Backend) -> None:
    topic = server.topic(queues=1)
    client = server.client()
    assert len(client.queues(topic)) == 1
    with Admin(ClientOptions(server.name_server)) as admin:
        admin.create_topic(topic, queues=3)
    # A client asked for a queue that its route does not have looks again.
    assert client.max_offset(MessageQueue(topic, "broker-a", 2)) == 0
    assert len(client.queues(topic)) == 3


def test_cluster_info_is_no_json_and_is_read_all_the_same(server: Backend) -> None:
    answer = server.ask_name_server(requests.get_cluster_info())
    assert b"{0:" in answer.body
    (broker,) = requests.parse_cluster_info(answer)
    assert broker.broker == "broker-a"
    assert broker.master == server.broker_address()


def test_an_unknown_request_code_is_refused(server: Backend) -> None:
    assert server.ask(Command(31_999)).code == 3
    assert server.ask_name_server(Command(31_999)).code == 3


def test_a_one_way_request_is_not_answered_and_the_next_one_is(server: Backend) -> None:
    oneway = requests.producer_heartbeat("contract", ["contract-producers"])
    oneway.flag = 2
    connection = server.connect(server.broker_address())
    call = connection.start(oneway)
    answer = server.ask(requests.producer_heartbeat("contract", ["contract-producers"]))
    assert answer.code == 0
    assert not call.is_done
    call.forget()


def test_a_topic_attribute_without_its_plus_is_refused(server: Backend) -> None:
    command = requests.create_topic(f"contract-{uuid.uuid4().hex}")
    command.ext = {**command.ext, "attributes": "message.type=NORMAL"}
    assert server.ask(command).code == 1
    assert command.code == RequestCode.UPDATE_AND_CREATE_TOPIC
