"""Each command line in README, docs and help texts names programs that are there, and options that their parsers know.

Nothing runs: a program's `main` is called, and stopped when its parser has accepted the arguments. They are started in
tests/integration/test_commands.py.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers.commands import LINES, ROOT, SPECIAL

_ELSEWHERE: Final = frozenset(
    {"cd", "conda-pack", "docker", "eval", "export", "gcc", "git", "jq", "seq", "source", "tail", "venv-pack"}
)
"""Programs that are not ours."""
_SEPARATORS: Final = frozenset({"|", ";", "&", "&&", "<", ">"})


def _split(line: str) -> Iterator[tuple[str, ...]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word in _SEPARATORS:
            found.append([])
        else:
            found[-1].append(word)
    redirected = [at for at, word in enumerate(re.findall(r"[|;&<>]+", line)) if word in "<>"]
    for at, words in enumerate(found):
        while words and re.fullmatch(r"\w+=.*", words[0], re.DOTALL):
            words = words[1:]
        if words and at - 1 not in redirected:
            yield tuple(words)


COMMANDS: Final = sorted({(line.page, words) for line in LINES for words in _split(line.text)})
"""The commands of pages, without assignments before them and without pipes between them."""


class _Parsed(Exception):
    """The arguments that a parser does not know, when it has accepted the others."""


@contextlib.contextmanager
def _only_parsing() -> Iterator[None]:
    """Parsers raise `_Parsed` when they have accepted a command line; those of commands inside of it do not."""
    real = argparse.ArgumentParser.parse_known_args
    depth = 0

    def stopped(self: argparse.ArgumentParser, *args: Any, **given: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            found = real(self, *args, **given)
        finally:
            depth -= 1
        if depth == 0:
            raise _Parsed(*found[1])
        return found

    patch = pytest.MonkeyPatch()
    patch.setattr(argparse.ArgumentParser, "parse_known_args", stopped)
    try:
        yield
    finally:
        patch.undo()


def unknown_arguments(main: Callable[..., Any], arguments: list[str]) -> list[str]:
    """Returns what the parser of a program does not know. Fails for what it does not accept."""
    argv, sys.argv = sys.argv, ["program", *arguments]
    try:
        with _only_parsing():
            main()
    except _Parsed as parsed:
        return list(parsed.args)
    finally:
        sys.argv = argv
    raise AssertionError("the program has parsed nothing")


def problem(words: tuple[str, ...]) -> str | None:
    """Returns why a command cannot run; None if nothing is known against it."""
    program, *arguments = words
    if program in _ELSEWHERE:
        return None
    if program == "make":
        return _of_make(arguments)
    if program in ("pip", ".venv/bin/pip"):
        return _of_pip(arguments)
    if program == "rmqio":
        return _of_rmqio(arguments)
    if program == "spark-submit":
        return _of_pipeline(arguments[next(at for at, each in enumerate(arguments) if each.endswith(".py")) :])
    if program.endswith("python"):
        return _of_module(arguments[1:]) if arguments[0] == "-m" else _of_pipeline(arguments)
    return f"{program} is unknown here"


def _of_make(arguments: list[str]) -> str | None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([\w-]+):", makefile, re.MULTILINE)
    for each in arguments:
        name, _, _ = each.partition("=")
        if "=" not in each and each not in targets:
            return f"there is no target {each}"
        if "=" in each and f"$({name})" not in makefile:
            return f"the Makefile does not use {name}"
    return None


def _of_pip(arguments: list[str]) -> str | None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for each in arguments[1:]:
        found = re.fullmatch(r"(rmqio|\.)(?:\[([\w,-]+)\])?", each)
        if found and (wrong := set((found[2] or "").split(",")) - {"", *project["optional-dependencies"]}):
            return f"there is no extra {wrong}"
    return None if arguments[0] == "install" else f"pip {arguments[0]} is not checked here"


def _of_rmqio(arguments: list[str]) -> str | None:
    from rmqio.cli.main import make_parser, parse

    try:
        parse(make_parser(), arguments)
    except SystemExit as end:
        return None if end.code == 0 else f"rmqio does not take {arguments}"
    return None


def _of_module(arguments: list[str]) -> str | None:
    module, *rest = arguments
    if module in ("pytest", "venv", "pip", "apache_beam.yaml.main"):
        return None
    names = (f"{module}.__main__", module)
    found = next((name for name in names if _exists(name)), None)
    if found is None:
        return f"there is no module {module}"
    main = getattr(importlib.import_module(found), "main", None)
    if main is None:
        return f"{found} has no main"
    if "ArgumentParser" not in Path(str(sys.modules[found].__file__)).read_text() and len(rest) == 1:
        return None  # it takes a folder, without a parser
    return _refusal(main, rest, of_runners=False)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _refusal(main: Callable[..., Any], arguments: list[str], *, of_runners: bool = True) -> str | None:
    try:
        unknown = unknown_arguments(main, arguments)
    except SystemExit as end:
        return None if end.code == 0 else f"the program does not take {arguments}"
    if unknown and not of_runners:
        return f"the program does not take {unknown}"
    return _unknown_to_runners(unknown)


def _of_pipeline(arguments: list[str]) -> str | None:
    """A program with options of runners: one of ours, or `pipeline.py`, the reader's own."""
    path, *rest = arguments
    rest = [each for each in rest if each != "..."]
    if path == "pipeline.py":
        return _unknown_to_runners(rest)
    if not (ROOT / path).is_file():
        return f"there is no {path}"
    if path == "pipelines/demo.py":
        return _unknown_to_runners(rest)
    main = importlib.import_module(path.removesuffix(".py").replace("/", ".")).program.options
    return _refusal(main, rest)


def _unknown_to_runners(arguments: list[str]) -> str | None:
    from rmqio.errors import LocalError
    from rmqio.runners import options, unknown_flags

    try:
        unknown = unknown_flags(options(arguments))
    except LocalError as error:
        return str(error)
    return f"no runner knows {unknown}" if unknown else None


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=[f"{page}: {shlex.join(words)[:60]}" for page, words in COMMANDS]
)
def test_a_command_can_run(page: str, words: tuple[str, ...]) -> None:
    if any("spark" in word.lower() or word.startswith("tests.helpers.") for word in words):
        pytest.importorskip("pyspark", reason="the options of the Spark runner, and clusters for tests, need it")
    assert problem(words) is None, page


def test_lines_that_are_not_started_only_become_fewer() -> None:
    assert len([line for line in LINES if line.of("excepted")]) == 56


@pytest.mark.parametrize("table", ["excepted", "endless", "status"])
def test_what_is_special_is_about_a_line(table: str) -> None:
    assert [each for each in SPECIAL[table] if not any(re.search(each, str(line)) for line in LINES)] == []


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("rmqio topic", "does not take"),
        ("rmqio peek orders --offsett 3", "does not take"),
        ("python -m rmqio.nowhere", "no module"),
        ("python -m rmqio.local --topics orders", "does not take"),
        ("python pipelines/nowhere.py", "there is no pipelines/nowhere.py"),
        ("python pipelines/province.py --source_topic=a --sink_topic=b --no_such_option_at_all=1", "no runner knows"),
        ("python pipeline.py --runer=DirectRunner", "did you mean --runner"),
        ("make tests", "no target tests"),
        ("make demo RUNER=FlinkRunner", "does not use RUNER"),
        ("pip install 'rmqio[sparks]'", "no extra"),
        ("kubectl get pods", "kubectl is unknown here"),
    ],
)
def test_a_command_that_cannot_run_is_found(command: str, found: str) -> None:
    assert found in (problem(next(_split(command))) or "nothing found")


def test_commands_are_split() -> None:
    assert list(_split("A=1 seq 3 | rmqio produce orders --lines - # sends")) == [
        ("seq", "3"),
        ("rmqio", "produce", "orders", "--lines", "-"),
    ]
    assert list(_split("rmqio produce orders - < picture.png")) == [("rmqio", "produce", "orders", "-")]
    assert len(COMMANDS) > 40
