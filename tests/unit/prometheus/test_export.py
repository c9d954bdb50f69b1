"""The export for Prometheus, as one endpoint of several processes that come, fork and go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="the export needs the extra 'prometheus'")

from rmqio.prometheus.values import GAUGES, MAX_DEAD_FILES, clean_up, forget_ended_run, process_name
from tests.helpers.servers.prometheus import QUEUE, WORKER, Machine, queue

READ = "rmqio_records_read_total"


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
prometheus.export._RETRY_S = 0.2
prometheus.start_from_environment()
while not os.path.exists(prometheus.export._export.folder / "server"):
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


def test_failures_begin_at_zero(machine: Machine) -> None:
    """`increase` of Prometheus takes the first value of a series for what was there before."""
    worker = machine.worker()
    worker.record("decode_failures", "a", 2)
    worker.record("lag_messages", "a/broker-a/0", 5)
    worker.record("records_read", "b/broker-a/0", 5)
    worker.record("messages_sent", "c/broker-a/0", 5)
    for _ in range(2):
        worker.record("rows_written", "search", 5)
    found = machine.scrape_until(lambda found: found.get(("rmqio_rows_written_total", ("search",))) == 10)
    reads = {("broker-a", "0", topic) for topic in "ab"}
    zeros = {name: {labels for (each, labels), value in found.items() if each == name and not value}
             for name, _ in found}  # fmt: skip
    assert zeros["rmqio_pull_retries_total"] == reads
    assert zeros["rmqio_offsets_skipped_total"] == reads
    assert zeros["rmqio_commit_failures_total"] == reads
    assert zeros["rmqio_weak_acknowledgements_total"] == {("broker-a", "0", "c")}
    assert zeros["rmqio_row_failures_total"] == zeros["rmqio_row_write_retries_total"] == {("search",)}
    assert zeros["rmqio_decode_failures_total"] == {("b",)}, "what was counted before stays"
    assert found["rmqio_decode_failures_total", ("a",)] == 2


def test_counts_of_many_dead_processes_become_one_file(tmp_path: Path, machine: Machine) -> None:
    keeper = machine.worker()
    keeper.record("records_read", QUEUE, 1)
    (folder,) = machine.folder.glob("rmqio-prometheus-*")
    machine.scrape_until(lambda found: found[READ, queue()] == 1)
    mine = process_name(keeper.process.pid)
    (counts,) = folder.glob(f"counter_rmqio-{mine}.db")
    dead = subprocess.Popen(["true"])
    dead.wait()
    for number in range(MAX_DEAD_FILES + 1):  # as that many processes would leave behind
        (folder / f"counter_rmqio-{dead.pid + 10_000_000 + number}-1.db").write_bytes(counts.read_bytes())
    wanted = 1 + MAX_DEAD_FILES + 1
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
    """Counts by prometheus_client, in this process and in many that have ended, stay where they were."""
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
        for number in range(MAX_DEAD_FILES + 1):  # in our folder as well: a folder may be shared by mistake
            for place in (shared, folder):
                (place / f"{kind}_{10_000_000 + number}.db").write_bytes(written)
    before = {path: path.read_bytes() for path in shared.rglob("*.db") if "rmqio-" not in path.name}
    assert len(before) == 2 + 6 * (MAX_DEAD_FILES + 1)
    found = machine.scrape()
    assert found[READ, queue()] == 1
    assert not [name for name, _ in found if name.startswith("app_")], "that is the program's to serve"
    worker.kill()
    machine.worker().record("records_read", QUEUE, 2)  # a new run
    assert machine.scrape_until(lambda found: (READ, queue()) in found)[READ, queue()] == 2
    assert {path: path.read_bytes() for path in shared.rglob("*.db") if "rmqio-" not in path.name} == before


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
    gauges.rename(folder / f"{GAUGES}_rmqio-{os.getpid()}-1.db")  # as if this process had begun so early
    clean_up(folder)
    assert not list(folder.glob("gauge_*"))
    assert list(folder.glob("counter_*"))
    forget_ended_run(folder)
    assert not list(folder.glob("*.db"))


def test_a_file_that_was_just_being_made_is_passed_over(machine: Machine) -> None:
    """The file is of a process that was killed between making it and giving it its size."""
    worker = machine.worker()
    worker.record("records_read", QUEUE, 5)
    (folder,) = machine.folder.glob("rmqio-prometheus-*")
    for number in range(MAX_DEAD_FILES + 1):
        (folder / f"counter_rmqio-{10_000_000 + number}-1.db").write_bytes(b"")
    assert machine.scrape_until(lambda found: (READ, queue()) in found)[READ, queue()] == 5


def test_a_new_run_begins_at_nothing(machine: Machine) -> None:
    machine.worker().record("records_read", QUEUE, 5)
    machine.workers[0].process.kill()
    machine.workers[0].process.wait()
    machine.worker().record("records_read", QUEUE, 1)
    assert machine.scrape_until(lambda found: (READ, queue()) in found)[READ, queue()] == 1


def test_a_program_that_has_imported_the_library_keeps_its_own_metrics_as_they_are(machine: Machine) -> None:
    program = "from prometheus_client import REGISTRY, Counter\nown = Counter('own', 'x')\nown.inc(5)\n" + WORKER
    program += "    own.inc(0) or print(REGISTRY.get_sample_value('own_total'), file=sys.stderr, flush=True)\n"
    worker = machine.worker(program)
    worker.record("records_read", QUEUE, 4)
    assert machine.scrape_until(lambda found: (READ, queue()) in found)[READ, queue()] == 4
    assert "5.0" in worker.kill().split()
