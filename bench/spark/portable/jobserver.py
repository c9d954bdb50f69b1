"""The job server of Beam's portable SparkRunner, with Spark in the same JVM."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from bench.common.tally import BenchError
from bench.spark.portable.loopback import write_class
from bench.spark.settings import HEAP_MB, MASTER
from bench.spark.side import spark_settings
from rmqio.local.config import temporary_folder
from rmqio.local.errors import LocalBrokerError
from rmqio.local.processes import LOOPBACK, JavaProcess, Watchdog, find_java, free_port
from rmqio.local.ready import wait_until

MAIN: Final = "org.apache.beam.runners.spark.SparkJobServerDriver"
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 5.0
# Packages that Spark opens for itself when its own scripts start it (JavaModuleOptions).
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_LOGGING: Final = """
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class JobServer:
    """Runs within a `with` block, and ends with this process whatever ends that."""

    def __init__(self, title: str, jars: Sequence[Path]) -> None:
        self._title, self._jars = title, jars
        self._stack = ExitStack()
        self._port = free_port()

    @property
    def endpoint(self) -> str:
        """The address that jobs are sent to."""
        return f"{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        try:
            with ExitStack() as stack:
                folder = temporary_folder()
                watchdog = Watchdog(folder)
                stack.callback(watchdog.close)
                process = JavaProcess(self._title, folder, watchdog, self._command(folder))
                stack.callback(process.terminate, _STOP_TIMEOUT_S)
                process.start()
                wait_until(self._check, [process], what="starting the job server", timeout_s=_START_TIMEOUT_S)
                self._stack = stack.pop_all()
        except LocalBrokerError as error:
            raise BenchError(str(error)) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _check(self) -> str | None:
        try:
            socket.create_connection((LOOPBACK, self._port), timeout=1).close()
        except OSError as error:
            return f"nothing listens on its port ({error})"
        return None

    def _command(self, folder: Path) -> list[str]:
        java = find_java()
        (folder / "log4j2.properties").write_text(_LOGGING, encoding="ascii")
        for name in ("tmp", "artefacts", "classes"):
            (folder / name).mkdir()
        write_class(self._jars, folder / "classes")
        settings = {
            **spark_settings(folder / "tmp"),
            "java.io.tmpdir": folder / "tmp",
            "user.home": folder,
            "log4j2.configurationFile": folder / "log4j2.properties",
            "jdk.reflect.useDirectMethodHandle": "false",
            # By default each job starts a Spark of its own; with this, one serves all of them, as on our side.
            "beam.spark.test.reuseSparkContext": "true",
        }
        return [
            str(java.executable),
            f"-Xmx{HEAP_MB}m",
            *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED if java.major >= 9),
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-cp",
            os.pathsep.join(map(str, (folder / "classes", *self._jars))),
            MAIN,
            f"--job-host={LOOPBACK}",
            f"--job-port={self._port}",
            f"--artifact-port={free_port()}",
            "--expansion-port=-1",  # none
            f"--artifacts-dir={folder / 'artefacts'}",
            f"--spark-master-url={MASTER}",
        ]
