"""The end of a copy that is written."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows

from rmqio.connect.copying.messages import PrintFn, ToMessage
from rmqio.connect.copying.urls import DATABASES, SEARCH, End
from rmqio.errors import LocalError, RmqioError

_SECRETS: Final = ("username", "password")
_WINDOW_S: Final = 60
_LATENESS_S: Final = 86_400


class Target(NamedTuple):
    """A sink, and the parts around it."""

    write: Any
    window_s: int | None = None
    """Fixed windows before it."""
    lateness_s: int = 0
    """How late an element of a stream can be. Later ones are dropped by the windows."""
    fails: bool = False
    """Whether its output `failed` fails the pipeline. Those of `rmqio.connect` do so by themselves."""


def target_of(end: End, source: End, *, endless: bool, where: dict[str, Any], dead_letter_topic: str | None) -> Target:
    """Returns the transform that writes an end what `source` gives. Raises `LocalError`."""
    letters = {} if dead_letter_topic is None else {"dead_letter_topic": dead_letter_topic, **where}
    if end.kind == "rocketmq":
        return Target(_rocketmq(end, source, where, dead_letter_topic), fails=dead_letter_topic is None)
    if end.kind == "kafka":
        return Target(_kafka(end, letters))
    if end.kind == "file":
        window_s = end.number("window_s", _WINDOW_S if endless else 0)
        if endless and not window_s:
            raise LocalError(f"{end.shown}: window_s is 0, and the copy never ends: no file would become whole")
        if not endless and "lateness_s" in end.options:
            raise LocalError(f"{end.shown}: lateness_s is for a copy with --follow; in another one nothing is late")
        lateness_s = end.number("lateness_s", _LATENESS_S) if endless else 0
        return Target(_file(end, letters), window_s or None, lateness_s)
    if end.kind in DATABASES:
        return Target(_table(end, letters))
    if end.kind in SEARCH:
        return Target(_index(end, letters))
    return Target(beam.ParDo(PrintFn()))


def apply(elements: Any, target: Target) -> None:
    """Writes the elements. What is refused and taken by no dead-letter topic fails the pipeline."""
    if target.window_s is not None:
        late: dict[str, Any] = {}
        if target.lateness_s:
            late = {
                "trigger": AfterWatermark(late=AfterCount(1)),
                "accumulation_mode": AccumulationMode.DISCARDING,
                "allowed_lateness": target.lateness_s,
            }
        elements = elements | "Windows" >> beam.WindowInto(FixedWindows(target.window_s), **late)
    written = elements | "Write" >> target.write
    if target.fails:
        _ = written.failed | "Refused" >> beam.Map(_refuse)


def _refuse(failed: Any) -> None:
    raise RmqioError(
        f"cannot write to topic {failed.topic!r}: {failed.error}: {failed.reason}; to go on without such messages, "
        "give --dead_letter_topic"
    )


def _rocketmq(end: End, source: End, where: dict[str, Any], dead_letter_topic: str | None) -> Any:
    from rmqio.transforms import WriteToRocketMQ

    end.require_known(() if source.kind in ("rocketmq", "kafka") else ("key",))  # messages have keys of their own
    if end.place and "client_factory" not in where:
        where = {**where, "name_server": end.place}
    return WriteToRocketMQ(
        end.name,
        serializer=None if source.kind == "rocketmq" else ToMessage(end.options.get("key")),  # it knows its own records
        dead_letter_topic=dead_letter_topic,
        with_sent=False,
        **where,
    )


def _kafka(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.kafka.write import WriteToKafka

    end.require_known(("key",))
    config = {name: value for name, value in end.options.items() if "." in name}
    return WriteToKafka(end.place, end.name, config=config, **end.take("key"), **letters)


def _file(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.files.write import WriteToFiles

    end.require_known(("format", "columns", "schema", "shards", "window_s", "lateness_s"))
    if "format" not in end.options:
        folder = end.place.rpartition("/")[0] or "out"
        raise LocalError(
            f"{end.shown}: a copy goes to files of a folder: {folder}/?format={end.place.rpartition('.')[2]}"
        )
    more: dict[str, Any] = end.take("schema")
    if "columns" in end.options:
        more["columns"] = end.options["columns"].split(",")
    return WriteToFiles(end.place, end.options["format"], shards=end.number("shards", 1), **more, **letters)


def _table(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.sql.transform import WriteToSql

    end.require_known(("key", "mode", "columns", "ignore_unknown"), secrets=_SECRETS)
    more: dict[str, Any] = end.take("mode", *_SECRETS)
    for name in ("key", "columns"):
        if name in end.options:
            more[name] = end.options[name].split(",")
    if "ignore_unknown" in end.options:
        more["ignore_unknown"] = _flag(end, "ignore_unknown")
    return WriteToSql(end.place, end.name, **more, **letters)


def _index(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.search.transform import WriteToElasticsearch

    end.require_known(("id", "operation", "ca_file"), secrets=(*_SECRETS, "api_key"))
    more = end.take("id", "operation", "ca_file", *_SECRETS, "api_key")
    return WriteToElasticsearch(end.place, end.name, **more, **letters)


def _flag(end: End, name: str) -> bool:
    text = end.options[name].lower()
    if text not in ("true", "false"):
        raise LocalError(f"{end.shown}: {name} is {text!r}; it must be true or false")
    return text == "true"
