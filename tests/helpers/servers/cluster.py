"""Several name servers and brokers of RocketMQ on this machine, also replicas. Each can be killed by itself.

`rmqio.local` starts one of each; this module uses its parts. The key of a broker is its name, "a". The key of a replica
is its name and broker id, "a/1". No server outlives the process that started it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from rmqio.local import LocalBrokerError, ready
from rmqio.local import ready as probe
from rmqio.local.config import Config, broker_properties, name_server_properties, require_space, temporary_folder
from rmqio.local.install import (
    CONF,
    Programs,
    Settings,
    broker_process,
    find_programs,
    name_server_process,
)
from rmqio.local.processes import LOOPBACK, JavaProcess, Watchdog
from tests.helpers.servers.ports import reserved_port
from tests.helpers.waiting import at_most

SMALL: Final[Config] = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 200_000,
    "timerWheelEnable": False,
}
"""Settings for a store that is small and recovers quickly."""

_HEAP_MB: Final = 256
_TIMEOUT_S: Final = 60.0


class Server:
    """One process and its address. `is_up` returns what is missing until it serves, or None."""

    def __init__(self, process: JavaProcess, address: str, is_up: ready.Check) -> None:
        self.process, self.address, self._is_up = process, address, is_up

    def __repr__(self) -> str:
        return f"<{self.process!r} at {self.address}>"

    @property
    def is_running(self) -> bool:
        return self.process.pid() is not None

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.process.kill()

    def stop(self) -> None:
        """Sends SIGTERM and waits. A broker takes about ten seconds to stop."""
        self.process.terminate(_TIMEOUT_S)

    def pause(self) -> None:
        """Sends SIGSTOP."""
        self.process.pause()

    def resume(self) -> None:
        """Sends SIGCONT."""
        self.process.resume()

    def restart(self) -> None:
        """Starts the server after `kill` or `stop`. Returns when it serves."""
        self.process.start()
        self.wait_until_up()

    def wait_until_up(self) -> None:
        ready.wait_until(self._is_up, [self.process], what=f"starting {self!r}", timeout_s=at_most(_TIMEOUT_S))


class Cluster:
    """Runs for as long as the `with` block.

    Args:
      name_servers: how many to start.
      brokers: RocketMQ's properties of each broker, by its key.
      config: properties of all brokers. The properties of a single broker override them.
    """

    def __init__(
        self, *, name_servers: int = 1, brokers: Mapping[str, Config] | Iterable[str], config: Config = SMALL
    ) -> None:
        self._given = dict(brokers) if isinstance(brokers, Mapping) else {key: {} for key in brokers}
        self._config = config
        self._count = name_servers
        self.name_servers: list[Server] = []
        self.brokers: dict[str, Server] = {}
        self.folder = Path()
        self._watchdog: Watchdog | None = None

    def __enter__(self) -> Self:
        self.folder = temporary_folder()
        require_space(self.folder)
        self._watchdog = Watchdog(self.folder)
        try:
            programs = find_programs()
            for number in range(self._count):
                self.name_servers.append(self._new_name_server(programs, self._watchdog, number))
            for key, config in self._given.items():
                self.brokers[key] = self._new_broker(programs, self._watchdog, key, {**self._config, **config})
            for server in self._all():
                server.process.start()
            for server in self._all():
                server.wait_until_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills all servers. Idempotent."""
        for server in self._all():
            server.kill()
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def name_server(self) -> str:
        """The addresses of all name servers, in the form that clients take."""
        return ";".join(server.address for server in self.name_servers)

    def create_topic(self, name: str, queues: int, *, write_queues: int | None = None, on: Iterable[str] = ()) -> None:
        """Creates or changes a topic on all running masters, or on some. Returns when every name server shows it."""
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues if write_queues is None else write_queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        names = list(on) or [key for key, broker in self.brokers.items() if "/" not in key and broker.is_running]
        for key in names:
            self._ask(self.brokers[key].address, probe.UPDATE_AND_CREATE_TOPIC, fields)
        shown = {key: (queues, int(fields["writeQueueNums"])) for key in names}
        for server in self.name_servers:
            if server.is_running:
                check = _route_check(server.address, name, shown)
                processes = [self.brokers[key].process for key in names]
                ready.wait_until(check, processes, what=f"creating topic {name!r}", timeout_s=at_most(_TIMEOUT_S))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its messages from all running masters and name servers."""
        for key, broker in self.brokers.items():
            if "/" not in key and broker.is_running:
                self._ask(broker.address, probe.DELETE_TOPIC_IN_BROKER, {"topic": name})
        for server in self.name_servers:
            if server.is_running:
                self._ask(server.address, probe.DELETE_TOPIC_IN_NAMESRV, {"topic": name})

    def has_registered(self, key: str, server: Server) -> bool:
        """Returns whether a name server lists a broker."""
        return ready.broker_check(server.address, key.partition("/")[0], self.brokers[key].address) is None

    def _all(self) -> list[Server]:
        return [*self.name_servers, *self.brokers.values()]

    def _new_name_server(self, programs: Programs, watchdog: Watchdog, number: int) -> Server:
        port, folder = reserved_port(), self.folder / f"name_server-{number}"
        config = name_server_properties(port=port, home=folder, extra={})
        process = name_server_process(_settings("none", {}), programs, folder, watchdog, config)
        address = f"{LOOPBACK}:{port}"
        return Server(process, address, lambda: ready.name_server_check(address))

    def _new_broker(self, programs: Programs, watchdog: Watchdog, key: str, config: Config) -> Server:
        name, _, number = key.partition("/")
        port, folder = reserved_port(below=(2,)), self.folder / f"broker-{key.replace('/', '-')}"
        if number:
            config = {"brokerId": int(number), "brokerRole": "SLAVE", **config}
        elif any(other.startswith(f"{name}/") for other in self._given):
            config = {"haListenPort": reserved_port(), **config}
        settings = _settings(name, config)
        properties = broker_properties(
            name=name,
            name_server=self.name_server,
            port=port,
            ha_port=reserved_port(),
            store=folder / "store",
            extra=config,
        )
        process = broker_process(settings, programs, folder, watchdog, properties)
        address = f"{LOOPBACK}:{port}"
        return Server(process, address, lambda: self._registered(name, address, folder / CONF))

    def _registered(self, name: str, address: str, conf: Path) -> str | None:
        """Returns None if at least one running name server lists the broker, else what is missing. Then the broker is
        asked to register.
        """
        missing: str | None = "no name server runs"
        for server in self.name_servers:
            missing = ready.broker_check(server.address, name, address)
            if missing is None:
                return None
        ready.ask_to_register(address, conf, permission=6, credentials=None)
        return missing

    @staticmethod
    def _ask(address: str, code: int, fields: Mapping[str, str]) -> None:
        answer = probe.call(address, code, fields, timeout_s=30)
        if answer.code != probe.SUCCESS:
            raise LocalBrokerError(f"{address} refuses with code {answer.code}: {answer.remark}")


def _settings(name: str, config: Config) -> Settings:
    return Settings(
        name=name,
        broker_config=config,
        name_server_config={},
        broker_heap_mb=_HEAP_MB,
        tls=False,
        tls_config=None,
        java_options=("-XX:TieredStopAtLevel=1",),  # starts in half the time
    )


def _route_check(address: str, topic: str, shown: Mapping[str, tuple[int, int]]) -> Callable[[], str | None]:
    def check() -> str | None:
        try:
            found = ready.route(address, topic) or {"queueDatas": []}
        except (OSError, ValueError) as error:
            return str(error)
        there = {each["brokerName"]: (each["readQueueNums"], each["writeQueueNums"]) for each in found["queueDatas"]}
        return None if shown.items() <= there.items() else f"name server {address} shows {there}, not {shown}"

    return check
