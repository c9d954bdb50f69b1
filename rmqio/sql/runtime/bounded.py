"""From plans to pipelines: tables that end, and look-ups in dimension tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apache_beam as beam

from rmqio.interfaces import ClientFactory
from rmqio.options import ReadOptions
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import Step
from rmqio.sql.compile.look_ups import LookUp
from rmqio.sql.errors import Refusal, SqlError
from rmqio.sql.lookup.definition import Dimension
from rmqio.sql.lookup.shared import acquire
from rmqio.sql.planning.identity import is_unique
from rmqio.sql.planning.plan import Calc, LookupJoin, Relation, Scan, Sink
from rmqio.sql.runtime.reads.read_rows import ReadRowsFn, parts_of
from rmqio.transforms.parts import BatchConstraint, factory_of

Reach = Callable[[Table], dict[str, Any]]
"""Returns the arguments of a transform that name the cluster of a table."""
_MOST_LOOK_UPS: Final = 12
"""Look-ups of one fragment are nested loops, and Python has at most 20 nested blocks."""


class ReadRows(beam.PTransform):
    """Reads files or a table of a database, as batches of `Line`. Several files are read at the same time."""

    def __init__(self, table: Table, names: tuple[str, ...]) -> None:
        super().__init__()
        self._table, self._names = table, names

    def expand(self, begin: Any) -> Any:
        parts = begin | "Parts" >> beam.Create(parts_of(self._table))
        return parts | "Rows" >> beam.ParDo(ReadRowsFn(self._table, self._names)).with_output_types(
            BatchConstraint(Any)
        )


def look_up(join: LookupJoin, job: str, reach: Reach) -> LookUp:
    """Returns the step of a fragment that joins its rows with a dimension table. Raises `SqlError`."""
    if _nested(join) > _MOST_LOOK_UPS:
        raise SqlError(f"there are more than {_MOST_LOOK_UPS} dimension tables in one chain of joins")
    return LookUp(
        None,
        (),
        dimension=dimension_of(join.dimension, tuple(place for _, place in join.keys), job, reach),
        acquire=acquire,
        kind=join.kind,
        fields=join.input.fields,
        keys=tuple(key for key, _ in join.keys),
        residual=join.residual,
        is_unique=is_unique(join),
    )


def dimension_of(relation: Relation, keys: tuple[int, ...], job: str, reach: Reach) -> Dimension:
    """Returns what workers need to load the rows of a relation: projections and filters of a table's scan.

    Args:
      keys: the positions of the columns by which rows are looked up.
      job: the job, which loads a copy of its own.
    """
    fields = relation.fields
    steps: tuple[Step, ...] = ()
    while isinstance(relation, Calc):
        steps = (Step(relation.condition, relation.projections), *steps)
        relation = relation.input
    assert isinstance(relation, Scan)
    table = relation.table
    factory = None if table.options.connector in (FILES, DATABASE) else _factory(table, reach)
    return Dimension(table, relation.columns, steps, fields, keys, job, factory)


def _factory(table: Table, reach: Reach) -> ClientFactory:
    given = reach(table)
    factory, _ = factory_of(
        given.get("client_factory"),
        given.get("name_server"),
        None,
        ReadOptions(security=given["security"]) if given.get("security") else ReadOptions(),
        group=None,
        looks_again=False,
        writes_letters=False,
    )
    return factory


def _nested(relation: Relation) -> int:
    return isinstance(relation, LookupJoin) + max(map(_nested, relation.inputs()), default=0)


def require_written(sink: Sink, is_bounded: bool) -> None:
    """Raises `Refusal` if rows of this input cannot be written to the table."""
    table = sink.table
    if table.options.connector != FILES:
        return
    if not is_bounded:
        raise Refusal(
            f"the files of {table.name} are written when all rows have arrived, but the input does not end: "
            "add --stop latest",
            sink.span,
        )
