"""The folder with a broker's data, and the configuration files of the local name server and broker."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from rmqio.errors import LocalError
from rmqio.local.errors import LocalBrokerError
from rmqio.local.processes import LOOPBACK

# The folder with a broker's data: exists, is large enough, and is used by only one broker.

# Above this the broker refuses all writes with code 14; no setting raises it (CleanCommitLogService caps it at 0.9).
_DISK_LIMIT: Final = 0.90


def temporary_folder() -> Path:
    """Create a new folder, which the caller removes."""
    return Path(tempfile.mkdtemp(prefix="rmqio-local-"))


def made_folder(folder: Path) -> Path:
    """Return `folder`, creating it if necessary. Raises LocalBrokerError on failure."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalBrokerError(f"cannot create the data folder {folder}: {error.strerror}") from error
    return folder


@contextlib.contextmanager
def locked(data_dir: Path) -> Iterator[int]:
    """Yield a descriptor with an exclusive lock on the folder, for the watchdog: two brokers would ruin the store."""
    descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError as error:
        raise LocalBrokerError(
            f"the data folder {data_dir} is in use by another LocalRocketMQ: stop it, or choose another folder"
        ) from error
    finally:
        os.close(descriptor)


def require_space(folder: Path) -> None:
    """Raise LocalBrokerError if the disk is so full that the broker would refuse to write."""
    usage = shutil.disk_usage(folder)
    used = usage.used / (usage.used + usage.free)
    if used > _DISK_LIMIT:
        raise LocalBrokerError(
            f"the disk of {folder} is {used:.0%} full, and RocketMQ refuses to write above {_DISK_LIMIT:.0%}, which no "
            "setting raises: free some space, or choose a folder on another disk with data_dir="
        )


CLUSTER: Final = "DefaultCluster"

# Properties that LocalRocketMQ relies on; those that users can choose have an argument.
_RESERVED: Final = {
    "brokerName": "name=",
    "brokerClusterName": "nothing, it is fixed",
    "listenPort": "broker_port= or name_server_port=",
    "namesrvAddr": "name_server_port=",
    "storePathRootDir": "data_dir=",
    "rocketmqHome": "data_dir=",
}

Value = str | int | float | bool
Config = Mapping[str, Value]


def broker_properties(*, name: str, name_server: str, port: int, ha_port: int, store: Path, extra: Config) -> Config:
    """Return the broker's properties: our defaults, overridden by the user's `extra`, except for reserved ones.

    Raises LocalError if `extra` names a reserved property.
    """
    ours: dict[str, Value] = {
        "brokerClusterName": CLUSTER,
        "brokerName": name,
        "brokerId": 0,
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "namesrvAddr": name_server,
        "listenPort": port,
        "haListenPort": ha_port,  # no effect unless the user requests the original HA service
        "bindAddress": LOOPBACK,
        "brokerIP1": LOOPBACK,
        "brokerIP2": LOOPBACK,
        "storePathRootDir": str(store),
        # A misspelt topic is an error here, as on carefully run brokers, and not a new topic.
        "autoCreateTopicEnable": False,
        "enablePropertyFilter": True,  # SQL92 filters
        "timerWheelEnable": True,  # messages with an arbitrary delivery time
        # Each flush compares the wheel of timers, 37 MB, byte by byte with its file. Once a second, the default, that
        # keeps a sixth of a core busy. After a crash the broker reads the log of its timers from the last flush on.
        "timerFlushIntervalMs": 60_000,
        # After its restart a name server knows no broker until the broker registers again; 10 s is the minimum.
        "registerNameServerPeriod": 10_000,
        # For so long after its start, 10 s by default, the broker's TransactionMetricsFlushService asks the clock in a
        # loop without a pause, which keeps one core busy. Later it writes its figures so often, in no time.
        "transactionMetricFlushInterval": 500,
        # Delete old files as late as the broker allows. (It refuses writes above 90 %, and no setting raises that.)
        "diskMaxUsedSpaceRatio": 95,
    }
    return _merged(ours, extra, "broker_config")


def name_server_properties(*, port: int, home: Path, extra: Config) -> Config:
    """Return the name server's properties; `extra` as for the broker."""
    ours: dict[str, Value] = {
        "listenPort": port,
        "bindAddress": LOOPBACK,
        "kvConfigPath": str(home / "kvConfig.json"),
        "configStorePath": str(home / "namesrv.properties"),
    }
    return _merged(ours, extra, "name_server_config")


def uses_ha(extra: Config) -> bool:
    """Return whether the user's broker properties request replication, which requires the HA port."""
    return any(key in extra for key in ("haListenPort", "enableControllerMode", "enableDLegerCommitLog")) or (
        extra.get("brokerRole") == "SLAVE"
    )


def to_properties(config: Config) -> str:
    """Return a Java properties file in Latin-1; other characters and special ones are escaped."""
    return "".join(f"{_escape(key)}={_escape(_text(value))}\n" for key, value in config.items())


def logback_xml(file: Path) -> str:
    """Return the logging configuration of one process: at most 3 x 20 MB, unbuffered so that it survives a crash.

    RocketMQ's own configuration has thirty appenders and prints 300 lines about them at the start.
    """
    name = quoteattr(str(file))[1:-1]
    return f"""<configuration>
  <statusListener class="org.apache.rocketmq.logging.ch.qos.logback.core.status.NopStatusListener"/>
  <appender name="file" class="org.apache.rocketmq.logging.ch.qos.logback.core.rolling.RollingFileAppender">
    <file>{name}</file>
    <rollingPolicy class="org.apache.rocketmq.logging.ch.qos.logback.core.rolling.FixedWindowRollingPolicy">
      <fileNamePattern>{name}.%i</fileNamePattern><minIndex>1</minIndex><maxIndex>2</maxIndex>
    </rollingPolicy>
    <triggeringPolicy class="org.apache.rocketmq.logging.ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy">
      <maxFileSize>20MB</maxFileSize>
    </triggeringPolicy>
    <encoder><pattern>%d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c %t - %m%n</pattern><charset>UTF-8</charset></encoder>
  </appender>
  <appender name="console" class="org.apache.rocketmq.logging.ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%m%n</pattern><charset>UTF-8</charset></encoder>
  </appender>
  <logger name="RocketmqConsole" level="INFO" additivity="false"><appender-ref ref="console"/></logger>
  <logger name="RocketmqRemoting" level="WARN"/>
  <logger name="RocketmqTraffic" level="WARN"/>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


def _merged(ours: Config, extra: Config, argument: str) -> Config:
    for key in extra:
        if key in _RESERVED:
            raise LocalError(f"{argument} cannot set {key!r}: use {_RESERVED[key]}")
    return {**ours, **extra}


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(text: str) -> str:
    special = {
        "\\": "\\\\",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "=": "\\=",
        ":": "\\:",
        "#": "\\#",
        "!": "\\!",
        " ": "\\ ",
    }
    units = text.encode("utf-16-be")
    characters = (chr(int.from_bytes(units[i : i + 2], "big")) for i in range(0, len(units), 2))
    return "".join(special.get(c) or (c if c.isascii() and c.isprintable() else f"\\u{ord(c):04x}") for c in characters)
