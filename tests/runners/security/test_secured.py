"""Pipelines and PySpark with a broker that knows its users and speaks TLS; a search for the secret in all output.

Sources of credentials contain no secret, so it could only leak from a process that has looked it up.
"""

from __future__ import annotations

import io
import json
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

import apache_beam as beam
from apache_beam.transforms.display import DisplayData
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rmqio import Message, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.cli.main import main
from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.runners.options import options as pipeline_options
from rmqio.transforms.shared import close_shared_clients
from tests.helpers.programs import main_of
from tests.helpers.servers.guarded import ACCESS_KEY, SECRET, Guarded
from tests.helpers.waiting import at_most


@pytest.fixture
def topics(guarded: Guarded) -> tuple[str, str]:
    """Returns a topic with 40 messages and an empty one."""
    name = uuid.uuid4().hex[:10]
    source, target = guarded.create_topic(f"source-{name}", queues=2), guarded.create_topic(f"target-{name}", queues=2)
    with closing(RemotingProducer(guarded.options(), "a_producer")) as producer:
        for queue in producer.queues(source):
            producer.send_batch([Message(b"%d" % n) for n in range(20)], queue)
    return source, target


def count(guarded: Guarded, topic: str) -> int:
    with closing(RemotingQueueClient(guarded.options())) as client:
        return sum(client.max_offset(queue) for queue in client.queues(topic))


@pytest.fixture
def logs() -> Iterator[None]:
    """Asserts that nothing that is logged inside the context contains the secret."""
    text = io.StringIO()
    handler, root = logging.StreamHandler(text), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield
    root.setLevel(level)
    root.removeHandler(handler)
    close_shared_clients()
    assert text.getvalue()
    assert SECRET not in text.getvalue()
    assert ACCESS_KEY not in text.getvalue()


@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize("runner", ["DirectRunner", "SparkRunner"])
def test_a_pipeline_with_credentials_and_tls(guarded: Guarded, topics: tuple[str, str], runner: str) -> None:
    source, target = topics
    options = pipeline_options([], runner=runner)
    pipeline = beam.Pipeline(options=options)
    read = ReadFromRocketMQ(
        source,
        name_server=guarded.broker.name_server,
        security=guarded.security,
        consumer_group=f"group-{uuid.uuid4().hex[:8]}",
        start=StartFrom.earliest(),
        stop=StopAt.latest(),
    )
    write = WriteToRocketMQ(
        target,
        name_server=guarded.broker.name_server,
        security=guarded.security,
    )
    _ = pipeline | read | beam.Map(lambda record: record.body) | write
    shown: list[Any] = [
        pipeline.to_runner_api().SerializeToString(),
        cloudpickle.dumps([read, write]),
        [DisplayData.create_from(each).items for each in (read, write, options)],
        options.get_all_options(),
        [read, write, vars(read), vars(write)],
    ]
    pipeline.run().wait_until_finish()
    assert count(guarded, target) == 40
    found = b"\n".join(each if isinstance(each, bytes) else repr(each).encode() for each in shown)
    assert guarded.credentials_file.encode() in found
    assert SECRET.encode() not in found
    assert ACCESS_KEY.encode() not in found


def tls_flags(guarded: Guarded) -> list[str]:
    return [f"--tls_ca_file={guarded.ca_file}", f"--tls_certificate_file={guarded.client_file}"]


JOB = """
CREATE TABLE source (text STRING) WITH (
  'topic' = '{source}', 'consumerGroup' = '{source}-group', 'format' = 'raw', 'on-error' = 'dead-letter',
  'dead-letter-topic' = '{target}'
);
CREATE TABLE target (n BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH ('topic' = '{target}');
INSERT INTO target SELECT COUNT(*) FROM source WHERE 1 / (CAST(text AS INT) - 19) <= 0 GROUP BY text;
"""


@pytest.mark.usefixtures("logs")
def test_sql_with_credentials_and_tls(
    guarded: Guarded, topics: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Reads, writes and dead letters of a job, and its plan, without a secret in what is said."""
    pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
    source, target = topics
    file = tmp_path / "job.sql"
    file.write_text(JOB.format(source=source, target=target))
    at = [f"--name_server={guarded.broker.name_server}", f"--credentials=file:{guarded.credentials_file}"]
    tls = ["--tls", *tls_flags(guarded)]
    command = ["sql", str(file), *at, *tls, "--start=earliest"]
    assert main([*command, "--stop=latest", "--explain"]) == 0
    assert main([*command, "--stop=latest"]) == 0
    assert count(guarded, target) == 19 + 2, "groups, and letters of two rows that divide by zero"
    said = "".join(capfd.readouterr())
    assert "Insert into target" in said
    assert SECRET not in said
    assert ACCESS_KEY not in said
    assert main(["sql", str(file), at[0], *tls, "--stop=latest"]) != 0
    assert "NO_PERMISSION: username cannot be null" in capfd.readouterr().err


@pytest.mark.usefixtures("logs")
def test_detect_with_credentials_and_tls(
    guarded: Guarded, topics: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rules of a topic, events, hits and dead letters, without a secret in what is said."""
    pytest.importorskip("msgspec", reason="rules need the extra 'rules'")
    source, hits = topics
    rules, dead = guarded.create_topic(f"rules-{hits}"), guarded.create_topic(f"dead-{hits}")
    rule = {"id": "high", "condition": {"field": "n", "is": "greater", "value": 90}}
    with closing(RemotingProducer(guarded.options(), "a_producer")) as producer:
        producer.send(Message(json.dumps([rule]).encode(), topic=rules, keys=("rules.json",)))
        producer.send_batch([Message(b'{"n": %d}' % n, topic=source) for n in range(100)])
    at = [f"--name_server={guarded.broker.name_server}", f"--rules_topic={rules}", f"--dead_letter_topic={dead}"]
    flags = [
        *at,
        *tls_flags(guarded),
        f"--source_topic={source}",
        f"--sink_topic={hits}",
        "--start=earliest",
        "--stop=latest",
    ]
    assert main_of("detect")([*flags, f"--credentials=file:{guarded.credentials_file}"]) == 0
    assert (count(guarded, hits), count(guarded, dead)) == (9, 40), "91 to 99, and numbers that are no objects"
    assert main_of("detect")(flags) != 0
    said = "".join(capfd.readouterr())
    assert "NO_PERMISSION" in said
    assert SECRET not in said
    assert ACCESS_KEY not in said


def pages(spark: SparkSession) -> str:
    """Returns what Spark's UI shows of its configuration and of the queries that ran, from the stores that it reads."""
    context = spark.sparkContext
    found = [str(context.getConf().getAll())]
    environment = context._jsc.sc().statusStore().environmentInfo()
    found += [str(getattr(environment, f"{each}Properties")().toString()) for each in ("spark", "hadoop", "system")]
    queries: Any = spark._jsparkSession.sharedState().statusStore()
    executions = queries.executionsList()
    assert executions.size()
    for query in (executions.apply(at) for at in range(executions.size())):
        found += [query.description(), query.details(), query.physicalPlanDescription()]
        found.append(query.modifiedConfigs().toString())
        nodes = queries.planGraph(query.executionId()).allNodes()
        found += [nodes.apply(at).desc() for at in range(nodes.size())]
    return "\n".join(found)


def options_of(guarded: Guarded, **more: str) -> dict[str, str]:
    return {
        "nameServer": guarded.broker.name_server,
        "credentials": f"file:{guarded.credentials_file}",
        "tls": "true",
        "tlsCaFile": guarded.ca_file,
        "tlsCertificateFile": guarded.client_file,
        **more,
    }


@pytest.mark.usefixtures("logs")
def test_the_format_with_credentials_and_tls(
    guarded: Guarded, topics: tuple[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    source, target = topics
    given = options_of(guarded)
    frame = spark.read.format("rocketmq").options(subscribe=source, **given).load()
    assert frame.count() == 40
    frame.select("body").write.format("rocketmq").options(topic=target, **given).mode("append").save()
    stream = spark.readStream.format("rocketmq").options(subscribe=source, startingOffsets="earliest", **given).load()
    writer = stream.select("body").writeStream.format("rocketmq").options(topic=target, **given)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(at_most(60))
    assert count(guarded, target) == 80
    shown = pages(spark) + str(query.lastProgress) + frame._jdf.queryExecution().toString()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    shown += "\n".join(path.read_bytes().decode("latin-1") for path in files)
    assert SECRET not in shown
    assert ACCESS_KEY not in shown


@pytest.mark.parametrize("name", ["secretKey", "accessKey", "securityToken", "secret_key"])
def test_a_secret_among_the_options_is_refused_and_not_repeated(
    guarded: Guarded, topics: tuple[str, str], spark: SparkSession, name: str
) -> None:
    given = options_of(guarded, subscribe=topics[0]) | {name: SECRET}
    with pytest.raises(PySparkException, match="say where it is instead") as raised:
        spark.read.format("rocketmq").options(**given).load().count()
    assert SECRET not in str(raised.value)


def check(action: Callable[[], Any], reason: str) -> None:
    with pytest.raises(PySparkException, match=reason):
        action()


def test_options_of_security_that_will_not_do(guarded: Guarded, topics: tuple[str, str], spark: SparkSession) -> None:
    def load(**changes: str | None) -> Any:
        given = {key: value for key, value in (options_of(guarded, subscribe=topics[0]) | changes).items() if value}
        return spark.read.format("rocketmq").options(**given).load().count()

    check(lambda: load(tls="yes"), "tls is 'yes'; it must be true, false or insecure")
    check(lambda: load(tls=None), "TLS options are given, but tls is not true")
    check(lambda: load(credentials=SECRET), "this is not one of them")
    check(lambda: load(addressMap="a"), "addressMap is 'a'; it must look like")
    check(lambda: load(allowedAddresses="10.0.0.0/8"), "not one of the allowed addresses")
    check(lambda: load(tlsCaFile=guarded.other_ca_file), "certificate is not valid")
