"""Stable ids of rows: each row of joins and groups gets an id that depends on what it comes from.

A row that comes again after a restart has the id of the first one, so that the copy can be recognised. The id of a pair
is that of both rows; of a group, its keys, its window and its results. Rows of a table have the ids of their messages
without this.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from rmqio.sql import types
from rmqio.sql.catalog.connectors import DATABASE
from rmqio.sql.catalog.tables import Column, Metadata
from rmqio.sql.expressions import Constant, Expr, InputRef, Operation, shifted
from rmqio.sql.planning.plan import (
    Aggregate,
    Calc,
    Constants,
    Field,
    Join,
    LookupJoin,
    Relation,
    Scan,
    Sink,
    Union,
    Windowed,
)
from rmqio.sql.planning.relations import Analytic, Expand, Over, Sorted, SubqueryJoin

ROW_ID: Final = "ROW ID"
_TEXT: Final = types.VARCHAR.nullable(False)
_FIELD: Final = Field("$id", _TEXT)
_ORIGIN: Final = Metadata(
    "$origin",
    _TEXT,
    "f'{record.topic}/{record.broker}/{record.queue_id}/{record.queue_offset}'",
    "row_id",
    "where the message is",
)
_NUMBER: Final = Field("$number", types.INTEGER)
_COLUMN: Final = Column("$id", _TEXT, _ORIGIN, is_virtual=True)
_OF_AGGREGATE: Final = {"fields", "input", "keys", "window", "calls", "ttl_ms", "origin", "is_total", "span"}


def has_own_ids(relation: Relation) -> bool:
    """Returns whether every row is made of one message: its id is that of the message, and its place there."""
    if isinstance(relation, (Calc, Expand, LookupJoin, Union, Sink)):
        return all(map(has_own_ids, relation.inputs()))
    return isinstance(relation, Scan) and relation.table.options.connector != DATABASE


def is_unique(join: LookupJoin) -> bool:
    """Returns whether a look-up finds one row at most: its keys have all columns of the PRIMARY KEY."""
    keys: list[Expr] = [InputRef(join.dimension.fields[place].type, place) for _, place in join.keys]
    relation = join.dimension
    while isinstance(relation, Calc):
        keys = [relation.projections[each.index] for each in keys if isinstance(each, InputRef)]
        relation = relation.input
    assert isinstance(relation, Scan)
    names = {relation.columns[each.index].name for each in keys if isinstance(each, InputRef)}
    return bool(relation.table.primary_key) and names.issuperset(relation.table.primary_key)


def has_variants(relation: Relation, *, is_expanded: bool = False) -> bool:
    """Returns whether ids of rows depend on what a look-up has found: how many rows come of a message can change."""
    if isinstance(relation, LookupJoin) and (is_expanded or not is_unique(relation)):
        return True
    is_expanded = is_expanded or isinstance(relation, Expand)
    return any(has_variants(each, is_expanded=is_expanded) for each in relation.inputs())


def has_groups(relation: Relation) -> bool:
    """Returns whether rows depend on more than a message each: another run can read more, or hold other constants."""
    depends = (Aggregate, Constants, Over, Analytic, SubqueryJoin, Sorted)
    return isinstance(relation, depends) or any(map(has_groups, relation.inputs()))


def with_ids(sink: Sink, salt: str, *, is_stream: bool) -> Sink | None:
    """Returns the sink with a column more, the id of each row; None: the rows have no stable ids.

    Args:
      salt: what distinguishes rows of this sink from others that come from the same.
      is_stream: a group without a window, which is updated, has no ids there.
    """
    found = _identified(sink.input, is_stream)
    if found is None:
        return None
    *refs, last = _refs(found)
    row_id = _row_id(Constant(_TEXT, salt), last)
    rows = Calc((*sink.input.fields, _FIELD), found, None, (*refs, row_id))
    return replace(sink, fields=(*sink.fields, _FIELD), input=rows, columns=(*sink.columns, _COLUMN))


def id_position(columns: tuple[Column, ...]) -> int | None:
    """Returns where the id is among the columns of a sink; None: there is none."""
    return next((at for at, each in enumerate(columns) if each is _COLUMN or each == _COLUMN), None)


def _identified(relation: Relation, is_stream: bool) -> Relation | None:
    """The relation with an id as its last column."""
    match relation:
        case Scan() if relation.table.options.connector == DATABASE:
            return None  # its rows have no order
        case Scan():
            return replace(relation, fields=(*relation.fields, _FIELD), columns=(*relation.columns, _COLUMN))
        case Calc():
            found = _identified(relation.input, is_stream)
            if found is None:
                return None
            last = InputRef(_TEXT, len(found.fields) - 1)
            return replace(
                relation,
                fields=(*relation.fields, _FIELD),
                input=found,
                projections=(*relation.projections, last),
            )
        case Expand():
            return _of_expanded(relation, is_stream)
        case Union():
            return _of_union(relation, is_stream)
        case Join() if type(relation) is Join:
            return _of_join(relation, is_stream)
        case Windowed():
            return _of_windowed(relation, is_stream)
        case Constants():
            return _of_constants(relation)
        case Over() | Analytic():
            return _of_over(relation, is_stream)
        case SubqueryJoin():
            return _of_subquery(relation, is_stream)
        case Sorted():
            found = _identified(relation.input, is_stream)
            return None if found is None else replace(relation, fields=found.fields, input=found)
        case Aggregate():
            return _of_aggregate(relation, is_stream)
    return None


def _of_expanded(expand: Expand, is_stream: bool) -> Relation | None:
    """The id of an element is that of its row, and its number there."""
    found = _identified(expand.input, is_stream)
    if found is None:
        return None
    width = len(expand.input.fields)
    own = expand.fields[width:]
    number = () if expand.shape.has_ordinality else (_NUMBER,)
    made = replace(
        expand, fields=(*found.fields, *own, *number), input=found, shape=replace(expand.shape, has_ordinality=True)
    )
    refs = _refs(made)
    row_id = _row_id(refs[width], refs[-1])
    return Calc((*expand.fields, _FIELD), made, None, (*refs[:width], *refs[width + 1 :][: len(own)], row_id))


def _of_union(union: Union, is_stream: bool) -> Relation | None:
    members = []
    for number, each in enumerate(union.members):
        found = _identified(each, is_stream)
        if found is None:
            return None
        *refs, last = _refs(found)
        row_id = _row_id(Constant(types.INTEGER.nullable(False), number), last)
        members.append(Calc((*each.fields, _FIELD), found, None, (*refs, row_id)))
    return replace(union, fields=(*union.fields, _FIELD), members=tuple(members))


def _of_join(join: Join, is_stream: bool) -> Relation | None:
    left, right = (_identified(each, is_stream) for each in (join.left, join.right))
    if left is None or right is None:
        return None
    width = len(join.left.fields)
    residual = join.residual
    if residual is not None:  # columns of the right side stand one further
        residual = _moved(residual, width)
    ids = [_FIELD if join.kind == "INNER" else _FIELD._replace(type=_TEXT.nullable())] * 2
    both = (*join.fields[:width], ids[0], *join.fields[width:], ids[1])
    pairs = replace(join, fields=both, left=left, right=right, residual=residual)
    refs = _refs(pairs)
    own = [*refs[:width], *refs[width + 1 : -1]]
    return Calc((*join.fields, _FIELD), pairs, None, (*own, _row_id(refs[width], refs[-1])))


def _of_windowed(windowed: Windowed, is_stream: bool) -> Relation | None:
    found = _identified(windowed.input, is_stream)
    if found is None:
        return None
    width = len(windowed.input.fields)
    rows = replace(windowed, fields=(*found.fields, *windowed.fields[width:]), input=found)
    refs = _refs(rows)
    own = [*refs[:width], *refs[width + 1 :]]
    return Calc((*windowed.fields, _FIELD), rows, None, (*own, _row_id(*refs[width : width + 3])))


def _of_constants(constants: Constants) -> Relation:
    """The id of a row that the statement holds is its number there."""
    rows = tuple((*each, Constant(_TEXT, str(number))) for number, each in enumerate(constants.rows))
    return replace(constants, fields=(*constants.fields, _FIELD), rows=rows)


def _of_over(over: Over | Analytic, is_stream: bool) -> Relation | None:
    """A row with results of OVER has the id that it had before."""
    found = _identified(over.input, is_stream)
    if found is None:
        return None
    width = len(over.input.fields)
    rows = replace(over, fields=(*over.fields[:width], _FIELD, *over.fields[width:]), input=found)
    refs = _refs(rows)
    return Calc((*over.fields, _FIELD), rows, None, (*refs[:width], *refs[width + 1 :], refs[width]))


def _of_subquery(join: SubqueryJoin, is_stream: bool) -> Relation | None:
    """A row of which a sub-query says something has the id that it had before."""
    found = _identified(join.left, is_stream)
    if found is None:
        return None
    width = len(join.left.fields)
    residual = None if join.residual is None else _moved(join.residual, width)
    fields = (*join.fields[:width], _FIELD, *join.fields[width:])
    rows = replace(join, fields=fields, left=found, residual=residual)
    refs = _refs(rows)
    return Calc((*join.fields, _FIELD), rows, None, (*refs[:width], *refs[width + 1 :], refs[width]))


def _moved(expression: Expr, width: int) -> Expr:
    from rmqio.sql.expressions import transform

    def moved(each: Expr) -> Expr:
        return shifted(each, 1) if isinstance(each, InputRef) and each.index >= width else each

    return transform(expression, moved)


def _of_aggregate(aggregate: Aggregate, is_stream: bool) -> Relation | None:
    more = [getattr(aggregate, each.name) for each in fields(aggregate) if each.name not in _OF_AGGREGATE]
    if any(more) or (aggregate.window is None and is_stream):
        return None  # a row that replaces an earlier one can be equal to one before that
    refs = _refs(aggregate)
    return Calc((*aggregate.fields, _FIELD), aggregate, None, (*refs, _row_id(*refs)))


def _row_id(*parts: Expr) -> Expr:
    return Operation(_TEXT, ROW_ID, parts)


def _refs(relation: Relation) -> list[InputRef]:
    return [InputRef(each.type, position) for position, each in enumerate(relation.fields)]
