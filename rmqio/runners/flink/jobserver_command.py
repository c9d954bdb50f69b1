"""The command that runs a job server, the files that it reads, and the agent that keeps it on the loopback."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqio.errors import LocalError
from rmqio.local.config import to_properties
from rmqio.local.processes import LOOPBACK, Java

# Keeps Beam's gRPC servers on the loopback interface.
#
# Beam's job server and the servers that its embedded workers open (control, data, state, logging) use the host in
# `--job-host` for their addresses only. They listen on all interfaces: `ServerFactory.InetSocketAddressServerFactory`
# calls `NettyServerBuilder.forPort(address.getPort())`, and no option changes that. This is not acceptable: anyone
# who reaches the job server's port can run programs here.
#
# We take the class from the jar that is about to run, change that one call to `NettyServerBuilder.forAddress`, and
# put the result into a jar that comes first on the class path. Nothing else in the class changes.

CLASS_FILE: Final = "org/apache/beam/sdk/fn/server/ServerFactory$InetSocketAddressServerFactory.class"

_UTF8, _METHODREF, _NAME_AND_TYPE = 1, 10, 12
_LONG_AND_DOUBLE: Final = (5, 6)
# Bytes after the tag, by tag (JVMS 4.4); Utf8 begins with its length.
_SIZES: Final = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
_MAGIC: Final = 0xCAFEBABE
_POOL_AT: Final = 8
_NOP, _INVOKEVIRTUAL, _INVOKESTATIC = 0x00, 0xB6, 0xB8
_INET_SOCKET_ADDRESS: Final = "java/net/InetSocketAddress"


class NotPatchable(Exception):
    """The class is missing or not the one that we know; the message says what differs."""


def loopback_jar(jars: Iterable[Path], folder: Path, other: Path) -> Path:
    """Return a jar with the changed class of `jars`, to precede them on the class path. Raises NotPatchable.

    Args:
      jars: the class path.
      folder: keeps the jar for later job servers. A JVM maps its classes from a file only if each jar is as it was.
      other: a folder for the jar if that one cannot be written.
    """
    content = bound_to_its_address(_class_file(jars))
    # A jar, not a folder: Beam sends each entry of its class path to a cluster, and Flink accepts only jars.
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as jar:
        jar.writestr(zipfile.ZipInfo(CLASS_FILE), content)  # with a fixed date, so that each jar is the same
    name = f"loopback-{hashlib.blake2b(content, digest_size=8).hexdigest()}.jar"
    kept = folder / name
    with contextlib.suppress(OSError):
        if not kept.exists() or kept.read_bytes() != made.getvalue():
            folder.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(f".{os.getpid()}.part")
            part.write_bytes(made.getvalue())
            part.replace(kept)
        return kept
    (other / name).write_bytes(made.getvalue())
    return other / name


def bound_to_its_address(content: bytes) -> bytes:
    """Return the class file with its server bound to the address, not only to the port. Raises NotPatchable."""
    pool = _ConstantPool(content)
    ports = [index for index, owner, name, _ in pool.methods() if (owner, name) == (_INET_SOCKET_ADDRESS, "getPort")]
    builders = [entry for entry in pool.methods() if entry[2] == "forPort" and entry[3].startswith("(I)")]
    if len(ports) != 1 or len(builders) != 1:
        raise NotPatchable(f"{CLASS_FILE} is of a Beam that builds its servers in another way")
    index, _, _, descriptor = builders[0]
    call = struct.pack(">BHBH", _INVOKEVIRTUAL, ports[0], _INVOKESTATIC, index)
    if content.count(call) != 1:
        raise NotPatchable(f"{CLASS_FILE} does not call forPort(address.getPort()) once")
    # Append new constants, since other calls may use the old ones. The address is already on the stack.
    first = pool.count
    name, signature = b"forAddress", b"(Ljava/net/SocketAddress;)" + descriptor.removeprefix("(I)").encode()
    added = (
        struct.pack(">BH", _UTF8, len(name)) + name
        + struct.pack(">BH", _UTF8, len(signature)) + signature
        + struct.pack(">BHH", _NAME_AND_TYPE, first, first + 1)
        + struct.pack(">BHH", _METHODREF, pool.owner_index(index), first + 2)
    )  # fmt: skip
    changed = struct.pack(">BBBBH", _NOP, _NOP, _NOP, _INVOKESTATIC, first + 3)
    body = content[pool.end :].replace(call, changed)
    return content[:_POOL_AT] + struct.pack(">H", first + 4) + content[_POOL_AT + 2 : pool.end] + added + body


def _class_file(jars: Iterable[Path]) -> bytes:
    for jar in jars:
        try:
            with zipfile.ZipFile(jar) as file:
                return file.read(CLASS_FILE)
        except KeyError:
            continue
        except (OSError, zipfile.BadZipFile) as error:
            raise NotPatchable(f"{jar} cannot be read: {error}") from error
    raise NotPatchable(f"there is no {CLASS_FILE}")


class _ConstantPool:
    """The constants of a class file (JVMS 4.4), by index."""

    def __init__(self, content: bytes) -> None:
        try:
            magic, _, self.count = struct.unpack_from(">IIH", content)
            if magic != _MAGIC:
                raise NotPatchable(f"{CLASS_FILE} is not a class file")
            self._entries: dict[int, tuple[int, bytes]] = {}
            at, index = _POOL_AT + 2, 1
            while index < self.count:
                tag = content[at]
                size = 2 + struct.unpack_from(">H", content, at + 1)[0] if tag == _UTF8 else _SIZES[tag]
                self._entries[index] = tag, content[at + 1 : at + 1 + size]
                at += 1 + size
                index += 2 if tag in _LONG_AND_DOUBLE else 1  # those two count twice
            self.end = at
        except (struct.error, IndexError, KeyError) as error:
            raise NotPatchable(f"{CLASS_FILE} cannot be read: {error!r}") from error

    def methods(self) -> Iterator[tuple[int, str, str, str]]:
        """Yield index, class, name and descriptor of each method that is called."""
        for index, (tag, value) in self._entries.items():
            if tag == _METHODREF:
                owner, signature = struct.unpack(">HH", value)
                name, descriptor = struct.unpack(">HH", self._entries[signature][1])
                yield index, self._utf8(self._short(owner)), self._utf8(name), self._utf8(descriptor)

    def owner_index(self, method: int) -> int:
        """Return the index of the constant for the class of a method."""
        return self._short(method)

    def _short(self, index: int) -> int:
        return int(struct.unpack_from(">H", self._entries[index][1])[0])

    def _utf8(self, index: int) -> str:
        return self._entries[index][1][2:].decode()


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
