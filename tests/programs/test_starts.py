"""The files of `pipelines/` and `examples/` start as users start them: in a clone, and with the package installed.

Started programs are what shows that a file hides a module, or that a module is not installed: what a test imports is
found in another way. `spark_submit.sh` and `totals.yaml` are no programs of Python; tests/examples and
tests/integration run them.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.wheels import ROOT, build_wheel, finished, run

FOLDERS: Final = ("pipelines", "examples")
PROGRAMS: Final = [
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in sorted((ROOT / folder).glob("*.py"))
    if path.name != "__init__.py"
]
"""Every file is one."""


def usage(*command: object, cwd: Path, **variables: str) -> str:
    """Returns the first words that a program prints for `--help`. It must say nothing on standard error."""
    done = finished(sys.executable, *command, "--help", cwd=cwd, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split()[:2])


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_hides_a_module_of_python(folder: str) -> None:
    """Python looks for modules in the folder of the program first: a copy.py there ends every program beside it."""
    assert {each.stem for each in (ROOT / folder).glob("*.py")} & sys.stdlib_module_names == set()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_is_started_by_its_path(program: str) -> None:
    if "pyspark" in program:
        pytest.importorskip("pyspark", reason="it needs the extra 'spark'")
    assert usage(program, cwd=ROOT) == f"usage: {Path(program).name}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a program that finds the wheel, and the packages beside it, but not the clone.

    `python -S` leaves an editable install out, since it begins in a file of site-packages.
    The wheel has no C code, which would take longer to compile than all else here; tests/integration has it.
    """
    folder = tmp_path_factory.mktemp("installed")
    wheel = build_wheel(folder, RMQIO_NO_EXTENSION="1")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    run(*pip, f"--target={folder / 'packages'}", wheel, cwd=folder)
    others = dict.fromkeys(sysconfig.get_path(each) for each in ("purelib", "platlib"))
    return {"PYTHONPATH": ":".join([str(folder / "packages"), *others])}


def test_what_is_imported_is_the_wheels(installed: dict[str, str], tmp_path: Path) -> None:
    """Otherwise, the next tests would show the clone."""
    code = "import sys; from importlib.util import find_spec; print(*(find_spec(each).origin for each in sys.argv[1:]))"
    names = ("rmqio", "rmqio.runners", "pyspark_rocketmq")
    packages = Path(installed["PYTHONPATH"].partition(":")[0])
    found = run(sys.executable, "-S", "-c", code, *names, cwd=tmp_path, **installed).split()
    files = ("rmqio/__init__.py", "rmqio/runners/__init__.py", "pyspark_rocketmq/__init__.py")
    assert found == [str(packages / each) for each in files]


@pytest.mark.parametrize("program", ["pipelines/province.py", "examples/write_with_keys.py"])
def test_a_program_is_started_with_the_wheel_from_an_empty_folder(
    program: str, installed: dict[str, str], tmp_path: Path
) -> None:
    name = Path(shutil.copy(ROOT / program, tmp_path)).name
    assert usage("-S", name, cwd=tmp_path, **installed) == f"usage: {name}"
