"""The pipeline of a copy: the end that is read, and the end that is written."""

from __future__ import annotations

import hashlib
import sys
from decimal import Decimal
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows

from rmqio.batches import place_ids
from rmqio.connect.copying.urls import (
    DATABASES,
    SEARCH,
    SEARCH_SECRETS,
    TIMES,
    End,
    check_source,
    check_target,
    is_endless,
    range_of,
    table_options,
)
from rmqio.connect.kafka.records import KafkaRecord, message_of
from rmqio.connect.rows import text_of_decimal, to_json, to_row
from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.hints import did_you_mean
from rmqio.model import Message, MessageQueue, Record
from rmqio.runners.program import count, count_written, run_program
from rmqio.transforms.parts import is_in_process as is_direct

# The end of a copy that is read.


def source_of(end: End, *, follow: bool, where: dict[str, Any]) -> Any:
    """Returns the transform that reads an end. `where`: the cluster of RocketMQ. Raises `LocalError`."""
    check_source(end, follow=follow)
    with end.named():
        match end.kind:
            case "rocketmq":
                return _rocketmq_source(end, follow, where)
            case "kafka":
                return _kafka_source(end, follow)
            case "file":
                return _file_source(end)
        return _table_source(end)


def _rocketmq_source(end: End, follow: bool, where: dict[str, Any]) -> Any:
    from rmqio.transforms import ReadFromRocketMQ

    if end.place and "client_factory" not in where:
        where = {**where, "name_server": end.place}
    read = ReadFromRocketMQ(end.name, consumer_group=end.options.get("group"), **range_of(end, follow=follow), **where)
    read.start_advice = _advice(end)
    return read


def _kafka_source(end: End, follow: bool) -> Any:
    from rmqio.connect.kafka.read import ReadFromKafka

    times: dict[str, Any] = {name: end.number(name, 0) for name in TIMES if name in end.options}
    read = ReadFromKafka(end.place, end.name, config=end.config(), **times, **range_of(end, follow=follow))
    read.start_advice = _advice(end)
    return read


def _advice(end: End) -> str:
    return f"add start=earliest to the options of {end.shown}"


def _file_source(end: End) -> Any:
    from rmqio.connect.files.read import ReadFromFiles

    return ReadFromFiles(end.place, end.options.get("format"))


def _table_source(end: End) -> Any:
    from rmqio.connect.sql.read import ReadFromSql

    more = end.take("partition_on", "username") | end.secrets("password")
    return ReadFromSql(end.place, end.name, partitions=end.number("partitions", 8), **more)


# Elements of any source as messages of RocketMQ, and as lines of a console.


class ToMessage:
    """A serializer for `WriteToRocketMQ`: rows as JSON, messages of Kafka with their keys and headers.

    Args:
      key: the field that becomes the key.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key

    def __call__(self, element: Any) -> Message:
        if isinstance(element, KafkaRecord):
            return message_of(element)
        row = to_row(element)
        keys = () if self._key is None else (_text_of(row, self._key, "a key"),)
        return Message(to_json(row).encode("utf-8", "backslashreplace"), keys=keys)


class RowId:
    """An `id_fn` for `WriteToRocketMQ`: a field of the row, whose copies then have one id.

    Args:
      field: its values differ from row to row.
    """

    def __init__(self, field: str) -> None:
        self._field = field

    def __call__(self, element: Any) -> str:
        return _text_of(to_row(element), self._field, "an id")


class KeyId:
    """An `id_fn` for `WriteToRocketMQ`: of the row's key and all that it has. The same row has the same id each time.

    Args:
      key: the field that becomes the key. Rows can share it, so it alone is no id.
    """

    def __init__(self, key: str) -> None:
        self._message_of = ToMessage(key)

    def __call__(self, element: Any) -> str:
        message = self._message_of(element)
        text = b"%b\n%b" % (message.keys[0].encode("utf-8", "backslashreplace"), message.body)
        return hashlib.blake2b(text, digest_size=16).hexdigest().upper()


def _text_of(row: dict[str, Any], field: str, use: str) -> str:
    found = row.get(field)
    if found is None or found == "" or isinstance(found, (dict, list)):
        hint = "" if field in row else did_you_mean(field, map(str, row))
        raise SerdeError(f"the row has no {field} that can be {use}{hint}")
    return text_of_decimal(found) if isinstance(found, Decimal) else str(found)


def own_id(record: Record) -> str:
    """Returns the id of the copy of a message of RocketMQ: its own."""
    return record.message_id


def kafka_id(record: KafkaRecord) -> str:
    """Returns the id of the copy of a message of Kafka: the same each time that the message is copied.

    It depends on topic, partition and offset alone. In a topic of RocketMQ, a broker's name cannot be empty, so the id
    is none of a copy from there.
    """
    return place_ids(MessageQueue(record.topic, "", record.partition), (record.offset,))[0]


class PrintFn(beam.DoFn):
    """Prints each element as a line: on the machine of the worker that has it."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def start_bundle(self) -> None:
        self._lines = []

    def process(self, element: Any) -> None:
        body: Any = element
        if isinstance(element, KafkaRecord):
            body = element.value if element.value is not None else "null"  # a tombstone
        elif not isinstance(element, dict):
            body = getattr(element, "body", element)
        text = body.decode("utf-8", "backslashreplace") if isinstance(body, bytes) else body
        self._lines.append(text if isinstance(text, str) else to_json(to_row(element)))
        if len(self._lines) >= 100:
            self.finish_bundle()

    def finish_bundle(self) -> None:
        lines, self._lines = self._lines, []
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


# The end of a copy that is written.

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
        return Target(_rocketmq_target(end, source, where, dead_letter_topic), fails=end.shown if not letters else None)
    if end.kind == "kafka":
        return Target(_kafka_target(end, letters))
    if end.kind == "file":
        window_s = end.number("window_s", _WINDOW_S if endless else 0)
        lateness_s = end.number("lateness_s", _LATENESS_S) if endless else 0
        write = _file_target(end, letters)
        if not window_s:  # folders of windows are looked through by the write
            from rmqio.connect.files.write import require_same_shards

            require_same_shards(end.place, end.number("shards", 1), f".{end.options['format']}")
        return Target(write, window_s or None, lateness_s)
    if end.kind in DATABASES:
        return Target(_table_target(end, letters))
    if end.kind in SEARCH:
        return Target(_index_target(end, letters))
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


def _rocketmq_target(end: End, source: End, where: dict[str, Any], dead_letter_topic: str | None) -> Any:
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


def _kafka_target(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.write import WriteToKafka

    return WriteToKafka(end.place, end.name, config=end.config(), **end.take("key"), **letters)


def _file_target(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.files.write import WriteToFiles

    more: dict[str, Any] = end.take("schema")
    if "columns" in end.options:
        more["columns"] = end.options["columns"].split(",")
    return WriteToFiles(end.place, end.options["format"], shards=end.number("shards", 1), **more, **letters)


def _table_target(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.write import WriteToSql

    more = table_options(end) | end.take("username") | end.secrets("password")
    return WriteToSql(end.place, end.name, **more, **letters)


def _index_target(end: End, letters: dict[str, Any]) -> Any:
    from rmqio.connect.write import WriteToElasticsearch

    more = end.take("id", "operation", "ca_file", "username") | end.secrets(*SEARCH_SECRETS)
    return WriteToElasticsearch(end.place, end.name, **more, **letters)


def copy(
    source: End,
    target: End,
    options: PipelineOptions,
    *,
    follow: bool = False,
    where: dict[str, Any] | None = None,
    dead_letter_topic: str | None = None,
    verbose: bool = False,
) -> int:
    """Runs the copy, prints a line with counts, and returns the exit status.

    Args:
      where: name server and security of RocketMQ, as arguments of the transforms.
      follow: whether the copy goes on with what arrives later.
    """
    where = where or {}
    is_counted = target.kind != "console"

    def build(pipeline: Any) -> None:
        endless = is_endless(source, follow=follow)
        if endless and target.kind == "file" and is_direct(pipeline):
            raise LocalError(
                "the Direct runner closes no window of a stream: to follow a topic into files, give "
                "--runner=SparkRunner --streaming or --runner=FlinkRunner --streaming"
            )
        found = target_of(target, source, endless=endless, where=where, dead_letter_topic=dead_letter_topic)
        apply(pipeline | "Read" >> source_of(source, follow=follow, where=where), found)

    def summary(result: Any) -> str:
        if not is_counted:
            return f"{source.shown} is printed"
        refused = count(result, "row_failures") + count(result, "send_failures")
        more = f", {refused} refused, which are in {dead_letter_topic}" if refused else ""
        is_topic = target.kind == "rocketmq"
        written = count_written(result, step="Write") if is_topic else count(result, "rows_written", step="Write")
        return f"{written} copied from {source.shown} to {target.shown}{more}"

    return run_program("rmqio copy", options, build, summary, verbose=verbose, prints_data=not is_counted)
