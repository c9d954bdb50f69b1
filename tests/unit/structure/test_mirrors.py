"""The folders of tests/unit mirror the packages, so that a module leads to its tests, and a test to its module."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from tests.helpers.imports import ROOT, sources

UNIT: Final = ROOT / "tests/unit"
OF_NO_PACKAGE: Final = {
    "launch": "what starts a pipeline on an engine: scripts, images, manifests",
    "docs": "documents",
    "pipelines": "the programs there",
    "structure": "the sources as a whole",
    "tools": "code of tests, benchmarks and fuzzers",
}
"""Folders whose tests are not of a package, and their subjects."""


def wrong_folders(folders: set[str], modules: set[str]) -> list[str]:
    """Returns the folders that are named after no package and no module."""
    return sorted(each for each in folders - {"."} if f"rmqio.{each.replace('/', '.')}" not in modules)


def without_folder(folders: set[str], packages: set[str]) -> set[str]:
    """Returns the packages that have no folder with tests in it or below it, as their folders would be called."""
    above = {parent.as_posix() for each in folders for parent in [PurePosixPath(each), *PurePosixPath(each).parents]}
    wanted = {each.removeprefix("rmqio.").replace(".", "/") for each in packages if each.startswith("rmqio.")}
    return wanted - above


def folders_of_tests() -> set[str]:
    return {path.parent.relative_to(UNIT).as_posix() for path in UNIT.rglob("test_*.py")}


def test_each_folder_is_named_after_a_package_or_a_module() -> None:
    folders = {each for each in folders_of_tests() if each.partition("/")[0] not in OF_NO_PACKAGE}
    assert len(folders) > 100
    assert wrong_folders(folders, {module for module, _ in sources()}) == []


def test_each_package_has_a_folder() -> None:
    packages = {module for module, path in sources() if path.name == "__init__.py"}
    assert without_folder(folders_of_tests(), packages) == set()


def test_the_folders_of_no_package_are_there() -> None:
    assert OF_NO_PACKAGE.keys() <= folders_of_tests()


def test_what_is_wrong_is_found() -> None:
    modules = {"rmqio", "rmqio.wire", "rmqio.wire.stored"}
    folders = {".", "wire/stored", "wire/message"}
    assert wrong_folders(folders, modules) == ["wire/message"]
    assert without_folder(folders, {*modules, "rmqio.serde.avro"}) == {"serde/avro"}
