"""The job servers of this process: started when a pipeline needs one, reused by the next, stopped at the end."""

from __future__ import annotations

import atexit
import os
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqio.errors import LocalError
from rmqio.local.processes.ports import LOOPBACK, free_port
from rmqio.runners.flink.jobserver.command import LOCAL_MASTER, Value
from rmqio.runners.flink.jobserver.server import JobServer

JAVA_OPTIONS_VARIABLE: Final = "RMQIO_FLINK_JAVA_OPTIONS"
"""Options of the job server's JVM, after the runner's own, as a shell would split them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings that distinguish one job server from another."""

    flink_master: str = LOCAL_MASTER
    jar: str | None = None
    heap_mb: int = 512
    flink_conf: tuple[tuple[str, Value], ...] = ()
    artifacts_dir: str | None = None
    verbose: bool = False

    @property
    def is_embedded(self) -> bool:
        return self.flink_master == LOCAL_MASTER


class Server:
    """A job server for one job at a time, so that the embedded Flink's REST endpoint belongs to that job."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        conf: Mapping[str, Value] = dict(wanted.flink_conf)
        self.rest = wanted.flink_master
        if wanted.is_embedded:
            port = int(conf.get("rest.bind-port", 0)) or free_port()
            conf = {**conf, "rest.port": port, "rest.bind-port": port}
            self.rest = f"{LOOPBACK}:{port}"
        self.jobs = JobServer(
            jar=wanted.jar,
            flink_master=wanted.flink_master,
            heap_mb=wanted.heap_mb,
            flink_config=conf,
            java_options=_java_options(),
            artifacts_dir=None if wanted.artifacts_dir is None else Path(wanted.artifacts_dir),
            verbose=wanted.verbose,
        )
        self.jobs.start()


def _java_options() -> list[str]:
    given = os.environ.get(JAVA_OPTIONS_VARIABLE, "")
    try:
        return shlex.split(given)
    except ValueError as error:
        raise LocalError(f"{JAVA_OPTIONS_VARIABLE}={given!r}: {error}") from error


class _Servers:
    """The job servers of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Server] = []
        self._busy: list[Server] = []
        self._owner = os.getpid()

    def take(self, wanted: Wanted) -> Server:
        """Return an idle job server, or a new one. Raises `JobServerError`."""
        with self._lock:
            if self._owner != os.getpid():  # a forked child: the servers are its parent's
                self._idle, self._busy, self._owner = [], [], os.getpid()
            for server in self._idle:
                if server.wanted == wanted and server.jobs.pid is not None:
                    self._idle.remove(server)
                    self._busy.append(server)
                    return server
        server = Server(wanted)
        with self._lock:
            self._busy.append(server)
        return server

    @property
    def idle(self) -> list[Server]:
        """The job servers that the next pipelines can use."""
        with self._lock:
            return list(self._idle)

    def give_back(self, server: Server) -> None:
        """Take back a job server whose job has ended. Idempotent."""
        with self._lock:
            if server in self._busy:
                self._busy.remove(server)
                self._idle.append(server)

    def stop(self, server: Server) -> None:
        """Stop a job server with whatever still runs in it. Idempotent."""
        with self._lock:
            for some in self._busy, self._idle:
                if server in some:
                    some.remove(server)
        server.jobs.stop()

    def stop_all(self) -> None:
        """Stop all job servers at the end of this process."""
        if self._owner == os.getpid():
            for server in [*self._busy, *self._idle]:
                self.stop(server)


SERVERS: Final = _Servers()
atexit.register(SERVERS.stop_all)
