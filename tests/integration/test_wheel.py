"""The wheel in an empty virtual environment, away from the source tree: what it holds is enough to run."""

from __future__ import annotations

import os
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers.wheels import build_wheel, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    return build_wheel(folder)


@pytest.fixture(scope="module")
def python(folder: Path, wheel: Path) -> Path:
    """The interpreter of an environment in which there is nothing but the wheel and its dependencies."""
    venv.create(folder / "venv", with_pip=True, system_site_packages=False)
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder)
    return python


def test_the_wheel_holds_data_files_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "rmqio/py.typed",
        "rmqio/local/rocketmq-5.5.0.lock.json",
        "rmqio/runners/options.py",
    ):
        assert names.count(name) == 1, name
    assert [name for name in names if name.endswith((".c", ".h"))] == [], "the extensions are built"
    assert [name for name in names if ".dist-info/" in name and name.endswith("/LICENSE")]
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rmqio", "pyspark_rocketmq"}


def test_the_description_is_the_readme_without_what_leads_nowhere_elsewhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in metadata
    description = metadata.partition("\n\n")[2]
    assert description.startswith("# rmqio\n\nrmqio connects Apache RocketMQ to Apache Beam")
    assert "pip install -e '.[spark]'" in description
    assert ".svg" not in description
    assert "](" not in description, "a link into the repository"


def test_every_module_of_the_source_tree_is_in_the_wheel(wheel: Path, folder: Path) -> None:
    source, names = folder / "source", set(zipfile.ZipFile(wheel).namelist())
    modules = {path.relative_to(source).as_posix() for path in (source / "rmqio").rglob("*.py")}
    assert modules - names == set()


def test_public_names_come_from_the_wheel(python: Path, folder: Path) -> None:
    code = """
import pathlib, sys
import rmqio
assert pathlib.Path(rmqio.__file__).is_relative_to(sys.prefix), rmqio.__file__
for name in rmqio.__all__:
    getattr(rmqio, name)
from rmqio import Message, MessageQueue, ReadAllFromRocketMQ, ReadFromRocketMQ, ReadOptions, Record
from rmqio import StartFrom, StopAt, WriteOptions, WriteToRocketMQ
from rmqio.local import LocalRocketMQ
from rmqio.runners import options
from rmqio.serde import JsonDeserializer
from rmqio.testing import InMemoryCluster
package = pathlib.Path(rmqio.__file__).parent
assert (package / "py.typed").is_file()
assert (package / "local" / "rocketmq-5.5.0.lock.json").stat().st_size > 1000
print("ok", len(rmqio.__all__))
"""
    word, count = run(python, "-c", code, cwd=folder).split()
    assert (word, int(count) > 10) == ("ok", True)


def test_spark_finds_the_format(python: Path, folder: Path) -> None:
    """It imports each module that it finds under such a name, and takes the `DefaultSource` in it."""
    code = "import pkgutil; print(*(each.name for each in pkgutil.iter_modules() if each.name.startswith('pyspark_')))"
    assert run(python, "-c", code, cwd=folder).split() == ["pyspark_rocketmq"]


def test_a_pipeline_runs_from_the_wheel(python: Path, folder: Path) -> None:
    code = """
import apache_beam as beam
from rmqio import ReadFromRocketMQ, StartFrom, StopAt
from rmqio.runners import options
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
with InMemoryCluster() as cluster:
    cluster.create_topic("t", 1)
    for n in range(5):
        cluster.append("t", b"%d" % n)
    with beam.Pipeline(options=options(["--runner=DirectRunner"])) as p:
        read = ReadFromRocketMQ(
            "t", start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name)
        )
        p | read | beam.Map(lambda record: print(record.body.decode()))
"""
    assert run(python, "-c", code, cwd=folder).split() == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(("module", "flag"), [("rmqio", "--name_server"), ("rmqio.local", "--broker_port")])
def test_programs_explain_themselves(python: Path, folder: Path, module: str, flag: str) -> None:
    text = run(python, "-m", module, "--help", cwd=folder)
    assert text.startswith("usage: ")
    assert flag in text
