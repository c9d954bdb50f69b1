"""Lets PySpark find the format `rocketmq`: it imports each installed module whose name begins with `pyspark_`."""

from __future__ import annotations

from rmqio.pyspark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
