"""A task for Spark's workers fails in a process with another Beam or rmqio, before anything of the two is unpickled."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import apache_beam
import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import pyspark
from pyspark import cloudpickle

import rmqio
from rmqio.errors import LocalError
from rmqio.runners.beam.versions import VARIABLE
from rmqio.runners.spark import bootstrap
from rmqio.runners.spark.bootstrap import checked
from rmqio.runners.spark.sessions import session
from tests.helpers.waiting import at_most

WORKER = "import pickle, sys; print(pickle.loads(open(sys.argv[1], 'rb').read())('given'))"


def ask(given: str) -> tuple[str, str]:
    return given, LocalError.__name__


def run_elsewhere(folder: Path, beam: str, ours: str) -> tuple[str, str]:
    """Returns what a process prints and complains of whose Beam and rmqio have these versions, and nothing else.

    Without a version, the import of the package fails.
    """
    (folder / "task").write_bytes(cloudpickle.dumps(checked(lambda given: LocalError(given))))
    for package, version in (("apache_beam", beam), ("rmqio", ours)):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text(f"__version__ = {version!r}\n" if version else "import grpcio")
    done = subprocess.run(
        [sys.executable, "-S", "-c", WORKER, "task"],  # without the installed rmqio, which may be an editable one
        cwd=folder,
        env={"PYTHONPATH": os.pathsep.join(map(str, (folder, Path(pyspark.__file__).parents[1])))},
        capture_output=True,
        text=True,
        check=False,
        timeout=at_most(60),
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("beam", "ours", "expected"),
    [
        ("2.61.0", rmqio.__version__, f"has apache-beam 2.61.0, and the driver has {apache_beam.__version__}"),
        ("", rmqio.__version__, "has no apache-beam (No module named 'grpcio'), and the driver has"),
        (apache_beam.__version__, "0.0.9", f"has rmqio 0.0.9, and the driver has {rmqio.__version__}"),
        (
            "2.61.0",
            "0.0.9",
            f"has apache-beam 2.61.0 and rmqio 0.0.9, and the driver has {apache_beam.__version__} and",
        ),
    ],
)
def test_another_version_is_reported_in_one_line(beam: str, ours: str, expected: str, tmp_path: Path) -> None:
    printed, said = run_elsewhere(tmp_path, beam, ours)
    assert printed == ""
    assert expected in said
    assert "No module named 'rmqio" not in said, "nothing of rmqio is unpickled before"
    message = str(session.unfit_workers(said))
    assert expected in message
    assert sys.executable in message
    assert "pip install" in message
    assert "\n" not in message


def test_a_process_with_the_same_versions_goes_on(tmp_path: Path) -> None:
    _, said = run_elsewhere(tmp_path, apache_beam.__version__, rmqio.__version__)
    assert "No module named 'rmqio.errors'" in said, "the versions agree, so it unpickles the function"


def test_the_same_process_gets_the_result() -> None:
    task = pickle.loads(cloudpickle.dumps(checked(ask)))
    assert task("given") == ("given", "LocalError")
    assert task.__name__ == "ask"


def test_what_spark_must_see_is_pickled_beside_the_function() -> None:
    """Spark sends the values of the broadcasts that it finds in the function."""
    seen: list[str] = []

    class Seen:
        def __reduce__(self) -> tuple[type[str], tuple[str]]:
            seen.append("pickled")
            return str, ("broadcast",)

    task = checked(lambda broadcast, given: (broadcast, given), Seen())
    assert seen == []
    assert pickle.loads(cloudpickle.dumps(task))("given") == ("broadcast", "given")
    assert seen == ["pickled"]


def test_other_versions_are_tried_on_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    _, said = run_elsewhere(tmp_path, "2.61.0", "0.0.9")
    assert bootstrap.MISMATCH not in said
    assert "No module named 'rmqio.errors'" in said
