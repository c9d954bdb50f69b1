"""Fuzzes the decoders, guided by what each input reaches, and keeps a few inputs of what was found.

`python -m tests.fuzz [--inputs 1000000] [--targets frame,header] [--seed 1] [--keep]`; needs the extra `fuzz`.
It begins with the corpus, and with what earlier runs have found, which is in `tests/fuzz/found`, untracked. Only with
`--keep` is the corpus itself written: it is replaced by the best of all, to be committed.
Ends with 1 if an input fails; that input is written to the folder `--failures`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from rmqio.wire import accelerator
from tests.fuzz import covered, kept
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

SECONDS_AN_INPUT: Final = 10
MEMORY_MIB: Final = 2048
MAX_INPUT_BYTES: Final = 2048
_ROOT: Final = Path(__file__).parents[2]
_LAST: Final = re.compile(r"^#(\d+)\s+DONE\s+cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
_TIME: Final = re.compile(r"^Done (\d+) runs in (\d+) second", re.MULTILINE)
_FAILED: Final = re.compile(r"Test unit written to (.+)$", re.MULTILINE)


class Run(NamedTuple):
    """The figures that a child prints of its run."""

    inputs: int
    seconds: int
    branches: int
    found: list[bytes]
    """All inputs that reached something new."""


class Failed(Exception):
    """An input failed; the text is what is to be seen of it."""


def main() -> int:
    arguments = _arguments()
    if importlib.util.find_spec("atheris") is None:
        print("Atheris is not installed: pip install -e '.[fuzz]'", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        library, how = _library(folder)
        print(f"{how}; {arguments.inputs:,} inputs a target, seed {arguments.seed}", flush=True)
        arguments.failures.mkdir(parents=True, exist_ok=True)
        passed = [_told(name, library, arguments) for name in arguments.targets]
    if all(passed):
        with contextlib.suppress(OSError):  # of an earlier run there may be some
            arguments.failures.rmdir()
    return int(not all(passed))


def _library(folder: str) -> tuple[str, str]:
    """The C extension for children, nothing for the one that is installed; and what they decode with."""
    if accelerator.IMPLEMENTATION != "c":
        return "", "Python alone, the C extension is not there"
    try:
        return str(covered.build(folder)), "Python and C, guided by the branches of both"
    except (OSError, subprocess.CalledProcessError):
        return "", "Python and C, guided by the branches of Python (gcc does not build the extension)"


def _told(name: str, library: str, arguments: argparse.Namespace) -> bool:
    """Whether a target passed; prints a line of it."""
    try:
        run = fuzz(name, arguments.inputs, arguments.seed, arguments.failures, library)
    except Failed as error:
        print(f"{name:<11}FAILED\n{error}", flush=True)
        return False
    best = kept.minimised(TARGETS[name], run.found)
    paths = kept.keep(name, best, kept.FOLDER if arguments.keep else kept.FOUND)
    size = sum(path.stat().st_size for path in paths)
    print(
        f"{name:<11}{run.inputs:>10,} inputs {run.inputs // max(run.seconds, 1):>7,}/s {run.branches:>5} branches"
        f" {len(run.found):>5} inputs found, {len(paths):>3} kept ({size:,} B)  ok",
        flush=True,
    )
    return True


def fuzz(name: str, inputs: int, seed: int, failures: Path, library: str = "") -> Run:
    """Runs a target in a child, from its corpus, what was found before, and its seeds. Raises `Failed`."""
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(dict.fromkeys((*kept.load(name), *kept.load(name, kept.FOUND), *seeds(name)))):
            Path(folder, f"{number:04}").write_bytes(data)
        child = subprocess.run(
            [
                sys.executable, "-m", "tests.fuzz.child", library, name, folder, f"-runs={inputs}", f"-seed={seed}",
                f"-timeout={SECONDS_AN_INPUT}", f"-rss_limit_mb={MEMORY_MIB}", f"-max_len={MAX_INPUT_BYTES}",
                f"-artifact_prefix={failures}/{name}-", "-print_final_stats=1", "-verbosity=1",
            ],
            cwd=_ROOT, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        last, time = _LAST.search(child.stderr), _TIME.search(child.stderr)
        if child.returncode or last is None or time is None:
            raise Failed(_explained(child))
        found = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
    return Run(int(time[1]), int(time[2]), int(last[2]), found)


def _explained(child: subprocess.CompletedProcess[str]) -> str:
    lines = (child.stdout + child.stderr).splitlines()
    shown = [line for line in lines if not line.startswith(("#", "INFO:", "WARNING:"))][-40:]
    written = _FAILED.search(child.stderr)
    again = "" if written is None else f"\nthe input is in {written[1]}"
    return "\n".join(f"    {line[:1000]}" for line in shown) + again


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of each target")
    parser.add_argument("--targets", type=_targets, default=list(TARGETS), help=f"of {','.join(TARGETS)}")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzer's choices")
    parser.add_argument("--keep", action="store_true", help="write to the corpus, not to tests/fuzz/found")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where inputs that fail are put")
    return parser.parse_args()


def _targets(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in TARGETS]:
        raise argparse.ArgumentTypeError(f"no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
