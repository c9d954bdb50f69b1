"""A real schema registry for tests: Apicurio Registry on loopback, in memory, with Confluent's API.

`python -m tests.helpers.servers.apicurio` runs one until Ctrl-C. The lock file beside this module names its archive
(142 MB). For another version, `mvn dependency:get -Dtransitive=false -Dartifact=COORDINATES` downloads the file whose
size and SHA-256 go into the lock (rmqio.local.lock would also lock everything that the archive already contains).
"""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from rmqio.local.artefacts import read_lock
from rmqio.local.fetch import cache_dir, fetch
from rmqio.local.processes import LOOPBACK
from tests.helpers.servers.java_server import JavaServer
from tests.helpers.waiting import at_most

LOCK = Path(__file__).with_name("apicurio-2.6.13.lock.json")


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


class Apicurio(JavaServer):
    """A registry that forgets everything when it ends. `url` is the address of Confluent's API, and does not change."""

    title = "schema registry"

    def __init__(self) -> None:
        super().__init__()
        self.url = f"http://{LOOPBACK}:{self.port}/apis/ccompat/v7"

    def command(self) -> list[str]:
        return [
            *(self.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-Djava.io.tmpdir={self.folder}", f"-Duser.home={self.folder}"),
            *(f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self.port}"),
            *("-jar", str(runner())),
        ]

    def answers(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/subjects", timeout=at_most(5)) as answer:
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
