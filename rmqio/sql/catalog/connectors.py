"""Options of connectors other than topics: files and SQL databases, and how often a dimension is loaded again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rmqio.addresses import NO_PORT, wrong_port
from rmqio.security import holds_password
from rmqio.sql.catalog.format_options import NAMES as FORMAT_OPTIONS
from rmqio.sql.catalog.settings import _duration_ms
from rmqio.sql.errors import Refusal, listed, nearest
from rmqio.sql.secrets import masked_value
from rmqio.sql.syntax.statements import Option

FILES: Final = "filesystem"
DATABASE: Final = "jdbc"
FILE_FORMATS: Final = ("json", "csv", "key-value", "raw", "parquet", "grok", "syslog", "cef")
READ_ONLY_FORMATS: Final = ("parquet", "grok", "syslog", "cef")
_OTHER_NAMES: Final = {"file": FILES, "files": FILES, "db": DATABASE, "rds": DATABASE}

NAMES: Final[dict[str, tuple[str, ...]]] = {
    "path": ("path", "filePath", "fileName"),
    "shards": ("sink.parallelism",),
    "first_line": ("csv.ignore-first-line", "ignoreFirstLine"),
    "url": ("url",),
    "table_name": ("table-name", "tableName", "table"),
    "username": ("username", "user"),
    "password": ("password",),
    "password_env": ("password_env", "password-env"),
    "password_file": ("password_file", "password-file"),
    "refresh": (
        "lookup.cache.ttl", "refresh", "lookup.partial-cache.expire-after-write",
        "lookup.full-cache.periodic-reload.interval", "cacheTTL",
    ),
    "refresh_ms": ("cacheTTLMs",),
    "cache": ("lookup.cache", "cache"),
    "lookup_ignored": (
        "driver", "lookup.cache.max-rows", "lookup.max-retries", "lookup.partial-cache.max-rows", "cacheSize",
        "lookup.partial-cache.cache-missing-key", "lookup.full-cache.reload-strategy",
        "lookup.cache.caching-missing-key", "scan.fetch-size", "scan.auto-commit",
        "connection.max-retry-timeout", "maxRetryTimes",
    ),
}  # fmt: skip
"""The options of these connectors, by names of their own, in all spellings."""

_PASSWORDS: Final = ("password", "password_env", "password_file")
_OF_LOOKUP: Final = ("refresh", "refresh_ms", "cache", "lookup_ignored")
_OF_CONNECTOR: Final = {
    FILES: ("path", "shards", "first_line", *_OF_LOOKUP),
    DATABASE: ("url", "table_name", "username", *_PASSWORDS, *_OF_LOOKUP),
    "rocketmq": _OF_LOOKUP,
}
_SHARED: Final = ("connector", "on_error", "dead_letters", "name_server", "zone", "ignored")
_URL: Final = re.compile(r"[a-z][a-z0-9+_]*://")


@dataclass(frozen=True, slots=True)
class ConnectorOptions:
    """Options of a table that is not a topic, checked.

    Attributes:
      path: of files: a file, a folder or a pattern.
      shards: so many files are written.
      skips_first_line: the first line of a file names its columns.
      url: of a database, as SQLAlchemy spells it.
      table_name: the table in the database, also with its schema.
      password_env, password_file: where each process that connects reads the password.
      refresh_ms: how often a dimension is loaded again, in milliseconds; 0: never.
    """

    path: str = ""
    shards: int = 1
    skips_first_line: bool = False
    url: str = ""
    table_name: str = ""
    username: str | None = None
    password: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    refresh_ms: int = 0

    def __repr__(self) -> str:  # no password in a log
        where = masked_value(self.path, "path") or self.url.partition("://")[0]
        return f"ConnectorOptions({where!r}, {self.table_name!r}, {self.refresh_ms})"


def connector_named(value: str) -> str:
    """Returns the name of a connector, of any of its names."""
    return _OTHER_NAMES.get(value.lower(), value)


def connector_options(connector: str, found: Mapping[str, Option], table: str) -> ConnectorOptions:
    """Returns the options of a connector. Raises `Refusal` for those of another one, and for missing ones."""
    _require_own(connector, found)
    if connector not in (FILES, DATABASE):
        return ConnectorOptions(refresh_ms=_refresh_ms(found)) if connector == "rocketmq" else ConnectorOptions()

    def text(name: str) -> str:
        return found[name].value.strip() if name in found else ""

    for name in {FILES: ("path",), DATABASE: ("url", "table_name")}[connector]:
        if not text(name):
            raise Refusal(f"the table {table} needs the option {NAMES[name][0]!r}", None)
    return ConnectorOptions(
        path=text("path").removeprefix("file://") if connector == FILES else "",
        shards=_shards(found),
        skips_first_line=_is_true(found, "first_line"),
        url=_url(found["url"]) if connector == DATABASE else "",
        table_name=text("table_name"),
        username=found["username"].value if "username" in found else None,
        **_password(found),
        refresh_ms=_refresh_ms(found),
    )


def _require_own(connector: str, found: Mapping[str, Option]) -> None:
    others = {name for names in _OF_CONNECTOR.values() for name in names}
    own = _OF_CONNECTOR.get(connector, ())
    for name, option in found.items():
        if name in own or name in _SHARED:
            continue
        if name in others:
            owners = [each for each, names in _OF_CONNECTOR.items() if name in names]
            raise Refusal(f"the option {option.key!r} is of the connector {listed(owners)}, not of {connector}",
                          option.span)  # fmt: skip
        is_of_format = name == "skip_errors" or name in FORMAT_OPTIONS
        if connector == DATABASE or (connector == FILES and not is_of_format):
            owners_named = "of topics and files" if is_of_format else "of topics"
            raise Refusal(f"the option {option.key!r} is {owners_named}, not of the connector {connector}", option.span)


def _refresh_ms(found: Mapping[str, Option]) -> int:
    if "cache" in found:
        option = found["cache"]
        value = option.value.strip().upper()
        if value == "NONE":
            raise Refusal(
                f"{option.key} is 'NONE', but a dimension is always kept in memory as a whole: say how often it is "
                "loaded again, with 'refresh' = '1 min'",
                option.value_span,
            )
        if value not in ("FULL", "ALL", "PARTIAL", "LRU"):
            hint = nearest(value, ("FULL", "ALL", "PARTIAL", "LRU")) or "; it can be FULL"
            raise Refusal(f"{option.key} is {option.value!r}{hint}", option.value_span)
    if "refresh_ms" in found and "refresh" in found:
        raise Refusal(f"{found['refresh_ms'].key!r} and {found['refresh'].key!r} both say when it is loaded again",
                      found["refresh_ms"].span)  # fmt: skip
    given = found.get("refresh") or found.get("refresh_ms")
    if given is None:
        return 0
    found_ms = _duration_ms(given)
    if not found_ms:
        raise Refusal(f"{given.key} is {given.value!r}: loading would never end; leave it out to load once",
                      given.value_span)  # fmt: skip
    return found_ms


def _url(option: Option) -> str:
    url = option.value.strip()
    if url.startswith("jdbc:"):
        url = url.removeprefix("jdbc:")
        if "?" in url:
            raise Refusal(
                f"the parameters of {option.key} are those of a driver in Java: leave out {url[url.index('?') :]!r}",
                option.value_span,
            )
    if not _URL.match(url):
        shown = masked_value(option.value, option.key)
        raise Refusal(
            f"{option.key} is {shown!r}; it must be like 'postgresql://host:5432/database' or 'sqlite:///file.db'",
            option.value_span,
        )
    if holds_password(url):
        raise Refusal(
            f"{option.key} holds a password, which would travel with the pipeline: give 'username', and "
            "'password_env', an environment variable of each process that connects, or 'password_file'",
            option.value_span,
        )
    if wrong_port(url) is not None:
        raise Refusal(f"{option.key}: {NO_PORT}", option.value_span)
    return url


def _password(found: Mapping[str, Option]) -> dict[str, str]:
    given = [found[name] for name in _PASSWORDS if name in found]
    if len(given) > 1:
        raise Refusal(f"{given[0].key!r} and {given[1].key!r} both say the password: leave one of them out",
                      given[1].span)  # fmt: skip
    option = found.get("password_env")
    if option is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", option.value):  # it may be the password
        raise Refusal(f"the value of {option.key!r} is not the name of an environment variable", option.span)
    return {name: found[name].value for name in _PASSWORDS if name in found}


def _shards(found: Mapping[str, Option]) -> int:
    option = found.get("shards")
    if option is None:
        return 1
    if not re.fullmatch(r"\s*[1-9][0-9]{0,3}\s*", option.value):
        raise Refusal(f"{option.key} is {option.value!r}; it must be a whole number from 1 to 9999", option.value_span)
    return int(option.value)


def _is_true(found: Mapping[str, Option], name: str) -> bool:
    option = found.get(name)
    if option is None:
        return False
    value = option.value.strip().lower()
    if value not in ("true", "false"):
        raise Refusal(f"{option.key} is {option.value!r}; it can be true or false", option.value_span)
    return value == "true"
