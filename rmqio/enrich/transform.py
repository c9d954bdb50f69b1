"""`Enrich`: adds columns of a dimension table to elements, by key."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.enrich.definition import Table
from rmqio.enrich.refresh import Lease, Rows, Schedule, acquire
from rmqio.enrich.sources import Topic
from rmqio.enrich.store import Wanted
from rmqio.enrich.table.rows import Spec, key_fields
from rmqio.errors import LocalError, SerdeError
from rmqio.hints import meant_or_known
from rmqio.interfaces import ClientFactory
from rmqio.internal_errors import internal_error, require_of_row
from rmqio.security import Security
from rmqio.serde.json_objects import object_of
from rmqio.transforms.parts import (
    ERRORS_TAG,
    BatchConstraint,
    Count,
    HandlesFailures,
    beam_timestamp,
    failure_of_member,
    located_member,
    observe_process,
)

# From elements and rows to enriched elements: dicts, `beam.Row`s, NamedTuples, and bodies of JSON.


class Clash(SerdeError):
    """An element has a field with the name of a column."""


def fields_of(element: Any) -> Any:
    """Returns the element, or what its body of JSON says. Raises `SerdeError`."""
    body = element
    if not isinstance(element, (bytes, bytearray)):
        body = getattr(element, "body", None)  # a Record or a Message
        if not isinstance(body, bytes) or not hasattr(element, "properties"):
            return element
    return object_of(body, exact=True)  # its numbers go on


class KeyOf:
    """The function from an element to its key: a value, or a tuple of several."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)

    def __call__(self, element: Any) -> Any:
        if isinstance(element, dict):
            found = [element.get(name) for name in self._fields]
        else:
            try:
                found = [getattr(element, name) for name in self._fields]
            except AttributeError as error:
                raise self._without(element) from error
        return found[0] if len(found) == 1 else tuple(found)

    def _without(self, element: Any) -> SerdeError:
        names = [*getattr(element, "_fields", ()), *getattr(element, "__dict__", ())]
        missing = next(name for name in self._fields if not hasattr(element, name))
        return SerdeError(f"{type(element).__name__} has no field {missing}, the key{meant_or_known(missing, names)}")


class Merge:
    """The function from an element and a row to the enriched element.

    Args:
      names: the names of the row's values in it.
      output_type: a NamedTuple or another class that takes the fields by name; None: a dict of a dict, else `beam.Row`.
    """

    def __init__(self, names: Sequence[str], output_type: Callable[..., Any] | None) -> None:
        self.names = tuple(names)
        self._output_type = output_type

    def __call__(self, element: Any, row: tuple[Any, ...]) -> Any:
        if isinstance(element, dict):
            found = {**element, **dict(zip(self.names, row, strict=True))}
            if len(found) != len(element) + len(self.names):
                raise self._clash(element)
            return found if self._output_type is None else self._output_type(**found)
        given = element._asdict() if hasattr(element, "_asdict") else dict(vars(element))
        found = {**given, **dict(zip(self.names, row, strict=True))}
        if len(found) != len(given) + len(self.names):
            raise self._clash(given)
        if self._output_type is not None:
            return self._output_type(**found)
        return beam.Row(**found)

    def _clash(self, given: dict[str, Any]) -> Clash:
        both = ", ".join(name for name in self.names if name in given)
        return Clash(f"the element has a field {both} already: give Enrich a prefix, or other columns")


# The DoFn of `Enrich`.

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_KEPT_S: Final = 5.0
"""A bundle keeps a version for so long."""
_KEPT_OF_TOPIC_S: Final = 0.2
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """The options of a look-up: see `Enrich`."""

    wanted: Wanted
    schedule: Schedule
    fields: tuple[str, ...]
    how: str
    on_missing: str
    many: bool
    prefix: str
    at: str | None
    output_type: Any


class EnrichFn(beam.DoFn):
    """Looks up. A bundle keeps one version of the table, unless it lasts: a stream on the Direct runner is one bundle.

    `step`: what distinguishes the results from those of other functions of the same records.
    """

    def __init__(self, look_up: LookUp, step: str, *, batches: bool, errors_to_output: bool) -> None:
        self._look_up = look_up
        self._step = step
        self._batches, self._errors_to_output = batches, errors_to_output
        self._lookups, self._missing = Count("lookups"), Count("lookups_missing")
        self._failures = Count("lookup_failures")
        self._lease: Lease | None = None
        self._rows: Rows | None = None
        self._kept_until = 0.0

    def setup(self) -> None:
        observe_process()
        self._lease = acquire(self._look_up.wanted, self._look_up.schedule)
        self._begin(self._lease.rows())

    def start_bundle(self) -> None:
        assert self._lease is not None
        rows = self._lease.rows()
        kept_s = _KEPT_OF_TOPIC_S if isinstance(self._look_up.wanted.table.source, Topic) else _KEPT_S
        self._kept_until = time.monotonic() + kept_s
        if rows is not self._rows:
            self._begin(rows)

    def teardown(self) -> None:
        self._rows = self._lease = None

    def process(
        self, element: Any, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        if time.monotonic() > self._kept_until:
            self.start_bundle()
        if self._batches:
            if isinstance(element, (str, bytes)) or not isinstance(element, list):
                raise LocalError(f"Enrich(batches=True) takes batches, not {type(element).__name__}")
            batch = element if isinstance(element, Batch) else Batch(element)
        else:
            batch = Batch([element])
        results, positions, failed = self._results(batch, timestamp)
        if results and self._batches:
            is_whole = len(positions) == len(batch) and not self._look_up.many
            yield batch.with_values(results, None if is_whole else positions, step=self._step)
        else:
            yield from results
        for position, error in failed.items():
            if not self._errors_to_output:
                raise located_member(batch, position, error) from error
            failure = failure_of_member(batch, position, error)
            output: Any = failure
            if failure.store_timestamp_ms:
                output = WindowedValue(failure, beam_timestamp(failure.store_timestamp_ms), (window,))
            yield beam.pvalue.TaggedOutput(ERRORS_TAG, output)

    def _begin(self, rows: Rows) -> None:
        look_up = self._look_up
        self._rows = rows
        self._key_of = KeyOf(look_up.fields)
        self._merge = Merge([f"{look_up.prefix}{each}" for each in rows.columns], look_up.output_type)
        self._is_usual = (
            len(look_up.fields) == 1
            and not look_up.many
            and (look_up.how, look_up.on_missing) == ("left", "null")
            and look_up.output_type is None
            and not look_up.wanted.spec.has_times
        )
        self._nulls = (None,) * len(rows.columns)

    def _results(self, batch: Batch[Any], timestamp: Any) -> tuple[list[Any], list[int], dict[int, Exception]]:
        """The results in order, the positions that they come from, and the errors by position."""
        look_up, rows = self._look_up, self._rows
        assert rows is not None
        if self._is_usual and (usual := self._usual(batch, rows)) is not None:
            self._lookups.add(len(batch), ())
            return usual, [*range(len(batch))], {}
        elements: list[Any] = []
        keys: list[Any] = []
        times: list[int] | None = [] if look_up.wanted.spec.has_times else None
        places: list[int] = []
        failed: dict[int, Exception] = {}
        for place, given in enumerate(batch):
            try:
                element = fields_of(given)
                key = self._key_of(element)
                if times is not None:
                    times.append(_time_of(element, look_up.at, timestamp))
            except SerdeError as error:
                failed[place] = error
            except Exception as error:  # noqa: BLE001  # of an element's own class, or a fault of ours
                failed[place] = SerdeError(internal_error(error, "an element of Enrich"))
            else:
                elements.append(element)
                keys.append(key)
                places.append(place)
        if len(keys) == 1:
            found = [rows.get_one(keys[0], None if times is None else times[0], many=look_up.many)]
        else:
            found = rows.get(keys, times, many=look_up.many)
        results: list[Any] = []
        positions: list[int] = []
        missing = 0
        merge, many = self._merge, look_up.many
        for place, element, key, row in zip(places, elements, keys, found, strict=True):
            try:
                if row is NotImplemented:
                    raise self._wrong(key, rows)
                if row is None:
                    missing += 1
                    if look_up.how == "inner":
                        continue
                    if look_up.on_missing == "error":
                        raise SerdeError(f"the table has no row with the key {self._text(key)}")
                    results.append(merge(element, self._nulls))
                    positions.append(place)
                elif many:
                    made = [merge(element, each) for each in row]
                    results += made
                    positions += [place] * len(made)
                else:
                    results.append(merge(element, row))
                    positions.append(place)
            except Exception as error:  # noqa: BLE001  # also of an output_type that does not take the fields
                require_of_row(error)
                failed[place] = error
        self._lookups.add(len(keys), ())
        if missing:
            self._missing.add(missing, ())
        if failed:
            self._failures.add(len(failed), ())
        return results, positions, failed

    def _usual(self, batch: Batch[Any], rows: Rows) -> list[Any] | None:
        """The results of dicts that are all right, in a loop without exceptions. None: something is not so."""
        if {*map(type, batch)} != {dict}:
            return None
        (field,) = self._look_up.fields
        found = rows.get([element.get(field) for element in batch])
        names, results, nulls, missing = self._merge.names, [], self._nulls, 0
        for element, row in zip(batch, found, strict=True):
            if row is None:
                missing += 1
                row = nulls
            elif row is NotImplemented:
                return None
            made = element.copy()
            made.update(zip(names, row, strict=False))
            if len(made) != len(element) + len(names):
                return None  # a clash of names
            results.append(made)
        if missing:
            self._missing.add(missing, ())
        return results

    def _text(self, key: Any) -> str:
        parts = key if len(self._look_up.fields) > 1 else (key,)
        return ", ".join(f"{name} = {part!r}" for name, part in zip(self._look_up.fields, parts, strict=True))

    def _wrong(self, key: Any, rows: Rows) -> SerdeError:
        kinds = [type(each).__name__ for each in (key if len(self._look_up.fields) > 1 else (key,))]
        wanted = ", ".join(map("{} is {}".format, self._look_up.wanted.spec.keys, rows.key_types))
        return SerdeError(
            f"the key has the type {', '.join(kinds)} ({', '.join(self._look_up.fields)}), and in the table {wanted}"
        )


def _time_of(element: Any, field: str | None, timestamp: Any) -> int:
    """The time that counts, in microseconds since 1970. Raises `SerdeError`."""
    if field is None:
        return int(timestamp.micros)
    value = element.get(field) if isinstance(element, dict) else getattr(element, field, None)
    if isinstance(value, datetime.datetime):
        value = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
        return value * 1000
    micros = getattr(value, "micros", None)
    if isinstance(micros, int):
        return micros
    raise SerdeError(f"the field {field} is {value!r}; the time of a look-up is a datetime or milliseconds since 1970")


class Enrich(HandlesFailures):
    """Adds columns of a dimension table to each element.

    Args:
      table: the table, such as `Table.from_parquet("users/*.parquet")`.
      key: the field of the element that is the table's key, or a list of fields. A dict says for each field what the
        table's column is called.
      columns: the columns to add; None: all but the key.
      how: "left": an element without a row stays; "inner": it is left out, and counted.
      on_missing: with "left": "null": the columns are None; "error": the element goes to the errors.
      duplicates: of rows with one key: "error": the table is refused; "first" or "last": that one counts, in the order
        of the source; "all": one result for each row.
      prefix: before the name of each column.
      refresh_s: the time after which the table is loaded again; None: never. A topic goes on being read.
      on_refresh_error: if a load fails that is not the first one: "keep_previous" or "fail".
      max_age_s: look-ups fail if the rows are older; None: never.
      at: for tables with valid_from or valid_to: the field with the time that counts, a datetime or milliseconds
        since 1970; None: the timestamp of the element, which batches do not have.
      batches: elements are batches, such as those of `ReadFromRocketMQ(batches=True)`.
      output_type: a NamedTuple, or another class that takes the fields by name.
      dead_letter_topic, name_server, security, client_factory: as in `MapRecords`.

    Elements: dicts, `beam.Row`s, NamedTuples; `Record`s, `Message`s and bytes, whose bodies are objects of JSON.

    Returns: dicts of dicts and of JSON, `beam.Row`s of others, unless there is an `output_type`.

    Raises: `LocalError` when it is built, and at the start of a worker if the table cannot be loaded; `SerdeError`
    while it runs for an element that cannot be looked up, if nobody takes the errors.
    """

    def __init__(
        self,
        table: Table,
        key: str | Sequence[str] | Mapping[str, str],
        columns: Sequence[str] | None = None,
        *,
        how: str = "left",
        on_missing: str = "null",
        duplicates: str = "error",
        prefix: str = "",
        refresh_s: float | None = 3600.0,
        on_refresh_error: str = "keep_previous",
        max_age_s: float | None = None,
        at: str | None = None,
        batches: bool = False,
        output_type: Any = None,
        dead_letter_topic: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(dead_letter_topic, name_server, security, client_factory)
        if not isinstance(table, Table):
            raise LocalError(f"table is {table!r}; make it with Table.from_parquet or another of its functions")
        if how not in ("left", "inner"):
            raise LocalError(f'how is {how!r}; it must be "left" or "inner"')
        if on_missing not in ("null", "error"):
            more = ': to leave elements out, say how="inner"' if on_missing == "drop" else ""
            raise LocalError(f'on_missing is {on_missing!r}; it must be "null" or "error"{more}')
        if how == "inner" and on_missing == "error":
            raise LocalError('how="inner" leaves elements without a row out: on_missing="error" needs how="left"')
        fields = key_fields(key)
        wanted = None if columns is None else tuple([columns] if isinstance(columns, str) else columns)
        spec = Spec(tuple(fields.values()), wanted, duplicates, table.valid_from, table.valid_to)
        if at is not None and not spec.has_times:
            raise LocalError("at needs a table with valid_from or valid_to: other tables have only current rows")
        if batches and spec.has_times and at is None:
            raise LocalError(
                "a batch has one timestamp for all of its elements: pass at=, the field that holds the time"
            )
        schedule = Schedule(refresh_s, max_age_s, on_refresh_error)
        is_loaded_again = refresh_s is not None and not isinstance(table.source, Topic)
        if is_loaded_again and max_age_s is not None and max_age_s < (refresh_s or 0):
            raise LocalError(
                f"max_age_s is {max_age_s} and refresh_s {refresh_s}: rows would be too old before they are loaded "
                "again; give a smaller refresh_s"
            )
        self._look_up = LookUp(
            wanted=Wanted(table, spec),
            schedule=schedule,
            fields=tuple(fields),
            how=how,
            on_missing=on_missing,
            many=duplicates == "all",
            prefix=prefix,
            at=at,
            output_type=output_type,
        )
        self._batches, self._output_type = batches, output_type

    def expand(self, elements: Any) -> Any:
        handled = self.takes_failures
        label = elements.pipeline.transforms_stack[-1].full_label
        kind = Any if self._output_type is None else self._output_type
        hint = BatchConstraint(kind) if self._batches else kind
        looking = beam.ParDo(EnrichFn(self._look_up, label, batches=self._batches, errors_to_output=handled))
        if not handled:
            return elements | "Look up" >> looking.with_output_types(hint)
        outputs = elements | "Look up" >> looking.with_output_types(hint).with_outputs(ERRORS_TAG, main="enriched")
        enriched, failures = outputs["enriched"], outputs[ERRORS_TAG]
        enriched.element_type = hint
        self.take_failures(failures)
        return enriched

    def display_data(self) -> dict[str, Any]:
        look_up = self._look_up
        columns = look_up.wanted.spec.columns
        shown = {
            "table": look_up.wanted.table.source.shown,
            "key": ", ".join(look_up.fields),
            "columns": None if columns is None else ", ".join(columns),
            "how": look_up.how,
            "dead_letter_topic": self._dead_letter_topic,
        }
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}
