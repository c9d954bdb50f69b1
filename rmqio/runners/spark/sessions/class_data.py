"""Spark's classes in a file of the cache folder, so that the JVM of a local run starts in two thirds of the time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pyspark

from rmqio.local.processes.java import USERS_OWN, identity_of
from rmqio.runners import class_data

VARIABLE: Final = "RMQIO_SPARK_CLASS_DATA"
"""0 turns it off."""
FLAGS: Final = ("-XX:+UseSerialGC",)
"""A local JVM's collector: with a heap of a gigabyte, one that works in the background costs more than it saves."""
_USERS_OWN: Final = ("SPARK_SUBMIT_OPTS", *USERS_OWN)
_USERS_SETTINGS: Final = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")


class ClassData(class_data.ClassData):
    """The file for one Java and one Spark, and this process's part in it.

    There are no options where it is turned off, or where the user gives options of the JVM's own kind, which could
    contradict these. A shell would split them; see `shlex`.

    Args:
      settings: of Spark, all that are given.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        given = [*map(os.environ.get, _USERS_OWN), *map(settings.get, _USERS_SETTINGS)]
        if os.environ.get(VARIABLE) == "0" or any(text and "-X" in text for text in given):
            return
        self.options = FLAGS
        path = _class_path(settings)
        if any(map(_has_files, path)):  # the JVM refuses to archive beside a folder with files
            return
        with contextlib.suppress(OSError):  # a folder that cannot be written, or no Java: Spark says what is wrong
            self.look("spark", _key(path))
        self.options = tuple(map(shlex.quote, self.options))


def _class_path(settings: Mapping[str, str]) -> list[str]:
    """Return what Spark's launcher adds to its jars on the class path of the driver (AbstractCommandBuilder.java)."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    conf = os.environ.get("SPARK_CONF_DIR") or str(Path(home) / "conf")
    added = [os.environ.get("SPARK_DIST_CLASSPATH"), settings.get("spark.driver.extraClassPath")]
    folders = [conf, os.environ.get("HADOOP_CONF_DIR"), os.environ.get("YARN_CONF_DIR")]
    return [each for text in (*folders, *added) for each in (text or "").split(os.pathsep) if each]


def _has_files(entry: str) -> bool:
    try:
        return Path(entry).is_dir() and any(Path(entry).iterdir())
    except OSError:
        return True


def _key(path: Iterable[str]) -> str:
    """Changes with Java, Spark, the options and the class path. Raises `OSError` if there is no Java."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise OSError("no java")
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    parts: Iterable[object] = (
        *identity_of(Path(java)),
        pyspark.__version__,
        spark,
        spark.stat().st_mtime_ns,
        FLAGS,
        *path,
    )
    return hashlib.blake2b(repr(tuple(parts)).encode(), digest_size=8).hexdigest()
