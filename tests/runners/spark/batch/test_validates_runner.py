"""Beam's tests that are marked `it_validatesrunner`, apart from its suite for portable runners, on Spark.

They are found by their mark in the installed Beam. A test that another version of Beam adds therefore runs here.
"""

from __future__ import annotations

import functools
import importlib
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("parameterized", reason="Beam's own tests need it")
pytest.importorskip("mock", reason="Beam's own tests need it")

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.testing import test_pipeline

from rmqio.runners.options import SPARK_RUNNER
from rmqio.runners.spark import SparkRunner

MARK: Final = "it_validatesrunner"
WHERE: Final = ("transforms/*_test.py", "metrics/*_test.py", "pipeline_test.py")

UPSTREAM: Final = "skipped by Beam itself: TestStream not yet supported"
DILL: Final = "needs dill 0.3.1.1, which Beam does not install"
# As in Beam's Java runners (SideInputHandler.isReady). Python's local runner waits for the end of the window
FIRST_FIRING: Final = "expects an element to wait for the end of the side window; here it waits for the first firing"

NOT_ON_SPARK: Final = {
    "DeduplicateTest::test_deduplication_with_event_time": UPSTREAM,
    "DeduplicateTest::test_deduplication_with_processing_time": UPSTREAM,
    "PTransformTest::test_group_by_key_importable_special_types_1": DILL,
    "SideInputsTest::test_multi_triggered_gbk_side_input": FIRST_FIRING,
}
# These have a TestStream and leave it to the caller to request streaming
WITH_STREAMING: Final = {"DeduplicateTest::test_deduplication_in_different_windows"}


def marked_tests() -> Iterator[tuple[type[unittest.TestCase], list[str]]]:
    """Yields Beam's classes that have marked tests, with the names of these tests."""
    package = Path(beam.__file__).parent
    for path in sorted(path for pattern in WHERE for path in package.glob(pattern)):
        if MARK not in path.read_text():
            continue
        name = ".".join(("apache_beam", *path.relative_to(package).with_suffix("").parts))
        for found in list(vars(importlib.import_module(name)).values()):
            if isinstance(found, type) and issubclass(found, unittest.TestCase) and found.__module__ == name:
                names = unittest.defaultTestLoader.getTestCaseNames(found)
                marked = [each for each in names if _is_marked(found) or _is_marked(getattr(found, each))]
                if marked:
                    yield found, marked


def _is_marked(where: Any) -> bool:
    marks = getattr(where, "pytestmark", [])
    return any(mark.name == MARK for mark in marks)


def _on_spark(name: str, test: Callable[[Any], None]) -> Callable[[Any], None]:
    """Returns the test with a check that it has run a pipeline on Spark."""

    @functools.wraps(test)
    def run(self: Any) -> None:
        if name in WITH_STREAMING:
            test_pipeline.TestPipeline.pytest_test_pipeline_options += " --streaming"
        if NOT_ON_SPARK.get(name) == FIRST_FIRING:
            pytest.skip(FIRST_FIRING)
        test(self)
        assert SparkRunner.run_pipeline.called  # type: ignore[attr-defined]

    return run


def _subclass(base: type[unittest.TestCase], marked: list[str]) -> type[unittest.TestCase]:
    """Returns the class with its marked tests only."""
    members: dict[str, Any] = dict.fromkeys(unittest.defaultTestLoader.getTestCaseNames(base))
    for name in marked:
        members[name] = _on_spark(f"{base.__name__}::{name}", getattr(base, name))
    return type(base.__name__, (base,), {"__module__": __name__, **members})


MARKED: Final[dict[str, list[str]]] = {}
for _class, _names in marked_tests():
    assert _class.__name__ not in MARKED, "two classes of one name: one would hide the other"
    MARKED[_class.__name__] = _names
    globals()[_class.__name__] = _subclass(_class, _names)
del _class, _names  # pytest collects whatever it finds here, under any name


@pytest.fixture(autouse=True)
def _pipelines_run_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_pipeline.TestPipeline, "pytest_test_pipeline_options", f"--runner={SPARK_RUNNER}")
    # for tests that pass TestPipeline their own options
    monkeypatch.setattr(StandardOptions, "DEFAULT_RUNNER", SPARK_RUNNER)
    run_pipeline = mock.create_autospec(SparkRunner.run_pipeline, side_effect=SparkRunner.run_pipeline)
    monkeypatch.setattr(SparkRunner, "run_pipeline", run_pipeline)
