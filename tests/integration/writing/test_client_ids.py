"""A broker, and RocketMQ's own tool, show the client ids of a write with the parts that its options name."""

from __future__ import annotations

import os
import re
import socket
import uuid
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import WriteToRocketMQ
from rmqio.local import LocalRocketMQ
from rmqio.options import WriteOptions
from tests.helpers.servers.mqadmin import mqadmin

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("options", "prefix", "unit"),
    [(WriteOptions(), "", ""), (WriteOptions(client_id_prefix="billing-", unit_name="blue"), "billing-", "@blue")],
    ids=["default", "named"],
)
def test_a_write_is_shown_under_the_client_id_of_its_options(
    options: WriteOptions, prefix: str, unit: str, rocketmq: LocalRocketMQ, tmp_path: Path
) -> None:
    topic, group = (f"ids-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("topic", "group"))
    rocketmq.create_topic(topic, queues=1)
    name_server, shown = rocketmq.name_server, tmp_path / "shown.txt"

    def look(_: object) -> None:
        """While the write is connected: a broker forgets producers that are gone."""
        shown.write_text(mqadmin(tmp_path, "producerConnection", "-n", name_server, "-g", group, "-t", topic))

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        write = WriteToRocketMQ(topic, name_server=name_server, producer_group=group, options=options)
        _ = (pipeline | beam.Create([b"x"]) | write).sent | beam.Map(look)
    (line,) = shown.read_text().splitlines()[:1]
    _, client_id, address, language, _ = line.split()
    pattern = rf"{prefix}{re.escape(socket.gethostname())}@{os.getpid()}#\d+{unit}"
    assert re.fullmatch(pattern, client_id), client_id
    assert (address.partition(":")[0], language) == ("127.0.0.1", "PYTHON")
