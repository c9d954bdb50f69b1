"""What is wrong with the ends of a copy, as far as their URLs say it: before Beam is imported, which takes seconds."""

from __future__ import annotations

import argparse
import errno
import glob
import os
from typing import Any, Final

from rmqio.addresses import shown_url
from rmqio.command_line.arguments import start_parser, stop_parser
from rmqio.connect.copying.urls import DATABASES, SEARCH, End
from rmqio.connect.files.formats import FileFormat
from rmqio.connect.files.systems import require_file_system
from rmqio.connect.kafka.client import Cluster
from rmqio.connect.search.bulk import check_operation
from rmqio.connect.search.sink import problem_of_index
from rmqio.connect.sql.options import TableOptions, check_partitions
from rmqio.errors import LocalError
from rmqio.security import require_no_password
from rmqio.start import StartFrom, StopAt

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
        raise LocalError(f"no file matches {source.place}")
    for end in (source, target):
        if end.kind == "file":
            with end.named():
                require_file_system(end.place)
        for name, path in end.options.items():
            is_file = name.endswith(_OF_FILES) and path != "probe"  # ssl.ca.location=probe looks for the system's
            if is_file and not os.access(path, os.R_OK):
                reason = os.strerror(errno.EACCES if os.path.exists(path) else errno.ENOENT)
                raise LocalError(f"{end.shown}: {name}: cannot read {path}: {reason}")


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
