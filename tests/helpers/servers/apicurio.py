"""A real schema registry for tests: Apicurio Registry on loopback, in memory, with Confluent's API.

`python -m tests.helpers.servers.apicurio` runs one until Ctrl-C. The lock file beside this module names its archive
(142 MB). For another version, `mvn dependency:get -Dtransitive=false -Dartifact=COORDINATES` downloads the file whose
size and SHA-256 go into the lock (rmqio.local.lock would also lock everything that the archive already contains).
"""

from __future__ import annotations

import contextlib
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from rmqio.local.artefacts import read_lock
from rmqio.local.fetch import cache_dir, fetch
from rmqio.local.processes.java import find_java
from rmqio.local.processes.ports import LOOPBACK, free_port
from rmqio.local.processes.process import JavaProcess
from rmqio.local.processes.watchdog import Watchdog

LOCK = Path(__file__).with_name("apicurio-2.6.13.lock.json")
_BOOT_S = 120.0


def runner() -> Path:
    """Returns the path of the program's jar, beside its libraries. Unpacks the archive once and keeps it."""
    lock = read_lock(LOCK)
    folder = cache_dir() / lock.name
    if not folder.is_dir():
        (archive,) = fetch(lock)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            with tarfile.open(archive) as content:
                content.extractall(made, filter="data")
            # If two processes get here at the same time, the second one discards its copy.
            with contextlib.suppress(OSError):
                Path(made).rename(folder)
                Path(made).mkdir()
    (jar,) = folder.glob("*-runner.jar")
    return jar


class Apicurio:
    """A registry that forgets everything when it ends. `url` is the address of Confluent's API, and does not change."""

    def __init__(self) -> None:
        java = find_java(minimum_major=17, program="Apicurio Registry")
        self._folder = Path(tempfile.mkdtemp(prefix="rmqio-apicurio-"))
        self._watchdog = Watchdog(self._folder)
        port = free_port()
        self.url = f"http://{LOOPBACK}:{port}/apis/ccompat/v7"
        command = [
            *(str(java.executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-Djava.io.tmpdir={self._folder}", f"-Duser.home={self._folder}"),
            *(f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={port}"),
            *("-jar", str(runner())),
        ]
        self._process = JavaProcess("schema registry", self._folder, self._watchdog, command)

    def __enter__(self) -> Apicurio:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Starts the registry and waits until it answers."""
        self._process.start()
        until = time.monotonic() + _BOOT_S
        while not self._answers():
            if self._process.pid() is None or time.monotonic() > until:
                raise RuntimeError(f"the schema registry did not start:\n{self._process.tail()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Sends SIGKILL and waits until the process is gone."""
        self._process.kill()

    def pause(self) -> None:
        """Suspends the registry: it keeps its port and its connections, but does not answer."""
        self._process.pause()

    def resume(self) -> None:
        """Resumes the registry after `pause`."""
        self._process.resume()

    def close(self) -> None:
        """Ends the registry and removes its files. Idempotent."""
        self._process.kill()
        self._watchdog.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def main() -> None:
    """Runs a registry until it is interrupted."""
    with Apicurio() as registry:
        print(registry.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    main()
