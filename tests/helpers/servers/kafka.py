"""Kafka brokers of our own, in KRaft mode, for tests. Their files come from Maven (44 MB, once)."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import trustme

from rmqio.local.processes import LOOPBACK
from tests.helpers.servers.certificates import chain_of, key_of
from tests.helpers.servers.java_server import SMALL, JavaServer, jars_of
from tests.helpers.servers.ports import reserved_port
from tests.helpers.waiting import at_most

USER: Final = "me"
SECRET: Final = "kafka-secret-1d7e40b2"
"""A password that tests search for wherever it must not appear."""
_IN_CLUSTER: Final = ("-Xmx192m", *SMALL[1:])
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Guard(NamedTuple):
    """The files of a listener that requires a certificate and a password of its clients, and the files of these."""

    ca_file: str
    """The authority that signed all certificates but one."""
    other_ca_file: str
    """An authority that signed none."""
    server_file: str
    client_file: str
    """The certificate of a client, with its key."""
    password_file: str

    @classmethod
    def of(cls, folder: Path) -> Guard:
        """Writes the files."""
        ca, other = trustme.CA(), trustme.CA()
        found = cls(*(str(folder / f"{name}.pem") for name in ("ca", "other-ca", "server", "client", "password")))
        Path(found.password_file).write_text(SECRET)
        ca.cert_pem.write_to_path(found.ca_file)
        other.cert_pem.write_to_path(found.other_ca_file)
        for path, host in ((found.server_file, LOOPBACK), (found.client_file, "client@example.com")):
            certificate = ca.issue_cert(host)
            Path(path).write_bytes(key_of(certificate) + chain_of(certificate))
        return found

    def config(self, **changes: str | None) -> dict[str, str]:
        """Returns the options of a client, of librdkafka. `changes`: with `__` in place of dots; None omits one."""
        config = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.client_file,
            "ssl.key.location": self.client_file,
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password_file": self.password_file,
        } | {name.replace("__", "."): value for name, value in changes.items()}
        return {name: value for name, value in config.items() if value is not None}

    def listener(self) -> dict[str, str]:
        """Returns the properties of the broker's listener GUARDED."""
        found = {
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": f'{_LOGIN} user_{USER}="{SECRET}";',
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.server_file,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca_file,
        }
        return {f"listener.name.guarded.{name}": value for name, value in found.items()}


class Quorum(NamedTuple):
    """The settings that the brokers of a cluster share."""

    identity: str
    controllers: tuple[int, ...]
    """The port of the controller of each broker."""

    @classmethod
    def of(cls, size: int) -> Quorum:
        """Returns that of a new cluster."""
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        return cls(identity, tuple(reserved_port() for _ in range(size)))


class Kafka(JavaServer):
    """A broker. `servers` is its address, `guarded_servers` that of the listener with TLS and SASL.

    Args:
      guard: the files of that listener; None: there is none.
      quorum, place: the cluster, and the broker's place in it, from 0.
    """

    title = "Kafka"

    def __init__(self, guard: Guard | None = None, quorum: Quorum | None = None, place: int = 0) -> None:
        super().__init__()
        self.guard, self._quorum, self._place = guard, quorum or Quorum.of(1), place
        self._guarded_port = reserved_port()

    @property
    def servers(self) -> str:
        """The address for clients."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def guarded_servers(self) -> str:
        """The address for clients with a certificate and a password."""
        return f"{LOOPBACK}:{self._guarded_port}"

    def command(self) -> Sequence[str]:
        """See `JavaServer`."""
        controllers = self._quorum.controllers
        copies = len(controllers)
        clients = [f"PLAINTEXT://{self.servers}"]
        if self.guard is not None:
            clients.append(f"GUARDED://{self.guarded_servers}")
        properties = {
            "process.roles": "broker,controller",
            "node.id": self._place + 1,
            "controller.quorum.voters": ",".join(
                f"{number}@{LOOPBACK}:{port}" for number, port in enumerate(controllers, 1)
            ),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*clients, f"CONTROLLER://{LOOPBACK}:{controllers[self._place]}"]),
            "advertised.listeners": ",".join(clients),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_SSL",
            "log.dirs": self.folder / "data",
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            # A killed broker is fenced no longer than that. Brokers that share two cores answer later than one.
            "broker.heartbeat.interval.ms": 200 if copies == 1 else 1_000,
            "broker.session.timeout.ms": 1_500 if copies == 1 else 6_000,
            "log.cleaner.dedupe.buffer.size": 4 << 20,  # the default, 128 MiB, is more than a small heap has
            **({} if self.guard is None else self.guard.listener()),
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        path = os.pathsep.join(map(str, jars_of("kafka-4.1.2")))
        java = [self.java, *(SMALL if copies == 1 else _IN_CLUSTER), "-Dlog4j2.level=ERROR", "-cp", path]
        formatting = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={self._quorum.identity}"]
        done = subprocess.run(
            [*formatting, "-c", str(file)], capture_output=True, text=True, check=False, cwd=self.folder
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [*java, "kafka.Kafka", str(file)]

    def answers(self) -> bool:
        """See `JavaServer`. Of a cluster: when the broker knows all others."""
        return len(brokers_of(self.servers)) == len(self._quorum.controllers)

    def create_topic(self, name: str, partitions: int = 2, copies: int = 1) -> str:
        """Creates a topic."""
        from confluent_kafka.admin import NewTopic

        admin = _admin(self.servers)  # without it, its requests end
        for future in admin.create_topics([NewTopic(name, partitions, copies)]).values():
            future.result(at_most(30))
        return name

    def add_partitions(self, name: str, count: int) -> None:
        """Adds partitions to a topic until it has so many."""
        from confluent_kafka.admin import NewPartitions

        admin = _admin(self.servers)
        for future in admin.create_partitions([NewPartitions(name, count)]).values():
            future.result(at_most(30))


class KafkaCluster:
    """Several brokers. `servers` are the addresses of all."""

    def __init__(self, brokers: Sequence[Kafka]) -> None:
        self.brokers = brokers

    @property
    def servers(self) -> str:
        """The addresses for clients."""
        return ",".join(each.servers for each in self.brokers)

    def create_topic(self, name: str, partitions: int = 3) -> str:
        """Creates a topic of which every broker has a copy."""
        return self.brokers[0].create_topic(name, partitions, len(self.brokers))

    def leaders(self, topic: str) -> dict[int, int]:
        """Returns the place of the broker that leads each partition; -1: none does."""
        partitions = _admin(self.servers).list_topics(topic, timeout=at_most(10)).topics[topic].partitions
        return {number: each.leader - 1 if each.leader > 0 else -1 for number, each in partitions.items()}


@contextmanager
def kafka_cluster(size: int = 3) -> Iterator[KafkaCluster]:
    """Starts the brokers, all at the same time: none answers before a majority of the controllers does."""
    quorum = Quorum.of(size)
    with ExitStack() as stack, ThreadPoolExecutor(size) as pool:
        brokers = [Kafka(quorum=quorum, place=place) for place in range(size)]
        for each in brokers:
            stack.callback(each.close)
        list(pool.map(Kafka.__enter__, brokers))
        yield KafkaCluster(brokers)


def brokers_of(servers: str) -> dict[int, Any]:
    """Returns the brokers that a cluster knows, by number; none if it does not answer."""
    from confluent_kafka import KafkaException

    try:
        return dict(_admin(servers).list_topics(timeout=1).brokers)
    except KafkaException:
        return {}


def _admin(servers: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": servers, "log_level": 0})
