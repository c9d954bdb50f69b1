"""Lays out a data folder for one name server and one broker, and builds the commands that run them.

data_dir/store               messages, topics, offsets
data_dir/name_server|broker  its configuration, class path folder, output.txt, log.txt and tmp
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rmqio.errors import LocalError
from rmqio.local.artefacts import ROCKETMQ_LOCK, read_lock
from rmqio.local.config import (
    Config,
    broker_properties,
    logback_xml,
    name_server_properties,
    to_properties,
    uses_ha,
)
from rmqio.local.fetch import fetch
from rmqio.local.ha import write_ha_service
from rmqio.local.processes.class_data import ClassData
from rmqio.local.processes.java import Java, find_java
from rmqio.local.processes.ports import LOOPBACK, free_port
from rmqio.local.processes.process import JavaProcess, java_options
from rmqio.local.processes.watchdog import Watchdog

_NAME_SERVER_MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER_MAIN: Final = "org.apache.rocketmq.broker.BrokerStartup"
_NAME_SERVER_HEAP_MB: Final = 128
_SMALLEST_HEAP_MB: Final = 128
CONF: Final = "conf.properties"
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


LOCK_VARIABLE: Final = "RMQIO_LOCAL_LOCK"
"""The lock of another RocketMQ version, for tests. Versions before 5.0 bind all interfaces, whatever is configured."""
JAVA_OPTIONS_VARIABLE: Final = "RMQIO_LOCAL_JAVA_OPTIONS"
"""Options of both JVMs, after the default ones, as a shell would split them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's choices, except for paths and ports."""

    name: str
    broker_config: Config
    name_server_config: Config
    broker_heap_mb: int
    tls: bool
    tls_config: Path | None
    java_options: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise LocalError(f"name={self.name!r}: a broker's name has 1 to 127 letters, digits and _ - % |")
        if self.broker_heap_mb < _SMALLEST_HEAP_MB:
            raise LocalError(f"broker_heap_mb={self.broker_heap_mb}: the broker needs at least {_SMALLEST_HEAP_MB}")
        if self.tls_config is not None and not self.tls_config.is_file():
            raise LocalError(f"tls_config={str(self.tls_config)!r}: no such file")


@dataclass(frozen=True, slots=True)
class Installation:
    """Two processes, ready to start, and their paths."""

    data_dir: Path
    name_server: JavaProcess
    name_server_port: int
    broker: JavaProcess
    broker_port: int
    class_data: ClassData


def install(
    settings: Settings, data_dir: Path, watchdog: Watchdog, name_server_port: int, broker_port: int
) -> Installation:
    """Write the files of both. Raises LocalError: a reserved property; LocalBrokerError: no Java, or no artefacts."""
    name_server_dir, broker_dir = data_dir / "name_server", data_dir / "broker"
    ours = name_server_properties(port=name_server_port, home=name_server_dir, extra=settings.name_server_config)
    brokers = broker_properties(
        name=settings.name,
        name_server=f"{LOOPBACK}:{name_server_port}",
        port=broker_port,
        ha_port=free_port(),
        store=data_dir / "store",
        extra=settings.broker_config,
    )
    programs = find_programs()
    return Installation(
        data_dir,
        name_server_process(settings, programs, name_server_dir, watchdog, ours),
        name_server_port,
        broker_process(settings, programs, broker_dir, watchdog, brokers, lists_classes=True),
        broker_port,
        programs.class_data,
    )


@dataclass(frozen=True, slots=True)
class Programs:
    """Java and RocketMQ's class path."""

    java: Java
    jars: Sequence[Path]
    class_data: ClassData = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_data", ClassData(self.java, self.jars))


def find_programs() -> Programs:
    """Return the installed or downloaded programs. Raises LocalBrokerError."""
    return Programs(find_java(), fetch(read_lock(Path(os.environ.get(LOCK_VARIABLE) or ROCKETMQ_LOCK))))


def name_server_process(
    settings: Settings, programs: Programs, folder: Path, watchdog: Watchdog, config: Config
) -> JavaProcess:
    """Return an unstarted name server with these properties; writes its files to `folder`."""
    options = java_options(programs.java, heap_mb=_NAME_SERVER_HEAP_MB, throughput=False) + _tls_options(settings)
    options += _more_options()
    options += programs.class_data.options(options)
    command = _command(programs, options, folder, _NAME_SERVER_MAIN, config)
    return JavaProcess("name server", folder, watchdog, command)


def broker_process(
    settings: Settings,
    programs: Programs,
    folder: Path,
    watchdog: Watchdog,
    config: Config,
    *,
    lists_classes: bool = False,
) -> JavaProcess:
    """Return an unstarted broker with these properties; writes its files to `folder`.

    `lists_classes`: the caller makes the file of classes (`ClassData.make`) when the broker is up.
    """
    options = java_options(programs.java, heap_mb=settings.broker_heap_mb, throughput=True) + _tls_options(settings)
    options += [*settings.java_options, *_more_options()]
    options += programs.class_data.options(options, lists_to=folder / "classes.list" if lists_classes else None)
    command = _command(programs, options, folder, _BROKER_MAIN, config)
    write_ha_service(folder / "classes", has_port=uses_ha(settings.broker_config))
    return JavaProcess("broker", folder, watchdog, command)


def _tls_options(settings: Settings) -> list[str]:
    # Otherwise RocketMQ reads /etc/rocketmq/tls.properties, which is not ours.
    config = settings.tls_config or "none"
    mode = "permissive" if settings.tls or settings.tls_config else "disabled"
    return [f"-Dtls.server.mode={mode}", f"-Dtls.config.file={config}"]


def _more_options() -> list[str]:
    given = os.environ.get(JAVA_OPTIONS_VARIABLE, "")
    try:
        return shlex.split(given)
    except ValueError as error:
        raise LocalError(f"{JAVA_OPTIONS_VARIABLE}={given!r}: {error}") from error


def _command(programs: Programs, options: Sequence[str], folder: Path, main_class: str, config: Config) -> list[str]:
    classes, tmp, conf = folder / "classes", folder / "tmp", folder / CONF
    # Remains of an earlier run: libraries that Java unpacked before a SIGKILL, an HA service.
    for old in (classes, tmp):
        shutil.rmtree(old, ignore_errors=True)
        old.mkdir(parents=True)
    conf.write_text(to_properties(config), encoding="ascii")
    logging = logback_xml(folder / "log.txt")
    (classes / "rmq.logback.xml").write_text(logging, encoding="utf-8")
    (folder / "conf").mkdir(exist_ok=True)
    for program in ("namesrv", "broker"):  # where versions before 5.0 look
        (folder / "conf" / f"logback_{program}.xml").write_text(logging, encoding="utf-8")
    return [
        str(programs.java.executable),
        *options,
        f"-Djava.io.tmpdir={tmp}",
        f"-Duser.home={folder}",  # where RocketMQ and its libraries write files whose place no property changes
        f"-Drocketmq.home.dir={folder}",
        "-cp",
        os.pathsep.join(str(path) for path in (*programs.jars, classes)),
        main_class,
        "-c",
        str(conf),
    ]
