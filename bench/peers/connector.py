"""rocketmq-flink, which is on no registry: built from a clone, at the commit that works with a broker of today."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.common.jvm import JAVA, Jdk
from bench.common.tally import BenchError
from rmqio.local.artefacts import read_lock
from rmqio.local.errors import LocalBrokerError
from rmqio.local.fetch import fetch

COMMIT: Final = "90b00be"
"""Before its source took LitePull consumers. Its head restarts for ever: "message queue is not in assigned list"."""
URL: Final = "https://github.com/apache/rocketmq-flink"
LOCK: Final = JAVA / "rocketmq-flink-1.15.0.lock.json"
"""Flink 1.15.0 and RocketMQ's client 4.9.2, as its pom.xml says. Written by `python -m rmqio.local.lock`."""
_LEGACY: Final = "src/main/java/org/apache/rocketmq/flink/legacy"
_LEFT_OUT: Final = ("RowKeyValueDeserializationSchema.java", "TestUtils.java")
_OPENED: Final = (
    "java.lang",
    "java.lang.reflect",
    "java.net",
    "java.nio",
    "java.time",
    "java.util",
    "java.util.concurrent",
)


def build(jdk: Jdk, clone: Path, folder: Path) -> str:
    """Compiles source, sink and our job. Returns the class path. Raises `BenchError`, which says why."""
    try:
        jars = os.pathsep.join(map(str, fetch(read_lock(LOCK))))
    except LocalBrokerError as error:
        raise BenchError(f"rocketmq-flink: {error}") from error
    sources, classes = folder / "sources", folder / "classes"
    for each in (sources, classes):
        each.mkdir(parents=True)
    paths = [
        f"{_LEGACY}/{name}" for name in ("RocketMQConfig", "RocketMQSink", "RocketMQSourceFunction", "RunningChecker")
    ]
    archive = ["git", "-C", str(clone), "archive", COMMIT, *(f"{path}.java" for path in paths), f"{_LEGACY}/common"]
    with subprocess.Popen(archive, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as packing:
        unpacked = subprocess.run(["tar", "-x", "-C", str(sources)], stdin=packing.stdout, check=False)
        said = packing.stderr.read().decode() if packing.stderr else ""
    if packing.returncode or unpacked.returncode:
        raise BenchError(f"{clone} is no clone of {URL} with the commit {COMMIT}: {said.strip()}")
    files = [str(path) for path in sources.rglob("*.java") if path.name not in _LEFT_OUT]
    command = [str(jdk.javac), "-nowarn", "-proc:none", "-cp", jars, "-d", str(classes), *files]
    done = subprocess.run([*command, str(JAVA / "FlinkProvinces.java")], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"rocketmq-flink does not compile:\n{done.stderr[-3000:]}")
    return os.pathsep.join([str(classes), jars])


def cloned(folder: Path) -> Path:
    """Clones it. Raises `BenchError` if GitHub cannot be reached."""
    done = subprocess.run(["git", "clone", "--quiet", URL, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{URL} cannot be cloned (give --rocketmq_flink=CLONE): {done.stderr.strip()[-300:]}")
    return folder


def command(jdk: Jdk, class_path: str, checkpoints: Path, arguments: Sequence[str]) -> list[str]:
    """The command line of the job. It goes on from the newest checkpoint, if there is one."""
    newest = max(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns, default=None)
    restore = [] if newest is None else [f"file://{newest.parent}"]
    options = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED]
    options += ["-Xmx1g", "-Drocketmq.client.logUseSlf4j=false", f"-Duser.home={checkpoints.parent}"]
    more = [*arguments, f"file://{checkpoints}", *restore]
    return [str(jdk.java), *options, "-cp", class_path, "FlinkProvinces", *more]
