"""Runs all tests there are, by part: `python -m tests.gate.parts`, which is `make test-all`.

A part takes at most 25 minutes and needs no other part. Each is a run of the gate with stages of its own: what failed,
was inconclusive or ran out of time is told alike. What passed on a commit is kept in the user's cache folder, so that
a run without a name goes on where the last one was.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rmqio.local.fetch import cache_dir
from tests.gate.__main__ import Gate, run
from tests.gate.durations import balanced
from tests.gate.jobs import Job, Stage, pytest_job
from tests.gate.judging import PARTS_SKIPS
from tests.gate.patience import measured
from tests.gate.report import CANNOT_BEGIN, ROOT, Report, commit
from tests.helpers.servers.old_broker import DIFFERS, ENTER, FILES
from tests.helpers.waiting import PATIENCE, patience
from tests.mutants.patch import mutants

_LIMIT_S: Final = 28 * 60.0
_MOST_MINUTES: Final = 25.0

MARKERS: Final = {
    "unit": "not (broker or slow or spark or cluster or examples or systems)",
    "real": "(broker or slow or spark) and not (cluster or examples or systems)",
    "clusters": "cluster",
    "examples": "examples and not cluster and not systems",
    "systems": "systems and not cluster",
}
"""Each test has the markers of one of them."""
_EXAMPLES: Final = "tests/examples"
_COMMANDS: Final = "tests/integration/test_commands.py"
FOLDERS: Final = {
    "clusters": ("tests/runners", _EXAMPLES),
    "examples": (_EXAMPLES, _COMMANDS),
    "systems": ("tests/integration",),
}
"""They save imports."""
REAL: Final = {
    "client": ("contract", "integration/client", "integration/java", "integration/librocketmq", "integration/local"),
    "faults": ("integration/faults", "integration/reading", "integration/writing", "integration/test_security.py"),
    "programs": ("integration", "unit"),
    "delivery": ("runners/delivery", "runners/test_connect_killed.py", "runners/test_live_windows.py"),
    "modes": ("runners",),
    "sql": ("runners/sql",),
    "flink": ("runners/flink",),
    "spark": ("runners/spark",),
    "streams": ("runners/spark/streaming", "unit/runners/spark"),
    "pyspark": ("runners/pyspark",),
}
"""Files and folders below tests/ with tests on real brokers and runners. Of two that hold a file, the longer one is
meant."""
_CLUSTERS: Final = {
    "clusters-flink": "flink",
    "clusters-spark": "not flink and not streaming",
    "clusters-streams": "not flink and streaming",
}
"""What stands in the names of their tests: together they have all of them."""
_VERSIONS: Final = (("2.75.0-4.1.0", "2.75.0-4.2.0"), ("2.76.0-4.2.1", "2.77.0-4.3.0"))
_MUTANTS: Final = 9
"""Parts with planted faults. They take about as long as each other, by the seconds in tests/README.md."""
_MUTANT_S: Final = 60.0
"""What a fault takes beside: two times the environment, and the test that has seen it, without it."""


def part_of(file: str) -> str:
    """Returns the part that has the tests of a file on real brokers and runners. Raises `ValueError` if none has."""
    holding = [(path, part) for part, paths in REAL.items() for path in paths if _holds(f"tests/{path}", file)]
    return max(holding, key=lambda each: len(each[0]))[1]


def _holds(path: str, file: str) -> bool:
    return file == path or file.startswith(f"{path}/")


def _real(part: str) -> Stage:
    paths = [f"tests/{path}" for path in REAL[part]]
    others = [f"tests/{path}" for name in REAL if name != part for path in REAL[name]]
    inner = [f"--ignore={other}" for other in others if any(_holds(path, other) for path in paths)]
    return _pytest(part, MARKERS["real"], *paths, *inner, *_TWO)


_TWO: Final = ("-n", "2", "--dist", "loadfile")


def _pytest(name: str, markers: str, *arguments: str) -> Stage:
    return Stage(name, (pytest_job(name, "-m", markers, "--durations=40", *arguments, runs_again=True),))


def _make(target: str, *variables: str) -> Stage:
    name = "-".join((target, *variables)).replace("=", "-")
    return Stage(name, (Job(name, ("make", "--no-print-directory", target, *variables), is_pytest=False),))


def _old_broker() -> tuple[Stage, Stage]:
    """Fetches a broker, and runs some files on it. Before 5.0, brokers listen on all interfaces, whatever is
    configured, so this is in a network namespace that has nothing but a loopback."""
    fetched = Job("fetch-old", (sys.executable, "-m", "tests.helpers.servers.old_broker"), is_pytest=False)
    (job,) = _pytest("old-broker", "broker", f"--deselect={DIFFERS}", *FILES).jobs
    return Stage("fetch-old", (fetched,), stops=True), Stage(
        "old-broker", (job._replace(command=(*ENTER, *job.command)),)
    )


def _mutants() -> dict[str, tuple[Stage, ...]]:
    readme = (ROOT / "tests" / "README.md").read_text()
    known = dict(re.findall(r"^\| (\d\d) .* \| (\d+) \|$", readme, re.MULTILINE))
    parts = balanced({each.number: _MUTANT_S + float(known.get(each.number, 0)) for each in mutants()}, _MUTANTS)
    return {
        f"mutants-{at}": (_make("test-mutants", f"ARGS=--only {','.join(part)}"),) for at, part in enumerate(parts, 1)
    }


PARTS: Final[Mapping[str, tuple[Stage, ...]]] = {
    "release": tuple(map(_make, ("lint", "docs", "dist"))),
    "unit": (_pytest("unit", MARKERS["unit"], *_TWO),),
    **{part: (_real(part),) for part in REAL},
    **{
        name: (_pytest(name, MARKERS["clusters"], "-k", words, *FOLDERS["clusters"]),)
        for name, words in _CLUSTERS.items()
    },
    "examples": (_pytest("examples", MARKERS["examples"], _EXAMPLES),),
    "commands": (_pytest("commands", MARKERS["examples"], _COMMANDS),),
    "systems": (_pytest("systems", MARKERS["systems"], *FOLDERS["systems"]), *_old_broker()),
    "pythons": tuple(map(_make, ("test-oldest", "test-newest", "test-pythons"))),
    **{
        f"versions-{at}": tuple(_make("test-versions", f"VERSIONS={each}") for each in versions)
        for at, versions in enumerate(_VERSIONS, 1)
    },
    **_mutants(),
}
"""The stages of each part."""


def named(part: str) -> str:
    """Returns the name of a part that is given by its name or its number: `sql`, `3` or `3/20`."""
    names = [*PARTS]
    for number, name in enumerate(names, 1):
        if part in {name, str(number), f"{number}/{len(names)}"}:
            return name
    raise argparse.ArgumentTypeError(f"there is no part {part!r} of {len(names)}: {', '.join(names)}")


class Kept:
    """The last report on each part of a commit. `file`: where they are kept; none of another commit is in it."""

    def __init__(self, file: Path, head: str | None) -> None:
        self._file, self._head = file, head
        self._reports = self._read()

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            found: dict[str, dict[str, Any]] = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):  # of a process that was killed while it wrote
            return {}
        return found

    @property
    def left(self) -> list[str]:
        """The parts that have not passed."""
        return [name for name in PARTS if self._reports.get(name, {}).get("result") != "passed"]

    def keep(self, name: str, report: dict[str, Any]) -> None:
        """Keeps a report, if it is about the commit and nothing else, and what is said of the time that the part took.

        Other clones may run other parts meanwhile.
        """
        if report["clean"] and report["commit"] == self._head:
            self._reports = {**self._read(), name: {**report, "too_long": too_long(report)}}
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part = self._file.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(self._reports, indent=2) + "\n")
            part.replace(self._file)

    def table(self) -> list[str]:
        """Returns a line of Markdown for each part, with a head."""
        lines = [f"Commit {self._head}", "", "| part | result | passed | failed | skipped | minutes |"]
        lines.append("|---|---|---|---|---|---|")
        for at, name in enumerate(PARTS, 1):
            found = self._reports.get(name, {})
            counts = " | ".join(str(found.get(each, "")) for each in ("passed", "failed", "skipped"))
            minutes = f"{found['seconds']['all'] / 60:.1f}{found.get('too_long', '')}" if found else ""
            lines.append(f"| {at} {name} | {found.get('result', '-')} | {counts} | {minutes} |")
        return lines


def run_part(name: str) -> int:
    """Returns the exit status. The reports are in `build/parts/NAME`. Raises `OSError` if they cannot be written, and
    `ValueError` for a patience that is no number."""
    print(f"part {[*PARTS].index(name) + 1} of {len(PARTS)}: {name}", flush=True)
    report = Report(build_of(name), time.time())
    os.environ[PATIENCE] = str(factor := measured())
    return run(Gate(PARTS[name], report, _LIMIT_S * factor, skips=PARTS_SKIPS))


def too_long(report: Mapping[str, Any]) -> str:
    """Returns what the table says of how long a part took, or "". A busy machine has more time, as for all limits."""
    most = _MOST_MINUTES * patience()
    return f", of {most:.0f} at most: divide it" if report["seconds"]["all"] > most * 60 else ""


def build_of(name: str) -> Path:
    return ROOT / "build" / "parts" / name


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate.parts", description=__doc__)
    parser.add_argument("--part", type=named, help="a name, or a number as 3 or 3/20; it runs even if it has passed")
    parser.add_argument("--list", action="store_true", help="only show what is known of this commit")
    given = parser.parse_args(argv)
    head = commit().id
    kept = Kept(cache_dir() / "test-all" / f"{head}.json", head)
    worst, is_set = 0, PATIENCE in os.environ
    for name in [] if given.list else [given.part] if given.part else kept.left:
        if not is_set:  # what was measured when the part before began
            os.environ.pop(PATIENCE, None)
        try:
            worst = max(worst, status := run_part(name))
        except (OSError, ValueError) as error:
            print(CANNOT_BEGIN.format(error), flush=True)
            return 1
        report = json.loads((build_of(name) / "gate.json").read_text())
        kept.keep(name, report)
        if text := too_long(report):
            print(f"part {name} took {report['seconds']['all'] / 60:.1f} minutes{text}", flush=True)
        if status > 128:  # ended by a signal
            break
    print("\n".join(kept.table()))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
