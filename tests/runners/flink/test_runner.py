"""`--runner=FlinkRunner`: pipelines on the Flink inside a job server, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import apache_beam as beam
import grpc
import pytest
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from rmqio.errors import LocalError
from rmqio.local import LocalRocketMQ
from rmqio.runners import options
from rmqio.runners.capabilities import Mode
from rmqio.runners.checkpoints import Exclusive
from rmqio.runners.flink import FlinkError, FlinkResult
from rmqio.runners.flink.jobserver import JAVA_OPTIONS_VARIABLE, SERVERS, Server
from rmqio.runners.flink.options import FlinkOptions
from rmqio.runners.flink.workers import start_pool
from tests.helpers.ledgers.kept import KeptBench
from tests.helpers.ledgers.orders import Bench
from tests.helpers.pipelines.holding import Hold
from tests.helpers.pipelines.unended import goes_on
from tests.helpers.programs import program
from tests.helpers.servers.jobs import Job, started
from tests.helpers.servers.listening import is_loopback, listening
from tests.helpers.waiting import at_most, settled, until

pytestmark = [
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]

ENDLESS = ["--streaming", "--checkpointing_interval=300"]


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    SERVERS.stop_all()


def on_flink(*flags: str) -> PipelineOptions:
    return options(["--runner=FlinkRunner", *flags])


def counted(n: int) -> int:
    Metrics.counter("test", "seen").inc()
    return n


def test_a_batch_job_and_its_metrics() -> None:
    pipeline = beam.Pipeline(options=on_flink())
    sums = pipeline | beam.Create(range(10)) | beam.Map(counted) | beam.CombineGlobally(sum)
    assert_that(sums, equal_to([45]))
    result = pipeline.run()
    assert result.wait_until_finish() == "DONE"
    (seen,) = result.metrics().query(MetricsFilter().with_name("seen"))["counters"]
    assert seen.result == 10


def test_a_stream_that_ends_ends() -> None:
    with beam.Pipeline(options=on_flink("--streaming")) as pipeline:
        seconds = pipeline | beam.Create(range(20)) | beam.Map(lambda n: TimestampedValue(("k", n), n))
        sums = seconds | beam.WindowInto(FixedWindows(10)) | beam.CombinePerKey(sum)
        assert_that(sums, equal_to([("k", 45), ("k", 145)]))


def test_a_job_server_is_used_again_and_so_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has the JVM options from the environment."""
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-XX:+UseSerialGC '-Dtest.name=a b'")
    SERVERS.stop_all()
    given = on_flink("--streaming")
    given.view_as(FlinkOptions)  # makes the options known to Beam, even if this test runs alone
    known = given.get_all_options()
    before: list[Server] = []
    for _ in range(2):
        with beam.Pipeline(options=given) as pipeline:
            _ = pipeline | beam.Create([1])
        before = before or SERVERS.idle
    assert len(before) == 1
    assert SERVERS.idle == before
    command = Path(f"/proc/{before[0].jobs.pid}/cmdline").read_text().split("\0")
    assert {"-XX:+UseSerialGC", "-Dtest.name=a b"} <= set(command)
    assert given.get_all_options() == known, "the next pipeline must not go on from where this one was"


def test_a_failure_is_reported_and_the_server_is_free_again() -> None:
    def fail(n: int) -> None:
        raise ValueError(f"no {n}, please")

    pipeline = beam.Pipeline(options=on_flink())
    _ = pipeline | beam.Create([7]) | beam.Map(fail)
    with pytest.raises(RuntimeError, match="no 7, please"):
        pipeline.run().wait_until_finish()
    assert len(SERVERS.idle) == 1


ENDED = """
import sys
import apache_beam as beam
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from rmqio.runners import options

def step(element):
    print("runs", flush=True)
    return 1 / int(sys.argv[1])

if __name__ == "__main__":
    with beam.Pipeline(options=options(["--runner=FlinkRunner", *sys.argv[2:]])) as pipeline:
        source = PeriodicImpulse(fire_interval=0.1) if sys.argv[2:] else beam.Create([1])
        pipeline | source | "Step" >> beam.Map(step)
"""


@pytest.mark.parametrize("flags", [[], ["--streaming", "--checkpointing_interval=300"]], ids=["batch", "stream"])
def test_what_a_users_program_says_of_a_failure(flags: list[str], tmp_path: Path) -> None:
    """The error at the end once; a stream, which goes on after most failures, also logs each of them, in few lines."""
    (tmp_path / "program.py").write_text(ENDED)
    program = [sys.executable, str(tmp_path / "program.py"), "0", *flags]
    done = subprocess.run(program, capture_output=True, text=True, timeout=at_most(240), check=False)
    assert done.returncode == 1
    said, _, end = done.stderr.rpartition("Traceback (most recent call last):\n  File")
    assert end.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "PipelineFailed: Step: ZeroDivisionError: division by zero" in said
    assert "site-packages" not in done.stderr
    logged = "ERROR:apache_beam.runners.worker.sdk_worker:a bundle failed: Step: ZeroDivisionError: division by zero"
    assert done.stderr.count(logged) == (11 if flags else 0), done.stderr
    assert len(done.stderr.splitlines()) < (120 if flags else 16), done.stderr


def test_ctrl_c_ends_a_users_program_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ENDED)
    with started(Job([sys.executable, str(tmp_path / "program.py"), "1", *ENDLESS], tmp_path)) as job:
        job.wait_until(lambda: "runs" in job.output.read_text(), "the stream to run")
        assert job.interrupt() == -signal.SIGINT
    log = job.log.read_text()
    assert log.endswith("\nKeyboardInterrupt\n"), log
    assert "Traceback" not in log


def test_a_batch_job_that_fails_begins_anew(tmp_path: Path) -> None:
    tries = tmp_path / "tries"

    def fail_twice(n: int) -> int:
        with tries.open("a") as file:
            file.write("x")
        if tries.stat().st_size <= 2:
            raise ValueError("not yet")
        return n

    with beam.Pipeline(options=on_flink()) as pipeline:
        assert_that(pipeline | beam.Create([7]) | beam.Map(fail_twice), equal_to([7]))
    assert tries.stat().st_size == 3


def endless(folder: Path, *flags: str, before: Any = None) -> FlinkResult:
    """Starts a job that writes the number of each element to a file. `before`: a step before that."""
    seen = folder / "seen"

    def note(_: object) -> None:
        with seen.open("a") as file:
            file.write("x")

    pipeline = beam.Pipeline(options=on_flink(*ENDLESS, *flags))
    elements = pipeline | PeriodicImpulse(fire_interval=0.1)
    _ = (elements if before is None else elements | before) | "Note" >> beam.Map(note)
    result: FlinkResult = pipeline.run()
    until(lambda: seen.exists() and seen.stat().st_size > 3, "elements", alive=[goes_on(result)])
    return result


@pytest.mark.shows(Mode.FLINK_STREAMING)
def test_a_stream_outlives_more_failures_than_a_batch_job(tmp_path: Path) -> None:
    """A broker that is away for long makes a read fail again and again."""
    failures = tmp_path / "failures"

    def fail_at_first(_: object) -> None:
        if not failures.exists() or failures.stat().st_size < 6:
            with failures.open("a") as file:
                file.write("x")
            raise ValueError("not yet")

    result = endless(tmp_path, before=beam.Map(fail_at_first))
    assert failures.stat().st_size == 6
    assert result.cancel() == "CANCELLED"


@pytest.mark.exhaustive  # a user's program shows the same, above
@pytest.mark.shows(Mode.FLINK_STREAMING)
def test_a_stream_that_fails_again_and_again_ends_with_its_error(tmp_path: Path) -> None:
    failures = tmp_path / "failures"

    def fail(_: object) -> None:
        with failures.open("a") as file:
            file.write("x")
        raise ValueError("never")

    pipeline = beam.Pipeline(options=on_flink(*ENDLESS))
    _ = pipeline | PeriodicImpulse(fire_interval=0.1) | beam.Map(fail)
    with pytest.raises(RuntimeError, match="never"):
        pipeline.run().wait_until_finish()
    assert failures.stat().st_size == 11, "ten within five minutes are restarted"


@pytest.mark.shows(Mode.FLINK_STREAMING)
def test_cancel_ends_the_job_in_flink_too(tmp_path: Path) -> None:
    result = endless(tmp_path)
    assert isinstance(result, FlinkResult)
    assert result.state == PipelineState.RUNNING
    if sys.platform == "linux":
        ours = listening(os.getpid())
        assert ours, "the pool of workers"
        assert {address for address in ours if not is_loopback(address)} == set()
    assert result.cancel() == "CANCELLED"
    # After the cancellation, the worker finishes what it has received.
    settled(lambda: (tmp_path / "seen").stat().st_size, "what is read")
    assert result.state == PipelineState.CANCELLED
    assert result.wait_until_finish() == "CANCELLED"
    assert result.rest is not None
    assert any(result.rest.url.endswith(server.rest) for server in SERVERS.idle), "its server is free again"


def test_a_hang_up_of_the_job_server_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: told.append(failure.exc_type))
    _, stop = start_pool(processes=False)
    stop()

    class HungUp(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.CANCELLED

    def fail(error: Exception) -> None:
        raise error

    for name, error in (
        ("read_grpc_client_inputs", HungUp()),
        ("run_worker_1-1", HungUp()),
        ("another", HungUp()),
        ("read_grpc_client_inputs", OSError()),
    ):
        thread = threading.Thread(target=fail, args=(error,), name=name)
        thread.start()
        thread.join()
    assert told == [HungUp, OSError]


def test_a_second_one_on_the_same_checkpoints_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    held = Exclusive(f"file:{folder}")
    with pytest.raises(LocalError, match=r"is in use: process \d+ runs a pipeline with this --checkpoint_dir"):
        endless(tmp_path, f"--checkpoint_dir={folder}")
    held.close()


def test_a_savepoint_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no savepoint or checkpoint, which is a folder with a file _metadata"):
        endless(tmp_path, f"--savepoint_path={(tmp_path / 'nowhere').as_uri()}")


def test_stop_with_a_savepoint(tmp_path: Path) -> None:
    result = endless(tmp_path)
    path = result.stop_with_savepoint((tmp_path / "savepoints").as_uri())
    assert path.startswith((tmp_path / "savepoints").as_uri().replace("file://", "file:"))
    assert result.state == PipelineState.DONE
    with pytest.raises(FlinkError, match="it has ended"):
        result.stop_with_savepoint()


def test_from_the_command_line(tmp_path: Path) -> None:
    result = endless(tmp_path)
    rest = result.rest
    assert rest is not None

    def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rmqio.runners.flink", *arguments, f"--flink_master={rest.url}"]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=at_most(60))

    listed = cli("jobs")
    assert "RUNNING" in listed.stdout, listed
    assert result.name in listed.stdout
    wrong = cli("cancel", "nobody")
    assert wrong.returncode == 1
    assert result.name in wrong.stderr
    stopped = cli("stop", result.name, f"--folder={(tmp_path / 'savepoints').as_uri()}")
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stdout.startswith("file:")
    until(lambda: PipelineState.is_terminal(result.state), "the end of the job")


@pytest.fixture
def bench(rocketmq: LocalRocketMQ, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(rocketmq, tmp_path)
    yield made
    made.client.close()


COUNT = 10_000


def restored(job: Job) -> int:
    """Returns from how many checkpoints Flink has restored the job, according to Flink."""
    found = re.search(r"Flink's REST endpoint is (\S+)", job.log.read_text())
    if found is None:
        return 0
    try:
        ids = [each["id"] for each in json.loads(urlopen(f"{found[1]}/jobs").read())["jobs"]]
        return sum(
            json.loads(urlopen(f"{found[1]}/jobs/{each}/checkpoints").read())["counts"]["restored"] for each in ids
        )
    except OSError:
        return 0  # Flink does not answer yet


@pytest.mark.broker
def test_sigterm_ends_a_program_as_ctrl_c_does(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    bench.send(100)
    command = [sys.executable, program("windowed_orders"), "--runner=FlinkRunner", "--start=earliest"]
    topics = [f"--source_topic={bench.source}", f"--sink_topic={bench.sink}", f"--consumer_group={bench.group}"]
    at = f"--name_server={bench.broker.name_server}"
    with started(Job([*command, *topics, at, "--checkpointing_interval=500"], tmp_path)) as job:
        bench.until_committed(job)
        assert list(folder.glob("rmqio-checkpoint-*")), "where its checkpoints are"
        assert job.end(signal.SIGTERM) == 130, job.log.read_text()
    assert "interrupted" in job.log.read_text()
    assert not list(folder.glob("rmqio-checkpoint-*"))


@pytest.fixture
def kept(rocketmq: LocalRocketMQ, tmp_path: Path) -> Iterator[KeptBench]:
    made = KeptBench(rocketmq, tmp_path)
    yield made
    made.client.close()


@pytest.mark.shows(Mode.FLINK_STREAMING)
@pytest.mark.broker
@pytest.mark.timeout(900)
def test_a_killed_job_goes_on_from_its_last_checkpoint(
    kept: KeptBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its windows, user state and timers of both kinds: each order is in one total of each.

    This also holds if another step reads the input of the step with state, and Python iterates over Beam's sets in
    another order.
    """
    kept.send(1_000)
    hold = Hold(tmp_path / "hold", 1_000).begin()
    flags = ("--checkpointing_interval=500", "--beside", *hold.flags)
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    # On a busy machine, the pauses between sends are long. No queue may become idle: that would close the windows.
    with started(kept.job(*flags, "--idle_timeout_ms=600000", runner="FlinkRunner")) as job:
        kept.until_committed(job)
        kept.send_ringing(45)
        kept.until_committed(job)
        kept.send(COUNT - kept.sent)
        job.wait_until(hold.queues, "the job to be held in the middle of a queue")
        job.kill()
    kept.still_rings()
    assert kept.committed() < COUNT
    hold.release()
    kept.want_what_is_kept()
    monkeypatch.setenv("PYTHONHASHSEED", "2")
    # A job that started from the beginning would not see what was sent before.
    with started(kept.job(*flags, "-v", "--start=latest", runner="FlinkRunner")) as job:
        job.wait_until(lambda: restored(job) == 1, "Flink to go on from a checkpoint")
        kept.until_there(job)
        kept.until_committed(job)
        assert job.interrupt() == 130, job.log.read_text()
    kept.check()
