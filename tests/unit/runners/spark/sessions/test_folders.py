"""The folder of checkpoints is made before Spark starts, if it is certainly on this machine."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio import ReadFromRocketMQ, runners
from rmqio.runners.spark.sessions.session import make_local_folder
from rmqio.runners.submission import Refused
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

PROPERTY = "<property><name> {} </name><value>{}</value></property>"
CORE = f"<?xml version='1.0'?><configuration>{PROPERTY.format('a', 'b')}{{}}</configuration>"
HDFS = CORE.format(PROPERTY.format("fs.defaultFS", "hdfs://namenode:8020"))
LOCAL = CORE.format(PROPERTY.format("fs.default.name", "file:///"))


@pytest.mark.parametrize(
    ("variable", "files", "settings", "is_made"),
    [
        ("SPARK_HOME", {}, {}, True),
        ("SPARK_HOME", {"conf/spark-defaults.conf": "spark.hadoop.fs.defaultFS hdfs://n:1"}, {}, False),
        ("SPARK_HOME", {"conf/core-site.xml": HDFS}, {}, False),
        ("SPARK_HOME", {"conf/spark-env.sh": ""}, {}, False),
        ("SPARK_CONF_DIR", {"spark-defaults.conf": "spark.master local[2]"}, {}, True),
        ("HADOOP_CONF_DIR", {}, {}, True),
        ("HADOOP_CONF_DIR", {"core-site.xml": LOCAL, "hdfs-site.xml": CORE.format("")}, {}, True),
        ("HADOOP_CONF_DIR", {"core-site.xml": HDFS}, {}, False),
        ("HADOOP_CONF_DIR", {"core-site.xml": HDFS}, {"spark.hadoop.fs.defaultFS": "file:///"}, True),
        ("HADOOP_CONF_DIR", {"core-site.xml": CORE.format("<include/>")}, {}, False),
        ("HADOOP_CONF_DIR", {"core-site.xml": "<configuration>"}, {}, False),
        ("YARN_CONF_DIR", {"core-site.xml": HDFS}, {}, False),
        ("NOTHING", {}, {"spark.hadoop.fs.defaultFS": "s3a://b"}, False),
        ("NOTHING", {}, {}, True),
    ],
)
def test_only_a_folder_that_is_on_this_machine_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    variable: str, files: dict[str, str], settings: dict[str, str], is_made: bool,
) -> None:  # fmt: skip
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setenv(variable, str(tmp_path))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    make_local_folder(str(tmp_path / "made"), settings)
    assert (tmp_path / "made").exists() is is_made
    make_local_folder(f"file://{tmp_path}/given", settings)
    assert (tmp_path / "given").exists()


def test_a_pipeline_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    with InMemoryCluster() as cluster:
        cluster.create_topic("orders")
        flags = ["--runner=SparkRunner", "--streaming", f"--checkpoint_dir={tmp_path / 'made'}"]
        pipeline = beam.Pipeline(options=runners.options(flags))
        _ = pipeline | ReadFromRocketMQ("oders", client_factory=InMemoryClientFactory(cluster.name))
        with pytest.raises(Refused, match="topic 'oders' does not exist"):
            pipeline.run()
    assert list(tmp_path.iterdir()) == []
