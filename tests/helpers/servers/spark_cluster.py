"""A real Spark cluster for tests, and programs that run on it: a standalone master and two workers on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyspark

from tests.helpers.waiting import runs, until_up

SPARK = Path(pyspark.__file__).parent
_PORTS = ("--port", "0", "--webui-port", "0")
END_WITH_THE_TESTS: Final = ("setpriv", "--pdeathsig", "TERM", "--")
"""Before a command: it ends if the test run is killed. If a Spark worker ends, its executors end as well."""


def parent_of(pid: int) -> int:
    """Returns the parent of a process; 0: the process no longer exists."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return 0
    return 0 if state == "Z" else int(parent)


def command_of(pid: int) -> bytes:
    """Returns the command line of a process. Empty: the process no longer exists."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def below(pid: int) -> set[int]:
    """Returns the processes that a process has started, directly or indirectly."""
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    parents = {each: parent_of(each) for each in pids}
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends the processes, the last ones first, each with all processes that it has started."""
    for process in reversed(processes):
        everything = below(process.pid)
        process.kill()
        for pid in everything:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


class Cluster:
    """A master and two workers, from the jars of the installed pyspark, on the loopback interface.

    Args:
      folder: where logs and temporary files go.
      cores: of each worker, as Spark counts them: so many tasks run at a time.
    """

    def __init__(self, folder: Path, cores: int = 1) -> None:
        self.folder = folder
        self._cores = cores
        self.processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.start("org.apache.spark.deploy.master.Master", "master", "127.0.0.1")
        found = until_up(
            lambda: re.search(r"spark://127\.0\.0\.1:\d+", self.log("master")),
            "the master",
            alive=[runs(self.processes[0], lambda: self.log("master"))],
            still_s=400,
        )
        assert found is not None
        self.url = found[0]
        for _ in range(2):
            self.start_worker()

    def start(self, main: str, name: str, host: str, *more: str) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK", "PYSPARK"))}
        environment |= {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "192m", "SPARK_HOME": str(SPARK)}
        # its own disk, which it can lose
        environment["SPARK_LOCAL_DIRS"] = str(self.folder / f"{name}-disk")
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*END_WITH_THE_TESTS, str(SPARK / "bin/spark-class"), main, "--host", host, *_PORTS, *more],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
            )
        self.processes.append(process)
        return process

    def start_worker(self) -> None:
        """Starts a worker with memory for one executor. Returns when the master knows it."""
        name = f"worker-{len(self.processes)}"
        limits = ("--cores", str(self._cores), "--memory", "700m", "--work-dir", str(self.folder / name))
        # Uses a separate address, like a machine: if a worker is gone, Spark writes off everything at its address
        host = f"127.0.0.{1 + len(self.processes)}"
        process = self.start("org.apache.spark.deploy.worker.Worker", name, host, *limits, self.url)
        self.workers.append(process)
        until_up(
            lambda: "Successfully registered with master" in self.log(name),
            f"the registration of {name}",
            alive=[runs(process, lambda: self.log(name))],
            still_s=400,
        )

    def lose(self, worker: subprocess.Popen[bytes]) -> set[int]:
        """Kills a worker as if its machine were gone: its executor, their Python processes, and their data on disk."""
        lost = below(worker.pid)
        for pid in (worker.pid, *lost):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder / f"worker-{self.processes.index(worker)}-disk")
        self.workers.remove(worker)
        return lost

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        end(self.processes)


class Program:
    """A pipeline program that runs on the cluster. It ends with the test."""

    def __init__(self, cluster: Cluster, folder: Path, source: str, *flags: str, submit: bool = False) -> None:
        self.folder = folder
        file = folder / "program.py"
        file.write_text(textwrap.dedent(source))
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK", "PYSPARK"))}
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings = {
            "spark.driver.memory": "600m",
            "spark.executor.memory": "500m",
            "spark.driver.host": "127.0.0.1",
            # both executors or none: how soon the second one joins says nothing about the runner
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
            "spark.locality.wait": "0s",  # otherwise, everything runs where the first stage's only task ran
        }
        given = [f"{name}={value}" for name, value in settings.items()]
        if submit:
            environment["PYSPARK_PYTHON"] = sys.executable
            confs = [each for value in given for each in ("--conf", value)]
            command = [str(SPARK / "bin/spark-submit"), "--master", cluster.url, *confs, str(file)]
        else:
            confs = [f"--spark_conf={value}" for value in given]
            command = [sys.executable, str(file), f"--spark_master_url={cluster.url}", *confs]
        runner = "--runner=rmqio.runners.spark.SparkRunner"
        self.process = subprocess.Popen(
            [*END_WITH_THE_TESTS, *command, runner, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )

    def output(self) -> str:
        """Returns what the program printed. Fails if the program failed."""
        out, err = self.process.communicate()
        assert self.process.returncode == 0, f"{out}\n{err}"
        return out

    def close(self) -> None:
        for pid in below(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()  # closes its pipes, too
