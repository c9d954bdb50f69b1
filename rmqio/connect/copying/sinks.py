"""The end of a copy that is written."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows

from rmqio.connect.copying.checking import SEARCH_SECRETS, check_target, table_options
from rmqio.connect.copying.messages import KeyId, PrintFn, RowId, ToMessage, kafka_id, own_id
from rmqio.connect.copying.urls import DATABASES, SEARCH, End
from rmqio.connect.files.residues import require_same_shards
from rmqio.errors import RmqioError

_WINDOW_S: Final = 60
_LATENESS_S: Final = 86_400
_ADVICE: Final = "give --dead_letter_topic"


class Target(NamedTuple):
    """A sink, and the parts around it."""

    write: Any
    window_s: int | None = None
    """Fixed windows before it."""
    lateness_s: int = 0
    """How late an element of a stream can be. Later ones are dropped by the windows."""
    fails: str | None = None
    """The target in the error of an element in its output `failed`. Writes of `rmqio.connect` fail by themselves."""


def target_of(end: End, source: End, *, endless: bool, where: dict[str, Any], dead_letter_topic: str | None) -> Target:
    """Returns the transform that writes an end what `source` gives. Raises `LocalError`, which names the end."""
    check_target(end, source, endless=endless)
    with end.named():
        return _target_of(end, source, endless=endless, where=where, dead_letter_topic=dead_letter_topic)


def _target_of(end: End, source: End, *, endless: bool, where: dict[str, Any], dead_letter_topic: str | None) -> Target:
    letters = {} if dead_letter_topic is None else {"dead_letter_topic": dead_letter_topic, **where}
    if end.kind == "rocketmq":
        return Target(_rocketmq(end, source, where, dead_letter_topic), fails=end.shown if not letters else None)
    if end.kind == "kafka":
        return Target(_kafka(end, letters))
    if end.kind == "file":
        window_s = end.number("window_s", _WINDOW_S if endless else 0)
        lateness_s = end.number("lateness_s", _LATENESS_S) if endless else 0
        write = _file(end, letters)
        if not window_s:  # folders of windows are looked through by the write
            require_same_shards(end.place, end.number("shards", 1), f".{end.options['format']}")
        return Target(write, window_s or None, lateness_s)
    if end.kind in DATABASES:
        return Target(_table(end, letters))
    if end.kind in SEARCH:
        return Target(_index(end, letters))
    return Target(beam.ParDo(PrintFn()))


def apply(elements: Any, target: Target) -> None:
    """Writes the elements. An element that is refused, and that no dead-letter topic takes, fails the pipeline."""
    if target.window_s is not None:
        late: dict[str, Any] = {}
        if target.lateness_s:
            late = {
                "trigger": AfterWatermark(late=AfterCount(1)),
                "accumulation_mode": AccumulationMode.DISCARDING,
                "allowed_lateness": target.lateness_s,
            }
        elements = elements | "Windows" >> beam.WindowInto(FixedWindows(target.window_s), **late)
    if hasattr(target.write, "advice"):
        target.write.advice = _ADVICE
    written = elements | "Write" >> target.write
    if target.fails is not None:
        _ = written.failed | "Refused" >> beam.Map(_refuse, target.fails)


def _refuse(failed: Any, shown: str) -> None:
    raise RmqioError(
        f"{shown} cannot take a message: {failed.error}: {failed.reason}; to continue without such messages, {_ADVICE}"
    )


def _rocketmq(end: End, source: End, where: dict[str, Any], dead_letter_topic: str | None) -> Any:
    from rmqio.transforms import WriteToRocketMQ

    if end.place and "client_factory" not in where:
        where = {**where, "name_server": end.place}
    id_fn: Any = {"rocketmq": own_id, "kafka": kafka_id}.get(source.kind)
    if "id" in end.options:
        id_fn = RowId(end.options["id"])
    elif "key" in end.options:
        id_fn = KeyId(end.options["key"])
    write = WriteToRocketMQ(
        end.name,
        serializer=None if source.kind == "rocketmq" else ToMessage(end.options.get("key")),  # it knows its own records
        id_fn=id_fn,
        dead_letter_topic=dead_letter_topic,
        with_sent=False,
        **where,
    )
    write.id_advice = f"Add id=FIELD to the options of {end.shown}: a field that differs from row to row"
    return write


def _kafka(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.kafka.write import WriteToKafka

    return WriteToKafka(end.place, end.name, config=end.config(), **end.take("key"), **letters)


def _file(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.files.write import WriteToFiles

    more: dict[str, Any] = end.take("schema")
    if "columns" in end.options:
        more["columns"] = end.options["columns"].split(",")
    return WriteToFiles(end.place, end.options["format"], shards=end.number("shards", 1), **more, **letters)


def _table(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.sql.transform import WriteToSql

    more = table_options(end) | end.take("username") | end.secrets("password")
    return WriteToSql(end.place, end.name, **more, **letters)


def _index(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.search.transform import WriteToElasticsearch

    more = end.take("id", "operation", "ca_file", "username") | end.secrets(*SEARCH_SECRETS)
    return WriteToElasticsearch(end.place, end.name, **more, **letters)
