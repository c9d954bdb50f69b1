"""Whether a folder is on this machine, or on a file system that only Spark knows."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from rmqio.runners.checkpoints.folders import make_folder
from rmqio.runners.spark.sessions.java import has_own_environment
from rmqio.runners.spark.sessions.session import configured

_NAMES: Final = ("fs.defaultFS", "fs.default.name")
_UNKNOWN: Final = "unknown:"


def make_local_folder(folder: str | None, given: Mapping[str, str]) -> Path | None:
    """Makes a folder for checkpoints that is certainly on this machine, before Spark starts, and returns it.

    Raises `NotReady`. None: the folder may be elsewhere, or Spark runs already.

    Without a scheme, a folder is on Spark's default file system, which only a configuration makes another one.

    Args:
      given: Spark's settings.
    """
    if not folder or SparkContext._active_spark_context is not None:
        return None
    if folder.startswith("file:") or (":" not in folder and _default_file_system(given).startswith("file:")):
        path = Path(folder.removeprefix("file://").removeprefix("file:")).absolute()
        make_folder(path)
        return path
    return None


def _default_file_system(given: Mapping[str, str]) -> str:
    """The URL of Spark's default file system, in the order in which Spark reads its configuration."""
    if has_own_environment():  # a script, which can name other folders
        return _UNKNOWN
    settings = {**configured(), **given}
    found = [settings[name] for name in (f"spark.hadoop.{each}" for each in _NAMES) if name in settings]
    found = found or [*_of_hadoop()]
    return next((each for each in found if not each.startswith("file:")), "file:")


def _of_hadoop() -> Iterator[str]:
    """Yields the default file systems that Hadoop's files name; a file that cannot be read may name any."""
    home = os.environ.get("SPARK_HOME")
    folders = [os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")]
    for folder in filter(None, [*folders, home and os.path.join(home, "conf")]):
        for path in Path(folder).glob("*-site.xml"):
            try:
                root = ET.parse(path).getroot()
            except (OSError, ET.ParseError):
                yield _UNKNOWN
                continue
            for each in root:
                if each.tag != "property":  # a file that is included
                    yield _UNKNOWN
                elif (each.findtext("name") or "").strip() in _NAMES:
                    yield (each.findtext("value") or "").strip()
