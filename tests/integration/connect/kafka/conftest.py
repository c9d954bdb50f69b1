"""A broker for all files of this folder, and a cluster of three."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.servers.kafka import Guard, Kafka, KafkaCluster, kafka_cluster


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(Guard.of(tmp_path_factory.mktemp("guard"))) as found:
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with kafka_cluster(3) as found:
        yield found
