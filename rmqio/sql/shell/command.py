"""`rmqio sql` without a file: on a terminal, a shell; else the statements of `--execute` or of standard input."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from pathlib import Path
from typing import Final

from rmqio.errors import LocalError
from rmqio.runners.options import strict_options
from rmqio.sql.errors import SqlError
from rmqio.sql.pieces import pieces
from rmqio.sql.scripts.catalog_file import CatalogFile, file_of, further_of
from rmqio.sql.shell.session import End, Session, is_command
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.parser import parse

_OK: Final = 0
_PRINTED: Final = (statements.QueryStatement, statements.Show, statements.Describe)


def is_wanted(arguments: argparse.Namespace) -> bool:
    """Returns whether the command line asks for the shell: no file, and a person types here."""
    return arguments.file is None and not arguments.execute and sys.stdin.isatty() and sys.stdout.isatty()


def prints(text: str) -> bool:
    """Returns whether a statement of a text needs a session, such as SELECT and SHOW: it is not the text of a job."""
    for piece in pieces(text):
        statement = text[piece.start : piece.end]
        if is_command(statement):
            return True
        with contextlib.suppress(SqlError):  # it is told where the text is run
            if any(isinstance(each, _PRINTED) for each in parse(statement)):
                return True
    return False


def run_text(arguments: argparse.Namespace, text: str) -> int:
    """Runs statements, one after the other, and returns the exit status. Raises `SqlError` for the first that fails.

    The tables of the user's own catalog are there, unless the text creates others with their names; what is created is
    kept in a given `--catalog` only.
    """
    _check_options(arguments)
    path = file_of(arguments.catalog)
    session = _session(arguments, path or _own_catalog(arguments))
    session.is_script = True
    if path is None:
        session.release()
    arguments.writes = bool(re.search(r"\binsert\b", text, re.IGNORECASE))
    try:
        session.run(text)
    except End:
        pass
    finally:
        session.close()
    return _OK


def run(arguments: argparse.Namespace) -> int:
    """Runs the shell and returns the exit status. Raises `SqlError` for a catalog that is not valid."""
    try:
        from rmqio.sql.shell import terminal
    except ImportError as error:
        raise LocalError(f"the shell needs the extra 'sql': pip install 'rmqio[sql]' ({error})") from error

    _check_options(arguments)
    path = file_of(arguments.catalog) or _own_catalog(arguments)
    session = _session(arguments, path)
    kept = "what is created is not kept" if path is None else f"tables are kept in {_shown(path)}"
    _write(f"rmqio sql: {kept}")
    _write("HELP helps, Ctrl-D ends.")  # a line of its own: the path can be long
    try:
        terminal.run(session)
    finally:
        session.close()
    return _OK


def _check_options(arguments: argparse.Namespace) -> None:
    if arguments.rest or arguments.runner != "DirectRunner":
        strict_options(arguments.rest, runner=arguments.runner)


def _session(arguments: argparse.Namespace, path: Path | None) -> Session:
    session = Session(arguments, _write, _note, None if path is None else CatalogFile(path))
    session.script.catalog.further = further_of(arguments.catalog, session.script.texts)
    session.load()
    return session


def _own_catalog(arguments: argparse.Namespace) -> Path | None:
    return None if "none" in arguments.catalog else default_catalog()


def default_catalog() -> Path:
    """Returns the file in which the shell keeps tables."""
    import platformdirs

    return platformdirs.user_config_path("rmqio") / "catalog.sql"


def _shown(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _write(line: str) -> None:
    print(line, flush=True)


def _note(line: str) -> None:
    sys.stdout.flush()
    print(f"rmqio sql: {line}", file=sys.stderr, flush=True)
