"""The real job server: Beam pipelines in batch and streaming on Flink, on the loopback interface, without leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import apache_beam as beam
import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from rmqio.runners.flink import JobServer
from rmqio.runners.options import JOB_SERVER_OPTIONS
from tests.helpers.servers.listening import is_loopback, listening
from tests.helpers.waiting import runs, until

pytestmark = [
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]

WORDS = ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"]
COUNTS = ["be 2", "is 1", "not 1", "or 1", "question 1", "that 1", "the 1", "to 2"]


@pytest.fixture(scope="module")
def server() -> Iterator[JobServer]:
    with JobServer() as started:
        yield started


def test_the_options_that_it_knows_are_those_that_are_not_refused(server: JobServer) -> None:
    with grpc.insecure_channel(server.endpoint) as channel:
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        answer = beam_job_api_pb2_grpc.JobServiceStub(channel).DescribePipelineOptions(request)
    assert {each.name for each in answer.options} == JOB_SERVER_OPTIONS


def options(server: JobServer, *more: str) -> PipelineOptions:
    return PipelineOptions([*server.flags, *more])


def write_lines(lines: Iterable[str], path: Path) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def lines_of(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines())


def test_batch_counts_words(server: JobServer, tmp_path: Path) -> None:
    out = tmp_path / "counts"
    with beam.Pipeline(runner=PortableRunner(), options=options(server)) as pipeline:
        _ = (
            pipeline
            | beam.Create(WORDS)
            | beam.combiners.Count.PerElement()
            | beam.MapTuple(lambda word, count: write_lines([f"{word} {count}"], out))
        )
    assert lines_of(out) == COUNTS


class LineWithWindow(beam.DoFn):
    """Writes a count and the start of its window."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(
        self, element: tuple[str, int], window: FixedWindows = beam.DoFn.WindowParam
    ) -> Iterator[None]:  # pragma: no cover - in a worker
        word, count = element
        write_lines([f"{int(window.start)} {word} {count}"], self._path)
        yield from ()


def test_streaming_counts_words_in_windows_on_the_loopback_interface_only(server: JobServer, tmp_path: Path) -> None:
    out = tmp_path / "counts"
    pipeline = beam.Pipeline(runner=PortableRunner(), options=options(server, "--streaming"))
    _ = (
        pipeline
        | beam.Create(list(enumerate(WORDS)))
        | beam.MapTuple(lambda second, word: TimestampedValue((word, 1), second))
        | beam.WindowInto(FixedWindows(5))
        | beam.CombinePerKey(sum)
        | beam.ParDo(LineWithWindow(out))
    )
    result = pipeline.run()
    seen: set[str] = set()

    def has_ended() -> bool:
        seen.update(listening(server.pid))
        return bool(PipelineState.is_terminal(result.state))

    until(has_ended, "the end of the job", progress=lambda: result.state, details=lambda: result.state, still_s=240)
    assert result.wait_until_finish() == "DONE"
    assert lines_of(out) == [
        *("0 be 1", "0 not 1", "0 or 1", "0 to 2"),
        *("5 be 1", "5 is 1", "5 question 1", "5 that 1", "5 the 1"),
    ]
    if sys.platform == "linux":
        assert seen
        assert {address for address in seen if not is_loopback(address)} == set()


def test_a_failing_pipeline_fails_with_checkpoints_too(server: JobServer) -> None:
    def fail(word: str) -> None:
        raise ValueError(f"no {word}, please")

    with pytest.raises(RuntimeError, match="no question, please"):
        with beam.Pipeline(
            runner=PortableRunner(), options=options(server, "--streaming", "--checkpointing_interval=500")
        ) as pipeline:
            _ = pipeline | beam.Create(["question"]) | beam.Map(fail)


UNBOUNDED = """
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse

def main():
    out, *flags = sys.argv[1:]
    def write(element):
        with open(out, "a") as file:
            file.write(f"{element}\\n")
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        pipeline | PeriodicImpulse(fire_interval=0.2, data=None) | beam.Map(write)

main()
"""


def test_an_unbounded_read_begins_though_checkpoints_come_before_it(server: JobServer, tmp_path: Path) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    # Runs in its own process: the embedded cluster stops a job when its worker goes, but not when it is cancelled.
    command = [sys.executable, "-c", UNBOUNDED, str(out), *server.flags, "--streaming", "--checkpointing_interval=100"]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True)
    try:

        def logs() -> str:
            return f"{log.read_text()}\n{server.logs()}"

        until(out.exists, "the first element", alive=[runs(process, logs)], details=logs, still_s=120)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_several_run_side_by_side_with_properties_of_flinks_and_nothing_is_left(
    server: JobServer, tmp_path: Path
) -> None:
    out = tmp_path / "counts"
    with JobServer(heap_mb=384, flink_config={"state.backend.type": "rocksdb"}, verbose=True) as other:
        pid, folder = other.pid, other.log.parent
        assert pid is not None
        assert other.endpoint != server.endpoint
        assert len(processes_with(folder.name)) == 2  # the job server and its watchdog
        with beam.Pipeline(runner=PortableRunner(), options=options(other, "--streaming")) as pipeline:
            _ = (
                pipeline
                | beam.Create(WORDS)
                | beam.combiners.Count.PerElement()
                | beam.MapTuple(lambda word, count: write_lines([f"{word} {count}"], out))
            )
        assert "EmbeddedRocksDBStateBackend" in other.log.read_text()
    assert lines_of(out) == COUNTS
    assert processes_with(folder.name) == []
    assert not folder.exists()
    assert server.pid is not None


# ---- what the operating system knows about processes ----------------------------------------------------------------


def processes_with(text: str) -> list[str]:
    listed = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if text in line]
