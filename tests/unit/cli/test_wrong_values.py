"""Each option of each command with wrong values: one line that names the option or the value, before anything slow.

A value is made for each kind of argument, so that a new option is here, too. What only a broker knows is not.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.machinery
import io
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio.cli.main import main, make_parser
from rmqio.command_line.parser import Parser
from tests.helpers.programs import program
from tests.helpers.waiting import at_most

LONG: Final = "9" * 5_000
NUMBERS: Final = ("x", "-1", "1.5", LONG)
TIMES: Final = ("yesterday", "10x", "9" * 20, LONG)
NAMES: Final = ("a b", "", "x" * 300)
WRONG: Final[dict[str, tuple[str, ...]]] = {
    "N": NUMBERS,
    "MS": NUMBERS,
    "MB": ("x", "-1", "0"),
    "1..18": ("0", "19", *NUMBERS),
    "PORT": ("70000", *NUMBERS),
    "SECONDS": ("x", "-1", "nan", "inf", LONG),
    "--older_than": ("yesterday", "10x", LONG),
    "TIME": ("yesterday", "10x", LONG),
    "--at": (*TIMES, "999999999d"),
    "--deliver_at": (*TIMES, "99d", "1", "2020-01-01T00:00:00Z"),
    "WHERE": ("latst", "timestamp:", "999999999d", *TIMES),
    "--catalog": ("missing.sql",),
    "TOPIC": NAMES,
    "GROUP": NAMES,
    "NAME[:QUEUES]": ("a b", "a:0", "a:x"),
    "BROKER:ID": ("x", "b:-1", "b:x"),
    "NAME=VALUE": ("x", "=x"),
    "KEY=VALUE": ("x", "=x"),
    "HOST:PORT": ("here", "h:x", "h:70000", ""),
    "--namespace": ("a b", "x" * 300),
    "SOURCE": ("file:missing", "function:none:f"),
    "PEM": ("missing.pem",),
    "A=B": ("here",),
    "A,B": ("here!",),
    "--tls_server_name": ("a b",),
    "REGEX": ("(a", "(" * 3_000),
    "EXPRESSION": ("", "a >", "a IS", "(a = 1", "a = 'b", "a IN ('b',"),
    "TAGS": ("a | b",),
    "KEYS": ("x" * 40_000,),
    "--sharding_key": ("x" * 40_000,),
    "TAG": ("x" * 40_000, ""),
    "--id": ("",),
    "--key": ("",),
    "BODY": ("",),
    "FILE": ("missing/file",),
    "--html": ("missing/page.html", "/"),
    "--manifest": ("missing/manifest", "x"),
    "DIR": ("/proc/none",),
    "FOLDER": ("missing",),
    "URL": ("here", "a:b:c", ""),
    "--metrics": ("here", "ftp://h:1", "h:x", ""),
    "STATEMENT": ("",),
    "WHAT": ("nope",),
    "--runner": ("SparkRuner",),
    "--name": ("a b", ""),
    "NAME": ("nope",),
    "FILES": ("missing/*.yml",),
    "A=int64,...": ("x",),
}
"""By the name of an option, or by what stands for its value in the help."""
ANY_TEXT: Final = {
    "PATTERN": "what matches no topic is a result",
    "ID": "only brokers, or the rules, know the ids",
    "TEXT": "labels are any text",
    "GROUP of rmqio groups": "it can be a pattern",
    "FILE of rmqio rules check": "it tells what is wrong with files on standard output",
    "--tls_key_file": "it is read with the certificate",
    "--tls_key_password_variable": "it is read with the key",
    "--broker": "only name servers know the names",
    "--cluster": "only name servers know the names",
    "--jobs of rmqio sql": "the supervisor tells",
    "--state_dir": "a folder that is made",
    "--data_dir": "a folder that is made, with status 1",
    "--older_than": "an age has no end",
    "name": "the name of a job, of which the folder is read first",
    "VALUE": "for HDFS",
    "--execute": "-e has its values",
    "--text_of": "the supervisor gives it",
    "--replaces": "the supervisor gives it",
    "--resume": "the supervisor gives it",
    "A,B of detect.py": "only the table knows its columns",
    "FIELD[=COLUMN]": "only the table knows its columns",
    "FOLDER of rmqio claims clean": "a folder without objects",
    "--enrich_cache_dir": "a folder that is made",
}
VALUES: Final = {
    "TOPIC": "orders",
    "GROUP": "g",
    "WHERE": "latest",
    "URL": "some.csv",
    "DIR": "jobs",
    "TIME": "1h",
    "BODY": "x",
    "NAME": "j",
    "SHELL": "bash",
    "FOLDER": "jobs",
}
"""Right ones, for what a command needs."""
MORE: Final = {
    "rmqio topics update": "--queues=4",
    "rmqio find": "--offset=1",
    "rmqio trace": "--offset=1 --queue=b:1 --to=copy",
    "rmqio sql": "job.sql",
    "rmqio rules check": "rules.json",
    "rmqio rules explain": "rules.json",
    "rmqio rules fields": "rules.json",
    "rmqio rules run": "rules.json",
    "rmqio watch": "--once",
    "detect.py": "--rules=rules.json --enrich=some.csv --enrich_key=a",
}
"""What else a command needs."""
ALONE: Final = {
    "--id",
    "--key",
    "--at",
    "--grep",
    "--sql",
    "--offset",
    "FILE",
    "-e",
    "--jobs",
    "--rules_topic",
    "--web",
}
"""Options that are in place of those."""
FILES: Final = {
    "job.sql": "CREATE TABLE t (a INT) WITH ('topic' = 't'); CREATE TABLE u (a INT) WITH ('topic' = 'u');"
    " INSERT INTO u SELECT a FROM t;",
    "rules.json": "[]",
    "some.csv": "a\n1\n",
    "jobs/j.sql": "",
}


def parsers() -> Iterator[Parser]:
    left = [*make_parser().commands.values()]
    while left:
        parser = left.pop()
        left += parser.commands.values()
        yield parser
    for name in ("province", "word_count", "windowed_orders", "orders_avro", "detect"):
        yield importlib.import_module(f"pipelines.{name}").program.parser


PARSERS: Final = {parser.prog: parser for parser in parsers()}
CONNECTION: Final = {name for name in PARSERS["rmqio topics"].option_names if name not in ("--json", "--all")}


def right(needed: argparse.Action) -> str:
    return "copy" if needed.dest in ("sink_topic", "to_topic") else VALUES[str(needed.metavar)]


def names_of(action: argparse.Action) -> list[str]:
    return [*action.option_strings, *([action.metavar] if isinstance(action.metavar, str) else [action.dest])]


def lines(parser: Parser) -> Iterator[tuple[list[str], list[str], str]]:
    """Yields command lines, each with one wrong value, the names of the argument that has it, and the value.

    The first has an option that is unknown, and nothing that is needed.
    """
    if parser.prog != "rmqio sql":  # it reads standard input, and a runner may know the option
        yield ["--nope"], [], "--nope"
    needed = [each for each in parser.arguments if each.required and each.nargs != "*"]
    for action in parser.arguments:
        names = names_of(action)
        is_shared = CONNECTION & set(names) and parser.prog not in ("rmqio topics", "rmqio sql", "word_count.py")
        keys = [*names, *(f"{name} of {parser.prog}" for name in names)]
        if action.nargs == 0 or is_shared or any(key in ANY_TEXT for key in keys):
            continue
        found = [WRONG[name] for name in names if name in WRONG]
        values = ("nope",) if action.choices else found[0] if found else None
        assert values is not None, f"{parser.prog} {names}: say in WRONG what is wrong, or in ANY_TEXT why nothing is"
        more = [] if ALONE & set(action.option_strings or names) else MORE.get(parser.prog, "").split()
        more = [each for each in more if each.partition("=")[0] not in names]
        if parser.prog.endswith(".py") and "--name_server" not in names:
            more.append("--name_server=h:1")
        for value in values:
            line = [value if each is action else right(each) for each in needed if not each.option_strings]
            line += [
                f"{each.option_strings[-1]}={right(each)}"
                for each in needed
                if each is not action and each.option_strings
            ]
            if action.option_strings:
                name = action.option_strings[-1]
                line += [f"{name}={value}"] if name.startswith("--") else [name, value]
            elif action not in needed:
                line.append(value)
            yield [*line, *more], names, value


class Late(BaseException):
    """Something slow has begun."""


class _NoBeam(importlib.machinery.PathFinder):
    """Finds Beam, of which some look for the path, and does not load it."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] not in ("apache_beam", "pyspark"):
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is not None:
            found.loader = cls  # type: ignore[assignment]
        return found

    @staticmethod
    def create_module(spec: Any) -> NoReturn:
        raise Late(f"imports {spec.name}")


def _connects(*_: Any, **__: Any) -> NoReturn:
    raise Late("connects")


def answers() -> None:
    """In a process of its own: runs the command lines that standard input has, and prints what each of them says."""
    sys.meta_path.insert(0, _NoBeam)
    socket.socket.connect = socket.socket.connect_ex = _connects  # type: ignore[method-assign]
    socket.getaddrinfo = _connects
    vars(sys.modules["rmqio.cli.main"])["make_parser"] = functools.cache(make_parser)  # it is what takes the time
    told = []
    for prog, argv in json.load(sys.stdin):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                status: Any = _status(prog, argv)
            except SystemExit as end:
                status = end.code
            except (Exception, Late) as error:  # noqa: BLE001 - a user would see its traceback
                status = f"{type(error).__name__}: {error}"
        told.append((status, said.getvalue()))
    print(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)  # threads of clients may be left


def _status(prog: str, argv: Sequence[str]) -> int:
    if not prog.endswith(".py"):
        return main([*prog.split()[1:], *argv])
    sys.argv = [prog, *argv]
    runpy.run_path(program(prog.removesuffix(".py")), run_name="__main__")
    return 0


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[Any, str]]:
    here = tmp_path_factory.mktemp("here")
    for name, text in FILES.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    asked = [(prog, argv) for prog, parser in PARSERS.items() for argv, _, _ in lines(parser)]
    done = subprocess.run(
        [sys.executable, "-c", f"import {__name__} as those; those.answers()"],
        input=json.dumps(asked),
        env={**os.environ, "NAMESRV_ADDR": "127.0.0.1:1", "PYTHONPATH": str(Path(__file__).parents[3])},
        cwd=here,
        stdout=subprocess.PIPE,
        text=True,
        timeout=at_most(120),
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {(prog, *argv): tuple(each) for (prog, argv), each in zip(asked, found, strict=True)}


@pytest.mark.parametrize("prog", PARSERS)
def test_a_wrong_value_is_told_at_once(prog: str, told: dict[tuple[str, ...], tuple[Any, str]]) -> None:
    wrong = []
    for argv, names, value in lines(PARSERS[prog]):
        status, said = told[prog, *argv]
        is_named = any(name.strip("-").lower() in said.lower() for name in names) or (value and value in said)
        if status != 2 or said.count("\n") != 1 or len(said) > 600 or not is_named:
            wrong.append((" ".join(argv)[:100], status, said[:300]))
    assert wrong == []
