"""`rmqio sql --jobs DIR`, and `rmqio sql ps`, `stop`, `start` and `logs`, which talk to it by files."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rmqio.command_line.arguments import whole_number
from rmqio.command_line.output import GAP, cut, display_width, line_width, safe, safe_line
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError
from rmqio.hints import did_you_mean
from rmqio.jobs.process import Timing, follow, last_lines
from rmqio.jobs.state import (
    DONE,
    REFUSED,
    RESTARTING,
    RUNNING,
    STOPPED,
    JobFolder,
    StateFolder,
    Status,
    Watch,
    overlooked,
    scan,
    wrong_name,
)
from rmqio.jobs.supervisor import Supervisor
from rmqio.runners.options import strict_options

# `rmqio sql ps`: the jobs as a table.

_TITLES: Final = ("job", "state", "since", "restarts", "pid")
_INDENT: Final = "  "


def jobs_table(statuses: Sequence[Status]) -> str:
    """Returns the table. Below a job stands why its newest text does not run, and its last failure."""
    rows = [_TITLES, *map(_row, statuses)]
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    lines = [
        (" " * GAP).join(cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    for number in range(len(statuses), 0, -1):
        lines[number + 1 : number + 1] = _notes(statuses[number - 1])
    return "\n".join(each.rstrip() for each in lines)


def _row(status: Status) -> tuple[str, ...]:
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(status.since))
    return status.name, status.state, since, str(status.restarts), "-" if status.pid is None else str(status.pid)


def _notes(status: Status) -> Iterator[str]:
    for title, text in (("refused", status.refused), ("last error", status.error)):
        if text:
            first = text.splitlines()[0]
            yield _INDENT + cut(safe_line(f"{title}: {first}"), max(40, line_width() - len(_INDENT)))


_OK: Final = 0
_FAILED: Final = 1
_WRONG_USAGE: Final = 2
_STATE: Final = ".rmqio"
_LINES: Final = 100
_TAKEN_S: Final = 15.0
"""How long the supervisor may take to see a request."""


def add_options(parser: Parser) -> None:
    """Adds the options of jobs to `rmqio sql`, and its commands."""
    add = parser.add_argument
    add("--jobs", metavar="DIR", help="run each .sql file in a folder and its subfolders as a job, and follow changes")
    add("--state_dir", metavar="DIR", help=f"where jobs keep checkpoints and logs; default: {_STATE} in the folder")
    add("--text_of", metavar="FILE", help=argparse.SUPPRESS)  # the text, while FILE is only its name
    add("--replaces", metavar="FILE", help=argparse.SUPPRESS)  # with --check: the text that it replaces
    add("--has_state", action="store_true", help=argparse.SUPPRESS)  # with --replaces: its checkpoint is not empty
    add("--is_running", action="store_true", help=argparse.SUPPRESS)  # with --replaces
    add("--resume", type=int, metavar="MS", help=argparse.SUPPRESS)  # it goes on: when it was started first
    for name, run, summary in (
        ("ps", _ps, "list the jobs of a supervisor"),
        ("stop", _stop, "stop a job until its file changes or `start`"),
        ("start", _start, "start a job that is stopped, done or waits for a restart"),
        ("logs", _logs, "show what a job has printed"),
    ):
        command = Parser(prog=f"{parser.prog} {name}", description=f"{summary[0].upper()}{summary[1:]}.")
        if name != "ps":
            command.add_argument(
                "name", metavar="NAME", help="the name of the job's file, or GROUP/NAME in a subfolder"
            )
        command.add_argument("--jobs", metavar="DIR", required=True, help="the folder of the jobs")
        command.add_argument(
            "--state_dir", metavar="DIR", help=f"the state folder of the supervisor; default: {_STATE} in DIR"
        )
        if name == "ps":
            command.add_argument("--json", action="store_true", help="print each job as a JSON document on one line")
        if name == "logs":
            command.add_argument("-f", "--follow", action="store_true", help="print new lines until Ctrl-C")
            command.add_argument(
                "-n",
                dest="lines",
                type=whole_number("number", 0),
                default=_LINES,
                metavar="N",
                help=f"print this many of the last lines; default: {_LINES}",
            )
        command.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.set_defaults(run=run, parser=command, named="rmqio sql")
        parser.add_optional_command(command, name)


def run(arguments: argparse.Namespace) -> int:
    """Supervises the jobs of a folder until SIGTERM or SIGINT; with `--check` only checks them."""
    folder = _folder(arguments)
    commands = _Commands(arguments)
    if arguments.check:
        return _check_all(folder, _state(arguments, folder), commands)
    _refuse_unknown_flags(arguments)
    state = _state(arguments, folder)
    _tell(f"the jobs of {folder}; state and logs are in {state.path}; Ctrl-C stops them")
    Supervisor(folder, state, commands.run, commands.check, _tell).run()
    return _OK


class _Commands:
    """The command lines of a job: that of the supervisor, with the file instead of the folder."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._argv = list(arguments.argv)
        flags = {each.partition("=")[0] for each in arguments.rest}
        runner = str(arguments.runner or "").lower().removesuffix("runner")
        self._has_checkpoint = runner == "spark" or (runner == "flink" and "--streaming" in flags)

    def run(self, file: Path, folder: JobFolder, resumed_ms: int | None) -> list[str]:
        more = [f"--checkpoint_dir={folder.checkpoint}"] if self._has_checkpoint else []
        if resumed_ms is not None:
            more.append(f"--resume={resumed_ms}")
        return self._command(file, f"--text_of={folder.text}", more)

    def check(self, file: Path, folder: JobFolder, is_running: bool) -> list[str]:
        more = ["--check"]
        if folder.text.exists():
            more.append(f"--replaces={folder.text}")
            more += ["--has_state"] if self._has_checkpoint and _holds_something(folder.checkpoint) else []
            more += ["--is_running"] if is_running else []
        return self._command(file, f"--text_of={folder.candidate}", more)

    def check_file(self, file: Path) -> list[str]:
        return self._command(file, "", [])

    def _command(self, file: Path, text: str, more: Sequence[str]) -> list[str]:
        argv: list[str] = []
        rest = iter(self._argv)
        for argument in rest:
            name, equals, _ = argument.partition("=")
            name = name.replace("-", "_").replace("__", "--", 1)
            if name not in ("--jobs", "--state_dir"):
                argv.append(argument)
                continue
            if not equals:
                next(rest)
            if name == "--jobs":
                argv += [str(file), *([text] if text else []), *more]
        return [sys.executable, "-m", "rmqio", *argv]


def _holds_something(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def refuse_others(arguments: argparse.Namespace) -> None:
    """Raises `LocalError` for options that cannot be combined with `--jobs`."""
    if arguments.file is not None:
        raise LocalError(f"--jobs runs the files of a folder: omit {arguments.file!r}")
    if arguments.execute:
        raise LocalError("--jobs runs the files of a folder: omit --execute")
    for name in ("explain", "text_of", "replaces", "has_state", "is_running", "resume"):
        if getattr(arguments, name):
            raise LocalError(f"--{name} cannot be combined with --jobs: give a file")
    given = {each.partition("=")[0].replace("-", "_").replace("__", "--", 1) for each in arguments.rest}
    if "--checkpoint_dir" in given:
        raise LocalError("each job has a checkpoint of its own, in --state_dir: omit --checkpoint_dir")
    if "--savepoint_path" in given:
        raise LocalError("--savepoint_path is that of one job: omit it with --jobs")


def _refuse_unknown_flags(arguments: argparse.Namespace) -> None:
    """Each job would refuse them, one after the other."""
    if arguments.rest or arguments.runner is not None:
        strict_options(arguments.rest, runner=arguments.runner)


def _check_all(folder: Path, state: StateFolder, commands: _Commands) -> int:
    status = _OK
    for path, reason in overlooked(folder, state.path).items():
        print(f"rmqio sql: {path}: {reason}", file=sys.stderr, flush=True)
    for name, found in scan(folder).items():
        if wrong := wrong_name(name):
            print(f"rmqio sql: {found.path}: {wrong}", file=sys.stderr, flush=True)
            status = _WRONG_USAGE
        elif subprocess.run(commands.check_file(found.path), stdin=subprocess.DEVNULL).returncode:
            status = _WRONG_USAGE
    return status


def _folder(arguments: argparse.Namespace) -> Path:
    folder = Path(arguments.jobs)
    try:
        Watch(folder).look()
    except OSError as error:
        raise LocalError(f"cannot list {folder}: {error.strerror}") from error
    return folder


def _state(arguments: argparse.Namespace, folder: Path) -> StateFolder:
    return StateFolder(Path(arguments.state_dir or folder / _STATE).absolute())


def _tell(text: str) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{now} rmqio sql: {safe(text)}", file=sys.stderr, flush=True)


# ---- commands that talk to the supervisor ---------------------------------------------------------------------------


def _ps(arguments: argparse.Namespace) -> int:
    state = _state(arguments, _folder(arguments))
    statuses = state.statuses()
    if arguments.json:
        for each in statuses:
            print(json.dumps(asdict(each)))
    else:
        print(jobs_table(statuses))
    sys.stdout.flush()
    if not state.is_supervised():
        folder = f" for {arguments.jobs}, and none has run a job"
        left = ": this is how the last one has left them" if statuses else folder
        print(f"rmqio sql: no supervisor runs{left}", file=sys.stderr, flush=True)
    return _OK


def _stop(arguments: argparse.Namespace) -> int:
    return _ask(arguments, "stop", (STOPPED, DONE))


def _start(arguments: argparse.Namespace) -> int:
    return _ask(arguments, "start", (RUNNING, DONE, REFUSED))


def _ask(arguments: argparse.Namespace, action: str, ends: Sequence[str]) -> int:
    """Returns when the job is in one of the states, or has failed again."""
    state = _state(arguments, _folder(arguments))
    name = _known(state, arguments.name)
    if not state.is_supervised():
        raise LocalError(f"no supervisor runs for {state.path}: rmqio sql --jobs {arguments.jobs}")
    request = state.request(action, name)
    timing = Timing()
    begun, asked = time.monotonic(), time.time()
    while time.monotonic() - begun < _TAKEN_S + timing.grace + 2 * timing.hurry:
        status = state.job(name).read_status()
        if request.exists():
            if time.monotonic() - begun > _TAKEN_S:
                request.unlink(missing_ok=True)
                break
        elif status is None or status.state in ends:
            print(f"{name}: {'removed' if status is None else status.state}", flush=True)
            return _OK
        elif status.state == RESTARTING and status.since > asked:
            print(f"rmqio sql: {name} has failed again: {safe(status.error)}", file=sys.stderr, flush=True)
            return _FAILED
        time.sleep(0.1)
    print(f"rmqio sql: {name}: the supervisor has not done it in time", file=sys.stderr, flush=True)
    return _FAILED


def _logs(arguments: argparse.Namespace) -> int:
    state = _state(arguments, _folder(arguments))
    path = state.job(_known(state, arguments.name)).log
    out = sys.stdout.buffer
    for line in last_lines(path, arguments.lines):
        out.write(line)
    out.flush()
    if arguments.follow:
        for data in follow(path):
            out.write(data)
            out.flush()
    return _OK


def _known(state: StateFolder, name: str) -> str:
    names = [each.name for each in state.statuses()]
    if name not in names:
        known = did_you_mean(name, names) or (f"; there are {', '.join(names)}" if names else "; there is none")
        raise LocalError(f"there is no job {name!r}{known}")
    return name
