"""The export for Prometheus: real processes, prometheus_client itself, and scrapes over HTTP."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="the export needs the extra 'prometheus'")

from prometheus_client import start_http_server
from prometheus_client.parser import text_string_to_metric_families

from rmqio import prometheus
from rmqio.errors import LocalError
from rmqio.prometheus import Address, Export, exported_name, parse_address
from rmqio.telemetry import METRICS

WORKER = """
import sys
from rmqio import prometheus, telemetry
prometheus._RETRY_S = 0.2  # so that a test need not wait for ten seconds
prometheus.start_from_environment()
for line in sys.stdin:
    name, labels, value = line.split()
    telemetry.record(name, tuple(labels.split("/")) if labels != "-" else (), float(value))
    print("done", flush=True)
"""
READ = "rmqio_records_read_total"
QUEUE = "t/broker-a/0"
Sample = tuple[str, tuple[str, ...]]


class Worker:
    """A process that exports what it is told."""

    def __init__(self, environment: dict[str, str], program: str = WORKER) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def record(self, name: str, labels: str, value: float) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(name, labels, value, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n", self.process.communicate()[1]

    def kill(self) -> str:
        """What it has said on stderr."""
        self.process.kill()
        return self.process.communicate(timeout=30)[1]


class Machine:
    """Processes that share an address."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder = folder
        self.environment = os.environ | {"RMQIO_PROMETHEUS": f"127.0.0.1:{self.port}", "TMPDIR": str(folder)}
        self.environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
        self.workers: list[Worker] = []

    def worker(self, program: str = WORKER) -> Worker:
        self.workers.append(Worker(self.environment, program))
        return self.workers[-1]

    def scrape(self) -> dict[Sample, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        return {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in families
            for sample in family.samples
        }

    def scrape_until(self, condition: Callable[[dict[Sample, float]], bool]) -> dict[Sample, float]:
        """The first scrape of which it holds; while nobody has the port, there is none."""
        deadline = time.monotonic() + 30
        found: dict[Sample, float] = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                found = self.scrape()
                if condition(found):
                    return found
            time.sleep(0.05)
        raise AssertionError(found)

    def server_of(self, workers: list[Worker]) -> Worker:
        """Which of some has the port; it says so shortly after it has begun to serve."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            said = [file.read_text() for file in self.folder.glob("rmqio-prometheus-*/server")]
            for each in workers:
                if said == [prometheus._process(each.process.pid)]:
                    return each
            time.sleep(0.05)
        raise AssertionError(said)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for worker in made.workers:
        if worker.process.stdout is not None and not worker.process.stdout.closed:
            worker.kill()


def queue(labels: str = QUEUE) -> tuple[str, ...]:
    """As Prometheus sorts them."""
    topic, broker, number = labels.split("/")
    return broker, number, topic


def test_several_processes_are_one_endpoint_that_outlives_whoever_serves(machine: Machine) -> None:
    workers = [machine.worker() for _ in range(3)]
    for count, worker in enumerate(workers, 1):
        worker.record("records_read", QUEUE, count)
        worker.record("lag_messages", QUEUE, (300, 100, 200)[count - 1])
        worker.record("lag_messages", f"t/broker-a/{count}", 7)
        worker.record("pull_latency_ms", "t/broker-a", 30)
        worker.record("send_retries", "-", 1)
    found = machine.scrape_until(lambda found: (READ, queue()) in found)
    assert found[READ, queue()] == 1 + 2 + 3
    assert found["rmqio_lag_messages", queue()] == 200, "the newest"
    assert found["rmqio_send_retries_total", ()] == 3
    by_bound = {labels: value for (name, labels), value in found.items() if name == "rmqio_pull_latency_seconds_bucket"}
    assert by_bound["broker-a", "0.025", "t"] == 0
    assert by_bound["broker-a", "0.05", "t"] == by_bound["broker-a", "+Inf", "t"] == 3
    assert found["rmqio_pull_latency_seconds_sum", ("broker-a", "t")] == pytest.approx(0.09)

    first = machine.server_of(workers)
    first.process.kill()
    first.process.wait()
    own = queue(f"t/broker-a/{workers.index(first) + 1}")
    found = machine.scrape_until(lambda found: ("rmqio_lag_messages", own) not in found)
    assert found[READ, queue()] == 6, "what it has counted stays"
    assert sum(name == "rmqio_lag_messages" for name, _ in found) == 3, "those of the others stay"
    alive = [worker for worker in workers if worker is not first]
    machine.server_of(alive)
    alive[0].record("records_read", QUEUE, 10)
    assert machine.scrape()[READ, queue()] == 16


FORKED = """
import os, sys, time
from rmqio import prometheus, telemetry
prometheus._RETRY_S = 0.2
prometheus.start_from_environment()
while not os.path.exists(prometheus._export.folder / "server"):
    time.sleep(0.01)
telemetry.record("records_read", ("t", "broker-a", "0"), 1)
if os.fork():
    os.close(0), os.close(1), os.close(2)
    time.sleep(60)
    os._exit(1)
for line in sys.stdin:
    telemetry.record("records_read", ("t", "broker-a", "0"), float(line.split()[2]))
    print("done", flush=True)
"""


def test_a_forked_child_neither_holds_the_port_nor_loses_its_counts(machine: Machine) -> None:
    forked = machine.worker(FORKED)
    forked.record("records_read", QUEUE, 10)
    assert machine.scrape()[READ, queue()] == 1 + 10
    forked.process.kill()  # the parent, which serves
    forked.process.wait()
    machine.scrape_until(lambda found: found[READ, queue()] == 1 + 10)
    forked.record("records_read", QUEUE, 100)
    assert machine.scrape()[READ, queue()] == 1 + 10 + 100


def test_counts_of_many_dead_processes_become_one_file(tmp_path: Path, machine: Machine) -> None:
    keeper = machine.worker()
    keeper.record("records_read", QUEUE, 1)
    (folder,) = machine.folder.glob("rmqio-prometheus-*")
    machine.scrape_until(lambda found: found[READ, queue()] == 1)
    mine = prometheus._process(keeper.process.pid)
    (counts,) = folder.glob(f"counter_rmqio-{mine}.db")
    dead = subprocess.Popen(["true"])
    dead.wait()
    for number in range(prometheus._MAX_DEAD_FILES + 1):  # as that many processes would leave behind
        (folder / f"counter_rmqio-{dead.pid + 10_000_000 + number}-1.db").write_bytes(counts.read_bytes())
    wanted = 1 + prometheus._MAX_DEAD_FILES + 1
    assert machine.scrape()[READ, queue()] == wanted
    assert machine.scrape()[READ, queue()] == wanted
    assert sorted(path.name for path in folder.glob("counter_*")) == [
        f"counter_rmqio-{mine}.db",
        "counter_rmqio-merged.db",
    ]


APPLICATION = """
import sys
from prometheus_client import Counter, Gauge
Counter("app_requests", "of the program itself").inc(7)
Gauge("app_threads", "of the program itself", multiprocess_mode="all").set(3)
"""


def test_a_folder_of_the_programs_own_metrics_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    """What a program counts by prometheus_client, in this process and in many that have ended, stays where it was."""
    shared = tmp_path / "shared"
    shared.mkdir()
    machine.environment["PROMETHEUS_MULTIPROC_DIR"] = str(shared)
    worker = machine.worker(APPLICATION + WORKER)
    worker.record("records_read", QUEUE, 1)
    (folder,) = shared.glob("rmqio-prometheus-*")
    machine.scrape_until(lambda found: (READ, queue()) in found)
    pid = worker.process.pid
    for kind in ("counter", "gauge_all", "gauge_livesum"):
        written = (shared / f"{kind.replace('livesum', 'all')}_{pid}.db").read_bytes()
        for number in range(prometheus._MAX_DEAD_FILES + 1):  # in our folder as well: a folder may be shared by mistake
            for place in (shared, folder):
                (place / f"{kind}_{10_000_000 + number}.db").write_bytes(written)
    before = {path: path.read_bytes() for path in shared.rglob("*.db") if "rmqio-" not in path.name}
    assert len(before) == 2 + 6 * (prometheus._MAX_DEAD_FILES + 1)
    found = machine.scrape()
    assert found[READ, queue()] == 1
    assert not [name for name, _ in found if name.startswith("app_")], "that is the program's to serve"
    worker.kill()
    machine.worker().record("records_read", QUEUE, 2)  # a new run
    assert machine.scrape_until(lambda found: (READ, queue()) in found)[READ, queue()] == 2
    assert {path: path.read_bytes() for path in shared.rglob("*.db") if "rmqio-" not in path.name} == before


class Enough(Exception):
    pass


def test_a_port_that_another_has_is_tried_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 6:
            raise Enough

    monkeypatch.setattr(prometheus, "_pause", pause)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        contextlib.closing(Export(Address("127.0.0.1", taken.getsockname()[1]), tmp_path)) as export,
    ):
        with pytest.raises(Enough):
            export._wait_for_port()
        assert paused == [10, 20, 40, 60, 60, 60]
        (said,) = caplog.messages
        assert "which another program uses" in said
        (tmp_path / "server").write_text(prometheus._process(os.getpid()))  # one of ours has it: it may end at any time
        paused.clear()
        with pytest.raises(Enough):
            export._wait_for_port()
        assert paused == [10] * 6


def test_nobody_waits_for_the_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the system takes its time to give it."""
    asked, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def slow(*given: Any) -> Any:
        threads.append(threading.current_thread())
        asked.set()
        assert go_on.wait(20)
        return start_http_server(*given)

    monkeypatch.setattr("prometheus_client.start_http_server", slow)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    export = Export(Address("127.0.0.1", port), tmp_path)
    export.ensure_serving()
    assert asked.wait(20)
    for _ in range(3):
        export.ensure_serving()
        export.record(METRICS["records_read"], ("t", "broker-a", "0"), 1)
    samples = [sample for family in prometheus._Collector(tmp_path).collect() for sample in family.samples]
    assert [sample.value for sample in samples if sample.name == READ] == [3]
    go_on.set()
    (thread,) = threads
    thread.join(20)
    export._server.shutdown()
    export._server.server_close()
    export.close()


def test_a_folder_that_vanishes_is_a_warning(machine: Machine) -> None:
    worker = machine.worker()
    worker.record("records_read", QUEUE, 1)
    (folder,) = machine.folder.glob("rmqio-prometheus-*")
    machine.scrape_until(lambda found: (READ, queue()) in found)
    shutil.rmtree(folder)
    for number in (1, 2):
        worker.record("lag_messages", f"t/broker-a/{number}", 1)
    assert worker.kill().count("metrics are no longer exported: FileNotFoundError") == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a process's number is all that is known")
def test_a_number_that_another_process_has_now_does_not_keep_a_dead_one_alive(machine: Machine) -> None:
    worker = machine.worker()
    worker.record("lag_messages", QUEUE, 42)
    (folder,) = machine.folder.glob("rmqio-prometheus-*")
    (gauges,) = folder.glob("gauge_*")
    worker.kill()
    gauges.rename(folder / f"{prometheus._GAUGES}_rmqio-{os.getpid()}-1.db")  # as if this process had begun so early
    prometheus.clean_up(folder)
    assert not list(folder.glob("gauge_*"))
    assert list(folder.glob("counter_*"))
    prometheus.forget_ended_run(folder)
    assert not list(folder.glob("*.db"))


def test_a_file_that_was_just_being_made_is_passed_over(machine: Machine) -> None:
    """Of a process that was killed between making it and giving it its size."""
    worker = machine.worker()
    worker.record("records_read", QUEUE, 5)
    (folder,) = machine.folder.glob("rmqio-prometheus-*")
    for number in range(prometheus._MAX_DEAD_FILES + 1):
        (folder / f"counter_rmqio-{10_000_000 + number}-1.db").write_bytes(b"")
    assert machine.scrape_until(lambda found: (READ, queue()) in found)[READ, queue()] == 5


def test_a_new_run_begins_at_nothing(machine: Machine) -> None:
    machine.worker().record("records_read", QUEUE, 5)
    machine.workers[0].process.kill()
    machine.workers[0].process.wait()
    machine.worker().record("records_read", QUEUE, 1)
    assert machine.scrape_until(lambda found: (READ, queue()) in found)[READ, queue()] == 1


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | environment, timeout=60
    )


@pytest.mark.parametrize(
    ("before", "address", "said"),
    [
        ("sys.modules['prometheus_client'] = None", "127.0.0.1:1", "pip install 'rmqio[prometheus]'"),
        ("", "nowhere", "'nowhere' is not an address for Prometheus"),
    ],
)
def test_what_keeps_it_from_starting_is_said_and_the_job_goes_on(before: str, address: str, said: str) -> None:
    told = f"import sys\n{before}\nfrom rmqio import prometheus\nprometheus.start_from_environment(); print('goes on')"
    ended = run(told, RMQIO_PROMETHEUS=address)
    assert ended.stdout == "goes on\n", ended.stderr
    assert "metrics are not exported" in ended.stderr
    assert said in ended.stderr
    raised = run(f"import sys\n{before}\nfrom rmqio import prometheus\nprometheus.start({address!r})")
    assert re.search(rf"LocalError: .*{re.escape(said)}", raised.stderr)


def test_a_program_that_has_imported_the_library_keeps_its_own_metrics_as_they_are(machine: Machine) -> None:
    program = "from prometheus_client import REGISTRY, Counter\nown = Counter('own', 'x')\nown.inc(5)\n" + WORKER
    program += "    own.inc(0) or print(REGISTRY.get_sample_value('own_total'), file=sys.stderr, flush=True)\n"
    worker = machine.worker(program)
    worker.record("records_read", QUEUE, 4)
    assert machine.scrape_until(lambda found: (READ, queue()) in found)[READ, queue()] == 4
    assert "5.0" in worker.kill().split()


def test_it_works_without_beam() -> None:
    program = "import sys, rmqio.prometheus; print('apache_beam' in sys.modules, 'prometheus_client' in sys.modules)"
    assert run(program).stdout == "False False\n"


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    made = prometheus._folder(Address("127.0.0.1", 9464), None)
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o777)
    with pytest.raises(LocalError, match="does not belong to this user alone"):
        prometheus._folder(Address("127.0.0.1", 9464), None)
    made.rmdir()
    made.symlink_to(tmp_path)
    with pytest.raises(LocalError, match="does not belong to this user alone"):
        prometheus._folder(Address("127.0.0.1", 9464), None)


@pytest.mark.parametrize(
    ("text", "host"),
    [("127.0.0.1:9464", "127.0.0.1"), (":9464", "127.0.0.1"), ("9464", "127.0.0.1"), ("[::1]:9464", "::1")],
)
def test_an_address_without_a_host_is_loopback(text: str, host: str) -> None:
    assert parse_address(text) == (host, 9464)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:65536", "::1:9464", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match="not an address for Prometheus"):
        parse_address(text)


def test_names_are_those_that_prometheus_asks_for() -> None:
    names = {exported_name(metric) for metric in METRICS.values()}
    assert len(names) == len(METRICS)
    assert {READ, "rmqio_lag_seconds", "rmqio_lag_messages", "rmqio_send_latency_seconds"} <= names
    assert all(re.fullmatch(r"rmqio_[a-z_]+", name) and "_ms" not in name for name in names)
