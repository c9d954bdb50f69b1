"""Tells whether SQL has the same plans and gives the same rows as before: `python -m tests.helpers.same BASE`.

It runs all jobs of a corpus with the `rmqio sql` of a worktree of the commit BASE, and with that of this folder: each
as `--explain`, and to the end of its topics, on the Direct runner. It writes `build/same/base` and `build/same/head`,
a file with the plan and one with the rows of each job, and shows what differs. The exit status is 0 if nothing does.

The corpus is data, in `build/same/corpus.jsonl`: texts of SQL, messages, files. It is made if it is not there, from
this folder, in some minutes, and then kept, so that all changes are compared by the same jobs; `--record` makes it
again. Most of it is what tests of SQL run. They have it in their Python, in many forms, so their jobs are noted where
all of them pass: where a pipeline with a script of SQL is run (`recording`). Nexmark, joins, windows, ranks, OVER,
dimensions, file tables are among them. The oracles draw the rest: calls of all functions, forms of queries (`corpus`).

Modules may move between the two trees: only the command line is used, of a tree in a process of its own (`program`).
The broker is in this process, so both trees have the same one. Both run without C extensions, which BASE does not have.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rmqio.model import SHARDING_KEY
from rmqio.testing import InMemoryCluster
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.imports import ROOT
from tests.helpers.same import corpus, program
from tests.helpers.same.corpus import FOLDER, Job
from tests.helpers.worktree import worktree

_BUILD: Final = ROOT / "build/same"
_TESTS: Final = tuple(f"tests/unit/sql/{folder}" for folder in ("runtime", "transform", "user", "lookup"))
_NOT: Final = "broker or slow or spark or cluster or examples or systems or exhaustive"
_SHOWN, _LINES, _WIDTH = 20, 12, 160
"""Files that differ, and lines of each, that are shown; a longer message has a line for each column."""


Command = Callable[[list[str]], tuple[int | str, str, str]]
"""Runs `rmqio` with these arguments. Returns the exit status, stdout and stderr."""


@contextmanager
def command_of(tree: Path) -> Iterator[Command]:
    """Yields the command line of a tree, in a process of its own."""
    # Beside a tree without its C extensions, those of the other one would be compared with Python.
    variables = os.environ | {"RMQIO_PURE_PYTHON": "1", "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        [sys.executable, program.__file__, str(tree)],
        cwd=tree, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        answers, requests = process.stdout, process.stdin

        def command(arguments: list[str]) -> tuple[int | str, str, str]:
            print(json.dumps(arguments), file=requests, flush=True)
            if not (answer := answers.readline()):
                raise SystemExit(f"the process of {tree} has ended")
            status, out, err = json.loads(answer)
            return status, out, err

        yield command


def texts_of(job: Job, command: Command) -> dict[str, str]:
    """Runs a job. Returns its plan and its rows, by the names of their files."""
    with tempfile.TemporaryDirectory() as name, job.cluster() as cluster:
        folder = Path(name)
        for file, text in job.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(text.encode("latin-1"))
        script = folder / "job.sql"
        script.write_text(job.text.replace(FOLDER, name))
        before = _places(cluster)
        explain = _said(command(["sql", str(script), "--explain"]))
        with FakeBroker(cluster, brokers=sorted({broker for _, broker, _ in job.queues}) or ["broker-a"]) as broker:
            server = ["--name_server", broker.name_server]
            ended = _said(command(["sql", str(script), *server, "--start", "earliest", "--stop", "latest"]))
        rows = [ended, *_written(cluster, before), *_files(folder, {*job.files, script.name})]
        texts = {f"{job.name}.explain": explain, f"{job.name}.rows": "\n".join(rows)}
        places = {name: FOLDER, broker.name_server: "BROKER"}
        for place, stands_for in places.items():
            texts = {file: text.replace(place, stands_for) for file, text in texts.items()}
        return {file: f"{text}\n" for file, text in texts.items()}


def _said(ended: tuple[int | str, str, str]) -> str:
    status, out, err = ended
    own = [line for line in err.splitlines() if line.startswith("rmqio")]  # beside it is what libraries log
    return "\n".join([f"status {status}", *out.splitlines(), *own])


def _places(cluster: InMemoryCluster) -> Counter[tuple[Any, ...]]:
    return Counter((each.topic, each.broker, each.queue_id) for each in corpus.contents(cluster)[1])


def _written(cluster: InMemoryCluster, before: Counter[tuple[Any, ...]]) -> Iterator[str]:
    """Yields the messages that were written, without ids and queues, in order; those of one row in the order of it."""
    found: list[tuple[str, str]] = []
    for each in corpus.contents(cluster)[1]:
        place = (each.topic, each.broker, each.queue_id)
        if before[place]:
            before[place] -= 1
            continue
        properties = {name: value for name, value in sorted(each.properties.items()) if name != "UNIQ_KEY"}
        begin = f"{each.topic} {json.dumps(properties)}"
        line = f"{begin} {each.body.encode('latin-1').decode(errors='replace')}"
        found.append((begin if SHARDING_KEY in properties else line, line))
    for _, line in sorted(found, key=lambda pair: pair[0]):
        yield line if len(line) <= _WIDTH else line.replace(',"', ',\n  "')


def _files(folder: Path, given: set[str]) -> Iterator[str]:
    """Yields the lines of files that were written, in order."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    some = [path for path in paths if path.relative_to(folder).as_posix() not in given]
    lines = ((path.parent.relative_to(folder), line) for path in some for line in path.read_bytes().splitlines())
    yield from sorted(f"{parent}/ {line.decode(errors='replace')}" for parent, line in lines)


def run(tree: Path, jobs: Sequence[Job]) -> dict[str, str]:
    """Runs jobs in a tree. Returns plans and rows by the names of their files."""
    found: dict[str, str] = {}
    with command_of(tree) as command:
        for number, job in enumerate(jobs):
            found |= texts_of(job, command)
            if sys.stderr.isatty():
                print(f"\r{number + 1} of {len(jobs)} jobs", end="", file=sys.stderr, flush=True)
    return found


def _write(texts: dict[str, str], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text)


def differing(base: dict[str, str], head: dict[str, str]) -> dict[str, str]:
    """Returns a diff of each text that is not the same."""
    return {
        name: "\n".join(
            [*difflib.unified_diff(text.splitlines(), head[name].splitlines(), "base", "head", n=1, lineterm="")]
        )
        for name, text in base.items()
        if head[name] != text
    }


def record(file: Path) -> None:
    """Makes the corpus: jobs of tests, and jobs that the oracles make."""
    _BUILD.mkdir(parents=True, exist_ok=True)
    noted = _BUILD / "noted.jsonl"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.helpers.same.recording", "-m", f"not ({_NOT})"]
    subprocess.run([*command, *_TESTS], cwd=ROOT, env=os.environ | {"SAME_CORPUS": str(noted)}, check=False)
    corpus.save([*corpus.load(noted), *corpus.made()], file)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.helpers.same", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument("--record", action="store_true", help="make the corpus again")
    parser.add_argument("-k", metavar="PATTERN", default="", help="only jobs whose name has this regular expression")
    arguments = parser.parse_args(argv)
    file = _BUILD / "corpus.jsonl"
    if arguments.record or not file.exists():
        record(file)
    jobs = [job for job in corpus.load(file) if re.search(arguments.k, job.name)]
    head = run(ROOT, jobs)
    with worktree(arguments.base, _BUILD / "tree") as tree:
        base = run(tree, jobs)
        suspects = {name.rpartition(".")[0] for name in differing(base, head)}
        again = run(tree, [job for job in jobs if job.name in suspects])
    unsteady = {name for name in again if again[name] != base[name]}
    for folder, texts in (("base", base), ("head", head)):
        _write(texts, _BUILD / folder)
    diffs = {name: diff for name, diff in differing(base, head).items() if name not in unsteady}
    for name, diff in [*diffs.items()][:_SHOWN]:
        print(f"{name} differs:", *diff.splitlines()[2 : 2 + _LINES], sep="\n  ")
    for name in sorted(unsteady):
        print(f"{name} says nothing: in BASE alone, it is not the same each time")
    print(f"{len(jobs)} jobs, {len(diffs)} of {len(base)} files differ: build/same/base, build/same/head")
    return 1 if diffs else 0


if __name__ == "__main__":
    sys.exit(main())
