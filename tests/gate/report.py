"""The end of the gate: `gate.json`, `junit.xml` and the last lines. It imports nothing that has to be installed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]


class Commit(NamedTuple):
    """`id`: None of an export without git. `is_clean`: whether the tree is that of the commit."""

    id: str | None
    is_clean: bool


def commit() -> Commit:
    def git(*arguments: str) -> str | None:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return None if done.returncode else done.stdout.strip()

    return Commit(git("rev-parse", "HEAD"), git("status", "--porcelain") == "")


class Report:
    """Reports on one run.

    Args:
      build: the folder of the reports; those of an earlier run are removed.
      began: when the set-up did, in seconds since 1970.
    """

    def __init__(self, build: Path, began: float) -> None:
        self._build, self._began = build, began
        self._commit = commit()
        self.seconds: dict[str, float] = {}
        build.mkdir(parents=True, exist_ok=True)
        for each in ("gate.json", "junit.xml"):
            (build / each).unlink(missing_ok=True)

    def close(self, passed: int = 0, failed: Sequence[str] = (), skipped: int = 0, flakes: Sequence[str] = ()) -> int:
        """Writes the reports, prints the last lines, and returns the exit status."""
        is_same = commit() == self._commit
        seconds = {**self.seconds, "all": time.time() - self._began}
        content = {
            "commit": self._commit.id,
            "clean": self._commit.is_clean and is_same,
            "result": "failed" if failed else "passed",
            "passed": passed,
            "failed": len(failed),
            "skipped": skipped,
            "seconds": {name: round(each) for name, each in seconds.items()},
            "flakes": flakes,
        }
        (self._build / "gate.json").write_text(json.dumps(content, indent=2) + "\n")
        self._join_junit()
        for name in failed:
            print(f"FAILED {name}")
        for name in flakes:
            print(f"FLAKE {name}")
        if not is_same:
            print("the sources changed meanwhile, so this says nothing about a commit")
        print("seconds: " + ", ".join(f"{name} {each:.0f}" for name, each in seconds.items()))
        print(f"{passed} passed, {len(failed)} failed, {skipped} skipped", flush=True)
        return 1 if failed else 0

    def _join_junit(self) -> None:
        suites = ElementTree.Element("testsuites")
        for file in sorted(self._build.glob("gate/*.xml")):
            with contextlib.suppress(ElementTree.ParseError):  # of a process that was killed while it wrote
                suites.extend(ElementTree.parse(file).getroot())
        ElementTree.ElementTree(suites).write(self._build / "junit.xml", encoding="utf-8", xml_declaration=True)
