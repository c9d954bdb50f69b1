"""The smoke test of a release, in an environment that holds nothing else: command line, write, read."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import rmqio
from rmqio import Message, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.runners import options
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.wire import accelerator

import apache_beam as beam  # isort: skip - after rmqio, which keeps Beam's import silent


def main(implementation: str) -> None:
    assert importlib.metadata.version("rmqio") == rmqio.__version__
    assert implementation == accelerator.IMPLEMENTATION
    # Looked for as a file: to import it needs fastavro, which this environment lacks
    has_bulk = any(Path(rmqio.__file__).parent.glob("serde/avro/_bulk*.so"))
    assert has_bulk == (implementation == "c")
    bin_folder = Path(sys.executable).parent
    for command in (
        ["rmqio", "--help"],
        ["python", "-m", "rmqio.local", "--help"],
        ["python", "-m", "rmqio", "--help"],
    ):
        shown = subprocess.run([bin_folder / command[0], *command[1:]], capture_output=True, text=True, check=True)
        assert "usage" in shown.stdout
        assert not shown.stderr, shown.stderr
    with InMemoryCluster() as cluster:
        for topic in ("orders", "copies"):
            cluster.create_topic(topic, queues=2)
        factory = InMemoryClientFactory(cluster.name)
        bodies = [f"order {number}".encode() for number in range(100)]
        with beam.Pipeline(options=options([])) as pipeline:
            messages = pipeline | beam.Create([Message(body) for body in bodies])
            _ = messages | WriteToRocketMQ("orders", client_factory=factory)
        with beam.Pipeline(options=options([])) as pipeline:
            read = ReadFromRocketMQ("orders", start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=factory)
            _ = pipeline | read | WriteToRocketMQ("copies", client_factory=factory)
        assert sorted(record.body for record in cluster.records("copies")) == sorted(bodies)


if __name__ == "__main__":
    main(sys.argv[1])
