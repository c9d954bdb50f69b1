"""The end of a copy that is read."""

from __future__ import annotations

import argparse
from typing import Any, Final

from rmqio.command_line.arguments import start_parser, stop_parser
from rmqio.connect.copying.urls import DATABASES, End
from rmqio.errors import LocalError
from rmqio.start import StartFrom, StopAt

_START: Final = start_parser("earliest", "latest", "group", "group:RESET", "timestamp:TIME")
_STOP: Final = stop_parser("none", "latest", "timestamp:TIME")
_TIMES: Final = ("max_out_of_orderness_ms", "idle_timeout_ms", "discovery_interval_ms")


def source_of(end: End, *, follow: bool, where: dict[str, Any]) -> Any:
    """Returns the transform that reads an end. `where`: the cluster of RocketMQ. Raises `LocalError`."""
    with end.named():
        return _source_of(end, follow=follow, where=where)


def _source_of(end: End, *, follow: bool, where: dict[str, Any]) -> Any:
    if end.kind in DATABASES or end.kind == "file":
        if follow:
            raise LocalError(f"{end.shown} has an end: --follow works only with topics")
        return _file(end) if end.kind == "file" else _table(end)
    if end.kind == "rocketmq":
        return _rocketmq(end, follow, where)
    if end.kind == "kafka":
        return _kafka(end, follow)
    raise LocalError(f"{end.shown} cannot be a source: a copy can only write to it")


def is_endless(end: End, *, follow: bool) -> bool:
    """Returns whether the read never ends."""
    return follow and end.kind in ("rocketmq", "kafka")


def _range(end: End, follow: bool) -> dict[str, Any]:
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


def _rocketmq(end: End, follow: bool, where: dict[str, Any]) -> Any:
    from rmqio.transforms import ReadFromRocketMQ

    end.require_known(("start", "stop", "group"))
    if end.place and "client_factory" not in where:
        where = {**where, "name_server": end.place}
    read = ReadFromRocketMQ(end.name, consumer_group=end.options.get("group"), **_range(end, follow), **where)
    read.start_advice = _advice(end)
    return read


def _kafka(end: End, follow: bool) -> Any:
    from rmqio.connect.kafka.read import ReadFromKafka

    end.require_known(("start", "stop", *_TIMES))
    times: dict[str, Any] = {name: end.number(name, 0) for name in _TIMES if name in end.options}
    read = ReadFromKafka(end.place, end.name, config=end.config(), **times, **_range(end, follow))
    read.start_advice = _advice(end)
    return read


def _advice(end: End) -> str:
    return f"add start=earliest to the options of {end.shown}"


def _file(end: End) -> Any:
    from rmqio.connect.files.read import ReadFromFiles

    end.require_known(("format",))
    return ReadFromFiles(end.place, end.options.get("format"))


def _table(end: End) -> Any:
    from rmqio.connect.sql.read import ReadFromSql

    end.require_known(("partition_on", "partitions", "username"), secrets=("password",))
    more = end.take("partition_on", "username") | end.secrets("password")
    return ReadFromSql(end.place, end.name, partitions=end.number("partitions", 8), **more)
