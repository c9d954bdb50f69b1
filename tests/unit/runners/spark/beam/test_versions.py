"""The Spark runner refuses a Beam and a PySpark that it was not tested with."""

from __future__ import annotations

import importlib
import logging
import re
import subprocess
import sys
import tomllib

import pytest

from rmqio.errors import LocalError
from rmqio.runners.beam.versions import VARIABLE, Releases
from rmqio.runners.spark.beam import versions
from rmqio.runners.spark.beam.versions import BEAM, PYSPARK
from tests.helpers.imports import ROOT


def install(monkeypatch: pytest.MonkeyPatch, beam: str, pyspark: str) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(versions, "_installed", lambda: [(BEAM, beam), (PYSPARK, pyspark)])


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.74.0", False),
        ("2.75.0", True),
        ("2.76.1", True),
        ("2.77.0", True),
        ("2.77.0.dev", True),
        ("2.77.0-vendor.3", True),
        ("2.78.0", False),
        ("2.78.0rc1", False),
        ("2.8.0", False),
        ("3.76.0", False),
        ("unknown", False),
    ],
)
def test_which_versions_are_tested(version: str, expected: bool) -> None:
    assert (version in Releases("apache-beam", (2, 75), (2, 77))) is expected


def test_a_tested_version_is_taken_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(monkeypatch, "2.75.0", "4.3.0")
    versions.check()
    assert not caplog.records


@pytest.mark.parametrize(
    ("beam", "pyspark", "have", "need"),
    [
        ("2.99.0", "4.2.0", "installed apache-beam 2.99.0; it", BEAM.requirement),
        ("2.61.0", "4.2.0", "installed apache-beam 2.61.0; it", BEAM.requirement),
        ("2.76.0", "4.0.5", "installed pyspark 4.0.5; it", PYSPARK.requirement),
        ("2.99.0", "5.0.0", "apache-beam 2.99.0 and pyspark 5.0.0", f"{BEAM.requirement}' '{PYSPARK.requirement}"),
    ],
)
def test_an_untested_one_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, beam: str, pyspark: str, have: str, need: str
) -> None:
    install(monkeypatch, beam, pyspark)
    with pytest.raises(LocalError) as raised:
        versions.check()
    assert have in str(raised.value)
    assert f"pip install '{need}'" in str(raised.value)
    assert f"{VARIABLE}=1" in str(raised.value)


def test_an_untested_one_is_tried_on_request(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    install(monkeypatch, "2.99.0", "4.2.0")
    monkeypatch.setenv(VARIABLE, "1")
    with caplog.at_level(logging.WARNING):
        versions.check()
    (record,) = caplog.records
    assert "apache-beam 2.99.0" in record.getMessage()
    monkeypatch.setenv(VARIABLE, "0")
    with pytest.raises(LocalError):
        versions.check()


def test_the_runner_asks_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    from rmqio.runners.spark import SparkRunner

    monkeypatch.setattr("apache_beam.__version__", "2.99.0")
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(LocalError, match=r"apache-beam 2\.99\.0"):
        SparkRunner()
    monkeypatch.setattr("pyspark.__version__", "3.5.0")
    with pytest.raises(LocalError, match=r"apache-beam 2\.99\.0 and pyspark 3\.5\.0"):
        SparkRunner()


def test_a_stream_needs_a_newer_pyspark_than_a_pipeline_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "2.77.0", "4.1.1")
    versions.check()
    with pytest.raises(LocalError, match=r"--streaming needs PySpark 4\.2 or newer, and 4\.1\.1 is installed"):
        versions.check_streams()
    install(monkeypatch, "2.77.0", "4.2.0")
    versions.check_streams()


def test_a_stream_is_refused_before_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    import apache_beam as beam

    from rmqio.runners.spark import SparkRunner

    monkeypatch.setattr("pyspark.__version__", "4.1.0")
    pipeline = beam.Pipeline(runner=SparkRunner(), argv=["--streaming"])
    with pytest.raises(LocalError, match="needs PySpark"):
        pipeline.run()


@pytest.mark.parametrize("error", [ImportError("no name 'x' in apache_beam"), AttributeError("no attribute '_x'")])
def test_a_beam_that_lacks_what_the_runner_imports_is_reported_by_its_version(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    spark = importlib.import_module("rmqio.runners.spark")
    importlib.import_module("rmqio.runners.spark.beam.versions")
    real = importlib.import_module

    def broken(name: str, package: str | None = None) -> object:
        if name.endswith(".runner"):
            raise error
        return real(name, package)

    monkeypatch.delitem(vars(spark), "SparkRunner", raising=False)
    monkeypatch.setattr(importlib, "import_module", broken)
    install(monkeypatch, "2.99.0", "4.2.0")
    with pytest.raises(LocalError, match=r"apache-beam 2\.99\.0") as raised:
        spark.SparkRunner  # noqa: B018
    assert raised.value.__context__ is error
    install(monkeypatch, "2.77.0", "4.2.0")
    with pytest.raises(type(error)):
        spark.SparkRunner  # noqa: B018


def test_the_extra_requires_what_is_tested() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {BEAM.requirement, PYSPARK.requirement} <= set(extras["spark"])


def test_the_first_and_the_last_of_the_tested_versions_are_run() -> None:
    (line,) = re.findall(r"^VERSIONS \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pairs = [pair.split("-") for pair in line.split()]
    for tested, run in zip((BEAM, PYSPARK), zip(*pairs, strict=True), strict=True):
        minors = sorted(tuple(int(part) for part in version.split(".")[:2]) for version in run)
        assert (minors[0], minors[-1]) == (tested.first, tested.last)


def test_the_check_itself_needs_neither_of_them() -> None:
    """Else it could not say what is wrong."""
    program = "import sys, rmqio.runners.spark.beam.versions; print({'apache_beam', 'pyspark'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"
