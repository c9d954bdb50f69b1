"""The end of the gate: `gate.json`, `junit.xml` and the last lines. It imports nothing that has to be installed."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
CANNOT_BEGIN: Final = "FAILED the gate cannot begin: {}\n0 passed, 1 failed, 0 skipped"
"""The last lines if there is no report to close."""


class Commit(NamedTuple):
    """`id`: None of an export, and where git is not installed. `is_clean`: whether the tree is that of the commit."""

    id: str | None
    is_clean: bool


def git(root: Path, *arguments: str) -> str | None:
    """Returns what git prints, or None if it fails or is not there. Bytes that are not UTF-8 are as `\\xfc`."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout.decode(errors="backslashreplace")


def commit(root: Path = ROOT) -> Commit:
    head = git(root, "rev-parse", "HEAD")
    return Commit(head and head.strip(), git(root, "status", "--porcelain") == "")


class End(NamedTuple):
    """What a run says at its end: numbers, and names of tests.

    `flakes`: were inconclusive, and passed once more. `flaked_before`: the commit of the last time, of those of them
    that were flakes in an earlier run.
    """

    passed: int = 0
    wrong: tuple[str, ...] = ()
    inconclusive: tuple[str, ...] = ()
    skipped: int = 0
    flakes: tuple[str, ...] = ()
    flaked_before: Mapping[str, str] = {}

    @property
    def failed(self) -> int:
        return len(self.wrong) + len(self.inconclusive)


class Taken(OSError):
    """Raised if another process writes its reports into the same folder."""


def hold(build: Path) -> IO[str]:
    """Makes a folder of reports this process's own, until the file that this returns is closed, or the process ends.

    It stays that of a program that the process becomes, and is never that of its children. Raises `OSError`: `Taken`,
    or that the folder cannot be written.
    """
    build.mkdir(parents=True, exist_ok=True)
    file = (build / "gate.lock").open("a+")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        with file:
            raise Taken(f"process {file.read() or '?'} is running in {build}: wait for it, or end it") from None
    os.set_inheritable(file.fileno(), True)
    os.truncate(file.fileno(), 0)
    with contextlib.suppress(OSError):  # of a full disk
        os.write(file.fileno(), str(os.getpid()).encode())
    return file


class Report:
    """Reports on one run. Until it is closed, `gate.json` says that the run has failed, since it may be killed.

    What needs time is done after that: an earlier run may have passed.

    Args:
      build: the folder of the reports, which is its own until then; those of an earlier run are removed.
      began: when the set-up did, in seconds since 1970.
      root: of the sources.

    Raises:
      OSError: the disk is full, or the folder cannot be written. There is no `gate.json` then. Or it is `Taken`.
    """

    def __init__(self, build: Path, began: float, root: Path = ROOT) -> None:
        self.build, self.began, self.root = build, began, root
        self.commit = Commit(None, is_clean=False)
        self.seconds: dict[str, float] = {}
        self._is_clean = False
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a terminal has not all characters that a test says
        try:
            self._held = hold(build)
            # With room for the last text, because the disk may be full by then.
            (build / "gate.json").write_text(self._killed())
            (build / "junit.xml").unlink(missing_ok=True)
            self.commit = commit(root)
            with (build / "gate.json").open("r+") as file:  # where it has room
                file.write(self._killed())
        except Taken:
            raise
        except OSError:
            (build / "gate.json").unlink(missing_ok=True)
            raise

    def close(self, end: End) -> int:
        """Writes the reports, prints the last lines, and returns the exit status."""
        has_changed = self._has_changed()
        self._is_clean = self.commit.is_clean and not has_changed
        end = self._written(end, "junit.xml", lambda _: self._join_junit())
        end = self._written(end, "gate.json", self._write)
        for name in end.wrong:
            print(f"FAILED {name}")
        for name in end.inconclusive:
            print(f"INCONCLUSIVE {name}")
        for name in end.flakes:
            print(f"FLAKE {name}")
        for name, when in end.flaked_before.items():
            print(f"flaked before, on {when}, so mend it before anything else: {name}")
        if has_changed:
            print("the sources changed meanwhile, so this says nothing about a commit")
        print("seconds: " + ", ".join(f"{name} {each}" for name, each in self._rounded().items()))
        print(f"{end.passed} passed, {end.failed} failed, {end.skipped} skipped", flush=True)
        self._held.close()
        return 1 if end.failed else 0

    def _written(self, end: End, name: str, write: Callable[[End], None]) -> End:
        """Returns the end, to which it is added if a report cannot be written."""
        try:
            self.build.mkdir(parents=True, exist_ok=True)  # somebody may have removed all of it
            write(end)
        except OSError as error:
            return end._replace(wrong=(*end.wrong, f"{name} cannot be written: {error}"))
        return end

    def _write(self, end: End) -> None:
        (self.build / "gate.json").touch()
        with (self.build / "gate.json").open("r+") as file:  # where it has room
            file.write(self._json(end))
            file.truncate()

    def _killed(self) -> str:
        return self._json(End(wrong=("it was killed",))).ljust(4096)

    def _json(self, end: End) -> str:
        content = {
            "commit": self.commit.id,
            "clean": self._is_clean,
            "result": "failed" if end.failed else "passed",
            "passed": end.passed,
            "failed": end.failed,
            "inconclusive": len(end.inconclusive),
            "skipped": end.skipped,
            "seconds": self._rounded(),
            "flakes": end.flakes,
        }
        return json.dumps(content, indent=2) + "\n"

    def _has_changed(self) -> bool:
        """Whether the sources are not those of the begin, or were not meanwhile: then, one of them is newer."""
        names = (git(self.root, "ls-files", "-z") or "").split("\0")[:-1]
        return commit(self.root) != self.commit or any(_written(self.root / name) > self.began for name in names)

    def _rounded(self) -> dict[str, int]:
        return {name: round(each) for name, each in {**self.seconds, "all": time.time() - self.began}.items()}

    def _join_junit(self) -> None:
        suites = ElementTree.Element("testsuites")
        for file in sorted(self.build.glob("gate/*.xml")):
            with contextlib.suppress(ElementTree.ParseError):  # of a process that was killed while it wrote
                suites.extend(ElementTree.parse(file).getroot())
        ElementTree.ElementTree(suites).write(self.build / "junit.xml", encoding="utf-8", xml_declaration=True)


def _written(file: Path) -> float:
    try:
        return file.lstat().st_mtime
    except OSError:
        return float("inf")
