"""Elements with a schema as the source and as the target of a fragment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql.catalog.tables import Column
from rmqio.sql.compile.description import OtherSource, OtherTarget
from rmqio.sql.compile.expressions.emitter import Emitter
from rmqio.sql.compile.fragment import metadata_codes
from rmqio.sql.planning.plan import Field
from rmqio.sql.transform.row_types import row_type
from rmqio.sql.transform.values import Convert, reader, writer
from rmqio.sql.values import ValueFailure


@dataclass(frozen=True, slots=True)
class FromElements(OtherSource):
    """Rows are elements, each in a pair with its time in microseconds. Metadata is that time."""

    columns: tuple[Column, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(each.name, each.type) for each in self.columns)

    def codes(self, used: set[int], out: Emitter) -> dict[int, str]:
        """Emits what loads columns. Returns the expression of each one."""
        codes = metadata_codes(self.columns, used, out)
        loaded = [i for i in sorted(used) if not self.columns[i].metadata]
        if not loaded:
            return codes
        out.constants["no_field"] = no_field
        with out.block("try:"):
            for i in loaded:
                codes[i] = out.name("e")
                name = self.columns[i].name
                place = f"record[0].{name}" if name.isidentifier() else f"getattr(record[0], {name!r})"
                out.line(f"{codes[i]} = {place}")
        with out.block("except AttributeError as error:"):
            out.line("no_field(error)")
        for i in loaded:
            column = self.columns[i]
            convert = out.constant(column_reader(column), "v")
            guard = f"if {codes[i]} is not None: " if column.type.is_nullable else ""
            out.line(f"{guard}{codes[i]} = {convert}({codes[i]})")
        return codes


def column_reader(column: Column) -> Convert:
    """Returns what makes the SQL value of a column. It raises `ValueFailure` with the column's name, also for None."""
    read = reader(column.type)

    def of(value: Any) -> Any:
        if value is None:
            raise ValueFailure(f"column {column.name}: it is None, but its type is not Optional")
        try:
            return read(value)
        except ValueFailure as error:
            raise ValueFailure(f"column {column.name}: {error}") from None

    return of


def no_field(error: AttributeError) -> None:
    """Raises `ValueFailure`: the element lacks a field."""
    raise ValueFailure(f"the element has no field {error.name}" if error.name else str(error))


@dataclass(frozen=True, slots=True)
class ToElements(OtherTarget):
    """Rows become NamedTuples. `fields`: their columns."""

    fields: tuple[Field, ...]

    @property
    def row_type(self) -> Any:
        """The NamedTuple."""
        return row_type(tuple((each.name, each.type) for each in self.fields))

    @property
    def hint(self) -> Any:
        return self.row_type

    def emit(self, columns: Sequence[str], out: Emitter) -> None:
        """Emits what adds a row to the results."""
        made = []
        for name, field in zip(columns, self.fields, strict=True):
            write = writer(field.type)
            if write is None:
                made.append(name)
            else:
                call = f"{out.constant(write, 'w')}({name})"
                made.append(f"(None if {name} is None else {call})" if field.type.is_nullable else call)
        out.constants["row_type"] = self.row_type
        out.line(f"add(row_type({', '.join(made)}))")

    def stamped(self, values: list[Any]) -> list[Any]:
        """Returns rows with the time that the watermark follows, if one of their columns is that."""
        name = next((each.name for each in self.fields if each.is_time), None)
        if name is None:
            return values
        found = []
        for each in values:
            at: Timestamp | None = getattr(each, name)
            found.append(each if at is None else TimestampedValue(each, at))
        return found
