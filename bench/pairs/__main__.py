"""Tells whether a change made something slower: `python -m bench.pairs BASE [cases...]`.

It runs each case with a worktree of the commit BASE and with this folder, in turns, after a run of each that does not
count. Both have C extensions, a process of their own, and the broker of this process. Both must do the same work: what
they have written or read is compared. A line says "worse" if the median of the pairs is beyond 5 % and beyond the
spread: the larger of the two sides' ranges between quartiles. The exit status is 1 if one does. Modules may move
between the trees: only public names are used.

sql, read and write take CPU time, which other work on the machine changes little; spark and stream start a JVM for
each tree, and are of use on an idle machine only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.common.report import BUSY_WARNING, aligned, machine_text, say
from bench.common.tally import UnequalWork
from bench.pairs import program
from rmqio.testing import InMemoryCluster
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.imports import ROOT
from tests.helpers.worktree import worktree

MOST: Final = 0.05
"""By how much a median may be worse."""
MESSAGES: Final = {"sql": 30_000, "read": 30_000, "write": 20_000, "spark": 300_000, "stream": 20_000}
QUEUES: Final = 2
_SITE: Final = """import sys
sys.meta_path[:] = [each for each in sys.meta_path if "__editable__" not in getattr(each, "__module__", "")]
"""
"""Python runs it at its start, that of Spark's workers, too: else, the installed tree would come before another one."""
Run = Callable[[str, str, int], dict[str, Any]]
"""Runs a case: its name, the name server, the messages."""


def judged(base: Sequence[float], head: Sequence[float]) -> tuple[float, float, str]:
    """Returns the median of head to base in pairs, less 1, the spread, and what is to be said."""
    change = statistics.median(after / before for before, after in zip(base, head, strict=True)) - 1
    spread = max(map(_spread, (base, head)))
    return change, spread, "worse" if change > max(MOST, spread) else ""


def _spread(seconds: Sequence[float]) -> float:
    first, middle, third = statistics.quantiles(seconds, n=4, method="inclusive")
    return (third - first) / middle


@contextlib.contextmanager
def runs_of(tree: Path, site: Path | None = None) -> Iterator[Run]:
    """Yields what runs the cases of a tree, in a process of its own. `site`: a folder with `_SITE`."""
    paths = [str(tree)] if site is None else [str(site), str(tree)]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}
    command = [sys.executable, program.__file__, str(tree)]
    with subprocess.Popen(
        command, cwd=tree, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def run(*arguments: object) -> dict[str, Any]:
            print(json.dumps(arguments), file=requests, flush=True)
            if not (line := answers.readline()):
                raise SystemExit(f"the process of {tree} has ended")
            found: dict[str, Any] = json.loads(line)
            if found["elsewhere"]:
                raise SystemExit(f"the process of {tree} has modules of another tree: {found['elsewhere'][:3]}")
            return found

        yield run
        requests.close()


def once(case: str, run: Run, messages: int) -> tuple[float, tuple[int, ...]]:
    """Runs a case on a new broker. Returns the seconds, and what was done."""
    with InMemoryCluster() as cluster:
        for topic in ("source", "sink"):
            cluster.create_topic(topic, QUEUES)
        for number in range(messages if case in ("sql", "read", "stream") else 0):
            cluster.append("source", program.body(number), queue_id=number % QUEUES, born_ms=number * 10)
        with FakeBroker(cluster) as broker:
            found = run(case, broker.name_server, messages)
        written = [
            record.body for queue in cluster.stored_topic("sink").queues
            for record in cluster.stored_queue(queue).slice(0, 1 << 30)
        ]  # fmt: skip
    return found["seconds"], (found["work"], len(written), sum(map(zlib.crc32, written)))


def compare(case: str, base: Run, head: Run, messages: int, repeats: int) -> tuple[list[float], list[float]]:
    """Returns the seconds of both, in pairs. Raises `UnequalWork`."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(repeats + 1):
        works = {}
        for side in (0, 1) if number % 2 else (1, 0):
            took, works[side] = once(case, (base, head)[side], messages)
            seconds[side].append(took)
        if works[0] != works[1]:
            raise UnequalWork(f"{case}: the work of base is {works[0]}, of head {works[1]}")
        say(f"{case}, run {number}: {seconds[0][-1]:.2f} s, {seconds[1][-1]:.2f} s")
    return seconds[0][1:], seconds[1][1:]


def prepare(tree: Path) -> None:
    """Builds what an installation adds to a worktree: C extensions."""
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(build, cwd=tree, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    there, here = ({path.relative_to(each).as_posix() for path in each.glob("rmqio/**/*.so")} for each in (tree, ROOT))
    if not there or not here:
        raise SystemExit("one of the trees has no C extensions: make .venv/.installed builds those of this folder")


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.pairs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"{', '.join(MESSAGES)}. Default: all")
    parser.add_argument("--repeats", type=int, default=9, help="pairs that count. Default: %(default)s")
    parser.add_argument("--messages", type=int, help=f"default: {MESSAGES}")
    given = parser.parse_args(argv)
    if unknown := sorted(set(given.cases) - set(MESSAGES)):
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(MESSAGES)}")
    load = os.getloadavg()[0]
    print(f"Machine: {machine_text()}.")
    lines = [["case", "base s", "head s", "change", "spread", ""]]
    with worktree(given.base, ROOT / "build/pairs") as tree:
        prepare(tree)
        (site := tree / "build").mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(_SITE)
        with runs_of(tree, site) as base, runs_of(ROOT) as head:
            for case in given.cases or MESSAGES:
                found = compare(case, base, head, given.messages or MESSAGES[case], given.repeats)
                change, spread, said = judged(*found)
                medians = [f"{statistics.median(each):.3f}" for each in found]
                lines.append([case, *medians, f"{change:+.1%}", f"{spread:.1%}", said])
    print(aligned(lines, left={0, 5}))
    if load > 0.5:
        print(BUSY_WARNING.format(load).strip("*"))
    return int(any(line[-1] == "worse" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
