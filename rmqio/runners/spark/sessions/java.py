"""Whether Spark will find a Java: without one, and with an old one, its launcher and PySpark print forty lines."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from rmqio.local.errors import LocalBrokerError
from rmqio.local.processes.java import find_java, released_major
from rmqio.runners.errors import NotReady

_MINIMUM: Final = 17


def require_java() -> None:
    """Raises `NotReady` if Spark's launcher will find no Java, or one that is too old.

    It looks in JAVA_HOME, and without it on the PATH.
    """
    if has_own_environment():
        return
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "")
    if not (java.is_file() and os.access(java, os.X_OK)):
        lacks = f"JAVA_HOME is {home}, which has no bin/java" if home else "JAVA_HOME is not set, and PATH has no java"
    elif (major := released_major(java)) is not None and major < _MINIMUM:
        lacks = f"{java} is Java {major}"
    else:
        return
    raise NotReady(
        f"SparkRunner needs Java {_MINIMUM} or newer, but {lacks}. Install it, e.g. with apt install "
        f"openjdk-{_MINIMUM}-jre-headless, and set JAVA_HOME or PATH"
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raises `NotReady` if Spark's JVM has not started in this context, and the reason is its Java."""
    try:
        yield
    except Exception:
        if SparkContext._gateway is None and not has_own_environment():
            try:
                find_java({**os.environ}, minimum_major=_MINIMUM, program="Spark")
            except LocalBrokerError as error:
                raise NotReady(str(error)) from None
        raise


def has_own_environment() -> bool:
    """Returns whether Spark's configuration has a file that can set JAVA_HOME."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    return bool(folder) and Path(str(folder), "spark-env.sh").exists()
