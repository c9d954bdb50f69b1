"""RocketMQ for plain PySpark: `spark.read.format("rocketmq")` and `spark.readStream.format("rocketmq")`.

Spark finds the format by itself where rmqio is installed (by `pyspark_rocketmq`); `register` is for where it does not.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from rmqio.spark.source import RocketMQDataSource

__all__ = ["RocketMQDataSource", "register"]


def register(session: SparkSession) -> None:
    """Makes the format `rocketmq` known to a session. Harmless where it is known."""
    session.dataSource.register(RocketMQDataSource)
