"""Stray words, misspelt options and names of runners, found before Beam is imported: that takes seconds."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeGuard

from rmqio.near_names import nearest

_CLOSE: Final = 0.8
"""Below it, an option is not taken for a misspelt one: a job server can have options that are not known here."""
_FLAG: Final = re.compile(r"""["'](--[\w-]+)["']""")
_RUNNER: Final = re.compile(r"""["']apache_beam\.runners\.[\w.]+\.(\w+Runner)["']""")
_OURS: Final = ("report.py", "usage.py", "checkpoints/options.py", "flink/options.py", "spark/options.py")


def wrong_argument(argv: Sequence[str], own: Iterable[str]) -> str | None:
    """Returns what is wrong with the first argument that is a stray word, or a misspelt option; None: nothing is.

    An option is misspelt if nobody knows it and it is near a known one.

    Args:
      argv: arguments of a program. Those that it does not know go to Beam and its runner.
      own: the options of the program.
    """
    if words := stray(argv):
        return f"unknown argument {words[0]!r}"
    given = [each.partition("=")[0] for each in argv[: argv.index("--") if "--" in argv else None]]
    if "--allow_unknown_options" in given:
        return None
    known = known_flags().union(own)
    for flag in (each for each in given if each.startswith("--") and each not in known):
        if near := nearest(flag.replace("-", "_").replace("__", "--", 1), known, cutoff=_CLOSE):
            return f"unknown argument {flag!r}; did you mean {near}?"
    return None


def stray(argv: Sequence[str]) -> list[str]:
    """Returns the words that are no options. A word behind an option can be its value."""
    pairs = zip(("", *argv), argv, strict=False)
    return [word for before, word in pairs if _is_word(word) and (_is_word(before) or before == "--" or "=" in before)]


def _is_word(argument: str) -> bool:
    return not argument.startswith("-") or argument == "-"


@functools.cache
def known_flags() -> frozenset[str]:
    """Returns the options of Beam and of our runners, as the text of their sources has them."""
    from rmqio.runners.flink.known import JOB_SERVER_OPTIONS

    texts = [(Path(__file__).parent / name).read_text(encoding="utf-8") for name in _OURS]
    return frozenset(f"--{name}" for name in JOB_SERVER_OPTIONS).union(*map(_FLAG.findall, [*texts, _text_of_beam()]))


@functools.cache
def flags_with_value() -> frozenset[str]:
    """Returns those options of Beam and of our runners that take a value."""
    texts = [(Path(__file__).parent / name).read_text(encoding="utf-8") for name in _OURS]
    calls = [each for text in (*texts, _text_of_beam()) for each in ast.walk(ast.parse(text)) if _is_call(each)]
    return frozenset(name for each in calls if not _is_switch(each) for name in _names_of(each))


def _is_call(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call)


def _names_of(call: ast.Call) -> list[str]:
    texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [each for each in texts if each.startswith("--")]


def _is_switch(call: ast.Call) -> bool:
    actions = [ast.unparse(each.value) for each in call.keywords if each.arg == "action"]
    return any(each.startswith("'store") or each.endswith("BooleanOptionalAction") for each in actions)


@functools.cache
def beams_runners() -> frozenset[str]:
    """Returns the names of the runners that Beam knows."""
    return frozenset(_RUNNER.findall(_text_of_beam()))


def _text_of_beam() -> str:
    """Returns the module with Beam's options; an empty text without Beam."""
    beam = importlib.util.find_spec("apache_beam")
    folders = (beam.submodule_search_locations if beam is not None else None) or ()
    files = [Path(folder, "options/pipeline_options.py") for folder in folders]
    return "".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
