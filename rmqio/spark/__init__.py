"""RocketMQ for plain PySpark: the format `rocketmq` of read, readStream, write and writeStream.

Spark finds the format by itself where rmqio is installed (by `pyspark_rocketmq`); `register` is for where it does not.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from rmqio.spark.source import RocketMQDataSource

__all__ = ["RocketMQDataSource", "register"]


def register(session: SparkSession) -> None:
    """Makes the format `rocketmq` known to a session. Harmless where it is known."""
    session.dataSource.register(RocketMQDataSource)
