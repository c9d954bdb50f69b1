"""Beam's job server for Flink: its jar, `JobServer` as a context manager, and the job servers of this process."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import shlex
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from rmqio.errors import LocalError
from rmqio.local.artefacts import REPOSITORY_VARIABLE, Lock, read_lock
from rmqio.local.config import temporary_folder
from rmqio.local.errors import LocalBrokerError, WrongContentError
from rmqio.local.fetch import CACHE_VARIABLE, fetch
from rmqio.local.processes import (
    LOOPBACK,
    USERS_OWN,
    Java,
    JavaProcess,
    Watchdog,
    find_java,
    free_port,
    identity_of,
    require_free,
)
from rmqio.local.ready import wait_until
from rmqio.runners import class_data
from rmqio.runners.class_data import cache_dir
from rmqio.runners.errors import JobServerError, NoJava
from rmqio.runners.flink.jobserver_command import (
    LOCAL_MASTER,
    NotPatchable,
    Settings,
    Value,
    loopback_jar,
    write_command,
)

# The job server to run: a jar of the user's, the artefacts of our lock, or the one that Beam publishes.

JAR_VARIABLE: Final = "RMQIO_FLINK_JOB_SERVER_JAR"
LOCK: Final = Path(__file__).with_name("beam-2.62.0-flink-1.19.lock.json")


@dataclass(frozen=True, slots=True)
class Jars:
    """The class path of a job server."""

    paths: tuple[Path, ...]
    origin: str
    """Their origin, for messages."""


def _published() -> Path:
    from rmqio.runners.flink.beam import published_job_server  # Beam takes seconds to import

    return published_job_server()


def find_jars(
    jar: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    fetch: Callable[[Lock], list[Path]] = fetch,
    published: Callable[[], Path] = _published,
) -> Jars:
    """Return the first available job server: `jar`, the environment's, our lock's artefacts, Beam's published one.

    A named jar that does not exist is an error, not a reason to look further: the user meant that one. A repository
    that sends other files than the lock names is an error too, since what Beam publishes is not verified.
    Raises JobServerError, which says why each of the ways failed.
    """
    environ = os.environ if environ is None else environ
    for given, origin in ((jar, "jar="), (environ.get(JAR_VARIABLE), JAR_VARIABLE)):
        if given:
            path = Path(given).absolute()
            if not path.is_file():
                raise JobServerError(
                    f"{origin} names {path}, which is not a file: correct it, or omit it to have one fetched"
                )
            return Jars((path,), f"{path}, from {origin}")
    lock = read_lock(LOCK)
    try:
        return Jars(tuple(fetch(lock)), f"the artefacts of the lock {lock.name}")
    except WrongContentError as error:
        raise JobServerError(str(error)) from error
    except LocalBrokerError as error:
        locked = error
    _log.warning("The artefacts of the lock %s are not available: trying the job server that Beam publishes", lock.name)
    try:
        return Jars((published(),), "the job server that Beam publishes")
    except (OSError, RuntimeError, ValueError) as error:
        raise JobServerError(_none(lock, locked, error)) from error


def _none(lock: Lock, locked: Exception, beams: Exception) -> str:
    return (
        "no Flink job server is available. There are three ways to get one:\n"
        f"1. a jar of your own, in the argument jar= or the variable {JAR_VARIABLE}: none is given\n"
        f"2. the {len(lock.artefacts)} artefacts ({lock.size / 1e6:.0f} MB) of the lock {lock.name}, from Maven's own "
        f"cache, ours ({CACHE_VARIABLE}), your mirror ({REPOSITORY_VARIABLE} or Maven's settings.xml) or the default "
        f"repository: {locked}\n"
        f"3. the job server that Beam publishes, downloaded as Beam's own FlinkRunner does: {beams}"
    )


# The job server's classes in a file of the cache folder, so that a Flink on this machine starts sooner.
#
# The second start makes the file, and later ones use it.

VARIABLE: Final = "RMQIO_FLINK_CLASS_DATA"
"""0 turns it off."""
_MINIMUM_JAVA_OF_CLASS_DATA: Final = 13
_OF_THE_KIND: Final = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")
"""Options of a user that say where the JVM has its classes from."""


class ClassData(class_data.ClassData):
    """The file for one Java and one job server, and this process's part in it.

    Args:
      java: runs the job server.
      class_path: jars that stay where they are.
      given: the user's options of the JVM.
      makes: whether this JVM may make the file: one that only submits jobs to a cluster loads less than half of
        the classes.
    """

    def __init__(self, java: Java, class_path: Sequence[Path], given: Sequence[str], *, makes: bool) -> None:
        super().__init__()
        texts = [*given, *(os.environ.get(name, "") for name in USERS_OWN)]
        is_given = any(word in text for word in _OF_THE_KIND for text in texts)
        if os.environ.get(VARIABLE) == "0" or java.major < _MINIMUM_JAVA_OF_CLASS_DATA or is_given:
            return
        with contextlib.suppress(OSError):  # a folder that cannot be written is no reason to fail
            self.look("flink", _key(java, class_path), makes=makes)


def _key(java: Java, class_path: Sequence[Path]) -> str:
    """Return what changes with Java and the class path. Raises `OSError` if there is no such file."""
    stats = [(each, each.stat().st_mtime_ns, each.stat().st_size) for each in class_path]
    parts = (*identity_of(java.executable), stats)
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


_MINIMUM_JAVA: Final = 11
_TERMINATE_TIMEOUT_S: Final = 10.0
_WRITES_WITHIN_S: Final = 300
_PROBE_TIMEOUT_S: Final = 3.0
_PORT_ATTEMPTS: Final = 5
_NO_JVM: Final = ("Could not create the Java Virtual Machine", "A fatal error has been detected by the Java Runtime")

# The HTTP/2 connection preface, and an empty SETTINGS frame (RFC 9113, 3.4 and 4.1).
_FRAME_HEADER: Final = 9
_SETTINGS_FRAME: Final = 4
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _SETTINGS_FRAME, 0, 0, 0, 0, 0))

_log = logging.getLogger(__name__)


class JobServer:
    """A Beam job server for Flink that runs on this machine for the duration of the `with` block.

    Pipelines with the options `flags` run on Flink: on a cluster inside the job server, or on the one at
    `flink_master`. The job server listens on the loopback interface only. When this process ends, even by SIGKILL, the
    job server is killed with everything that it started; one that writes its classes to a file for later job servers
    ends some seconds after it was stopped (docs/flink.md). Several instances can run side by side; one instance belongs
    to one thread at a time.

    Cancelling a pipeline's result is not enough: Beam reports it as cancelled, but Flink continues the job. In the
    embedded cluster, the job ends when the job server stops, or soon after the process that has its Python code.

    Args:
      jar: the job server to run, as Beam publishes or builds it. None: the one in RMQIO_FLINK_JOB_SERVER_JAR, else the
        Maven artefacts that a lock names, fetched at the first start (200 MB), else the one that Beam publishes.
      flink_master: "[local]" for the embedded cluster, or host:port of a cluster's REST endpoint.
      port: the port to listen on; None for a free port.
      heap_mb: the maximum heap, which the tasks of the embedded cluster share. Off-heap memory comes on top.
      flink_config: Flink's own properties, for example {"state.backend.type": "rocksdb"}; they override ours.
      java_options: further options of the JVM.
      artifacts_dir: where the files of jobs are staged. Workers of a remote cluster must see that folder. None: a
        temporary one.
      verbose: log what Flink and Beam do, not only warnings.
      start_timeout_s: limits the wait for the start, downloads not included.

    Raises:
      LocalError: an argument is invalid.
      JobServerError: there is a problem with Java, the artefacts, the port or the job server itself.
    """

    def __init__(
        self,
        *,
        jar: str | os.PathLike[str] | None = None,
        flink_master: str = LOCAL_MASTER,
        port: int | None = None,
        heap_mb: int = 512,
        flink_config: Mapping[str, Value] | None = None,
        java_options: Sequence[str] = (),
        artifacts_dir: str | os.PathLike[str] | None = None,
        verbose: bool = False,
        start_timeout_s: float = 120.0,
    ) -> None:
        self._settings = Settings(
            flink_master=flink_master,
            heap_mb=heap_mb,
            flink_config=dict(flink_config or {}),
            java_options=tuple(java_options),
            artifacts_dir=None if artifacts_dir is None else Path(artifacts_dir).absolute(),
            verbose=verbose,
        )
        if start_timeout_s <= 0:
            raise LocalError(f"start_timeout_s={start_timeout_s}: it must be positive")
        self._jar, self._given_port, self._start_timeout_s = jar, port, start_timeout_s
        self._jars: Jars | None = None
        self._folder: Path | None = None
        self._watchdog: Watchdog | None = None
        self._process: JavaProcess | None = None
        self._data: ClassData | None = None
        self._may_map = True
        self._port = 0
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        if self._process is None:
            return f"<JobServer for Flink {self._settings.flink_master}, not started>"
        return f"<JobServer for Flink {self._settings.flink_master} at {self.endpoint}: {self._process!r}>"

    @property
    def endpoint(self) -> str:
        """The job server's address, "127.0.0.1:port"."""
        self._here()
        return f"{LOOPBACK}:{self._port}"

    @property
    def flags(self) -> list[str]:
        """Options that run a pipeline here, with its Python code in the process that submits it (LOOPBACK).

        With checkpoints, a streaming pipeline needs the last option. Otherwise, Beam holds back the output of a bundle
        that a checkpoint interrupts until the next bundle or watermark of that step. If the first checkpoint comes
        before a read has begun, neither arrives, and the pipeline never reads anything.
        """
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self.endpoint}",
            "--environment_type=LOOPBACK",
            "--finish_bundle_before_checkpointing",
        ]

    @property
    def origin(self) -> str:
        """The origin of the job server."""
        self._here()
        return "" if self._jars is None else self._jars.origin

    @property
    def pid(self) -> int | None:
        """The process id, or None if the job server is not running."""
        return None if self._process is None else self._process.pid()

    @property
    def log(self) -> Path:
        """The log file, which is removed when the job server stops."""
        return self._here().log

    def logs(self) -> str:
        """Return the end of the log."""
        return self._here().tail()

    def start(self) -> None:
        """Fetch what is missing, start the job server, and return when it answers. A failure leaves nothing running.

        Raises JobServerError, with the end of the log if there is one; also if it is already started.
        """
        if self._process is not None:
            raise JobServerError(f"already started: {self!r}")
        try:
            for attempt in range(_PORT_ATTEMPTS):
                try:
                    self._start()
                    return
                except BaseException as error:
                    # Another process took the free port before Java bound it: try another one, if the choice is ours.
                    text = str(error) if isinstance(error, LocalBrokerError) else ""
                    lost = "Address already in use" in text and self._given_port is None
                    self._stop(graceful=False)
                    if not (lost or self._starts_without_class_data(text)) or attempt == _PORT_ATTEMPTS - 1:
                        raise
        except LocalBrokerError as error:
            raise JobServerError(str(error)) from error

    def stop(self) -> None:
        """Stop the job server with the jobs of an embedded cluster, and remove its files. Idempotent.

        Jobs on the cluster at `flink_master` continue: cancel them there.
        """
        if self._owner == os.getpid():  # a forked child has the object, but must not stop the process
            self._stop(graceful=True)

    def _start(self) -> None:
        try:
            java = find_java(minimum_major=_MINIMUM_JAVA, program="Flink's job server")
        except LocalBrokerError as error:
            raise NoJava(str(error)) from None
        if self._given_port is not None:
            require_free(self._given_port, "job server")
        if self._jars is None:
            self._jars = find_jars(self._jar)
        self._port = free_port() if self._given_port is None else self._given_port
        self._folder = temporary_folder()
        self._watchdog = Watchdog(self._folder)
        class_path = list(self._jars.paths)
        try:
            class_path.insert(0, loopback_jar(class_path, cache_dir() / "flink", self._folder))
        except NotPatchable as error:
            _log.warning("The job server's ports will be open on all interfaces, as Beam opens them: %s", error)
        self._data = None
        options: tuple[str, ...] = ()
        if self._may_map and self._folder not in class_path[0].parents:
            # A JVM that makes the file ends late, and the next job server could need the same port.
            makes = self._settings.flink_master == LOCAL_MASTER and self._given_port is None
            self._data = ClassData(java, class_path, self._settings.java_options, makes=makes)
            options = self._data.options
        command = write_command(self._settings, java, class_path, self._folder, self._port, options)
        self._process = process = JavaProcess("job server", self._folder, self._watchdog, command)
        process.start()
        if self._data is not None and (pid := process.pid()) is not None:
            self._data.started(pid)
        wait_until(
            lambda: _check(self._port),
            [process],
            what=f"starting {self._jars.origin} for Flink {self._settings.flink_master}",
            timeout_s=self._start_timeout_s,
        )

    def _starts_without_class_data(self, error: str) -> bool:
        """Return whether to start again, because the JVM may not take the options that make it faster."""
        if self._data is None or not self._data.options or not any(each in error for each in _NO_JVM):
            return False
        self._data.drop()
        self._may_map = False
        return True

    def _here(self) -> JavaProcess:
        if self._process is None:
            raise JobServerError("this JobServer is not started: use it as a context manager or call start()")
        return self._process

    def _stop(self, *, graceful: bool) -> None:
        if graceful and self._process is not None and self._data is not None and self._data.is_made:
            self._process.leave(_WRITES_WITHIN_S)
        elif self._process is not None and (group := self._process.pid()) is not None:
            if graceful:
                # Lets it end the workers that it started (--environment_type=PROCESS).
                self._process.terminate(_TERMINATE_TIMEOUT_S)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
            self._process.kill()
        self._process = None
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _check(port: int) -> str | None:
    """Return None if the gRPC server at `port` answers in its own protocol, or the problem."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_PROBE_TIMEOUT_S) as connection:
            connection.sendall(_PREFACE)
            answer = b""
            while len(answer) < _FRAME_HEADER and (chunk := connection.recv(_FRAME_HEADER)):
                answer += chunk
    except OSError as error:
        return f"the job server at {LOOPBACK}:{port} does not answer ({error})"
    if len(answer) < _FRAME_HEADER or answer[3] != _SETTINGS_FRAME:
        return f"what listens at {LOOPBACK}:{port} does not speak HTTP/2: {answer!r}"
    return None


# The job servers of this process: started when a pipeline needs one, reused by the next, stopped at the end.

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
