"""Engines of SQLAlchemy for URLs, what the errors of databases mean, and the checked options of reads and writes."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from rmqio.addresses import shown_url
from rmqio.connect.rows import to_json
from rmqio.connect.sink import Verdict
from rmqio.errors import LocalError, RmqioError
from rmqio.hints import did_you_mean
from rmqio.security import SecretSource, require_no_password
from rmqio.serde.strict_json import json_value

# How a table is read and written, checked: also for a command line, before Beam is imported.

MODES: Final = ("upsert", "insert", "ignore")
_MOST_PARTITIONS: Final = 1024


def check_partitions(partitions: object) -> None:
    """Raises `LocalError` unless a table can be read in so many parts."""
    if not isinstance(partitions, int) or not 1 <= partitions <= _MOST_PARTITIONS:
        raise LocalError(f"partitions is {partitions!r}; it must be from 1 to {_MOST_PARTITIONS}")


class TableOptions(NamedTuple):
    """See `WriteToSql`."""

    key: tuple[str, ...] | None
    mode: str
    columns: tuple[str, ...] | None
    ignore_unknown: bool

    @staticmethod
    def of(
        key: str | Sequence[str] | None, mode: str, columns: str | Sequence[str] | None, *, ignore_unknown: bool
    ) -> TableOptions:
        """Returns the options. Raises `LocalError` for values that they do not have, or that do not fit together."""
        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES)
            raise LocalError(f'mode is {mode!r}; it must be "upsert", "ignore" or "insert"{hint}')
        if mode == "insert" and key is not None:
            raise LocalError('mode="insert" uses no key: leave key out, or use mode="upsert"')
        keys = None if key is None else tuple([key] if isinstance(key, str) else key)
        chosen = None if columns is None else tuple([columns] if isinstance(columns, str) else columns)
        if keys is not None and chosen is not None and not set(keys) <= set(chosen):
            raise LocalError(f"columns leaves out {sorted(set(keys) - set(chosen))[0]}, which is in key")
        return TableOptions(keys, mode, chosen, ignore_unknown)


_DRIVERS: Final = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql", "postgresql": "postgresql+psycopg",
                   "postgres": "postgresql+psycopg"}  # fmt: skip
"""The drivers that the extra sql-databases brings, for URLs that name none."""
_WITH_INIT_COMMAND: Final = ("pymysql", "mysqldb", "mariadbconnector")
"""Drivers of MySQL that begin a session with a statement.

MySQL converts a TIMESTAMP from the zone of the session to UTC, and back. In the zone of the server, our times in UTC
would be other moments, and an hour of each year would have no time.
"""
_CONNECT_S: Final = 10
"""As PyMySQL has it. PostgreSQL's client waits for minutes for a host that does not answer, without a word."""
_WITH_JSON: Final = ("mysql", "mariadb", "postgresql", "sqlite")
"""SQLAlchemy's databases that take functions for JSON. Its own ones round numbers, and write NaN, which JSON lacks."""
_MYSQL_ROWS: Final = {
    1048, 1062, 1118, 1136, 1153, 1169, 1171, 1216, 1217, 1264, 1265, 1292, 1300, 1301, 1364, 1365, 1366, 1367, 1406,
    1411, 1416, 1441, 1451, 1452, 1526, 1557, 1586, 1644, 1690, 1748, 1761, 1762, 2020, 3037, 3140, 3141, 3144, 3156,
    3157, 3616, 3617, 3819, 4025, 4035, 4036, 4037, 4038, 4039, 4040, 4161,
}  # fmt: skip
"""Codes of MySQL and MariaDB: a value that does not fit, a constraint that does not hold, a trigger that refuses. Many
have no state of the standard, but HY000."""
_MYSQL_LOST: Final = {2006, 2013, 2055}
"""Codes of MySQL's clients: the connection broke, perhaps since the server ends one whose packet is too large."""
_MYSQL_SET_UP: Final = {1044, 1045, 1046, 1049, 1054, 1142, 1143, 1146, 1227, 1290}
"""Codes of MySQL and MariaDB: no access, no such database, table or column, a server that is read-only."""
_MYSQL_AWAY: Final = {1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 1927}
"""Codes of MySQL and MariaDB: too busy, going down, a connection that broke. Those of clients are 2000 and above."""
_SET_UP: Final = re.compile(
    r"no such|has no column|FATAL: +(password authentication failed|no pg_hba|(database|role) .* does not exist)"
)
"""Texts of SQLite, and of PostgreSQL for a login, whose errors have no code."""


class DatabaseAway(RmqioError):
    """The server did not answer, or ended the connection."""

    retriable = True


@dataclass(frozen=True, slots=True, repr=False)
class Database:
    """The address of a database.

    Args:
      url: SQLAlchemy's, such as `mysql://user@host/shop`.
      username: instead of that in the URL.
      password: where it is; a URL with a password is refused, since it travels with the pipeline.
    """

    url: str
    username: str | None = None
    password: SecretSource | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or ":" not in self.url:
            raise LocalError("url must be the address of a database, such as mysql://user@host/shop")

    def __repr__(self) -> str:  # a URL that is refused can hold a password
        return f"Database({self.shown})"

    @property
    def shown(self) -> str:
        """Scheme, host and database, without credentials and parameters."""
        return shown_url(self.url)

    def check(self, *, must_exist: bool = False) -> None:
        """Raises `LocalError` for a URL that cannot be used. `must_exist`: SQLite's file. Reads no password."""
        replace(self, password=None).engine(must_exist=must_exist).dispose()

    def engine(self, *, pooled: bool = False, must_exist: bool = False) -> Any:
        """Returns an engine. Raises as `check` does, and `CredentialsError`."""
        try:
            import sqlalchemy as sa
        except ImportError as error:
            raise LocalError("databases need SQLAlchemy: pip install 'rmqio[sql-databases]'") from error
        scheme, _, rest = self.url.partition(":")
        try:
            require_no_password(self.url, self.shown)
            url = sa.engine.make_url(f"{_DRIVERS.get(scheme, scheme)}:{rest}")
            url = url if self.username is None else url.set(username=self.username)
            url = url if self.password is None else url.set(password=self.password.get())
            if must_exist and url.get_backend_name() == "sqlite":
                _require_file(url.database, self.shown)
            if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
                raise LocalError(f"{self.shown}: a database in memory ends with its connection; name a file")
            more: dict[str, Any] = {"hide_parameters": True}  # in errors and logs: they are the values of rows
            if url.get_backend_name() in _WITH_JSON:
                more |= {"json_serializer": _json_of, "json_deserializer": json_value}
            if url.get_driver_name() in _WITH_INIT_COMMAND and "init_command" not in url.query:
                more["connect_args"] = {"init_command": "SET time_zone = '+00:00'"}
            if url.get_driver_name() == "psycopg" and "connect_timeout" not in url.query:
                more["connect_args"] = {"connect_timeout": _CONNECT_S}
            if pooled:
                # With psycopg2, SQLAlchemy would put many rows into one INSERT, and PostgreSQL refuses to change a row
                # twice in one.
                more |= {"pool_size": 1, "max_overflow": 0, "pool_pre_ping": False, "use_insertmanyvalues": False}
            engine = sa.create_engine(url, **(more if pooled else {"poolclass": sa.pool.NullPool, **more}))
            _require_parameters(engine, self.shown)
            return engine
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ValueError) as error:
            if isinstance(error, LocalError):
                raise
            raise LocalError(f"{self.shown}: the url is not valid") from error
        except ImportError as error:
            raise LocalError(
                f"{self.shown}: its driver is not installed: {error}; pip install 'rmqio[sql-databases]'"
            ) from error


_json_of: Final = functools.partial(to_json, ensure_ascii=True)  # whatever the encoding of the database is


def reason_of(error: Exception) -> str:
    """Returns the database's own words, without the statement and SQLAlchemy's link."""
    text, *_ = str(getattr(error, "orig", None) or error).split("(Background on this error at:")
    return " ".join(text.split())


def verdict_of(error: Exception) -> Verdict:
    """Returns what an error of SQLAlchemy means. An unknown error is retried: in the end, it fails the bundle."""
    import sqlalchemy as sa

    if not isinstance(error, sa.exc.SQLAlchemyError):
        return Verdict.RETRY if isinstance(error, OSError) else Verdict.FAIL
    if isinstance(error, sa.exc.TimeoutError) or getattr(error, "connection_invalidated", False):
        return Verdict.RETRY
    original, code, state = _codes_of(error)
    # Values, constraints, views, limits, triggers.
    is_of_rows = state is not None and state[:2] in ("21", "22", "23", "44", "45", "54", "P0")
    if isinstance(code, int):
        if code in _MYSQL_SET_UP:
            return Verdict.FAIL
        of_class = isinstance(error, (sa.exc.IntegrityError, sa.exc.DataError))
        return Verdict.ROWS if code in _MYSQL_ROWS or is_of_rows or of_class else Verdict.RETRY
    if state is not None:
        if is_of_rows or is_perhaps_of_row(error):
            return Verdict.ROWS
        return Verdict.FAIL if state[:2] in ("28", "3D", "3F", "42", "0A") or state == "25006" else Verdict.RETRY
    if isinstance(error, (sa.exc.IntegrityError, sa.exc.DataError)):
        return Verdict.ROWS
    if isinstance(error, sa.exc.OperationalError):
        if _SET_UP.search(str(original)):
            return Verdict.FAIL
        return Verdict.ROWS if is_perhaps_of_row(error) else Verdict.RETRY
    if isinstance(error, sa.exc.InterfaceError):
        return Verdict.ROWS if "bind" in str(original) else Verdict.RETRY
    if isinstance(error, sa.exc.ProgrammingError):  # a value that has no type in the database
        of_values = ("bind", "adapt", "can not be used")  # of SQLite, PostgreSQL and MySQL
        return Verdict.ROWS if any(each in str(original) for each in of_values) else Verdict.FAIL
    if isinstance(error, sa.exc.DBAPIError):
        return Verdict.RETRY
    # A value that SQLAlchemy cannot convert.
    return Verdict.ROWS if type(error) is sa.exc.StatementError else Verdict.FAIL


def _codes_of(error: Exception) -> tuple[Any, Any, str | None]:
    """The driver's error; its first argument, an int for MySQL; its state of the standard, of newer drivers."""
    original = getattr(error, "orig", None)
    code = original.args[0] if original is not None and original.args else None
    state = getattr(original, "sqlstate", None)
    return original, code, state if isinstance(state, str) else None


def is_perhaps_of_row(error: Exception) -> bool:
    """Whether an error whose verdict is ROWS has the same code if the set-up is at fault, and all rows have it."""
    original, _, state = _codes_of(error)
    if state is not None:  # the type of the value is not one of the column
        return state in ("42804", "42846")
    # SQLite's general error: a trigger or a generated column that cannot take the value, as of malformed JSON; or that
    # can take none.
    return getattr(original, "sqlite_errorname", None) == "SQLITE_ERROR"


def is_lost(error: Exception) -> bool:
    """Whether a connection to MySQL broke, perhaps since the statement is larger than the server takes."""
    return _codes_of(error)[1] in _MYSQL_LOST


def is_away(error: Exception) -> bool:
    """Whether an error of SQLAlchemy means that the same read can succeed later. An unknown error does not."""
    if getattr(error, "connection_invalidated", False):
        return True
    original, code, state = _codes_of(error)
    if isinstance(code, int):
        return 2000 <= code < 3000 or code in _MYSQL_AWAY
    if state is not None:
        return state[:2] in ("08", "40", "53") or state[:3] == "57P"  # connections, conflicts, resources, a shutdown
    if type(original).__module__.startswith("sqlite3"):
        return "locked" in str(original)
    return verdict_of(error) is Verdict.RETRY


def _require_parameters(engine: Any, shown: str) -> None:
    """A driver in Python would raise a `TypeError` for a parameter that it does not have, when it connects."""
    args, given = engine.dialect.create_connect_args(engine.url)
    try:
        inspect.signature(engine.dialect.loaded_dbapi.connect).bind(*args, **given)
    except TypeError as error:
        raise LocalError(f"{shown}: the driver {engine.driver} refuses a parameter of the url: {error}") from error
    except ValueError:  # a function in C
        return


def _require_file(path: str | None, shown: str) -> None:
    """SQLite would create a file that is not there."""
    import os

    if path and path != ":memory:" and not os.path.exists(path):
        raise LocalError(f"{shown} cannot be used: there is no file {path}")
