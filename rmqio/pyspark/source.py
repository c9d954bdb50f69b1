"""The Spark data source `rocketmq`, and the filters that Spark pushes down to it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructField, StructType

from rmqio.client.connection import require_usable
from rmqio.errors import LocalError, OffsetOutOfRange
from rmqio.interfaces import OffsetLookup
from rmqio.model import MessageFilter, MessageQueue
from rmqio.pyspark.chatter import quiet
from rmqio.pyspark.columns import COLUMN, SOURCE_SCHEMA, VALUE_NAMES, Values, checked_names, value_options
from rmqio.pyspark.options import OF_SPARK, WRITE_NAMES, known, security_of, write_settings
from rmqio.pyspark.ranges import DataLoss, Range, partitions, read_range
from rmqio.pyspark.read_options import READ_NAMES, ReadSettings, read_settings
from rmqio.pyspark.sink import RocketMQStreamWriter, RocketMQWriter
from rmqio.start import all_or_error, resolve_all
from rmqio.topics import queues_of

# Filter pushdown: how a batch read uses the filters of a query to read less.

_OF_QUEUE: Final[dict[str, tuple[type, Callable[[MessageQueue], object]]]] = {
    "topic": (str, lambda queue: queue.topic),
    "brokerName": (str, lambda queue: queue.broker),
    "queueId": (int, lambda queue: queue.queue_id),
}
_MARGIN_MS: Final = 1_000
"""Read beyond the requested times: a broker's clock may have been set back a little between two messages."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Narrowing:
    """The part of a read that pushed filters leave. Picklable."""

    queues: tuple[tuple[str, frozenset[object]], ...] = ()
    """Columns and their accepted values; all must match."""
    begin: int = 0
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """Store time in Unix milliseconds, exclusive."""
    tags: frozenset[str] | None = None
    """None: all."""

    def __or__(self, other: Narrowing) -> Narrowing:
        """Returns a read that has at least what each of the two has."""
        mine, others = self._accepted(), other._accepted()
        return Narrowing(
            tuple((column, values | others[column]) for column, values in mine.items() if column in others),
            min(self.begin, other.begin),
            _outer(max, self.end, other.end),
            _outer(min, self.since_ms, other.since_ms),
            _outer(max, self.until_ms, other.until_ms),
            None if self.tags is None or other.tags is None else self.tags | other.tags,
        )

    def _accepted(self) -> dict[str, frozenset[object]]:
        found: dict[str, frozenset[object]] = {}
        for column, values in self.queues:
            found[column] = found.get(column, values) & values
        return found

    def admits(self, queue: MessageQueue) -> bool:
        """Returns whether any message of a queue can match."""
        if self.tags is not None and not self.tags:
            return False
        return all(_OF_QUEUE[column][1](queue) in values for column, values in self.queues)

    def cut(self, queue: MessageQueue, begin: int, end: int, lookup: OffsetLookup) -> tuple[int, int]:
        """Returns what is left of a range of offsets. Raises `BrokerError` and `TransportError`."""
        begin = max(begin, self.begin)
        end = end if self.end is None else min(end, self.end)
        if begin < end and self.since_ms is not None:
            begin = max(begin, lookup.offset_for_time(queue, self.since_ms))
        if begin < end and self.until_ms is not None:
            end = min(end, lookup.offset_for_time(queue, self.until_ms))
        return begin, end

    def of(self, message_filter: MessageFilter) -> MessageFilter:
        """Returns the broker's filter, by the wanted tags if there are any."""
        return MessageFilter(" || ".join(sorted(self.tags))) if self.tags else message_filter


def _outer(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    """Returns the wider of two bounds; None: there is none."""
    return None if one is None or other is None else choose(one, other)


def push(filters: Iterable[Filter], own: MessageFilter) -> Narrowing:
    """Returns what filters leave of a read. Spark must still apply each of them.

    Args:
      filters: all must match.
      own: the broker's filter that the options set. A broker takes either tags or SQL.
    """
    narrowing = Narrowing(tags=own.tag_set or None)
    for each in filters:
        narrowing = _push(each, narrowing, takes_tags=not own.sql)
    return narrowing


def _push(each: Filter, so_far: Narrowing, *, takes_tags: bool) -> Narrowing:
    """Applies one more filter. Returns the narrowed read."""
    comparisons = (EqualTo, EqualNullSafe, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    if not isinstance(each, comparisons) or len(each.attribute) != 1:
        return so_far
    (column,) = each.attribute
    values = _values(each)
    if column in _OF_QUEUE and values is not None and _all_of(_OF_QUEUE[column][0], values):
        return dataclasses.replace(so_far, queues=(*so_far.queues, (column, values)))
    if column == "tags" and takes_tags and values is not None and all(map(_is_plain_tag, values)):
        wanted = frozenset(map(str, values))
        return dataclasses.replace(so_far, tags=wanted if so_far.tags is None else so_far.tags & wanted)
    if column == "queueOffset":
        return _push_offsets(each, so_far)
    return _push_times(each, so_far) if column == "storeTimestamp" else so_far


def _push_offsets(each: Any, so_far: Narrowing) -> Narrowing:
    low, high = _bounds(each)
    given = [bound for bound in (low, high) if bound is not None]
    if not given or not _all_of(int, given):
        return so_far
    begin, end = so_far.begin, so_far.end
    if low is not None:
        begin = max(begin, low + isinstance(each, GreaterThan))
    if high is not None:
        stop = high + (not isinstance(each, LessThan))
        end = stop if end is None else min(end, stop)
    return dataclasses.replace(so_far, begin=begin, end=end)


def _push_times(each: Any, so_far: Narrowing) -> Narrowing:
    bounds = _bounds(each)
    if not all(bound is None or (isinstance(bound, dt.datetime) and bound.tzinfo is not None) for bound in bounds):
        return so_far
    low, high = (None if bound is None else (bound - _EPOCH) // dt.timedelta(milliseconds=1) for bound in bounds)
    since, until = so_far.since_ms, so_far.until_ms
    if low is not None:
        since = max(0, since or 0, low - _MARGIN_MS)
    if high is not None:
        stop = max(0, high + 1 + _MARGIN_MS)
        until = stop if until is None else min(until, stop)
    return dataclasses.replace(so_far, since_ms=since, until_ms=until)


def _values(each: Any) -> frozenset[object] | None:
    """Returns the values that an equality permits; None for another comparison. Null equals nothing."""
    if isinstance(each, In):
        return frozenset(value for value in each.value if value is not None)
    if isinstance(each, (EqualTo, EqualNullSafe)) and each.value is not None:
        return frozenset([each.value])
    return None


def _bounds(each: Any) -> tuple[Any, Any]:
    """Returns the lowest and the highest value, as far as a comparison bounds them."""
    if isinstance(each, In):
        values = _values(each)
        return (min(values), max(values)) if values and len({type(value) for value in values}) == 1 else (None, None)  # type: ignore[type-var]
    if isinstance(each, (EqualTo, EqualNullSafe)):
        return each.value, each.value
    return (each.value, None) if isinstance(each, (GreaterThan, GreaterThanOrEqual)) else (None, each.value)


def _all_of(kind: type, values: Iterable[object]) -> bool:
    return all(type(value) is kind for value in values)


def _is_plain_tag(value: object) -> bool:
    """Returns whether a filter expression can name this tag, and no other text looks like it in the column."""
    if type(value) is not str or not value or value.strip() != value:
        return False
    return value != "*" and "|" not in value and "\ufffd" not in value


# The filters that Spark has pushed for one `load()`, in all queries.
#
# Spark keeps one read for a `load()`: filters that it pushes for a query, or for a side of a join, replace those of
# another one, which then reads the same partitions. So each read covers what all filters of its `load()` leave.

_LOGGER = logging.getLogger(__name__)
_KEPT_S: Final = 7 * 86_400
"""A file without new filters for this long is removed. Every query pushes its filters again when it is planned."""


def widened(load: str, narrowing: Narrowing) -> Narrowing:
    """Returns what is left by these filters or by any that Spark has pushed before for the same `load()`.

    They are in a file, since Spark plans in several processes on the driver. Without the file, nothing is skipped.

    Args:
      load: the name of the `load()`.
    """
    try:
        path = _folder() / load
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_as_json(narrowing)) + "\n")  # first, so that the other of two sees it
        for line in path.read_text("utf-8").splitlines():
            narrowing |= _from_json(json.loads(line))
    except (OSError, ValueError) as error:
        _LOGGER.warning("pushFilters has no effect: filters of other queries are not known (%s)", error)
        return Narrowing()
    return narrowing


def _folder() -> Path:
    """Returns the folder of this user's files, without old ones. Raises `OSError` if it is another user's."""
    folder = Path(tempfile.gettempdir()) / f"rmqio-filters-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"other users can write to {folder}: remove it")
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            if time.time() - file.stat().st_mtime > _KEPT_S:
                file.unlink()
    return folder


def _as_json(narrowing: Narrowing) -> dict[str, Any]:
    queues = [[column, list(values)] for column, values in narrowing.queues]
    tags = None if narrowing.tags is None else sorted(narrowing.tags)
    bounds = {name: getattr(narrowing, name) for name in ("begin", "end", "since_ms", "until_ms")}
    return {"queues": queues, "tags": tags, **bounds}


def _from_json(found: dict[str, Any]) -> Narrowing:
    queues = tuple((column, frozenset(values)) for column, values in found.pop("queues"))
    tags = found.pop("tags")
    return Narrowing(queues, tags=None if tags is None else frozenset(tags), **found)


class RocketMQDataSource(DataSource):
    """Reads and writes topics of Apache RocketMQ, as batches and as streams.

    Columns of a read: `rmqio.pyspark.columns.COLUMNS`, from which `.schema(...)` chooses, and `value` if the
    option valueFormat is given. Columns of a write: `rmqio.pyspark.sink.WRITE_COLUMNS`.
    Delivery of a write: at least once. Options: docs/pyspark.md. Raises `LocalError` for one that neither has.
    """

    @classmethod
    def name(cls) -> str:
        quiet()  # here, since each of Spark's processes asks for the name, and some ask for nothing else
        return "rocketmq"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # A stream would find it in a process of Spark that plans it, whose traceback comes with Spark's
        require_usable(security_of(known(options, [*READ_NAMES, *WRITE_NAMES, *OF_SPARK])))
        self._load: Final = uuid.uuid4().hex
        """The name of the `load()`: Spark makes the source once, and copies it for each query."""

    def schema(self) -> StructType:
        values = self._values
        return SOURCE_SCHEMA if values is None else StructType([*SOURCE_SCHEMA, StructField(COLUMN, values.type)])

    @cached_property
    def _values(self) -> Values | None:
        """Made once and pickled with the source: a DataFrame keeps the schema that it was loaded with."""
        options = value_options(
            {name: self.options[name.lower()] for name in VALUE_NAMES if name.lower() in self.options}
        )
        return None if options is None else Values(options)

    def _chosen(self, schema: StructType, *, streaming: bool) -> tuple[ReadSettings, tuple[str, ...]]:
        """Returns the settings, and the names of the columns to read."""
        settings = read_settings(self.options, streaming=streaming)
        values = self._values if COLUMN in schema.fieldNames() else None
        return dataclasses.replace(settings, values=values), checked_names(schema, values)

    def reader(self, schema: StructType) -> DataSourceReader:
        settings, names = self._chosen(schema, streaming=False)
        # Spark rejects a reader that takes filters unless the session permits it, which cannot be seen here
        if settings.push_filters:
            return FilteredRocketMQReader(settings, names, self._load)
        return RocketMQReader(settings, names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        quiet()
        try:
            from rmqio.pyspark.stream import RocketMQStreamReader
        except ImportError as error:
            raise LocalError("a stream of the format rocketmq needs PySpark 4.2 or newer") from error

        return RocketMQStreamReader(*self._chosen(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return RocketMQWriter(write_settings(self.options, streaming=False), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return RocketMQStreamWriter(write_settings(self.options, streaming=True), schema)


class RocketMQReader(DataSourceReader):
    """Reads what the queues hold when Spark plans the read."""

    def __init__(self, settings: ReadSettings, names: Sequence[str]) -> None:
        self._settings = settings
        self._names = names
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        settings = self._settings
        client = settings.factory.queue_client()
        try:
            queues = queues_of(settings.subscription, client)
            settings.start.check(queues)
            settings.stop.check(queues)
            settings.start.warn_if_unread(settings.subscription, queues, client, settings.stop.resolve)
            admitted = [queue for queue in queues if self._narrowing.admits(queue)]
            ranges = all_or_error(resolve_all(admitted, client, self._range))
        finally:
            client.close()
        return partitions(ranges, settings.min_partitions, settings.max_records_per_partition)

    def _range(self, queue: MessageQueue, lookup: OffsetLookup) -> tuple[int, int]:
        try:
            # The end first: messages that arrive in between belong to the next read
            end = self._settings.stop.resolve(queue, lookup)
            return self._narrowing.cut(queue, self._settings.start.resolve(queue, lookup), end, lookup)
        except OffsetOutOfRange as error:
            raise DataLoss(error) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return iter(())  # Spark runs a task even if there are no partitions
        return read_range(self._settings, partition, self._names)


class FilteredRocketMQReader(RocketMQReader):
    """Skips what the query's filters exclude: queues, offsets, times and, through the broker, tags.

    Spark applies all filters again, since a read also has what other queries of the same `load()` need: see `widened`.
    """

    def __init__(self, settings: ReadSettings, names: Sequence[str], load: str) -> None:
        super().__init__(settings, names)
        self._load = load
        self._is_narrowed = False

    def partitions(self) -> Sequence[InputPartition]:
        if not self._is_narrowed:  # a query without filters, which later ones of this load must not narrow
            widened(self._load, Narrowing())
        return super().partitions()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._is_narrowed = True
        own = self._settings.message_filter
        self._narrowing = widened(self._load, push(filters, own))
        self._settings = dataclasses.replace(self._settings, message_filter=self._narrowing.of(own))
        return filters
