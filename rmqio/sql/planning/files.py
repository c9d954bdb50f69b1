"""Files, folders and passwords of this machine that plans name: what is wrong is told before Beam is imported.

A file can be written, or go, while the job begins: what reads and writes them says it, too.
"""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable

from rmqio.addresses import shown_url
from rmqio.security import CredentialsError, password_from
from rmqio.sql.catalog.connectors import FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import SqlError
from rmqio.sql.planning.plan import LookupJoin, Relation, Scan, Sink


def require_files(plans: Iterable[Relation], *, runs_here: bool) -> None:
    """Raises `SqlError` for a file or a password that is not there or cannot be read, and a folder that takes no file.

    Args:
      runs_here: this machine also loads dimension tables and writes files. It always lists the files of other tables.
    """
    for each in plans:
        _require(each, runs_here)


def _require(relation: Relation, runs_here: bool) -> None:
    for each in relation.inputs():
        _require(each, runs_here)
    match relation:
        case Scan(table=table):
            _require_readable(f"the table {table.name} cannot be read", table)
            if runs_here:
                _require_database(f"the table {table.name} cannot be read", table)
        case LookupJoin() if runs_here:
            for table in _tables_of(relation.dimension):
                said = f"the dimension table {table.name} cannot be loaded"
                _require_readable(said, table)
                _require_database(said, table)
        case Sink() if runs_here:
            _require_writable(relation.table)


def _tables_of(relation: Relation) -> Iterable[Table]:
    if isinstance(relation, Scan):
        yield relation.table
    for each in relation.inputs():
        yield from _tables_of(each)


def _path_of(table: Table) -> str:
    """The path, if it is of this machine; else nothing."""
    path = table.options.of_connector.path
    return path if table.options.connector == FILES and "://" not in path else ""


def _require_readable(said: str, table: Table) -> None:
    path = _path_of(table)
    if not path or glob.has_magic(path):  # Beam's patterns are others than those of Python
        return
    if not os.path.exists(path):
        raise SqlError(f"{said}: there is no file {path}")
    if not os.access(path, os.R_OK):
        raise SqlError(f"{said}: {path}: Permission denied")


def _require_database(said: str, table: Table) -> None:
    """SQLite's file, and the password: other databases are servers, which are asked when the job runs."""
    options = table.options.of_connector
    try:
        password_from(options.password_env, options.password_file)
    except CredentialsError as error:
        raise SqlError(f"{said}: {error}") from None
    scheme, _, path = options.url.partition("?")[0].partition(":///")
    if scheme.partition("+")[0] == "sqlite" and not _is_made(path) and not os.path.exists(path):
        shown = f"table {options.table_name} of {shown_url(options.url)}"
        raise SqlError(f"{shown} cannot be read: there is no file {path}")


def _is_made(path: str) -> bool:
    """`file:` begins a URI of SQLite's own."""
    return path in ("", ":memory:") or path.startswith("file:")


def _require_writable(table: Table) -> None:
    path = _path_of(table)
    if not path:
        return
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    try:  # rights alone do not say it, as those of root on a file system that is only read
        with tempfile.TemporaryDirectory(prefix=".rmqio-", dir=folder):
            pass
    except OSError as error:
        raise SqlError(f"the table {table.name} cannot be written: {path}: {error.strerror}") from None
