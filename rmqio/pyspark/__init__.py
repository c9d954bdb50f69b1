"""RocketMQ for plain PySpark: the format `rocketmq` of read, readStream, write and writeStream.

Spark finds the format by itself if rmqio is installed (through `pyspark_rocketmq`); otherwise, call `register`.
Names resolve on first use (PEP 562): PySpark's daemon imports `chatter`, and no Spark module with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqio.loading import lazy_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqio.pyspark.enriching import enrich
    from rmqio.pyspark.progress import LagListener, SourceLag, lags
    from rmqio.pyspark.source import RocketMQDataSource

__all__ = ["LagListener", "RocketMQDataSource", "SourceLag", "enrich", "lags", "register"]


def register(session: SparkSession) -> None:
    """Registers the format `rocketmq` with a session. Harmless if it is already registered."""
    from rmqio.pyspark.source import RocketMQDataSource

    session.dataSource.register(RocketMQDataSource)


__getattr__ = lazy_names(
    __name__,
    {
        "LagListener": "progress",
        "RocketMQDataSource": "source",
        "SourceLag": "progress",
        "enrich": "enriching",
        "lags": "progress",
    },
)
