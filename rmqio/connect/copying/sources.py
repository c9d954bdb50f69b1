"""The end of a copy that is read."""

from __future__ import annotations

from typing import Any

from rmqio.connect.copying.checking import TIMES, check_source, range_of
from rmqio.connect.copying.urls import End


def source_of(end: End, *, follow: bool, where: dict[str, Any]) -> Any:
    """Returns the transform that reads an end. `where`: the cluster of RocketMQ. Raises `LocalError`."""
    check_source(end, follow=follow)
    with end.named():
        match end.kind:
            case "rocketmq":
                return _rocketmq(end, follow, where)
            case "kafka":
                return _kafka(end, follow)
            case "file":
                return _file(end)
        return _table(end)


def _rocketmq(end: End, follow: bool, where: dict[str, Any]) -> Any:
    from rmqio.transforms import ReadFromRocketMQ

    if end.place and "client_factory" not in where:
        where = {**where, "name_server": end.place}
    read = ReadFromRocketMQ(end.name, consumer_group=end.options.get("group"), **range_of(end, follow=follow), **where)
    read.start_advice = _advice(end)
    return read


def _kafka(end: End, follow: bool) -> Any:
    from rmqio.connect.kafka.read import ReadFromKafka

    times: dict[str, Any] = {name: end.number(name, 0) for name in TIMES if name in end.options}
    read = ReadFromKafka(end.place, end.name, config=end.config(), **times, **range_of(end, follow=follow))
    read.start_advice = _advice(end)
    return read


def _advice(end: End) -> str:
    return f"add start=earliest to the options of {end.shown}"


def _file(end: End) -> Any:
    from rmqio.connect.files.read import ReadFromFiles

    return ReadFromFiles(end.place, end.options.get("format"))


def _table(end: End) -> Any:
    from rmqio.connect.sql.read import ReadFromSql

    more = end.take("partition_on", "username") | end.secrets("password")
    return ReadFromSql(end.place, end.name, partitions=end.number("partitions", 8), **more)
