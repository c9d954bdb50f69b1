"""Whether a folder is on this machine, or on a file system that only Spark knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from rmqio.runners.checkpoints.folders import make_folder

_HADOOP: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")


def make_local_folder(folder: str | None, given: Mapping[str, str]) -> None:
    """Makes a folder for checkpoints that is certainly on this machine, before Spark starts. Raises `NotReady`.

    Without a scheme, a folder is on Spark's default file system, which only a configuration makes another one.

    Args:
      given: Spark's settings.
    """
    if not folder or SparkContext._active_spark_context is not None:
        return
    is_configured = "spark.hadoop.fs.defaultFS" in given or any(map(os.environ.get, _HADOOP))
    if folder.startswith("file:") or not (is_configured or ":" in folder):
        make_folder(Path(folder.removeprefix("file://").removeprefix("file:")).absolute())
