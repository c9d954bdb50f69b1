"""The DoFn of `Enrich`."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.enrich.loading import Wanted
from rmqio.enrich.merging import KeyOf, Merge, fields_of
from rmqio.enrich.refresh import Lease, Rows, Schedule, acquire
from rmqio.enrich.sources.topic import Topic
from rmqio.errors import LocalError, SerdeError
from rmqio.internal_errors import internal_error, require_of_row
from rmqio.transforms.parts import (
    ERRORS_TAG,
    Count,
    beam_timestamp,
    failure_of_member,
    located_member,
    observe_process,
)

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
