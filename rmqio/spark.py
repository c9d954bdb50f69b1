"""The former name of `rmqio.pyspark`; it will be removed in the release after the next."""

from __future__ import annotations

import warnings

from rmqio.pyspark import RocketMQDataSource, register

__all__ = ["RocketMQDataSource", "register"]

warnings.warn("rmqio.spark is rmqio.pyspark now", DeprecationWarning, stacklevel=2)
