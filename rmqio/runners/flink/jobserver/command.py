"""The command that runs a job server, and the files that it reads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqio.errors import LocalError
from rmqio.local.config import to_properties
from rmqio.local.processes.java import Java
from rmqio.local.processes.ports import LOOPBACK

MAIN_CLASS: Final = "org.apache.beam.runners.flink.FlinkJobServerDriver"
SMALLEST_HEAP_MB: Final = 128
LOCAL_MASTER: Final = "[local]"

Value = str | int | float | bool
_MASTER: Final = re.compile(r"\[(local|auto)\]|(https?://)?[^\s/:]+:\d{1,5}")

# As in the configuration that Flink ships for Java 17 (env.java.opts.all), without modules that a plain runtime lacks.
_EXPORTS: Final = ("sun.net.util",)
_OPENS: Final = (
    "java.lang",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "sun.nio.ch",
)

_EMBEDDED: Final[Mapping[str, Value]] = {
    # By default, Flink binds its REST endpoint and its blob server to all interfaces.
    "rest.address": LOOPBACK,
    "rest.bind-address": LOOPBACK,
    "jobmanager.bind-host": LOOPBACK,
    "taskmanager.bind-host": LOOPBACK,
    "taskmanager.host": LOOPBACK,
    # With checkpoints, Flink would restart a failing job forever. Here its Python code runs in the process that
    # submitted it: an error must reach that process, and a job whose process has gone must end.
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 3,
    "restart-strategy.fixed-delay.delay": "1 s",
}
"""Properties of the cluster inside the job server."""

_RESTARTS: Final = "restart-strategy"
STREAM_RESTARTS: Final[Mapping[str, Value]] = {
    # Any number of failures over the life of a stream. While a broker is down, a read fails about once a minute, and
    # the stream must outlive that. A failure that comes again at once reaches the process after some ten seconds.
    f"{_RESTARTS}.type": "failure-rate",
    f"{_RESTARTS}.failure-rate.max-failures-per-interval": 10,
    f"{_RESTARTS}.failure-rate.failure-rate-interval": "5 min",
    f"{_RESTARTS}.failure-rate.delay": "1 s",
}
"""The same for a job that goes on from its last checkpoint. More than ten failures within five minutes end it."""

# Messages of these at WARNING are true of every healthy job: long operator names are cut in metrics, no Kerberos
# tokens, no files for a web interface, a Python worker that ended before the servers it was connected to, and its
# answers to bundle finalization, which nobody waits for.
_CHATTY: Final = (
    "org.apache.flink.metrics",
    "org.apache.flink.runtime.security.token",
    "org.apache.flink.runtime.webmonitor",
    "org.apache.beam.runners.fnexecution.control.DefaultJobBundleFactory",
    "org.apache.beam.runners.fnexecution.control.FnApiControlClient",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's choices, apart from folders and ports."""

    flink_master: str = LOCAL_MASTER
    heap_mb: int = 512
    flink_config: Mapping[str, Value] | None = None
    java_options: tuple[str, ...] = ()
    artifacts_dir: Path | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        if not _MASTER.fullmatch(self.flink_master):
            raise LocalError(
                f"flink_master={self.flink_master!r}: it must be [local], a cluster inside the job server, or the "
                "host:port of a cluster's REST endpoint"
            )
        if self.heap_mb < SMALLEST_HEAP_MB:
            raise LocalError(f"heap_mb={self.heap_mb}: the job server needs at least {SMALLEST_HEAP_MB}")


def write_command(
    settings: Settings, java: Java, jars: Sequence[Path], folder: Path, job_port: int, more: Sequence[str] = ()
) -> list[str]:
    """Return the command line of the job server whose files are in `folder`. Writes its configuration there.

    `more` are options of the JVM, which those of the user follow.
    """
    tmp, conf = folder / "tmp", folder / "conf"
    for made in (tmp, conf):
        made.mkdir(parents=True, exist_ok=True)
    logging = folder / "logging.properties"
    logging.write_text(to_properties(_logging(folder / "log.txt", settings.verbose)), encoding="ascii")
    # JSON is valid YAML, and needs no quoting rules of our own.
    (conf / "config.yaml").write_text(json.dumps(flink_config(settings), indent=1), encoding="utf-8")
    return [
        str(java.executable),
        *java_options(java, settings.heap_mb),
        f"-Djava.io.tmpdir={tmp}",
        f"-Djava.util.logging.config.file={logging}",
        # A job server that Beam publishes logs through another library.
        f"-Dorg.slf4j.simpleLogger.logFile={folder / 'log.txt'}",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={'info' if settings.verbose else 'warn'}",
        *more,
        *settings.java_options,
        "-cp",
        os.pathsep.join(str(path) for path in jars),
        MAIN_CLASS,
        f"--job-host={LOOPBACK}",
        f"--job-port={job_port}",
        "--artifact-port=0",
        "--expansion-port=0",
        f"--flink-master={settings.flink_master}",
        f"--flink-conf-dir={conf}",
        f"--artifacts-dir={settings.artifacts_dir or folder / 'artifacts'}",
    ]


def flink_config(settings: Settings) -> Mapping[str, Value]:
    """Return Flink's own properties; the user's take precedence."""
    ours = _EMBEDDED if settings.flink_master in ("[local]", "[auto]") else {}
    return {**ours, **(settings.flink_config or {})}


def says_restarts(config: Mapping[str, Value]) -> bool:
    """Return whether the user's properties say how failed jobs are restarted."""
    return any(name.startswith(_RESTARTS) for name in config)


def java_options(java: Java, heap_mb: int) -> list[str]:
    """Return the JVM's options: a bounded heap, and access to what Flink opens by reflection."""
    options = [f"-Xmx{heap_mb}m", "-XX:-OmitStackTraceInFastThrow", "-Dfile.encoding=UTF-8"]
    options += [f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in _EXPORTS]
    options += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS]
    if java.major >= 22:
        options.append("--enable-native-access=ALL-UNNAMED")  # for RocksDB and Netty; avoids a warning
    if java.major >= 23:
        options.append("--sun-misc-unsafe-memory-access=allow")  # for Flink's own memory; avoids a warning
    return options


def _logging(file: Path, verbose: bool) -> Mapping[str, Value]:
    """Return the configuration of java.util.logging: warnings only, in one file of at most 50 MB."""
    handler, simple = "java.util.logging.FileHandler", "java.util.logging.SimpleFormatter"
    config: dict[str, Value] = {
        "handlers": handler,
        # The level of the handler, not of the loggers: Beam sets those to INFO when a job arrives.
        f"{handler}.level": "INFO" if verbose else "WARNING",
        f"{handler}.pattern": str(file).replace("%", "%%"),
        f"{handler}.limit": 50_000_000,
        f"{handler}.count": 1,
        f"{handler}.encoding": "UTF-8",
        f"{handler}.formatter": simple,
        f"{simple}.format": "%1$tF %1$tT.%1$tL %4$s %3$s - %5$s%6$s%n",
    }
    return config if verbose else config | {f"{name}.level": "SEVERE" for name in _CHATTY}
