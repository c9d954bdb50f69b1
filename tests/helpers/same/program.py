"""Runs commands of the `rmqio` of a tree: `program.py TREE`, with the arguments of one as JSON in each line.

It answers each line with one: the exit status, what went to stdout, and to stderr. It imports nothing but the entry
point that the tree's `pyproject.toml` names, so that modules of the tree can be anywhere.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_SECONDS: Final = 300
"""For one command."""


def entry_point(tree: Path) -> Callable[[list[str]], int]:
    """Returns the command line of a tree."""
    # An editable install of another tree would come first.
    sys.meta_path[:] = [each for each in sys.meta_path if "__editable__" not in getattr(each, "__module__", "")]
    sys.path[0] = str(tree)
    package = importlib.import_module("rmqio")
    package.__path__.append(str(tree))  # for trees whose `runners/` is installed as `rmqio.runners`
    module, _, name = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]["rmqio"].partition(":")
    found: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    assert Path(sys.modules[module].__file__ or "").is_relative_to(tree), sys.modules[module]
    return found


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"not ready after {_SECONDS} s")


def answer(run: Callable[[list[str]], int], arguments: list[str]) -> tuple[int | str, str, str]:
    """Runs a command. Returns its exit status, what went to stdout, and to stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status: int | str = run(arguments)
        except Exception as error:  # noqa: BLE001 - it is what the two trees may differ in
            status = f"{type(error).__name__}: {error}"
    return status, out.getvalue(), err.getvalue()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else writes where the answers go
    run = entry_point(Path(sys.argv[1]).resolve())
    signal.signal(signal.SIGALRM, _too_long)
    for line in sys.stdin:
        signal.alarm(_SECONDS)
        found = answer(run, json.loads(line))
        signal.alarm(0)
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
