"""`LocalRocketMQ`: a name server and a broker of RocketMQ 5.5.0 as a context manager."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Self

from rmqio.errors import LocalError
from rmqio.local import ready
from rmqio.local import ready as probe
from rmqio.local.config import Config, locked, made_folder, require_space, temporary_folder
from rmqio.local.errors import LocalBrokerError
from rmqio.local.install import CONF, Installation, Settings, install
from rmqio.local.processes import LOOPBACK, JavaProcess, Watchdog, free_port, require_free

Part = Literal["broker", "name_server", "all"]

_TERMINATE_TIMEOUT_S: Final = 60.0
_TOPIC_TIMEOUT_S: Final = 30.0
_PORT_ATTEMPTS: Final = 5


class LocalRocketMQ:
    """A RocketMQ 5.5.0 name server and broker, running on this machine for the duration of the `with` block.

    They listen only on the loopback interface, on free ports unless given (the broker also on `broker_port - 2`). The
    broker's HA port, which RocketMQ would bind to all interfaces, is not opened. When this process ends, even by
    SIGKILL, they are killed. Several instances can run side by side; one instance belongs to one thread at a time.

    `broker_config` and `name_server_config` are RocketMQ's own properties and override our defaults. RocketMQ silently
    ignores unknown properties. Our defaults differ from RocketMQ's as follows: sending to a topic does not create it
    (`autoCreateTopicEnable=False`), SQL92 filters are on, and TLS is off unless `tls` is set (then with a self-signed
    certificate, in addition to plain text). `tls_config` is a file of RocketMQ's TLS properties (`tls.server.certPath`
    etc.), for TLS with your own certificates, in addition to plain text.
    `data_dir` keeps topics and messages for the next instance; without it, a temporary folder is removed at the end.
    `broker_heap_mb` is the maximum heap size. `java_options` are additional options of the broker's JVM.
    `credentials` (access key, secret key) sign `create_topic`, for a broker with access control.
    `start_timeout_s` limits each wait for a start, without downloads.

    The first start downloads 98 MB, see `rmqio.local.fetch`. Raises LocalError for invalid arguments, and
    LocalBrokerError for problems with Java, the artefacts, a port or the broker itself.
    """

    def __init__(
        self,
        *,
        name: str = "broker-a",
        name_server_port: int | None = None,
        broker_port: int | None = None,
        broker_config: Config | None = None,
        name_server_config: Config | None = None,
        broker_heap_mb: int = 1024,
        data_dir: str | os.PathLike[str] | None = None,
        tls: bool = False,
        tls_config: str | os.PathLike[str] | None = None,
        java_options: Sequence[str] = (),
        credentials: tuple[str, str] | None = None,
        start_timeout_s: float = 120.0,
    ) -> None:
        self._settings = Settings(
            name=name,
            broker_config=dict(broker_config or {}),
            name_server_config=dict(name_server_config or {}),
            broker_heap_mb=broker_heap_mb,
            tls=tls,
            tls_config=None if tls_config is None else Path(tls_config).absolute(),
            java_options=tuple(java_options),
        )
        self._ports = (name_server_port, broker_port)
        self._given_dir = None if data_dir is None else Path(data_dir).absolute()
        self._credentials = credentials
        self._start_timeout_s = start_timeout_s
        self._data_dir: Path | None = None
        self._watchdog: Watchdog | None = None
        self._installation: Installation | None = None
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        if self._installation is None:
            return f"<LocalRocketMQ {self._settings.name}, not started>"
        here = self._installation
        return f"<LocalRocketMQ {self._settings.name} at {self.name_server}: {here.name_server!r}, {here.broker!r}>"

    @property
    def name(self) -> str:
        """The broker's name in routes."""
        return self._settings.name

    @property
    def name_server(self) -> str:
        """The name server's address, "127.0.0.1:port"."""
        return f"{LOOPBACK}:{self._here.name_server_port}"

    @property
    def broker(self) -> str:
        """The broker's address, "127.0.0.1:port"; clients find it through the name server."""
        return f"{LOOPBACK}:{self._here.broker_port}"

    @property
    def data_dir(self) -> Path:
        """The folder with the store, the configuration files and the logs."""
        return self._here.data_dir

    def pid(self, part: Literal["broker", "name_server"] = "broker") -> int | None:
        """The process id, or None if that part is not running."""
        return self._parts(part)[0].pid()

    def logs(self) -> str:
        """The end of both logs."""
        return "\n".join(process.tail() for process in self._parts("all"))

    def start(self) -> None:
        """Fetch missing files, start both processes, and return when both answer and the broker is registered.

        After a failure nothing is left running. Raises LocalBrokerError if already started.
        """
        if self._installation is not None:
            raise LocalBrokerError(f"already started: {self!r}")
        for attempt in range(_PORT_ATTEMPTS):
            try:
                self._install()
                for process in self._parts("all"):
                    process.start()
                self._wait_until_up("starting")
            except BaseException as error:
                # Another process took a free port before Java bound it: choose other ports, if we are free to.
                lost = isinstance(error, LocalBrokerError) and "BindException" in str(error)
                self._stop(graceful=False)
                if not lost or None not in self._ports or attempt == _PORT_ATTEMPTS - 1:
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop both and, if the data folder is temporary, remove it. Idempotent.

        With a `data_dir` the broker is asked to stop (about ten seconds), so that it saves consumer offsets.
        """
        if self._owner == os.getpid():  # a forked child has the object, but must not stop the parent's processes
            self._stop(graceful=self._given_dir is not None)

    def kill(self, part: Part = "broker") -> None:
        """Send SIGKILL, like a crash: nothing is flushed, connections break. `restart` starts it again."""
        for process in self._parts(part):
            process.kill()

    def pause(self, part: Part = "broker") -> None:
        """Send SIGSTOP, like a hanging machine: connections stay open and nothing answers."""
        for process in self._parts(part):
            process.pause()

    def resume(self, part: Part = "broker") -> None:
        """Send SIGCONT after `pause`."""
        for process in self._parts(part):
            process.resume()

    def restart(self, part: Part = "broker") -> None:
        """Start `part` again on the same ports and data folder, and return when both answer.

        A part that is still running is asked to stop first (the broker takes about ten seconds: `kill` it first if a
        clean stop does not matter). A restarted name server knows no broker until the broker registers again. It is
        asked to do so; with access control and without `credentials`, it does so within 10 s.
        """
        here = self._here
        for process in self._parts(part):
            process.terminate(_TERMINATE_TIMEOUT_S)
            if process is here.name_server:
                require_free(here.name_server_port, "name server")
            else:
                require_free(here.broker_port, "broker")
                require_free(here.broker_port - 2, "broker")
            process.start()
        self._wait_until_up("restarting")

    def create_topic(
        self,
        name: str,
        queues: int = 4,
        *,
        perm: int = 6,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Create or change a topic, and return when the name server's route shows it.

        `perm` is RocketMQ's: 4 read, 2 write, 6 both. `attributes` are the topic's, for example
        {"message.type": "DELAY"} or {"queue.type": "BatchCQ"}. Raises LocalBrokerError if the broker refuses.
        """
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "true" if order else "false",
        }
        if attributes:
            fields["attributes"] = ",".join(f"+{key}={value}" for key, value in attributes.items())
        self._admin(self.broker, probe.UPDATE_AND_CREATE_TOPIC, fields, f"create topic {name!r}")
        self._wait(
            lambda: ready.route_check(self.name_server, name, self.name, queues=queues), f"creating topic {name!r}"
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages, and return when it has no route. No effect if there is none."""
        fields = {"topic": name}
        self._admin(self.broker, probe.DELETE_TOPIC_IN_BROKER, fields, f"delete topic {name!r}")
        self._admin(self.name_server, probe.DELETE_TOPIC_IN_NAMESRV, fields, f"delete topic {name!r}")
        self._wait(lambda: ready.no_route_check(self.name_server, name), f"deleting topic {name!r}")

    @property
    def _here(self) -> Installation:
        if self._installation is None:
            raise LocalBrokerError("this LocalRocketMQ is not started: use it as a context manager or call start()")
        return self._installation

    def _parts(self, part: Part) -> list[JavaProcess]:
        here = self._here
        parts = {"name_server": [here.name_server], "broker": [here.broker], "all": [here.name_server, here.broker]}
        if part not in parts:
            raise LocalError(f"part={part!r}: it must be 'broker', 'name_server' or 'all'")
        return parts[part]

    def _install(self) -> None:
        given_name_server_port, given_broker_port = self._ports
        name_server_port = free_port() if given_name_server_port is None else given_name_server_port
        broker_port = free_port(below=(2,)) if given_broker_port is None else given_broker_port
        require_free(name_server_port, "name server")
        require_free(broker_port, "broker")
        require_free(broker_port - 2, "broker's second port, broker_port - 2")
        data_dir = self._data_dir = temporary_folder() if self._given_dir is None else made_folder(self._given_dir)
        require_space(data_dir)
        with locked(data_dir) as lock:
            self._watchdog = Watchdog(None if self._given_dir else data_dir, hold=lock)
        self._installation = install(self._settings, data_dir, self._watchdog, name_server_port, broker_port)

    def _wait_until_up(self, what: str) -> None:
        self._wait(lambda: ready.name_server_check(self.name_server), f"{what} (name server {self.name_server})")
        self._wait(self._broker_check, f"{what} (broker {self.broker})")
        self._here.class_data.make()

    def _broker_check(self) -> str | None:
        missing = ready.broker_check(self.name_server, self.name, self.broker)
        if missing is not None:
            permission = self._settings.broker_config.get("brokerPermission", 6)
            conf = self.data_dir / "broker" / CONF
            ready.ask_to_register(self.broker, conf, permission=permission, credentials=self._credentials)
        return missing

    def _wait(self, check: ready.Check, what: str) -> None:
        ready.wait_until(check, self._parts("all"), what=what, timeout_s=self._start_timeout_s)

    def _admin(self, address: str, code: int, fields: Mapping[str, str], what: str) -> None:
        try:
            answer = probe.call(address, code, fields, credentials=self._credentials, timeout_s=_TOPIC_TIMEOUT_S)
        except (OSError, ValueError) as error:
            raise LocalBrokerError(f"{what}: {address} does not answer ({error})") from error
        if answer.code != probe.SUCCESS:
            raise LocalBrokerError(f"{what}: {address} refuses with code {answer.code}: {answer.remark}")

    def _stop(self, *, graceful: bool) -> None:
        if self._installation is not None:
            for process in (self._installation.broker, self._installation.name_server):
                process.terminate(_TERMINATE_TIMEOUT_S) if graceful else process.kill()
            self._installation = None
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
        if self._data_dir is not None and self._given_dir is None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
        self._data_dir = None
