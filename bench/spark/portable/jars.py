"""The class path of the peer: Beam's job server by a lock, as `rmqio.local` does, and the jars of PySpark 3.5."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.common.report import say
from bench.common.tally import BenchError
from rmqio.local.artefacts import read_lock
from rmqio.local.errors import LocalBrokerError
from rmqio.local.fetch import cache_dir, fetch

_HERE: Final = Path(__file__).resolve().parent
LOCK: Final = _HERE / "beam-spark-3-2.62.0.lock.json"
"""Written by `python -m rmqio.local.lock --name beam-spark-3-2.62.0 org.apache.beam:beam-runners-spark-3:2.62.0`."""
REQUIREMENTS: Final = _HERE / "pyspark-3.5.txt"
_INSTALL_TIMEOUT_S: Final = 900


def class_path() -> list[Path]:
    """All jars, in their order, downloaded if they are not in the cache. Raises `BenchError`."""
    try:
        beam = fetch(read_lock(LOCK))
    except LocalBrokerError as error:
        raise BenchError(str(error)) from error
    return ordered(beam, sorted((_spark() / "pyspark" / "jars").glob("*.jar")))


def ordered(beam: Sequence[Path], spark: Sequence[Path]) -> list[Path]:
    """Beam's before Spark's, whose Guava is too old for Beam; but the logging API that Spark's log4j is for."""
    logging = [path for path in spark if path.name.startswith("slf4j-api-")]
    return [*logging, *beam, *(path for path in spark if path not in logging)]


def spark_version() -> str:
    """The version of PySpark that the requirements pin."""
    match = re.search(r"^pyspark==(\S+)", REQUIREMENTS.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise BenchError(f"{REQUIREMENTS} pins no pyspark")
    return match[1]


def _spark() -> Path:
    """A folder of its own with PySpark 3.5: no environment can have two versions of it."""
    folder = cache_dir() / f"pyspark-{spark_version()}"
    if folder.is_dir():
        return folder
    say(f"installing pyspark {spark_version()} into the cache ...")
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        # Without its dependencies, since no Python of it is run; pip refuses what does not have the hash.
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-compile", "--require-hashes", "--requirement", str(REQUIREMENTS), "--target", str(part)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_S)
        if done.returncode != 0:
            raise BenchError(
                f"pip could not install pyspark {spark_version()}:\n{(done.stderr or done.stdout)[-2000:]}"
            )
        try:
            os.rename(part, folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"pip did not install pyspark {spark_version()} within {_INSTALL_TIMEOUT_S} s") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder
