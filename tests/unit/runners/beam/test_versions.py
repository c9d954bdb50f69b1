"""DirectRunner and FlinkRunner refuse a Beam that they were not tested with."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
import tomllib

import apache_beam as beam
import pytest

from rmqio import runners
from rmqio.errors import LocalError
from rmqio.runners.beam import versions
from rmqio.runners.beam.versions import BEAM, VARIABLE
from tests.helpers.imports import ROOT


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize("version", ["2.60.0", "2.78.0", "2.78.0rc1", "3.0.0"])
@pytest.mark.parametrize("runner", ["DirectRunner", "FlinkRunner"])
def test_an_untested_beam_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, runner: str, version: str
) -> None:
    monkeypatch.setattr("apache_beam.__version__", version)
    pipeline = beam.Pipeline(options=runners.options([f"--runner={runner}"]))
    _ = pipeline | beam.Create([1])
    with pytest.raises(LocalError) as raised:
        pipeline.run()
    assert f"{runner} was not tested with the installed apache-beam {version}" in str(raised.value)
    assert f"pip install '{BEAM.requirement}'" in str(raised.value)
    assert f"{VARIABLE}=1" in str(raised.value)


@pytest.mark.parametrize("version", ["2.61.0", "2.70.1", "2.77.0", "2.77.0.dev"])
def test_a_tested_one_is_taken_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    monkeypatch.setattr("apache_beam.__version__", version)
    versions.check("DirectRunner")
    assert not caplog.records


def test_an_untested_one_is_tried_on_request(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("apache_beam.__version__", "2.99.0")
    monkeypatch.setenv(VARIABLE, "1")
    with caplog.at_level(logging.WARNING), beam.Pipeline(options=runners.options([])) as pipeline:
        _ = pipeline | beam.Create([1])
    (warning,) = (each.getMessage() for each in caplog.records if each.name == "rmqio.runners")
    assert "DirectRunner was not tested with the installed apache-beam 2.99.0" in warning


@pytest.mark.parametrize(
    ("runner", "module", "missing"),
    [
        ("DirectRunner", "rmqio.runners.beam.in_process", "apache_beam.runners.portability.fn_api_runner.fn_runner"),
        ("FlinkRunner", "rmqio.runners.flink.runner", "rmqio.runners.flink.beam"),
    ],
)
def test_a_beam_that_lacks_what_a_runner_imports_is_reported_by_its_version(
    monkeypatch: pytest.MonkeyPatch, runner: str, module: str, missing: str
) -> None:
    def use() -> object:
        if runner == "DirectRunner":
            return importlib.import_module(module)
        return importlib.import_module("rmqio.runners.flink").FlinkRunner

    use()
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)  # an import of it raises ImportError
    with pytest.raises(ImportError):
        use()
    monkeypatch.setattr("apache_beam.__version__", "2.99.0")
    with pytest.raises(LocalError, match=rf"{runner} was not tested with the installed apache-beam 2\.99\.0"):
        use()


def test_the_package_requires_what_is_tested() -> None:
    """It has no upper bound: the connector itself uses public API of Beam only."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert BEAM.requirement.partition(",")[0] in dependencies
    oldest = (ROOT / "tests" / "oldest.txt").read_text()
    assert f"apache-beam=={BEAM.first[0]}.{BEAM.first[1]}.0\n" in oldest


def test_the_check_itself_needs_no_beam() -> None:
    """Else it could not say what is wrong."""
    program = "import sys, rmqio.runners.beam.versions; print('apache_beam' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"
