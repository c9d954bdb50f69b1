"""Whether a job without a checkpoint can go on from the offsets of its consumer groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqio.sql.catalog.tables import Table
from rmqio.sql.planning.plan import Calc, Constants, LookupJoin, Relation, Scan, Sink, Union, Windowed, tables_of
from rmqio.sql.planning.relations import Expand


def obstacles(sinks: Sequence[Sink]) -> list[str]:
    """Returns why a job that starts again would skip rows or write them twice; none: its groups say where it is."""
    found: dict[str, None] = {}
    for sink in sinks:
        for each in _stateful(sink.input):
            found[f"INSERT INTO {sink.table.name} keeps rows ({type(each).__name__.lower()}), which end with it"] = None
        if any(isinstance(each, Constants) for each in _all(sink.input)):
            found[f"INSERT INTO {sink.table.name} has rows of its own, which it would write again"] = None
    for table in _tables(sinks):
        options = table.options
        if options.connector != "rocketmq":
            found[f"the table {table.name} would be read from its beginning"] = None
        elif options.group is None:
            found[f"the table {table.name} has no 'consumerGroup', whose offsets say how far it was read"] = None
        elif options.start is not None and options.start.kind == "specific_offsets":
            found[f"the table {table.name} starts at given offsets"] = None
    return list(found)


def new_groups(before: Sequence[Sink], now: Sequence[Sink]) -> list[str]:
    """Returns the topics that are read with another group, whose offsets are elsewhere."""
    old = {table.options.topic: table.options.group for table in _tables(before)}
    return [
        f"the group of {table.name} was {old[table.options.topic]}, and is {table.options.group}"
        for table in _tables(now)
        if table.options.topic in old and table.options.group and old[table.options.topic] != table.options.group
    ]


def _tables(sinks: Sequence[Sink]) -> list[Table]:
    return list({id(each): each for sink in sinks for each in tables_of(sink)}.values())


def _all(relation: Relation) -> Iterator[Relation]:
    yield relation
    for each in relation.inputs():
        yield from _all(each)


def _stateful(relation: Relation) -> Iterator[Relation]:
    """The relations that keep rows. A dimension table is loaded again."""
    stateless = (Calc, Constants, Expand, LookupJoin, Scan, Union, Windowed)
    return (each for each in _all(relation) if not isinstance(each, stateless))
