"""Connections to SQL databases, by SQLAlchemy."""

from __future__ import annotations

import os
from typing import Any, Final

from rmqio.errors import LocalError

_DRIVERS: Final = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql", "postgresql": "postgresql+psycopg",
                   "postgres": "postgresql+psycopg"}  # fmt: skip
"""The drivers that the extra sql-databases brings, for URLs that name none."""


def engine_of(url: str, username: str | None, password: str | None, shown: str) -> Any:
    """Returns SQLAlchemy's engine. `username`, `password`: if they are not in the URL.

    Raises `LocalError` if the URL is not valid, its driver is not installed, or SQLite's file is not there.
    """
    try:
        import sqlalchemy as sa
    except ImportError as error:
        raise LocalError("tables of databases need SQLAlchemy: pip install 'rmqio[sql-databases]'") from error
    scheme, _, rest = url.partition(":")
    try:
        made = sa.engine.make_url(f"{_DRIVERS.get(scheme, scheme)}:{rest}")
        made = made if username is None else made.set(username=username)
        made = made if password is None else made.set(password=password)
        if made.get_backend_name() == "sqlite":
            path = made.database  # SQLite would create a file that is not there
            if path and path != ":memory:" and not os.path.exists(path):
                raise LocalError(f"{shown} cannot be read: there is no file {path}")
        return sa.create_engine(made, poolclass=sa.pool.NullPool)
    except LocalError:  # which is a ValueError
        raise
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ValueError) as error:
        raise LocalError(
            f"{shown} cannot be read: its URL is not valid; it must be like mysql://user@host/database"
        ) from error
    except ImportError as error:
        raise LocalError(
            f"{shown} cannot be read: its driver is not installed: {error}; pip install 'rmqio[sql-databases]'"
        ) from error
