"""The two ends of a copy as URLs, and what is wrong with them: found before Beam is imported, which takes seconds."""

from __future__ import annotations

import argparse
import contextlib
import errno
import glob
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from rmqio.addresses import is_url, shown_url
from rmqio.command_line.arguments import start_parser, stop_parser
from rmqio.connect.files.formats import FORMATS, SUFFIXES, FileFormat, require_file_system
from rmqio.connect.kafka.client import Cluster
from rmqio.connect.search import check_operation, problem_of_index
from rmqio.connect.sql.engine import TableOptions, check_partitions
from rmqio.errors import LocalError
from rmqio.hints import did_you_mean, nearest
from rmqio.security import require_no_password, shown_path, shown_variable
from rmqio.start import StartFrom, StopAt
from rmqio.topics import validate_topic

DATABASES: Final = ("mysql", "mariadb", "postgresql", "postgres", "sqlite", "oracle", "mssql")
SEARCH: Final = ("elasticsearch", "opensearch")
KINDS: Final = ("rocketmq", "kafka", "file", "console", *SEARCH, *DATABASES)
FORMS: Final = """\
rocketmq:TOPIC, rocketmq://HOST:9876/TOPIC; kafka://HOST:9092/TOPIC; file:PATH or PATH (*.jsonl, *.csv, *.parquet, \
*.avro; to a folder: out/?format=csv); mysql://USER@HOST/DB#TABLE, postgresql://..., sqlite:///FILE#TABLE; \
elasticsearch://HOST:9200/INDEX, opensearch+https://...; console:"""
_SYSTEMS: Final = "rocketmq:, kafka:, file:, elasticsearch:, opensearch: or a database, as mysql: (--help has forms)"
_ENV: Final = "_env"
SOURCES: Final = (_ENV, "_file")
"""Behind the name of a password: what names the environment variable or the file that has it."""
_SECRETS: Final = (f"username{_ENV}", *(f"password{source}" for source in SOURCES))
"""The options of a database that can stand in its URL, before the #."""
_BEHIND: Final = ("partition_on", "partitions", "columns", "ignore_unknown", "username")
"""Those behind the table that no driver has."""
_OF_SQLITE: Final = ("uri", "timeout", "isolation_level", "detect_types", "check_same_thread", "cached_statements")
"""The parameters of SQLite's driver. With `uri`, those of SQLite can stand beside them."""
_CLOSE: Final = 0.85
"""How near a parameter is to a name of ours that was meant for sure: drivers have parameters of their own."""
_QUERY: Final = re.compile(r"\s*(SELECT|WITH)\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class End:
    """One end of a copy.

    Args:
      kind: one of `KINDS`.
      place: what the kind makes of it: servers, a URL, a path.
      name: topic, index, table or query; empty for files and the console.
      options: what stands behind the question mark.
      shown: the URL without credentials and options, for messages.
    """

    kind: str
    place: str = field(repr=False)  # the URL of a database can hold a password
    name: str
    options: dict[str, str] = field(repr=False)
    shown: str

    def take(self, *names: str) -> dict[str, Any]:
        """Returns those of the options that are given. A name with `_env` behind it names an environment variable."""
        found: dict[str, Any] = {}
        for name in names:
            if name in self.options:
                found[name] = self.options[name]
            elif f"{name}{_ENV}" in self.options:
                found[name] = self._variable(f"{name}{_ENV}")
        return found

    def _variable(self, name: str) -> str:
        variable = self.options[name]
        if variable not in os.environ:
            raise LocalError(f"{self.shown}: the environment variable {shown_variable(variable)} is not set")
        return os.environ[variable]

    def secrets(self, *names: str) -> dict[str, str]:
        """Returns where passwords are, as the transforms take it: each process that connects reads them there."""
        given = {f"{name}{source}" for name in names for source in SOURCES} & self.options.keys()
        for name in given:
            if name.endswith(_ENV):
                self._variable(name)
        return {name: self.options[name] for name in given}

    def config(self) -> dict[str, Any]:
        """Returns the options of librdkafka: those with a dot. `sasl.password_env` names an environment variable."""
        found = {name: value for name, value in self.options.items() if "." in name}
        self.secrets(*(name.removesuffix(_ENV) for name in found))
        return found

    def require_known(self, names: Iterable[str], *, secrets: Iterable[str] = ()) -> None:
        """Raises `LocalError` for an option that the end does not have."""
        known = [*names, *(f"{name}{source}" for name in secrets for source in SOURCES)]
        known += [f"username{_ENV}"] if "username" in known else []
        for name in self.options:
            if name not in known and not (self.kind == "kafka" and "." in name):  # options of librdkafka have dots
                more = f"; its options: {', '.join(known)}" if known else "; it has no options"
                raise LocalError(f"{self.shown} has no option {name}{did_you_mean(name, known) or more}")

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Puts the URL in front of errors that do not name it."""
        try:
            yield
        except LocalError as error:
            if self.shown in str(error):
                raise
            raise LocalError(f"{self.shown}: {error}") from error

    def number(self, name: str, default: int) -> int:
        """Returns an option that is a whole number."""
        text = self.options.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit():
            raise LocalError(f"{self.shown}: {name} is {text!r}; it must be a whole number")
        return int(text)


def parse_end(text: str) -> End:
    """Returns the end that a URL describes. Raises `LocalError`, which shows no credentials."""
    if text in ("-", "console", "console:"):
        return End("console", "", "", {}, "console")
    scheme, colon, rest = text.partition(":")
    kind, plus, transport = scheme.partition("+")
    if not colon or "/" in scheme or "." in scheme:
        return _file(text)
    if kind == "file":
        return _file(rest.removeprefix("//") if rest.startswith("///") else rest)
    if kind in DATABASES:
        return _database(text)
    if kind in SEARCH and transport in ("", "http", "https"):
        place, name, options = _server(text, rest)
        return End(kind, f"{transport or 'http'}://{place}", name, options, f"{kind}://{place}/{name}")
    if kind == "rocketmq" and not plus:
        if rest.startswith("//"):
            place, name, options = _server(text, rest)
        else:
            name, options = _query(rest)
            place = ""
        if not name:
            raise LocalError(f"{scheme}:... names no topic: rocketmq:TOPIC or rocketmq://HOST:9876/TOPIC")
        validate_topic(name)
        return End(kind, place, name, options, f"rocketmq:{name}")
    if kind == "kafka" and not plus:
        place, name, options = _server(text, rest)
        if without := next((each for each in place.split(",") if ":" not in each), None):
            raise LocalError(f"kafka://{place}/{name}: {without or 'a server'} has no port: add it, as in HOST:9092")
        return End(kind, place, name, options, f"kafka://{place}/{name}")
    if len(scheme) > 1 and kind.isalnum() and rest.startswith("//"):
        hint = did_you_mean(kind, KINDS)
        if hint or kind not in ("gs", "s3", "hdfs"):
            raise LocalError(f"there is no system {scheme}{hint or f': write {_SYSTEMS}'}")
    return _file(text)


def _server(text: str, rest: str) -> tuple[str, str, dict[str, str]]:
    scheme = text.partition(":")[0]
    body, options = _query(rest.removeprefix("//"))
    place, _, name = body.partition("/")
    if rest.startswith("//") and place and not name and "@" not in place:
        what = "index" if scheme.partition("+")[0] in SEARCH else "topic"
        raise LocalError(f"{scheme}://{place} names no {what}: add it, as in {scheme}://{place}/{what.upper()}")
    if not rest.startswith("//") or not place or not name or "/" in name:
        raise LocalError(f"{scheme}:... must be like {scheme}://HOST:PORT/NAME")
    if "@" in place:
        raise LocalError(
            f"{scheme}://... holds credentials, which everyone who lists the processes can see: use password_env"
        )
    return place, unquote(name), options


def _query(text: str) -> tuple[str, dict[str, str]]:
    body, _, query = text.partition("?")
    try:
        return body, dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
    except ValueError:  # it quotes a part, which can be the end of a password
        raise LocalError(
            "options are like ?name=value&other=value, and one of these has no =: an & in a value is written %26"
        ) from None


def _database(text: str) -> End:
    url, found, fragment = text.partition("#")
    if "@" in fragment and not _QUERY.match(fragment):
        raise LocalError(f"{shown_url(text)}: write %40 for an @ behind the first #, and %23 for a # in a password")
    scheme, shown = url.partition(":")[0], shown_url(url)
    form = f"as in {'sqlite:///FILE' if scheme == 'sqlite' else f'{scheme}://USER@HOST/DB'}#TABLE"
    if not found or not fragment:
        raise LocalError(f"{shown} names no table: add it after a #, {form}")
    if "://" not in url:
        raise LocalError(f"{shown} is not the URL of a database: write it {form}")
    url, secrets = _without_secrets(url)
    if _QUERY.match(fragment):
        return End(scheme.partition("+")[0], url, fragment, secrets, shown)
    name, options = _query(fragment)
    return End(scheme.partition("+")[0], url, name, {**secrets, **options}, f"{shown}#{name}")


def _without_secrets(url: str) -> tuple[str, dict[str, str]]:
    """The URL without the variables of secrets, which drivers do not know. A query has no options behind it."""
    body, _, query = url.partition("?")
    parts = query.split("&") if query else []
    names = {part: part.partition("=")[0] for part in parts}
    for name in names.values():
        if name not in _SECRETS and (near := nearest(name, ("password", *_SECRETS), cutoff=_CLOSE)):
            raise LocalError(f"{shown_url(url)} has no option {name}{did_you_mean(near, _SECRETS)}")
    _require_of_driver(url, [name for part, name in names.items() if part != name])  # a word alone can be a secret
    ours = [part for part in parts if names[part] in _SECRETS]
    others = "&".join(part for part in parts if part not in ours)
    return f"{body}?{others}" if others else body if ours else url, _query(f"?{'&'.join(ours)}")[1]


def _require_of_driver(url: str, names: Collection[str]) -> None:
    """Refuses what stands before the # and is no option of the driver: SQLAlchemy only warns of it for SQLite."""
    is_sqlite = url.startswith("sqlite") and "uri" not in names
    for name in names:
        if name in _BEHIND:
            raise LocalError(f"{shown_url(url)}: the option {name} stands behind the table, as in #TABLE?{name}=...")
        if is_sqlite and name not in (*_OF_SQLITE, *_SECRETS):
            raise LocalError(f"{shown_url(url)} has no option {name}{did_you_mean(name, _OF_SQLITE)}")


def _file(text: str) -> End:
    body, options = text, {}
    if "=" in text.rpartition("?")[2] and "?" in text:  # elsewhere, ? stands for a character
        body, _, query = text.rpartition("?")
        options = _query(f"?{query}")[1]
    if not body:
        raise LocalError(f"no path. There are: {FORMS}")
    suffix = f".{body.removesuffix('.gz').removesuffix('.bz2').removesuffix('.zst').rpartition('.')[2]}"
    is_known = suffix in SUFFIXES or "format" in options
    shown = shown_url(text) if is_url(text) or ("@" in text and not is_known) else body
    for name in options:  # before a missing format is the error
        if nearest(name, ("format",)) and name != "format":
            raise LocalError(f"{shown} has no option {name}; did you mean format?")
    if not is_known:
        raise LocalError(
            f"{shown} is neither a system with its name, as in {KINDS[0]}:TOPIC, nor a file whose name says its "
            f"format; for a file, add ?format= with one of {', '.join(FORMATS)}"
        )
    return End("file", body, "", options, shown)


# What is wrong with the ends of a copy, as far as their URLs say it: before Beam is imported, which takes seconds.

_START: Final = start_parser("earliest", "latest", "group", "group:RESET", "timestamp:TIME")
_STOP: Final = stop_parser("none", "latest", "timestamp:TIME")
TIMES: Final = ("max_out_of_orderness_ms", "idle_timeout_ms", "discovery_interval_ms")
"""The options of a Kafka topic that are whole numbers."""
SEARCH_SECRETS: Final = ("password", "api_key")
_OF_FILES: Final = ("_file", ".location")
"""The ends of options that name files: of passwords, and of certificates and their keys."""
_TOPICS: Final = ("rocketmq", "kafka")


def is_endless(end: End, *, follow: bool) -> bool:
    """Returns whether the read never ends."""
    return follow and end.kind in _TOPICS


def check(source: End, target: End, *, follow: bool, name_server: str | None) -> None:
    """Raises `LocalError` for what is wrong with the URLs of a copy, or with both of them together."""
    check_source(source, follow=follow)
    check_target(target, source, endless=is_endless(source, follow=follow))
    places = [end.place or name_server or "" for end in (source, target)]
    if (source.kind, source.name, places[0]) == (target.kind, target.name, places[1]) and source.kind in _TOPICS:
        raise LocalError(f"{source.shown} is both read and written, so the job would never end")


def require_files(source: End, target: End) -> None:
    """Raises `LocalError` for what is not here: a source, a file that an option names, a file system's package."""
    is_here = source.kind == "file" and "://" not in source.place and not glob.has_magic(source.place)
    if is_here and not os.path.exists(source.place):
        raise LocalError(f"no file matches {source.shown}")
    for end in (source, target):
        if end.kind == "file":
            with end.named():
                require_file_system(end.place)
        for name, path in end.options.items():
            is_file = name.endswith(_OF_FILES) and path != "probe"  # ssl.ca.location=probe looks for the system's
            if is_file and not os.access(path, os.R_OK):
                reason = os.strerror(errno.EACCES if os.path.exists(path) else errno.ENOENT)
                shown = shown_path(path) if name.endswith(("password_file", "api_key_file")) else path
                raise LocalError(f"{end.shown}: {name}: cannot read {shown}: {reason}")


def check_source(end: End, *, follow: bool) -> None:
    """Raises `LocalError`, which names the end, for what is wrong with a URL that is read."""
    with end.named():
        if end.kind in DATABASES or end.kind == "file":
            if follow:
                raise LocalError(f"{end.shown} has an end: --follow works only with topics")
            if end.kind == "file":
                end.require_known(("format",))
                _check_format(end)
                return
            end.require_known(("partition_on", "partitions", "username"), secrets=("password",))
            check_partitions(end.number("partitions", 8))
            end.take("partition_on")
            _check_database(end)
        elif end.kind in _TOPICS:
            end.require_known(("start", "stop", "group") if end.kind == "rocketmq" else ("start", "stop", *TIMES))
            range_of(end, follow=follow)
            for name in TIMES:
                end.number(name, 0)
            if end.kind == "kafka":
                _check_kafka(end)
        else:
            raise LocalError(f"{end.shown} cannot be a source: a copy can only write to it")


def check_target(end: End, source: End, *, endless: bool) -> None:
    """Raises `LocalError`, which names the end, for what is wrong with a URL that is written."""
    with end.named():
        if end.kind == "rocketmq":
            # messages have keys and ids of their own
            end.require_known(() if source.kind in _TOPICS else ("key", "id"))
        elif end.kind == "kafka":
            end.require_known(("key",))
            end.take("key")
            _check_kafka(end)
        elif end.kind == "file":
            _check_files(end, source, endless=endless)
        elif end.kind in DATABASES:
            end.require_known(("key", "mode", "columns", "ignore_unknown", "username"), secrets=("password",))
            table_options(end)
            _check_database(end)
        elif end.kind in SEARCH:
            end.require_known(("id", "operation", "ca_file", "username"), secrets=SEARCH_SECRETS)
            given = end.take("id", "operation", "ca_file", "username")
            check_operation(given.get("operation", "index"), has_id="id" in given)
            end.secrets(*SEARCH_SECRETS)
            if (problem := problem_of_index(end.name)) is not None:
                raise LocalError(problem)


def _check_database(end: End) -> None:
    require_no_password(end.place, shown_url(end.place))
    end.take("username")
    end.secrets("password")


def _check_kafka(end: End) -> None:
    Cluster.of(end.place, end.config())


def _check_format(end: End) -> None:
    if (name := end.options.get("format")) is not None:
        FileFormat(name)


def _check_files(end: End, source: End, *, endless: bool) -> None:
    window_s = end.number("window_s", 0)
    if endless and end.options.get("window_s") is not None and not window_s:
        raise LocalError(f"{end.shown}: window_s is 0, and the copy never ends: no file would ever be complete")
    if window_s and source.kind in (*DATABASES, "file"):
        raise LocalError(
            f"{end.shown}: window_s needs rows with times, and those of {source.shown} have none. Omit "
            "window_s, or take WriteToFiles in a pipeline that gives them times"
        )
    if not endless and "lateness_s" in end.options:
        raise LocalError(f"{end.shown}: lateness_s needs --follow: without it, no message is late")
    end.number("lateness_s", 0)
    end.require_known(("format", "columns", "schema", "shards", "window_s", "lateness_s"))
    end.number("shards", 1)
    if "format" not in end.options:
        folder = end.place.rpartition("/")[0] or "out"
        raise LocalError(
            f"{end.shown}: a copy writes files into a folder: {folder}/?format={end.place.rpartition('.')[2]}"
        )
    kind, path = end.options["format"], end.place.rstrip("/")
    if os.path.isfile(path):
        stem = path.removesuffix(f".{kind}")
        other = stem if stem != path else f"{path}-files"
        raise LocalError(
            f"{end.shown}: there is a file {path}, and a copy writes into a folder: {other}/?format={kind}"
        )
    if kind == "avro" and "schema" not in end.options:
        raise LocalError("Avro files need a schema: add &schema=FILE, a file of JSON such as order.avsc")
    if kind != "avro" and "schema" in end.options:
        types = "its types are those of the rows" if kind == "parquet" else "it has no types"
        raise LocalError(f"schema= works only with format=avro, not with {kind}: omit it; {types}")
    end.take("schema")
    _check_format(end)


def range_of(end: End, *, follow: bool) -> dict[str, Any]:
    """Returns where the read of a topic starts and stops. Raises `LocalError`."""
    start = _parsed(end, "start", _START) or StartFrom.earliest()
    stop = _parsed(end, "stop", _STOP)
    if follow and stop is not None:
        raise LocalError(f"{end.shown}: stop= and --follow are both given: omit one of them")
    return {"start": start, "stop": None if follow else stop or StopAt.latest()}


def _parsed(end: End, name: str, parse: Any) -> Any:
    if name not in end.options:
        return None
    try:
        return parse(end.options[name])
    except argparse.ArgumentTypeError as error:
        raise LocalError(f"{end.shown}: {name}: {error}") from error


def table_options(end: End) -> dict[str, Any]:
    """Returns the options of `WriteToSql` that say how rows are written. Raises `LocalError`."""
    more: dict[str, Any] = end.take("mode")
    more |= {name: end.options[name].split(",") for name in ("key", "columns") if name in end.options}
    more["ignore_unknown"] = _flag(end, "ignore_unknown")
    TableOptions.of(more.get("key"), more.get("mode", "upsert"), more.get("columns"), ignore_unknown=False)
    return more


def _flag(end: End, name: str) -> bool:
    text = end.options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise LocalError(f"{end.shown}: {name} is {text!r}; it must be true or false")
    return text == "true"
