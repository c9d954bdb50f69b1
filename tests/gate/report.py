"""The end of the gate: `gate.json`, `junit.xml` and the last lines. It imports nothing that has to be installed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
CANNOT_BEGIN: Final = "FAILED the gate cannot begin: {}\n0 passed, 1 failed, 0 skipped"
"""The last lines if there is no report to close."""


class Commit(NamedTuple):
    """`id`: None of an export, and where git is not installed. `is_clean`: whether the tree is that of the commit."""

    id: str | None
    is_clean: bool


def git(root: Path, *arguments: str) -> str | None:
    """Returns what git prints, or None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout


def commit() -> Commit:
    head = git(ROOT, "rev-parse", "HEAD")
    return Commit(head and head.strip(), git(ROOT, "status", "--porcelain") == "")


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


class Report:
    """Reports on one run. Until it is closed, `gate.json` says that the run has failed, since it may be killed.

    Args:
      build: the folder of the reports; those of an earlier run are removed.
      began: when the set-up did, in seconds since 1970.

    Raises:
      OSError: the disk is full, or the folder cannot be written. There is no `gate.json` then.
    """

    def __init__(self, build: Path, began: float) -> None:
        self._build, self._began = build, began
        self.commit = commit()
        self.seconds: dict[str, float] = {}
        build.mkdir(parents=True, exist_ok=True)
        (build / "junit.xml").unlink(missing_ok=True)
        # With room for the last text, because the disk may be full by then.
        try:
            (build / "gate.json").write_text(self._json(End(wrong=("it was killed",))).ljust(4096))
        except OSError:
            (build / "gate.json").unlink(missing_ok=True)
            raise

    def close(self, end: End) -> int:
        """Writes the reports, prints the last lines, and returns the exit status."""
        try:
            self._join_junit()
        except OSError as error:
            end = end._replace(wrong=(*end.wrong, f"junit.xml cannot be written: {error}"))
        with (self._build / "gate.json").open("r+") as file:
            file.write(self._json(end))
            file.truncate()
        for name in end.wrong:
            print(f"FAILED {name}")
        for name in end.inconclusive:
            print(f"INCONCLUSIVE {name}")
        for name in end.flakes:
            print(f"FLAKE {name}")
        for name, when in end.flaked_before.items():
            print(f"flaked before, on {when}, so mend it before anything else: {name}")
        if commit() != self.commit:
            print("the sources changed meanwhile, so this says nothing about a commit")
        print("seconds: " + ", ".join(f"{name} {each}" for name, each in self._rounded().items()))
        print(f"{end.passed} passed, {end.failed} failed, {end.skipped} skipped", flush=True)
        return 1 if end.failed else 0

    def _json(self, end: End) -> str:
        content = {
            "commit": self.commit.id,
            "clean": self.commit.is_clean and commit() == self.commit,
            "result": "failed" if end.failed else "passed",
            "passed": end.passed,
            "failed": end.failed,
            "inconclusive": len(end.inconclusive),
            "skipped": end.skipped,
            "seconds": self._rounded(),
            "flakes": end.flakes,
        }
        return json.dumps(content, indent=2) + "\n"

    def _rounded(self) -> dict[str, int]:
        return {name: round(each) for name, each in {**self.seconds, "all": time.time() - self._began}.items()}

    def _join_junit(self) -> None:
        suites = ElementTree.Element("testsuites")
        for file in sorted(self._build.glob("gate/*.xml")):
            with contextlib.suppress(ElementTree.ParseError):  # of a process that was killed while it wrote
                suites.extend(ElementTree.parse(file).getroot())
        ElementTree.ElementTree(suites).write(self._build / "junit.xml", encoding="utf-8", xml_declaration=True)
