"""A Kafka broker of its own, in KRaft mode, for tests. Its files come from Maven (44 MB, once)."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Sequence

from rmqio.local.processes.ports import LOOPBACK, free_port
from tests.helpers.servers.java_server import SMALL, JavaServer, jars_of


class Kafka(JavaServer):
    """A broker. `servers` is its address."""

    title = "Kafka"

    @property
    def servers(self) -> str:
        """The address for clients."""
        return f"{LOOPBACK}:{self.port}"

    def command(self) -> Sequence[str]:
        """See `JavaServer`."""
        controller = free_port()
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "broker.heartbeat.interval.ms": 200,
            "broker.session.timeout.ms": 1_500,  # a killed broker is fenced no longer than that
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        path = os.pathsep.join(map(str, jars_of("kafka-4.1.2")))
        java = [self.java, *SMALL, "-Dlog4j2.level=ERROR", "-cp", path]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatting = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(file)]
        done = subprocess.run(formatting, capture_output=True, text=True, check=False, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return [*java, "kafka.Kafka", str(file)]

    def answers(self) -> bool:
        """See `JavaServer`."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            found = AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(timeout=1)
        except KafkaException:
            return False
        return bool(found.brokers)

    def create_topic(self, name: str, partitions: int = 2) -> str:
        """Creates a topic."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)
        return name

    def add_partitions(self, name: str, count: int) -> None:
        """Adds partitions to a topic until it has so many."""
        from confluent_kafka.admin import AdminClient, NewPartitions

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for future in admin.create_partitions([NewPartitions(name, count)]).values():
            future.result(30)
