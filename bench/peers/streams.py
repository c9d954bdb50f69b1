"""RocketMQ Streams 1.0.1-preview, from Maven."""

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

LOCK: Final = JAVA / "rocketmq-streams-clients-1.0.1-preview.lock.json"
"""Written by `python -m rmqio.local.lock`: 124 MB."""
_QUIET: Final = '<configuration><root level="WARN"/></configuration>\n'
"""Without it, logback writes lines of DEBUG for what every message does."""
_OPENED: Final = ("java.lang", "java.lang.reflect", "java.math", "java.net", "java.nio", "java.text", "java.util")


def build(jdk: Jdk, folder: Path) -> str:
    """Compiles our jobs. Returns the class path. Raises `BenchError`."""
    try:
        jars = os.pathsep.join(map(str, fetch(read_lock(LOCK))))
    except LocalBrokerError as error:
        raise BenchError(f"RocketMQ Streams: {error}") from error
    folder.mkdir(parents=True)
    (folder / "logback.xml").write_text(_QUIET, encoding="utf-8")
    command = [str(jdk.javac), "-nowarn", "-proc:none", "-cp", jars, "-d", str(folder), str(JAVA / "StreamsJobs.java")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"StreamsJobs.java does not compile:\n{done.stderr[-3000:]}")
    return os.pathsep.join([str(folder), jars])


def command(jdk: Jdk, class_path: str, home: Path, arguments: Sequence[str]) -> list[str]:
    """The command line of a job. Its local state and its logs go to `home`."""
    options = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED]
    options += ["-Xmx1g", f"-Duser.home={home}", f"-Djava.io.tmpdir={home}"]
    return [str(jdk.java), *options, "-cp", class_path, "StreamsJobs", *arguments]
