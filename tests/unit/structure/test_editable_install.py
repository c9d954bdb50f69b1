"""README's set-up installs an editable rmqio, which is found from anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def editable() -> None:
    # The clone itself, which the tests have on their path, can hold metadata of a build
    origins = [json.loads(each.read_text("direct_url.json") or "{}") for each in distributions(name="rmqio")]
    if not any(origin.get("dir_info", {}).get("editable") for origin in origins):
        pytest.skip("rmqio is installed in another way")


def test_a_program_beside_a_clone_finds_the_package_and_not_the_folder(tmp_path: Path) -> None:
    (tmp_path / "rmqio" / "rmqio").mkdir(parents=True)
    program = tmp_path / "program.py"
    program.write_text("import rmqio, rmqio.runners; print(rmqio.StartFrom.__name__, rmqio.runners.__name__)")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.split() == ["StartFrom", "rmqio.runners"], done.stderr


def test_spark_finds_the_format(tmp_path: Path) -> None:
    code = "import pkgutil; print(*(each.name for each in pkgutil.iter_modules() if each.name.startswith('pyspark_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "pyspark_rocketmq" in done.stdout.split(), done.stderr
