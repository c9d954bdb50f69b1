"""`rmqio sql` without a file, on a terminal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from rmqio.errors import LocalError
from rmqio.sql.catalog.file import CatalogFile
from rmqio.sql.catalog.further import file_of, further_of
from rmqio.sql.shell.session import Session

_OK: Final = 0


def is_wanted(arguments: argparse.Namespace) -> bool:
    """Returns whether the command line asks for the shell: no file, and a person types here."""
    return arguments.file is None and sys.stdin.isatty() and sys.stdout.isatty()


def run(arguments: argparse.Namespace) -> int:
    """Runs the shell and returns the exit status. Raises `SqlError` for a catalog that is not valid."""
    try:
        from rmqio.sql.shell import terminal
    except ImportError as error:
        raise LocalError(f"the shell needs the extra 'sql': pip install 'rmqio[sql]' ({error})") from error

    if arguments.rest or arguments.runner != "DirectRunner":
        from rmqio import runners

        options = runners.options(arguments.rest, runner=arguments.runner)
        if unknown := runners.unknown_flags(options):
            raise LocalError(f"rmqio sql: unknown argument {unknown[0]!r}")
    path = file_of(arguments.catalog)
    if path is None and "none" not in arguments.catalog:
        path = default_catalog()
    session = Session(arguments, _write, _note, None if path is None else CatalogFile(path))
    session.script.catalog.further = further_of(arguments.catalog, session.script.texts)
    session.load()
    kept = "what is created is not kept" if path is None else f"tables are kept in {_shown(path)}"
    _write(f"rmqio sql: {kept}; HELP helps, Ctrl-D ends.")
    try:
        terminal.run(session)
    finally:
        session.close()
    return _OK


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
