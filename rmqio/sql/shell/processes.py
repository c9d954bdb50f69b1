"""Runs a statement that needs a runner in a process of its own: Ctrl-C ends the statement, and not the shell."""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rmqio.sql.catalog.settings import Settings
from rmqio.sql.errors import SqlError
from rmqio.sql.planning.plan import Field, Relation, Sink
from rmqio.sql.rows import unpacker
from rmqio.sql.scripts.script import Texts

# The work that the shell gives to the process of a statement.


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a process.

    Attributes:
      arguments: those of the command line; `start` and `stop` are the statement's.
      settings: what SET has set.
      sinks: of INSERT INTO, which run as one job on the runner of the arguments.
      texts: of the session, in which errors of the plan have their places.
      query: of SELECT, which runs on the Direct runner; None: there are sinks.
      descriptor: where the rows of a SELECT are written.
    """

    arguments: argparse.Namespace
    settings: Settings
    sinks: tuple[Sink, ...] = ()
    texts: Texts = field(default_factory=Texts)
    query: Relation | None = None
    descriptor: int = -1


class StatementFailed(SqlError):
    """The process of a statement has failed, and has said why.

    Attributes:
      status: its exit status.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"the statement has ended with status {status}")
        self.status = status


_CHUNK: Final = 1 << 16
_POLL_S: Final = 0.1
_PATIENCE_S: Final = 10.0
"""How long an interrupted job may take to end."""


def rows_of(work: Work, fields: Sequence[Field]) -> Generator[list[tuple[Any, ...]], None, None]:
    """Yields the rows of a SELECT as they come; also an empty list when none has come for a while.

    Raises `StatementFailed`, and `SqlError` if a signal has ended the process. Closing the generator ends it.
    """
    unpack = unpacker(fields)
    reading, writing = os.pipe()
    try:
        process = _started(_with_descriptor(work, writing), pass_fds=(writing,), stdout=subprocess.DEVNULL)
    finally:
        os.close(writing)
    data = bytearray()
    try:
        while True:
            ready, _, _ = select.select([reading], [], [], _POLL_S)
            if not ready:
                yield []
                continue
            chunk = os.read(reading, _CHUNK)
            if not chunk:
                break
            data += chunk
            found = []
            at = 0
            while len(data) >= at + 4 and len(data) >= (end := at + 4 + int.from_bytes(data[at : at + 4], "big")):
                found.append(unpack(bytes(data[at + 4 : end])))
                at = end
            del data[:at]
            yield found
        require_success(process.wait(), "the query")
    finally:
        _kill(process, signal.SIGKILL)  # it only reads
        os.close(reading)


def run(work: Work) -> int:
    """Runs an INSERT INTO until its end, or until Ctrl-C, and returns its exit status."""
    process = _started(work)
    try:
        return process.wait()
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        try:
            return process.wait(_PATIENCE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # a second Ctrl-C does not wait
            return 130
    finally:
        _end(process)


def require_success(status: int, what: str) -> None:
    """Raises `StatementFailed`, and `SqlError` if a signal has ended the process, so that it has said nothing."""
    if status < 0:
        raise SqlError(f"{what} was ended by {signal.Signals(-status).name}")
    if status:
        raise StatementFailed(status)


def _with_descriptor(work: Work, descriptor: int) -> Work:
    return replace(work, descriptor=descriptor)


def _started(work: Work, **how: Any) -> subprocess.Popen[bytes]:
    """A process in a session of its own: Ctrl-C on the terminal is for the shell, which passes it on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqio.sql.shell.worker"], stdin=subprocess.PIPE, start_new_session=True, **how
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(pickle.dumps(work))
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and those that it has started, such as Spark's."""
    _kill(process, signal.SIGTERM)
    _kill(process, signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
