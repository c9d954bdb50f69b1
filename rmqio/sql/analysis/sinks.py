"""INSERT INTO: the query's columns become those of the table, and which kinds of rows a table takes."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rmqio.errors import counted
from rmqio.sql.analysis.conversions import can_overflow, fits, same_but_null
from rmqio.sql.catalog.connectors import DATABASE, FILES, READ_ONLY_FORMATS
from rmqio.sql.catalog.tables import METADATA, Column, Table
from rmqio.sql.compile.emitter import is_pure
from rmqio.sql.errors import Refusal, Span, listed, nearest
from rmqio.sql.expressions import SET_NUMBER, Constant, Conversion, Expr, InputRef, NotNull, conjuncts, inputs
from rmqio.sql.formats import require_writable
from rmqio.sql.planning.checks import Ends, ends_by_itself, require_ends
from rmqio.sql.planning.plan import Aggregate, Calc, Field, Rank, Relation, Sink
from rmqio.sql.planning.ranks import Form, form_of
from rmqio.sql.syntax import nodes, statements

# INSERT INTO tables that are not topics: what can be written.


def require_written(statement: statements.Insert, table: Table) -> None:
    """Raises `Refusal` if nothing can be written to the table, or not in this way."""
    options = table.options
    if options.connector == DATABASE:
        raise Refusal(f"{table.name} is a table of a database, which can only be read", statement.table.span)
    if options.connector == FILES and options.format in READ_ONLY_FORMATS:
        raise Refusal(
            f"{table.name} cannot be written: files of the format {options.format} can only be read; use json or csv",
            statement.table.span,
        )
    path = options.of_connector.path
    if options.connector == FILES and (glob.has_magic(path) or os.path.isfile(path)):
        raise Refusal(
            f"{table.name} has the path {path!r}: files are written into a folder, so name one", statement.table.span
        )
    if options.connector == FILES and statement.is_overwrite:
        raise Refusal("INSERT OVERWRITE is not supported: INSERT INTO adds files", statement.span)


# INSERT INTO: the query's columns become those of the table.


def sink_of(statement: statements.Insert, table: Table, relation: Relation) -> Sink:
    """Returns the sink. Raises `Refusal` if the columns do not fit."""
    require_written(statement, table)
    if statement.is_overwrite:
        raise Refusal("INSERT OVERWRITE is not supported: a topic cannot be overwritten", statement.span)
    written = [each for each in table.columns if each.is_written]
    targets = _named(statement, table) if statement.columns else written
    if len(targets) != len(relation.fields):
        names = ", ".join(each.name for each in targets)
        raise Refusal(
            f"{table.name} takes {counted(len(targets), 'value')} ({names}), but the query has {len(relation.fields)}",
            statement.query.span,
        )
    found: dict[str, Expr] = {}
    for position, (column, given) in enumerate(zip(targets, relation.fields, strict=True)):
        span = _span(statement.query, position, len(targets))
        found[column.name] = _fitted(InputRef(given.type, position), column, given, span)
    columns, projections = [], []
    for column in written:
        if column.name not in found and column.metadata is not None:
            continue
        if column.name not in found and not column.type.is_nullable:
            raise Refusal(f"the column {column.name} is NOT NULL and gets no value", statement.table.span)
        columns.append(column)
        projections.append(found.get(column.name, Constant(column.type.nullable(), None)))
    _require_one_each(columns, table, statement)
    tag = next((each for each in columns if each.name == table.options.tag_column and each.is_physical), None)
    if tag is not None and all(each.metadata is None or each.metadata.key != "tags" for each in columns):
        projections.append(projections[columns.index(tag)])
        columns.append(Column(f"tag of {tag.name}", tag.type, METADATA["tags"]))
    fields = tuple(Field(each.name, each.type) for each in columns)
    body = [field for field, each in zip(fields, columns, strict=True) if each.is_physical]
    require_writable(table, body, [each.name for each in body if each.name not in found])
    found_rows = Calc(fields, relation, None, tuple(projections))
    return Sink(fields, found_rows, table, tuple(columns), statement.table.span)


def _require_one_each(columns: list[Column], table: Table, statement: statements.Insert) -> None:
    """A message has each part once, so two values for it would be one lost."""
    names: dict[str, str] = {}
    for each in columns:
        if each.metadata is None:
            continue
        if (other := names.setdefault(each.metadata.key, each.name)) != each.name:
            raise Refusal(
                f"{other} and {each.name} of {table.name} are both the metadata {each.metadata.key!r}: declare one of "
                "them VIRTUAL, or list the columns, INSERT INTO t (a, b)",
                statement.table.span,
            )


def _named(statement: statements.Insert, table: Table) -> list[Column]:
    targets = []
    for name in statement.columns:
        column = table.column(name.text)
        if column is None:
            known = [each.name for each in table.columns]
            raise Refusal(f"{table.name} has no column {name}{nearest(name.text, known)}", name.span)
        if not column.is_written:
            raise Refusal(f"the column {name} is {_why(column)}: it gets no value", name.span)
        if column in targets:
            raise Refusal(f"the column {name} is listed twice", name.span)
        targets.append(column)
    return targets


def _why(column: Column) -> str:
    return "VIRTUAL" if column.is_virtual else "computed"


def _span(query: nodes.Query, position: int, count: int) -> Span:
    """The place of a column of the query, if it stands in its SELECT or its only row of VALUES."""
    match query.body:
        case nodes.Select(items=items) if len(items) == count:
            item = items[position]
            return item.expression.span if isinstance(item, nodes.Item) else item.span
        case nodes.Values(rows=(row,)) if len(row) == count:
            return row[position].span
    return query.span


def _fitted(given: Expr, column: Column, field: Field, span: Span) -> Expr:
    wanted = column.type
    is_local_time = (given.type.kind, wanted.kind) == ("TIMESTAMP_LTZ", "TIMESTAMP")  # as Flink does it, of a sink only
    if not fits(given.type, wanted) and not is_local_time:
        name = "" if field.name.startswith("EXPR$") else f"{field.name}, "
        raise Refusal(f"{column.name} is {wanted.text}, but the query gives {name}{given.type.text}: use CAST", span)
    can_be_null = given.type.is_nullable
    found = given
    if not same_but_null(given.type, wanted):
        can_be_null = can_be_null or can_overflow(given.type, wanted)
        found = Conversion(wanted.nullable(can_be_null), given)
    if wanted.is_nullable or not can_be_null or column.metadata is not None:
        return found
    if given.type.kind == "NULL":
        raise Refusal(f"{column.name} is NOT NULL, but the query gives NULL", span)
    return NotNull(wanted, found, column.name)


# Destinations of rows that change: a written topic, sharding key or delay must not part a row from its versions.

_PARTED: Final = {
    "topic": "the row would also stay in the topic where it was",
    "sharding_key": "its versions would be in several queues, which have no order",
}
_DELAYS: Final = ("delay_level", "deliver_at")


def parted(sink: Sink, changing: Aggregate | Rank, chain: Sequence[Calc], keys: set[int]) -> str:
    """Returns why a metadata column cannot be written with rows that change; empty: all can.

    Args:
      sink: writes the rows.
      changing: gives the rows.
      chain: what stands between them, from the top.
      keys: the columns of `changing` that the PRIMARY KEY has.
    """
    if isinstance(changing, Aggregate) and changing.window is not None:
        count = len(changing.keys)
        keys = keys | {count, count + 1, count + 2}  # one time of a window tells the other two
    for position, column in enumerate(sink.columns):
        name = "" if column.metadata is None else column.metadata.key
        if name in _DELAYS:
            others = [each.name for each in sink.columns if each.metadata is None or each.metadata.key not in _DELAYS]
            return (
                f"{column.name} delays messages, and a row that waits could arrive after a newer one, or after it was "
                f"deleted: leave {column.name} out, INSERT INTO {sink.table.name} ({', '.join(others)})"
            )
        if name not in _PARTED:
            continue
        sources, is_stable = _sources(position, chain)
        if not is_stable:
            return f"{column.name}, the {name} of the message, differs from call to call, so that {_PARTED[name]}"
        if sources <= keys or (name == "topic" and isinstance(changing, Rank)):  # a rank deletes the row where it was
            continue
        return (
            f"{column.name}, the {name} of the message, can change with the row, and {_PARTED[name]}: compute it from "
            f"the PRIMARY KEY alone, {listed(sink.table.primary_key, 'and')}"
        )
    return ""


def _sources(position: int, chain: Sequence[Calc]) -> tuple[set[int], bool]:
    """The columns below that a column is computed from, and whether they always give the same value."""
    columns, is_stable = {position}, True
    for calc in chain:
        expressions = [calc.projections[each] for each in columns]
        is_stable = is_stable and all(map(is_pure, expressions))
        columns = {each for expression in expressions for each in inputs(expression)}
    return columns, is_stable


ENDS = "a window, or --stop latest, gives rows that do not change"
NO_TABLE = "its rows change, and only a table with a PRIMARY KEY takes them"


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a relation.

    Attributes:
      changing: the relation whose rows change; None: append-only.
      groups: the groups whose rows change, if `changing` is a rank of them, or they themselves.
      refused: why the rows cannot be given; empty: they can.
      span: the place of what is refused.
    """

    changing: Aggregate | Rank | None = None
    groups: Aggregate | None = None
    refused: str = ""
    span: Span | None = None


APPEND_ONLY = Kind()


def kind_of(relation: Relation, ends: Ends = ends_by_itself) -> Kind:
    """Returns the kind of a relation."""
    kinds = [kind_of(each, ends) for each in relation.inputs()]
    if refused := next((each for each in kinds if each.refused), None):
        return refused
    changing = next((each.changing for each in kinds if each.changing is not None), None)
    match relation:
        case Sink() | Calc():
            return kinds[0]
        case Aggregate():
            if changing is not None:
                return Kind(
                    refused=f"GROUP BY groups the rows of {named(changing)}, which change: {ENDS}", span=relation.span
                )
            return _of_aggregate(relation, ends)
        case Rank():
            return _of_rank(relation, changing, ends)
    if changing is not None:
        return Kind(
            refused=f"{named(changing)}: rows that change cannot be joined, united or grouped again: {ENDS}",
            span=changing.span,
        )
    return APPEND_ONLY


def _of_aggregate(aggregate: Aggregate, ends: Ends) -> Kind:
    if aggregate.origin is not None:  # refused where its inputs do not end
        return APPEND_ONLY
    if ends(aggregate) or (aggregate.window is not None and aggregate.emit is None):
        return APPEND_ONLY
    if aggregate.window is None and not aggregate.calls:
        return Kind(
            refused=f"DISTINCT: DISTINCT of rows without end would keep all of them: {ENDS}", span=aggregate.span
        )
    if aggregate.window is None and any(each.name == SET_NUMBER for each in aggregate.fields):
        return Kind(
            refused="GROUPING SETS, ROLLUP and CUBE without a window: NULL stands for the keys that a set lacks, so "
            f"that no PRIMARY KEY tells the rows apart: {ENDS}",
            span=aggregate.span,
        )
    return Kind(aggregate, aggregate)


def _of_rank(rank: Rank, changing: Aggregate | Rank | None, ends: Ends) -> Kind:
    if changing is None:
        return Kind(rank) if form_of(rank) is Form.UPDATES and not ends(rank) else APPEND_ONLY
    if not isinstance(changing, Aggregate) or changing.window is not None:
        return Kind(refused=f"ROW_NUMBER() numbers the rows of {named(changing)}, which change: {ENDS}", span=rank.span)
    chain = calcs(rank.input, changing)
    grouped = range(len(changing.keys))
    if any(source_of(each, chain) not in grouped for each in rank.keys):
        return Kind(
            refused="PARTITION BY takes what its rows are grouped by only, as they change: a row that goes into another"
            f" partition could not leave the one before; or {ENDS}",
            span=rank.span,
        )
    return Kind(rank, changing)


def named(relation: Aggregate | Rank) -> str:
    """Returns what changes, in words."""
    if isinstance(relation, Rank):
        return "a top-n"
    return "GROUP BY without a window" if relation.window is None else "EMIT before the end of a window"


# ---- into a table ---------------------------------------------------------------------------------------------------


def check_sink(sink: Sink, ends: Ends) -> Kind:
    """Returns the kind of what goes into a table. Raises `Refusal`, at its place, if that is not possible."""
    require_ends(sink, ends)
    kind = kind_of(sink, ends)
    if kind.refused:
        raise Refusal(f"INSERT INTO {sink.table.name}: {kind.refused}", kind.span)
    if kind.changing is not None and (reason := _refused(sink, kind.changing)):
        raise Refusal(f"INSERT INTO {sink.table.name}: {reason}", kind.changing.span)
    return kind


def _refused(sink: Sink, changing: Aggregate | Rank) -> str:
    name, what = sink.table.name, named(changing)
    if not sink.table.primary_key:
        return f"{what}: its rows change, and {name} has no PRIMARY KEY by which they do: {ENDS}"
    chain = calcs(sink.input, changing)
    if not all(map(is_pure, (part for calc in chain for part in conjuncts(calc.condition)))):
        return f"{what}: a condition differs from call to call, so that it does not tell which rows are there"
    places = {each.name: position for position, each in enumerate(sink.columns)}
    sources = [source_of(places[each], chain) if each in places else None for each in sink.table.primary_key]
    found = {each for each in sources if each != "constant"}
    key = f"the PRIMARY KEY of {name} ({', '.join(sink.table.primary_key)})"
    if isinstance(changing, Aggregate):
        if found not in _keys_of(changing):
            names = _names(changing, sorted(_keys_of(changing)[0]))
            return f"{what}: {key} is not what the rows are grouped by{names}: {ENDS}"
    elif not set(changing.keys) <= found:
        return f"{what}: {key} lacks the columns of PARTITION BY{_names(changing, changing.keys)}"
    elif changing.limit > 1 and found == set(changing.keys):
        return f"{what}: several rows of a partition have one PRIMARY KEY: add the number of the row, or a column"
    reason = parted(sink, changing, chain, {each for each in found if isinstance(each, int)})
    return f"{what}: {reason}" if reason else ""


def _keys_of(aggregate: Aggregate) -> list[set[int]]:
    """The columns that tell the rows of an aggregate apart: any of these sets."""
    keys = set(range(len(aggregate.keys)))
    if aggregate.window is None:
        return [keys]
    start, end = len(keys), len(keys) + 1
    found = [{*keys, start, end}, {*keys, end}]
    return found if aggregate.window.kind == "CUMULATE" else [*found, {*keys, start}]


def _names(relation: Aggregate | Rank, columns: Iterable[int]) -> str:
    names = [relation.fields[each].name for each in columns]
    shown = [each for each in names if "$" not in each]
    return f", {listed(shown, 'and')}" if shown and shown == names else ""


def calcs(relation: Relation, source: Relation) -> list[Calc]:
    """Returns what stands between a relation and its source, from the top."""
    found = []
    while isinstance(relation, Calc) and relation is not source:
        found.append(relation)
        relation = relation.input
    return found


def source_of(position: int, chain: list[Calc]) -> int | str | None:
    """Returns the column of the source that a column is without a change; `constant`, or None: it is another."""
    for calc in chain:
        expression = calc.projections[position]
        while isinstance(expression, NotNull) or (
            isinstance(expression, Conversion) and fits(expression.operand.type, expression.type)
        ):
            expression = expression.operand
        if isinstance(expression, Constant):
            return "constant"
        if not isinstance(expression, InputRef):
            return None
        position = expression.index
    return position
