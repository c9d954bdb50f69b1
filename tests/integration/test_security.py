"""Access control and TLS with a real broker and name server: who may in, who may not, and what is said then."""

from __future__ import annotations

import logging
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqio.client import connection
from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.errors import LocalError, NoPermission, RmqioError, TransportError
from rmqio.interfaces import OffsetQuery
from rmqio.model import Message, MessageFilter, MessageQueue, Record
from rmqio.options import ClientOptions
from rmqio.security import Credentials, EnvironmentCredentials, FileCredentials, Security, Tls
from tests.helpers.client.raw_send import read_on, records_of
from tests.helpers.servers.guarded import ACCESS_KEY, SECRET, Guarded, credentials_file
from tests.helpers.waiting import until

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(guarded: Guarded) -> str:
    return guarded.create_topic(f"secured-{uuid.uuid4().hex[:12]}", queues=2)


def read(options: ClientOptions, topic: str, count: int = 0) -> list[Record]:
    """All that the topic holds as soon as it is so much, and the group's offset committed at its end.

    A broker shows messages a moment after it has acknowledged them.
    """
    found: list[Record] = []
    with closing(RemotingQueueClient(options)) as client:
        queues = client.queues(topic)

        def stored() -> int:
            return sum(client.max_offset(queue) for queue in queues)

        until(lambda: stored() >= count, f"{count} messages", progress=stored, details=stored)
        for queue in queues:
            end = client.max_offset(queue)
            reader = client.open_reader(queue, 0, message_filter=MessageFilter("*"))
            found += records_of(read_on(client, reader, end))
            client.commit_offset("a_group", queue, end)
            assert client.committed_offset("a_group", queue) == end
            reader.close()
    return found


def send(options: ClientOptions, topic: str, *bodies: bytes) -> None:
    with closing(RemotingProducer(options, "a_producer")) as producer:
        for body in bodies:
            producer.send(Message(body, topic=topic, tags="100%d", keys=("k\u00e9y",), properties={"a": "\u4e2d"}))


def test_with_credentials_and_tls_all_works(guarded: Guarded, topic: str) -> None:
    options = guarded.options()
    send(options, topic, b"one", b"two")
    with closing(RemotingProducer(options, "a_producer")) as producer:
        queue = producer.queues(topic)[0]
        producer.send_batch([Message(b"three"), Message(b"four")], queue)
        producer.submit([Message(b"%d of a batch" % n) for n in range(300)], queue).result()
    assert len(read(options, topic, 304)) == 304
    with closing(RemotingQueueClient(options)) as client:  # a look makes its connections without blocking
        queues = [MessageQueue(topic, queue.broker, number) for number in range(2)]
        ends = client.look_up([OffsetQuery(queue, "max") for queue in queues])
        assert sum(end for end in ends if isinstance(end, int)) == 304
        assert client.commit_offsets("a_group", dict.fromkeys(queues, 1)) == {}


def test_large_bodies_travel_through_tls(guarded: Guarded, topic: str) -> None:
    bodies = [bytes([n]) * 3_000_000 for n in range(4)]
    send(guarded.options(), topic, *bodies)
    assert sorted(record.body for record in read(guarded.options(), topic, 4)) == bodies


def test_credentials_of_the_environment(guarded: Guarded, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = guarded.options(Security(EnvironmentCredentials(), guarded.tls))
    with pytest.raises(LocalError, match="ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY not set"):
        send(options, topic, b"one")
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", ACCESS_KEY)
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)
    send(options, topic, b"one")
    assert len(read(options, topic, 1)) == 1


def test_a_security_token_is_signed_with_the_rest(guarded: Guarded, topic: str, tmp_path: Path) -> None:
    path = credentials_file(tmp_path / "with-token", ACCESS_KEY, SECRET, "a-token")
    options = guarded.options(replace(guarded.security, credentials=FileCredentials(path)))
    send(options, topic, b"one")
    assert len(read(options, topic, 1)) == 1


@pytest.mark.parametrize(
    ("access_key", "secret", "reason"),
    [(ACCESS_KEY, "wrong", "check signature failed"), ("nobody", SECRET, "User:nobody is not found")],
)
def test_wrong_credentials_are_refused_at_once(
    guarded: Guarded, topic: str, tmp_path: Path, access_key: str, secret: str, reason: str
) -> None:
    path = credentials_file(tmp_path / "wrong", access_key, secret)
    options = guarded.options(replace(guarded.security, credentials=FileCredentials(path)))
    with closing(RemotingProducer(options, "a_producer")) as producer:
        with pytest.raises(NoPermission, match=reason):
            producer.send(Message(b"x", topic=topic))
        assert producer.statistics.retries == 0
    with pytest.raises(NoPermission, match=reason):
        read(options, topic)


def test_new_credentials_in_the_file_are_taken_up(guarded: Guarded, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "rotated"
    source = FileCredentials(credentials_file(path, ACCESS_KEY, "wrong"))
    options = guarded.options(replace(guarded.security, credentials=source))
    with pytest.raises(NoPermission):
        send(options, topic, b"x")
    credentials_file(path, ACCESS_KEY, SECRET)
    send(options, topic, b"x")


def test_without_credentials_nothing_is_sent_or_read(guarded: Guarded, topic: str) -> None:
    options = guarded.options(Security(tls=guarded.tls))
    with pytest.raises(NoPermission, match="username cannot be null"):
        send(options, topic, b"x")
    with pytest.raises(NoPermission, match="username cannot be null"):
        read(options, topic)
    assert read(guarded.options(), topic) == []


def failure(options: ClientOptions, topic: str) -> RmqioError:
    with closing(RemotingQueueClient(options)) as client, pytest.raises(RmqioError) as raised:
        client.queues(topic)
    return raised.value


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ca_file": "other"}, "certificate is not valid.*see Tls.ca_file"),
        ({"ca_file": None}, "certificate is not valid.*see Tls.ca_file"),
        ({"server_name": "elsewhere.example.com"}, "not valid for 'elsewhere.example.com'.*Hostname mismatch"),
        ({"certificate_file": None}, "it requires a client certificate"),
    ],
    ids=["another authority", "the system's authorities", "another name", "without our certificate"],
)
def test_tls_that_does_not_prove_itself(guarded: Guarded, topic: str, changes: dict[str, Any], reason: str) -> None:
    if changes.get("ca_file") == "other":
        changes = {"ca_file": guarded.other_ca_file}
    tls = replace(guarded.tls, **changes)
    error = failure(guarded.options(replace(guarded.security, tls=tls), max_retries=0), topic)
    assert isinstance(error, TransportError)
    with pytest.raises(TransportError, match=f"(?i){reason}"):
        raise error


def test_a_name_of_the_certificate_stands_for_every_address(guarded: Guarded, topic: str) -> None:
    tls = replace(guarded.tls, server_name="localhost")
    send(guarded.options(replace(guarded.security, tls=tls)), topic, b"x")


def test_insecure_tls_must_be_asked_for_and_warns(
    guarded: Guarded, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection._said.clear()
    insecure = Tls(certificate_file=guarded.client_file, insecure=True)
    with caplog.at_level(logging.WARNING, "rmqio"):
        send(guarded.options(replace(guarded.security, tls=insecure)), topic, b"x")
        send(guarded.options(replace(guarded.security, tls=insecure)), topic, b"x")
    assert [record.message for record in caplog.records if "insecure" in record.message] == [
        "TLS is insecure: certificates are not verified, so anyone on the network path can read and change everything"
    ]


def test_credentials_without_tls_warn(guarded: Guarded, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    connection._said.clear()
    with caplog.at_level(logging.WARNING, "rmqio"):
        send(guarded.options(replace(guarded.security, tls=None)), topic, b"x")
    assert "credentials are used without TLS" in caplog.text


def test_tls_to_who_does_not_speak_it(rocketmq: Any) -> None:
    error = failure(ClientOptions(rocketmq.name_server, security=Security(tls=Tls()), max_retries=0), "any")
    assert isinstance(error, TransportError)
    assert "TLS" in str(error)


READS = {"Group__rmqio_reader": ("Sub",), "Group__a_group": ("Sub",)}
"""Rights that a reader needs besides those on its topic, as docs/security.md says."""


@pytest.mark.parametrize(
    ("rights", "may_send", "may_read"),
    [
        ({"Topic": ("Pub", "Sub", "Get"), **READS}, True, True),
        ({"Topic": ("Pub",)}, True, False),
        ({"Topic": ("Sub", "Get"), **READS}, False, True),
        ({"Topic": ("Sub",), **READS}, False, False),
        ({"Topic": ("Sub", "Get"), "Group__a_group": ("Sub",)}, False, False),
        ({"Topic": ("Sub", "Get"), "Group__rmqio_reader": ("Sub",)}, False, False),
    ],
    ids=["all", "only to send", "only to read", "no offsets", "no group to pull under", "no consumer group"],
)
def test_the_rights_that_are_needed(
    guarded: Guarded, topic: str, tmp_path: Path, rights: dict[str, tuple[str, ...]], may_send: bool, may_read: bool
) -> None:
    name = f"user-{uuid.uuid4().hex[:8]}"
    guarded.create_user(name, "pass-word", **{f"Topic__{topic}" if k == "Topic" else k: v for k, v in rights.items()})
    path = credentials_file(tmp_path / name, name, "pass-word")
    options = guarded.options(replace(guarded.security, credentials=FileCredentials(path)))
    send(guarded.options(), topic, b"there already")
    if may_send:
        send(options, topic, b"x")
    else:
        with pytest.raises(NoPermission, match=f"User:{name} has no permission to access Topic:{topic}"):
            send(options, topic, b"x")
    if may_read:
        assert read(options, topic, 1)
    else:
        with pytest.raises(NoPermission, match=f"User:{name} has no permission to access"):
            read(options, topic)


# ---- addresses -------------------------------------------------------------------------------------------------------


def test_a_route_to_an_address_that_is_not_allowed_is_not_followed(guarded: Guarded, topic: str) -> None:
    security = replace(guarded.security, allowed_addresses=("10.0.0.0/8", "*.example.com"))
    with pytest.raises(LocalError, match=f"leads to {guarded.broker.broker}, which is not one of the allowed"):
        send(guarded.options(security), topic, b"x")
    with pytest.raises(LocalError, match="not one of the allowed addresses"):
        read(guarded.options(security), topic)
    allowed = replace(guarded.security, allowed_addresses=("127.0.0.0/8",))
    send(guarded.options(allowed), topic, b"x")


def test_addresses_of_routes_are_mapped(guarded: Guarded, topic: str) -> None:
    """As where brokers are reached by forwarded ports: what the route says leads nowhere."""
    address = guarded.broker.broker
    port = address.rpartition(":")[2]
    security = replace(guarded.security, address_map={address: f"localhost:{port}"}, allowed_addresses=("10.0.0.1",))
    send(guarded.options(security), topic, b"x")
    assert len(read(guarded.options(security), topic, 1)) == 1
    nowhere = replace(guarded.security, address_map={address: "127.0.0.1:1"})
    with pytest.raises(TransportError, match=r"cannot connect to 127\.0\.0\.1:1\b"):
        send(guarded.options(nowhere, max_retries=0), topic, b"x")


# ---- the secret --------------------------------------------------------------------------------------------------


def looked_up() -> Credentials:
    return Credentials(ACCESS_KEY, SECRET)


@pytest.mark.parametrize("kind", ["environment", "file", f"function:{__name__}:looked_up"], ids=lambda kind: kind[:8])
def test_the_secret_is_in_no_log(
    guarded: Guarded,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    wrong = credentials_file(tmp_path / "wrong", ACCESS_KEY, SECRET + "-not-quite")
    if kind == "environment":
        monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", ACCESS_KEY)
        monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)
    with caplog.at_level(logging.DEBUG):
        source = f"file:{guarded.credentials_file}" if kind == "file" else kind
        options = guarded.options(Security(source, guarded.tls))
        send(options, topic, b"x")
        read(options, topic)
        refused = guarded.options(replace(guarded.security, credentials=FileCredentials(wrong)))
        with pytest.raises(NoPermission) as raised:
            send(refused, topic, b"x")
    assert caplog.records
    assert SECRET not in caplog.text + repr(raised.value) + str(raised.value) + repr(options)
    assert ACCESS_KEY not in caplog.text
