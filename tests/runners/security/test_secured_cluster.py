"""A search for the secret in all that a Spark cluster writes and shows, while its executors sign with it."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio import Message
from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from tests.helpers.servers.guarded import ACCESS_KEY, SECRET, Guarded
from tests.helpers.servers.spark_cluster import Cluster, Program

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(900),  # several minutes on a busy machine
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in Linux's /proc"),
]

PROGRAM = """
    import argparse, sys, urllib.request

    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from pyspark.sql import SparkSession

    from rmqio import ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ, security

    parser = argparse.ArgumentParser()
    parser.add_argument("--topics")
    parser.add_argument("--name_server")
    security.add_arguments(parser)
    arguments, others = parser.parse_known_args()
    source, target = arguments.topics.split("/")

    for kind in arguments.credentials.split(","):
        arguments.credentials = kind
        ours = {"name_server": arguments.name_server, "security": security.from_arguments(arguments)}
        with beam.Pipeline(options=PipelineOptions(others)) as pipeline:
            read = ReadFromRocketMQ(source, start=StartFrom.earliest(), stop=StopAt.latest(), **ours)
            pipeline | read | beam.Map(lambda record: record.body) | WriteToRocketMQ(target, **ours)

    context = SparkSession.getActiveSession().sparkContext
    base, rest = context.uiWebUrl, f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    for url in (f"{base}/environment/", f"{base}/executors/", f"{rest}/environment", f"{rest}/executors",
                f"{rest}/stages?details=true"):
        with urllib.request.urlopen(url, timeout=30) as answer:
            print(url, answer.read().decode())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Starts a cluster. Its executors have the credentials in their environment and log all that the library says."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ROCKETMQ_ACCESS_KEY", ACCESS_KEY)
        environment.setenv("ROCKETMQ_SECRET_KEY", SECRET)
        environment.setenv("RMQIO_LOG", "json:DEBUG")
        started = Cluster(tmp_path_factory.mktemp("cluster"))
        try:
            yield started
        finally:
            started.close()


def test_no_log_and_no_page_has_the_secret_in_it(guarded: Guarded, cluster: Cluster, tmp_path: Path) -> None:
    """One pipeline takes its credentials from the environment, and another from a file."""
    name = uuid.uuid4().hex[:10]
    source, target = guarded.create_topic(f"source-{name}", queues=2), guarded.create_topic(f"target-{name}", queues=2)
    with closing(RemotingProducer(guarded.options(), "a_producer")) as producer:
        for queue in producer.queues(source):
            producer.send_batch([Message(b"%d" % n) for n in range(20)], queue)
    events = tmp_path / "events"
    events.mkdir()
    program = Program(
        cluster,
        tmp_path,
        PROGRAM,
        f"--credentials=environment,file:{guarded.credentials_file}",
        f"--tls_ca_file={guarded.ca_file}",
        f"--tls_certificate_file={guarded.client_file}",
        f"--name_server={guarded.broker.name_server}",
        f"--topics={source}/{target}",
        "--spark_conf=spark.eventLog.enabled=true",
        "--spark_conf=spark.eventLog.compress=false",
        f"--spark_conf=spark.eventLog.dir=file://{events}",
    )
    try:
        out, err = program.process.communicate()
    finally:
        program.close()
    assert program.process.returncode == 0, f"{out}\n{err}"
    with closing(RemotingQueueClient(guarded.options())) as client:
        assert sum(client.max_offset(queue) for queue in client.queues(target)) == 2 * 40
    files = [path for path in (*cluster.folder.rglob("*"), *events.rglob("*")) if path.is_file()]
    texts = {str(path): path.read_bytes().decode("latin-1") for path in files} | {"stdout": out, "stderr": err}
    executors = [text for path, text in texts.items() if path.endswith("/stderr") and "/app-" in path]
    assert any("connecting to" in text for text in executors), "the executors have logged, at the level DEBUG"
    assert any("SparkListenerEnvironmentUpdate" in text for text in texts.values())
    assert "spark.executor.memory" in out, "the page is that of the environment"
    shown = [where for where, text in texts.items() if SECRET in text or ACCESS_KEY in text]
    assert not shown
