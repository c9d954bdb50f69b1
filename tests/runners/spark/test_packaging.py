"""User packages for the executors: what is built, what is refused, and how a worker loads them. No Spark runs."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from apache_beam.options.pipeline_options import PipelineOptions

from rmqio.errors import LocalError
from rmqio.runners.spark.sessions.packaging import Packages, packages_for


def wheel(folder: Path, name: str, source: str, *requires: str, version: str = "1.0") -> Path:
    """Returns a wheel with one module, as a build tool would have made it."""
    folder.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    file = folder / f"{module}-{version}-py3-none-any.whl"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(file, "w") as archive:
        info = f"{module}-{version}.dist-info"
        archive.writestr(f"{module}.py", source)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return file


def built(folder: Path, *flags: str) -> Packages | None:
    folder.mkdir()
    return packages_for(PipelineOptions(list(flags)), folder)


def test_nothing_is_shipped_where_nothing_was_given(tmp_path: Path) -> None:
    assert built(tmp_path / "work") is None


def test_packages_are_installed_side_by_side(tmp_path: Path) -> None:
    one, two = wheel(tmp_path, "pack-one", "x = 1"), wheel(tmp_path, "pack-two", "x = 2", "pack-one>=1", "apache-beam")
    packages = built(tmp_path / "work", f"--extra_package={two}", f"--extra_package={one}")
    assert packages is not None
    assert {each.name for each in packages.folder.glob("*.py")} == {"pack_one.py", "pack_two.py"}
    assert not list(packages.folder.glob("apache_beam*")), "dependencies that are here do not travel"


def test_the_same_packages_have_the_same_name_and_others_another(tmp_path: Path) -> None:
    names = []
    for number, source in enumerate(["x = 1", "x = 1", "x = 2"]):
        file = wheel(tmp_path / str(number), "pack-one", source)
        packages = built(tmp_path / f"work{number}", f"--extra_package={file}")
        assert packages is not None
        names.append(packages.name)
    assert names[0] == names[1] != names[2]


def test_a_requirements_file(tmp_path: Path) -> None:
    wheel(tmp_path / "index", "pack-one", "x = 1")
    file = tmp_path / "requirements.txt"
    file.write_text(f"--no-index\n--find-links {tmp_path / 'index'}\npack-one==1.0\n")
    packages = built(tmp_path / "work", f"--requirements_file={file}")
    assert packages is not None
    assert (packages.folder / "pack_one.py").read_text() == "x = 1"


@pytest.mark.parametrize("requirement", ["no-such-distribution>=2", "apache-beam<1"])
def test_a_dependency_that_is_nowhere_is_an_error_before_spark_starts(tmp_path: Path, requirement: str) -> None:
    file = wheel(tmp_path, "pack-one", "x = 1", requirement, "never-there; python_version < '3'")
    with pytest.raises(LocalError, match=rf"need {requirement} \(for pack-one\), which is neither") as caught:
        built(tmp_path / "work", f"--extra_package={file}")
    assert "never-there" not in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--extra_package={}/missing.tar.gz", r"missing\.tar\.gz cannot be found"),
        ("--extra_package={}/package.egg", r'ending with ".tar", ".tar.gz", ".whl" or ".zip"'),
        ("--setup_file={}/missing/setup.py", r"missing/setup\.py cannot be found"),
        ("--setup_file={}/build.py", r"build\.py: it must be a setup\.py or a pyproject\.toml"),
        ("--requirements_file={}/missing.txt", r"missing\.txt: there is no such file"),
    ],
)
def test_files_that_are_missing_or_of_another_kind(tmp_path: Path, flag: str, message: str) -> None:
    (tmp_path / "package.egg").touch()
    with pytest.raises(LocalError, match=message):
        built(tmp_path / "work", flag.format(tmp_path))


def test_what_does_not_install_shows_what_pip_says(tmp_path: Path) -> None:
    file = tmp_path / "broken-1.0-py3-none-any.whl"
    file.write_text("no wheel")
    with pytest.raises(LocalError, match=r"pip could not install[^$]*broken"):
        built(tmp_path / "work", f"--extra_package={file}")


WORKER = """
import json, sys
from pyspark import SparkFiles
SparkFiles._root_directory, SparkFiles._is_running_on_worker = sys.argv[1], True
from rmqio.runners.spark.bootstrap import Bootstrap, begin
told = []
for packages in ("one", "one", "two", None):
    begin(Bootstrap(packages))
    try:
        import changing
        told.append(changing.VERSION)
    except ImportError:
        told.append(None)
print(json.dumps([told, sum(each.startswith(sys.argv[1]) for each in sys.path)]))
"""


def test_a_worker_that_serves_another_pipeline_forgets_the_packages_of_the_one_before(tmp_path: Path) -> None:
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "changing.py").write_text(f"VERSION = {version!r}")
    done = subprocess.run([sys.executable, "-c", WORKER, str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [["one", "one", "two", None], 0]
