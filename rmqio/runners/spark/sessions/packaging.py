"""Brings the user's packages to the executors: pip builds them here, Spark ships them, workers import from a folder."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pyspark import SparkContext

from rmqio.errors import LocalError
from rmqio.runners.spark.beam.private import Stager

_PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
_HOW: Final = ("--no-deps", "--no-compile")
# These files differ between installations of the same package
_INCIDENTAL: Final = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_SETUP_FILES: Final = ("setup.py", "pyproject.toml")


class Packages:
    """The packages of `--setup_file`, `--extra_package` and `--requirements_file`, installed into their own folder.

    Spark ships the folder as an archive and unpacks it on the executors. The path gets a folder and not a zip file, so
    that packages find the files beside their modules.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"rmqio-packages-{_digest(folder)[:16]}"

    def ship(self, context: SparkContext) -> str:
        """Ships the packages to all present and future executors. Returns the folder's name among Spark's files."""
        if self.name not in {each.rpartition("#")[2] for each in context.listArchives}:
            # Executors fetch the archive when they start, so it must live as long as this process
            archive = shutil.make_archive(str(_kept() / self.name), "zip", self.folder)
            context.addArchive(f"{Path(archive).as_uri()}#{self.name}")
        return self.name


def packages_for(options: PipelineOptions, folder: Path) -> Packages | None:
    """Builds the packages to ship and installs them into a folder. Returns None if there are none.

    Raises:
      LocalError: a file is missing or cannot be built, or a dependency is neither installed here nor shipped.
    """
    setup = options.view_as(SetupOptions)
    requirements: str | None = setup.requirements_file
    if not (setup.setup_file or setup.extra_packages or requirements):
        return None
    staged = _staged(setup, folder / "staged") if setup.setup_file or setup.extra_packages else []
    if requirements is not None and not os.path.isfile(requirements):
        raise LocalError(f"--requirements_file {requirements}: there is no such file")
    target = folder / "installed"
    _install(target, [*(("-r", requirements) if requirements else ()), *map(str, staged)])
    if missing := sorted(_missing(target)):
        raise LocalError(
            f"packages for the executors need {', '.join(missing)}, which is neither among them nor installed here. "
            "Install it here and in the Python of the executors, or ship it with --extra_package or --requirements_file"
        )
    return Packages(target)


def _staged(setup: SetupOptions, folder: Path) -> list[Path]:
    """Returns source distributions and wheels, according to Beam's own rules for these flags."""
    folder.mkdir()
    wanted = PipelineOptions([]).view_as(SetupOptions)
    wanted.extra_packages = setup.extra_packages
    if setup.setup_file:
        if os.path.basename(setup.setup_file) not in _SETUP_FILES:
            raise LocalError(f"--setup_file {setup.setup_file}: it must be a setup.py or a pyproject.toml")
        wanted.setup_file = os.path.abspath(setup.setup_file)  # Beam changes the working directory to its folder
    try:
        resources = Stager.create_job_resources(wanted, str(folder), log_submission_env_dependencies=False)
        staged = [(Path(source), name) for source, name, _ in Stager.extract_staging_tuple_iter(resources)]
    except Exception as error:
        raise LocalError(f"--setup_file or --extra_package: Beam cannot build the packages: {error}") from error
    return [source for source, name in staged if name != "extra_packages.txt"]


def _install(target: Path, what: Sequence[str]) -> None:
    command = [sys.executable, *_PIP, *_HOW, "--target", str(target)]
    # First with the installed build tools, so that a source distribution needs no network; then with its own tools
    attempts = [[*command, "--no-build-isolation", *what], [*command, *what]]
    for attempt in attempts:
        done = subprocess.run(attempt, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        shutil.rmtree(target, ignore_errors=True)
    raise LocalError(f"pip could not install the packages for the executors:\n{done.stderr.strip()}")


def _missing(target: Path) -> Iterator[str]:
    """Yields the requirements of the packages that neither they nor the packages of this Python meet.

    Dependencies are not installed: a package that depends on Beam must not bring another Beam.
    """
    shipped = list(importlib.metadata.distributions(path=[str(target)]))
    versions = {canonicalize_name(each.metadata["Name"]): each.version for each in shipped}
    for each in shipped:
        for line in each.requires or ():
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            version = versions.get(canonicalize_name(requirement.name)) or _version_here(requirement.name)
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                yield f"{requirement} (for {each.metadata['Name']})"


def _version_here(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _digest(folder: Path) -> str:
    """Returns the same digest for the same files, so that a pipeline that runs again ships nothing again."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in _INCIDENTAL:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


_folders: list[tempfile.TemporaryDirectory[str]] = []


def _kept() -> Path:
    if not _folders:
        _folders.append(tempfile.TemporaryDirectory(prefix="rmqio-packages-"))  # removed when the process ends
    return Path(_folders[0].name)
