"""Beam's own tests that use TestStream, and its transcripts of triggers, on Structured Streaming.

`make test-all` runs all of them. `make test` runs those in DAILY.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import pickle
import shutil
import tempfile
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

pytest.importorskip("parameterized", reason="Beam's own tests need it")
pytest.importorskip("mock", reason="Beam's own tests need it")

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.testing import test_pipeline

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ResourceWarning)  # it leaves the file of its transcripts open
    from apache_beam.transforms import trigger_test, userstate_test

from rmqio.runners.options import SPARK_RUNNER
from rmqio.runners.spark import SparkRunner

# Workers import trigger_test, which leaves its file open, and the driver repeats the warnings of workers.
# One of Beam's tests uses hamcrest under a name that this deprecates
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:deprecated - use contains:DeprecationWarning"),
]

DAILY: Final = {
    "TestStreamTest::test_multiple_outputs_with_watermark_advancement",
    "TestStreamTest::test_basic_execution_sideinputs",
}
NO_SPARK: Final = "needs no runner: it looks at values only"
_INTERACTIVE: Final = "PairWithTiming is a primitive that Beam's local runners evaluate: no portable runner has it"
NOT_OURS: Final = {
    "SideInputsTest::test_multi_triggered_gbk_side_input": (
        "wants an element to wait for the side window's end; as on Beam's Java runners, it waits for its first firing"
    ),
    "TestStreamTest::test_basic_test_stream": NO_SPARK,
    "TestStreamTest::test_test_stream_errors": NO_SPARK,
    "TestStreamTest::test_instance_check_windowed_value_holder": NO_SPARK,
    "TestStreamTest::test_roundtrip_proto": NO_SPARK,
    "TestStreamTest::test_roundtrip_proto_multi": NO_SPARK,
    "TestStreamTest::test_basic_execution_with_service": "refused: events from a service (TestStream's endpoint)",
    "TestStreamTranscriptTest::test_known_late_data_watermark": (
        "wants the time of a pane to leave out elements that are behind the watermark; combined before the shuffle, "
        "they share the earliest time with those that are not. Beam excuses FnApiRunner from it, too"
    ),
    "TestStreamTranscriptTest::test_timestamp_combiner_custom_timestamping_earliest_1": (
        "OUTPUT_AT_EARLIEST_TRANSFORMED: Beam cannot put it into a portable pipeline"
    ),
    "BatchElementsTest::test_stateful_buffering_timer_in_global_window_streaming": (
        "counts on one worker process: BatchElements has a key for each, here there are two"
    ),
    "ReverseTestStreamTest::test_basic_execution": _INTERACTIVE,
    "ReverseTestStreamTest::test_basic_execution_in_records_format": _INTERACTIVE,
    "ReverseTestStreamTest::test_windowing": _INTERACTIVE,
    "TestStreamTest::test_windowed_values_interpreted_correctly": (
        "a private way of Beam's interactive runner to put elements into windows: no portable runner has it"
    ),
}


def with_test_streams() -> Iterator[tuple[type[unittest.TestCase], list[str]]]:
    """Yields classes of the installed Beam, with the names of their tests that make a TestStream."""
    package = Path(beam.__file__).parent
    yield trigger_test.TestStreamTranscriptTest, _names(trigger_test.TestStreamTranscriptTest)
    for path in (*sorted((package / "transforms").glob("*_test.py")), package / "testing" / "test_stream_test.py"):
        if "TestStream()" not in path.read_text():
            continue
        module = importlib.import_module(f"apache_beam.{path.parent.name}.{path.stem}")
        for found in list(vars(module).values()):
            if isinstance(found, type) and issubclass(found, unittest.TestCase) and found.__module__ == module.__name__:
                names = [name for name in _names(found) if "TestStream()" in inspect.getsource(getattr(found, name))]
                if names and found is not trigger_test.TestStreamTranscriptTest:
                    yield found, names


def _names(base: type[unittest.TestCase]) -> list[str]:
    return list(unittest.defaultTestLoader.getTestCaseNames(base))


def _copy(test: Any) -> Any:
    """Returns a copy whose marks belong to this class only: the original is also collected elsewhere."""

    @functools.wraps(test)
    def run(self: Any) -> None:
        test(self)

    return run


def _of_ours(base: type[unittest.TestCase], wanted: list[str]) -> type[unittest.TestCase]:
    """Returns the class with the wanted tests only. Tests that are not for us say why."""
    members: dict[str, Any] = dict.fromkeys(_names(base))
    for name in wanted:
        label = f"{base.__name__}::{name}"
        test: Any = _copy(getattr(base, name))
        if label in NOT_OURS:
            test = pytest.mark.skip(reason=NOT_OURS[label])(test)
        members[name] = test if label in DAILY else pytest.mark.exhaustive(test)
    if base is userstate_test.StatefulDoFnOnDirectRunnerTest:
        members |= {"setUp": _set_up_recorded, "record_dofn": _record}
    return type(base.__name__, (base,), {"__module__": __name__, **members})


class Recorded(list[Any]):
    """A list of what workers have written to a file, for tests that look at a list."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Any]:
        with contextlib.suppress(EOFError), self.path.open("rb") as file:
            while True:
                yield pickle.load(file)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        return [*self] == other

    __hash__ = None


class Record(beam.DoFn):
    """Writes elements to the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, element: Any) -> None:
        with self._path.open("ab") as file:
            file.write(pickle.dumps(element))


def _set_up_recorded(self: Any) -> None:
    folder = Path(tempfile.mkdtemp())
    self.addCleanup(shutil.rmtree, folder)
    (folder / "recorded").touch()
    userstate_test.StatefulDoFnOnDirectRunnerTest.all_records = Recorded(folder / "recorded")


def _record(_: Any) -> Record:
    return Record(userstate_test.StatefulDoFnOnDirectRunnerTest.all_records.path)


for _class, _wanted in with_test_streams():
    globals()[_class.__name__] = _of_ours(_class, _wanted)
del _class, _wanted  # pytest collects whatever it finds here, under any name


@pytest.fixture(autouse=True)
def _pipelines_stream_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    options = f"--runner={SPARK_RUNNER} --streaming"
    monkeypatch.setattr(test_pipeline.TestPipeline, "pytest_test_pipeline_options", options)
    # for tests that pass TestPipeline their own options
    monkeypatch.setattr(StandardOptions, "DEFAULT_RUNNER", SPARK_RUNNER)
    run = SparkRunner.run_pipeline

    def streaming(self: SparkRunner, pipeline: Any, given: PipelineOptions) -> Any:
        given.view_as(StandardOptions).streaming = True
        return run(self, pipeline, given)

    monkeypatch.setattr(SparkRunner, "run_pipeline", streaming)
